"""What servers of the Chat wire refuse about the messages: their form, and the pairing of calls and results.

Pure; raises `Refusal` in OpenAI's words, or in the vendor's own where those are known. What is asked of reasoning is
in `reasoning_rules`.
"""

import base64
import binascii
import json
import re
from typing import Any, NoReturn

from agents.providers.models import facts_of
from tests.emulators.models.chat.habits import Habits
from tests.emulators.models.chat.refusing import (
    mistyped,
    need_list,
    need_object,
    need_text,
    only,
    refuse,
    too_long,
    unsupported_value,
)
from tests.emulators.models.chat.tool_rules import check_name

_ROLES = ["system", "assistant", "user", "function", "tool", "developer"]
_MEMBERS = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal", "audio"}),
}
_REASONING = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
_PARTS = {
    "user": ("text", "image_url"),
    "assistant": ("text", "refusal"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
}
_IMAGE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def check_messages(messages: object, habits: Habits, model: str) -> None:
    for number, message in enumerate(need_list(messages, "messages")):
        path = f"messages[{number}]"
        need_object(message, path)
        role = need_text(message, "role", path)
        if role not in _MEMBERS:
            unsupported_value(f"{path}.role", role, _ROLES)
        if habits.closed:
            only(message, _MEMBERS[role] | _REASONING, path)
        _check_content(message, role, path, habits, sees=not facts_of(model).known or facts_of(model).vision)
        if "name" in message and not re.fullmatch(r"[^\s<|\\/>]{1,64}", need_text(message, "name", path)):
            pattern = r"Expected a string that matches the pattern '^[^\s<|\\/>]+$'."
            refuse(f"Invalid '{path}.name': string does not match pattern. {pattern}", "invalid_value", f"{path}.name")
        if habits.system_first and role == "system" and number:
            refuse("System message must be at the beginning.")
        if role == "assistant" and "tool_calls" in message:
            _check_calls(message, path, habits)
    assert isinstance(messages, list)
    _check_pairs(messages, habits)


def _check_content(message: dict[str, Any], role: str, path: str, habits: Habits, *, sees: bool) -> None:
    content = message.get("content")
    where = f"{path}.content"
    if content is None:
        if role != "assistant" or not (message.keys() & {"tool_calls", "refusal", "audio", "function_call"}):
            refuse("Invalid value for 'content': expected a string, got null.", None, where)
        return
    if isinstance(content, str):
        if not content and not (role == "assistant" and "tool_calls" in message):
            refuse(f"Invalid request: message at position {path[9:-1]} with role '{role}' must not be empty")
        if role == "tool" and habits.json_results and not _is_json(content):
            refuse(f"Invalid '{where}': the result of a tool is JSON text.")
        return
    if not isinstance(content, list):
        mistyped(where, "one of a string or array of objects", content)
    for place, part in enumerate(need_list(content, where)):
        _check_part(part, role, f"{where}[{place}]", sees=sees)


def _check_part(part: Any, role: str, path: str, *, sees: bool) -> None:
    kind = need_text(need_object(part, path), "type", path)
    if kind not in _PARTS[role]:
        unsupported_value(f"{path}.type", kind, list(_PARTS[role]))
    if kind == "image_url":
        only(part, frozenset({"type", "image_url"}), path)
        if not sees:
            refuse(f"Invalid '{path}': unknown variant `image_url`, expected `text`")
        _check_image(need_object(part.get("image_url"), f"{path}.image_url"), f"{path}.image_url")
        return
    only(part, frozenset({"type", kind, "cache_control"}), path)
    if not need_text(part, kind, path):
        refuse(f"Invalid '{path}.{kind}': empty string.", "empty_string", path)


def _check_image(image: dict[str, Any], path: str) -> None:
    only(image, frozenset({"url", "detail"}), path)
    url = need_text(image, "url", path)
    if url.startswith(("https://", "http://")):
        return
    form = re.fullmatch(r"data:([a-z/]+);base64,(.*)", url, re.DOTALL)
    if form is None or form[1] not in _IMAGE_HEADS:
        refuse(
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp'].",
            "invalid_image_format",
        )
    try:
        data = base64.b64decode(form[2], validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data.startswith(_IMAGE_HEADS[form[1]]):
        refuse("The image data you provided does not represent a valid image.", "invalid_image", path)


def _check_calls(message: dict[str, Any], path: str, habits: Habits) -> None:
    ids: set[str] = set()
    for place, call in enumerate(need_list(message["tool_calls"], f"{path}.tool_calls")):
        where = f"{path}.tool_calls[{place}]"
        need_object(call, where)
        call_id = need_text(call, "id", where)
        if not call_id or call_id in ids:
            refuse(f"Duplicate value for 'tool_call_id' of '{call_id}' in {path}.")
        ids.add(call_id)
        if habits.id_chars_max is not None and len(call_id) > habits.id_chars_max:
            too_long(f"{where}.id", habits.id_chars_max, len(call_id))
        if need_text(call, "type", where) != "function":
            unsupported_value(f"{where}.type", call["type"], ["function", "custom"])
        function = need_object(call.get("function"), f"{where}.function")
        only(call, frozenset({"id", "type", "function"}), where)
        only(function, frozenset({"name", "arguments"}), f"{where}.function")
        check_name(need_text(function, "name", f"{where}.function"), f"{where}.function.name")
        arguments = need_text(function, "arguments", f"{where}.function")
        if habits.json_arguments and not _is_json(arguments):
            refuse(habits.json_arguments, "invalid_parameter_error")


def _check_pairs(messages: list[dict[str, Any]], habits: Habits) -> None:
    """The results of one answer follow it at once, each once, and nothing else is answered."""
    waiting: list[str] | None = None
    asked = 0
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            _check_answer(need_text(message, "tool_call_id", f"messages[{number}]"), waiting, number, habits)
            assert waiting is not None
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            _refuse_unanswered(waiting, asked, habits)
        waiting = [call["id"] for call in message.get("tool_calls", [])] if "tool_calls" in message else None
        asked = number
    if waiting:
        _refuse_unanswered(waiting, asked, habits)


def _check_answer(call_id: str, waiting: list[str] | None, number: int, habits: Habits) -> None:
    if waiting is not None and call_id in waiting:
        return
    if habits.name == "moonshot":
        refuse("Invalid request: tool_call_id  is not found")
    param = f"messages[{number}].role"
    if waiting is None:
        told = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        refuse(f"Invalid parameter: {told}", None, param)
    told = f"'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
    refuse(f"Invalid parameter: {told}", None, f"messages[{number}].tool_call_id")


def _refuse_unanswered(ids: list[str], number: int, habits: Habits) -> NoReturn:
    told = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    if habits.name in ("deepseek", "deepseek-r1"):
        refuse(f"{told} (insufficient tool messages following tool_calls message)")
    missing = f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    refuse(f"{told} {missing}", None, f"messages[{number}].role")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""What Mistral refuses about the messages: who speaks when, and the pairing of calls and results.

These are the rules of today's models, which take a user behind results and calls beside content. Pure; raises
`Refusal` with the service's status, type and wording. Single chunks are judged in `chunk_rules`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agents.providers.mistral.request import fits
from tests.emulators.models.mistral.chunk_rules import Place, check_content, closed, invalid, refuse, text_at

_MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "prefix"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
_AFTER = {
    "system": {"system", "user", "assistant"},
    "user": {"user", "assistant", "system"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool", "user"},
}
ORDER = {"type_": "invalid_request_message_order", "code": "3230"}
_CALL = {"type_": "invalid_function_call", "code": "3280"}


def check_messages(messages: object, *, vision: bool) -> None:
    """All of the rules for `messages`. Raises `Refusal`."""
    if messages is None:
        invalid(("messages",), "missing", "Field required")
    if not isinstance(messages, list):
        invalid(("messages",), "list_type", "Input should be a valid list")
    if not messages:
        refuse("Conversation must have at least one message", **ORDER)
    for number, message in enumerate(messages):
        _check_shape(message, ("messages", number))
    _check_order(messages)
    _check_pairs(messages)
    for number, message in enumerate(messages):
        _check_message(message, number, vision=vision, last=number == len(messages) - 1)


def _check_shape(message: Any, place: Place) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _MEMBERS:
        tags = ", ".join(f"'{name}'" for name in _MEMBERS)
        words = f"Input tag '{role}' found using 'role' does not match any of the expected tags: {tags}"
        invalid(place, "union_tag_invalid", words)
    closed(message, _MEMBERS[role], (*place, role))
    if role == "assistant":
        _check_calls_shape(message.get("tool_calls"), (*place, role, "tool_calls"))


def _check_calls_shape(calls: Any, place: Place) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        invalid(place, "list_type", "Input should be a valid list")
    if not calls:
        invalid(place, "too_short", "List should have at least 1 item after validation, not 0")
    for number, call in enumerate(calls):
        here = (*place, number)
        closed(call, {"id", "type", "function", "index"}, here)
        if call.get("type", "function") != "function":
            invalid((*here, "type"), "literal_error", "Input should be 'function'")
        if not isinstance(call.get("index", 0), int):
            invalid((*here, "index"), "int_type", "Input should be a valid integer")
        closed(call.get("function"), {"name", "arguments"}, (*here, "function"))
        text_at(call["function"], "name", (*here, "function"))
        if not isinstance(call["function"].get("arguments"), str | dict):
            invalid((*here, "function", "arguments"), "string_type", "Input should be a valid string")


def _check_order(messages: Sequence[dict[str, Any]]) -> None:
    if messages[0]["role"] not in ("system", "user"):
        refuse("Conversation must start with a user message or system message", **ORDER)
    for before, message in pairwise(messages):
        if message["role"] not in _AFTER[before["role"]]:
            refuse(f"Unexpected role '{message['role']}' after role '{before['role']}'", **ORDER)
    last = messages[-1]
    if last["role"] == "system" or (last["role"] == "assistant" and last.get("prefix") is not True):
        words = "Expected last role User or Tool (or Assistant with prefix True) for serving but got"
        refuse(f"{words} {last['role']}", **ORDER)


def _check_pairs(messages: Sequence[dict[str, Any]]) -> None:
    """Each call is answered once, before anybody else speaks."""
    waiting: list[str] = []
    answered: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            _check_answer(message, waiting, answered)
            continue
        if len(waiting) != len(answered):
            refuse("Not the same number of function calls and responses", **ORDER)
        waiting, answered = [], []
        for call in message.get("tool_calls") or []:
            call_id = str(call.get("id", "null"))
            _check_id(call_id)
            if call_id in waiting:
                refuse(f"Duplicate tool call id {call_id} in assistant message", **ORDER)
            waiting.append(call_id)
    if len(waiting) != len(answered):
        refuse("Not the same number of function calls and responses", **ORDER)


def _check_answer(message: dict[str, Any], waiting: Sequence[str], answered: list[str]) -> None:
    call_id = message.get("tool_call_id")
    if call_id is None:
        refuse("Tool call id has to be defined.")
    _check_id(str(call_id))
    if call_id in answered:
        refuse(f"Duplicate tool call id {call_id} in tool results", **ORDER)
    if call_id not in waiting:
        refuse(f"Unexpected tool call id {call_id} in tool results", **ORDER)
    answered.append(str(call_id))


def _check_id(call_id: str) -> None:
    if call_id == "null":
        refuse("Tool call id has to be defined in serving mode.", **_CALL)
    if not fits(call_id):
        refuse(f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9.", **_CALL)


def _check_message(message: dict[str, Any], number: int, *, vision: bool, last: bool) -> None:
    role = message["role"]
    place = ("messages", number, role, "content")
    if role == "assistant":
        _check_assistant(message, last=last)
        if message.get("content") in (None, "", []):
            return
    elif "content" not in message:
        invalid(place, "missing", "Field required")
    check_content(message["content"], role, place, vision=vision)
    if role == "tool" and message.get("name") is not None:
        check_name(text_at(message, "name", ("messages", number, role)))


def _check_assistant(message: dict[str, Any], *, last: bool) -> None:
    calls = message.get("tool_calls") or []
    if not message.get("content") and not calls:
        words = "Assistant message must have either content or tool_calls."
        refuse(words, type_="invalid_assistant_message", code="3240")
    for call in calls:
        check_name(call["function"]["name"])
    if message.get("prefix") and not last:
        words = "Assistant message with prefix True must be last message"
        refuse(words, type_="invalid_assistant_message", code="3240")


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        allowed = "must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
        refuse(f"Function name was {name} but {allowed}", **_CALL)

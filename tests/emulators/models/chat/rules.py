"""What servers of the Chat wire refuse, as pure functions.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type and, where it
decides something, code and words. What an object may hold is in `shapes`, how the servers differ in `habits`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from agents.providers.models import facts_of
from tests.emulators.models import openai
from tests.emulators.models.chat.habits import HABITS, Habits
from tests.emulators.models.chat.shapes import Request, signature_of
from tests.emulators.models.dialogue import Dialogue
from tests.emulators.models.openai import refuse
from tests.emulators.models.shapes import root_fault

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_REASONING = re.compile(r"gpt-[56].*|o\d.*")
_UNARMED = re.compile(r"gpt-5\.[4-9].*|gpt-6.*")
"""Models that take no tools on this wire while they reason."""
_REASONING_MEMBERS = ("reasoning_content", "reasoning", "reasoning_details")
_DESCRIPTION_CHARS_MAX = 1024

parse_body = openai.parse_body


def check_headers(headers: Mapping[str, str], habits: Habits, api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = openai.bearer(headers)
    if habits.name == "azure":
        key = headers.get("api-key", key)
    if not key and not habits.keyless:
        refuse("You didn't provide an API key.", status=401)
    openai.check_key(key, headers, api_key)


def check_body(body: dict[str, Any], vendor: str) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    habits = HABITS[vendor]
    openai.check_shape(Request, body, closed=habits.closed)
    model = body["model"]
    if "stream_options" in body and not body.get("stream"):
        refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    _check_limit(body, model, habits)
    _check_switch(body, model)
    if habits.closed:
        _check_effort(body, model)
        _check_sampling(body, model)
    thinks = _thinks(body, habits)
    _check_tools(body, habits)
    _check_choice(body, habits, thinks=thinks)
    dialogue = Dialogue(refuse)
    sees = facts_of(model).vision or not facts_of(model).known
    for number, message in enumerate(body["messages"]):
        _check_message(message, dialogue, habits, sees=sees)
        _check_reasoning(message, number, habits, thinks=thinks)
        if habits.system_first and message["role"] == "system" and number:
            refuse("System message must be at the beginning.")
    dialogue.close()


def _check_limit(body: dict[str, Any], model: str, habits: Habits) -> None:
    facts = facts_of(model)
    for name in ("max_tokens", "max_completion_tokens"):
        if facts.known and body.get(name, 0) > facts.max_output:
            refuse(f"{name} is too large: this model supports at most {facts.max_output}", "invalid_value", name)
    if habits.closed and "max_tokens" in body and _REASONING.fullmatch(model):
        _unsupported("max_tokens")


def _unsupported(name: str) -> None:
    refuse(f"Unsupported parameter: '{name}' is not supported with this model.", "unsupported_parameter", name)


def _check_switch(body: dict[str, Any], model: str) -> None:
    if "thinking" not in body:
        return
    switch = body["thinking"].get("type") if isinstance(body["thinking"], dict) else None
    if switch not in ("enabled", "disabled"):
        refuse("thinking.type is 'enabled' or 'disabled'", "invalid_value", "thinking.type")
    if switch == "disabled" and facts_of(model).known and "off" not in facts_of(model).thinking:
        refuse(f"{model} does not support thinking.type disabled")


def _check_effort(body: dict[str, Any], model: str) -> None:
    """OpenAI's own rules."""
    effort, facts = body.get("reasoning_effort"), facts_of(model)
    if effort is not None and not _REASONING.fullmatch(model):
        _unsupported("reasoning_effort")
    offless = effort == "none" and facts.known and "off" not in facts.thinking
    if effort is not None and (effort not in _EFFORTS or offless):
        refuse(f"'reasoning_effort' does not support '{effort}' with this model.", "unsupported_value")
    if "tools" in body and effort != "none" and _UNARMED.fullmatch(model):
        refuse("To use function tools, use /v1/responses or set reasoning_effort to 'none'.", None, "reasoning_effort")


def _check_sampling(body: dict[str, Any], model: str) -> None:
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop"):
        if name in body and (name == "stop" or body.get("reasoning_effort") != "none") and _REASONING.fullmatch(model):
            _unsupported(name)


def _thinks(body: dict[str, Any], habits: Habits) -> bool:
    """On, unless it is switched off."""
    off = body.get("thinking", {}).get("type") == "disabled" or body.get("enable_thinking") is False
    return not off and bool(habits.forced or habits.reasoning == "absent")


def _check_tools(body: dict[str, Any], habits: Habits) -> None:
    for tool in body.get("tools", ()):
        function = tool["function"]
        if habits.closed and len(function.get("description", "")) > _DESCRIPTION_CHARS_MAX:
            refuse("The description of a function is too long.", "string_above_max_length", "tools")
        schema = function.get("parameters", {"type": "object"})
        if fault := root_fault(schema, refs=habits.refs):
            words = f"Invalid schema for function '{function['name']}': {fault}"
            refuse(words, "invalid_function_parameters", "tools")


def _check_choice(body: dict[str, Any], habits: Habits, *, thinks: bool) -> None:
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and "tools" not in body:
            refuse(f"'{name}' is only allowed when 'tools' are specified.", None, name)
    if "tool_choice" not in body or habits.mute:
        return
    choice = body["tool_choice"]
    form = choice if isinstance(choice, str) else "named"
    names = [tool["function"]["name"] for tool in body["tools"]]
    if form == "named" and choice["function"]["name"] not in names:
        refuse("tool_choice: no such function was specified in 'tools'.")
    if thinks and habits.forced and form in ("required", "named"):
        refuse(habits.forced)
    if form not in habits.choices:
        refuse(f"{habits.name} does not support this tool_choice", "invalid_parameter_error", "tool_choice")


def _check_message(message: dict[str, Any], dialogue: Dialogue, habits: Habits, *, sees: bool) -> None:
    """The results of one answer follow it at once, each once, and nothing else is answered."""
    content, calls = message.get("content"), message.get("tool_calls", ())
    if any(part["type"] == "image_url" for part in content or () if isinstance(part, dict)) and not sees:
        refuse("unknown variant `image_url`, expected `text`")
    if message["role"] == "tool":
        dialogue.result(message["tool_call_id"])
        if habits.json_results and isinstance(content, str) and not _is_json(content):
            refuse("The result of a tool is JSON text.")
        return
    dialogue.close()
    if message["role"] == "assistant":
        others = ("refusal", "audio", "function_call")
        if not content and not calls and not (content is None and any(name in message for name in others)):
            refuse("Invalid value for 'content': expected a string, got null or nothing.")
    for call in calls:
        dialogue.call(call["id"])
        if habits.id_chars_max is not None and len(call["id"]) > habits.id_chars_max:
            refuse("The id of a call is too long.", "string_above_max_length")
        if habits.json_arguments and not _is_json(call["function"]["arguments"]):
            refuse(habits.json_arguments, "invalid_parameter_error")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _check_reasoning(message: dict[str, Any], number: int, habits: Habits, *, thinks: bool) -> None:
    """Only OpenRouter's list is signed; the plain fields of the others are free text that nobody can check."""
    present = next((name for name in _REASONING_MEMBERS if name in message), None)
    calls, text = thinks and "tool_calls" in message, message.get("reasoning_content")
    if present and (message["role"] != "assistant" or habits.reasoning == "unknown"):
        refuse(f"Unknown parameter: 'messages[{number}].{present}'.", "unknown_parameter")
    match habits.reasoning:
        case "absent" if present:
            refuse("The reasoning_content of earlier messages must be removed from the input messages.")
        case "calls" if calls and not isinstance(text, str):
            refuse("The reasoning_content in the thinking mode must be passed back to the API.")
        case "filled" if calls and not (isinstance(text, str) and text):
            refuse("thinking is enabled but reasoning_content is missing in assistant tool call message")
        case "details" if "reasoning_details" in message:
            details = message["reasoning_details"]
            if not isinstance(details, list) or not details or not all(map(_is_signed, details)):
                refuse("Invalid `signature` in `thinking` block")
        case _:
            pass


def _is_signed(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("signature") == signature_of(entry)

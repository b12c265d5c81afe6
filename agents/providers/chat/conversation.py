"""The messages of a Chat body: who said what, in the order and the form that the wire takes.

A call and its result get the same id; the results of one answer follow it at once, and what only a person may send
(pictures) follows the results. No two messages of a person stand side by side, for strict templates refuse that.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from agents.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, UserMessage
from agents.providers.chat.thinking import replayed
from agents.providers.chat.vendor import Vendor
from agents.providers.provider import ModelRequest, System
from agents.providers.wellformed import well_formed
from agents.providers.wire_ids import wire_id, wire_name
from tools.tool import Image

Object: TypeAlias = dict[str, Any]

_SHOWN_BELOW = "(the picture follows in the next user message)"
_FROM_TOOLS = "Pictures from the tool results above:"
_SILENT_FAILURE = "the tool failed and gave no reason"


def conversation(request: ModelRequest, vendor: Vendor) -> list[Object]:
    """`messages`, with the system prompt as the first."""
    wire: list[Object] = []
    if system := _system(request.system):
        wire.append({"role": "system", "content": system})
    pictures: list[Image] = []
    for message in request.messages:
        match message:
            case ToolResultMessage():
                wire.append(_result(message, vendor))
                pictures.extend(_images(message))
                continue
            case UserMessage():
                parts = [_user_part(part) for part in _with_metadata(message)]
                _append_user(wire, [*_from_tools(pictures), *parts])
            case AssistantMessage():
                _append_user(wire, _from_tools(pictures))
                wire.extend(_assistant(message, vendor))
        pictures = []
    _append_user(wire, _from_tools(pictures))
    return wire


def _system(system: System) -> str:
    halves = (system.stable, system.volatile)
    return "\n\n".join(well_formed(half) for half in halves if half.strip())


def _with_metadata(message: UserMessage) -> list[Text | Image]:
    """The inbound metadata stands before the first text, in the same text."""
    parts = [part for part in message.content if isinstance(part, Image) or part.text.strip()]
    if not message.metadata.strip():
        return parts
    first = next((n for n, part in enumerate(parts) if isinstance(part, Text)), None)
    if first is None:
        return [Text(text=message.metadata), *parts]
    first_text = parts[first]
    assert isinstance(first_text, Text)
    return [*parts[:first], Text(text=f"{message.metadata}\n\n{first_text.text}"), *parts[first + 1 :]]


def _user_part(part: Text | Image) -> Object:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
    return {"type": "text", "text": well_formed(part.text)}


def _from_tools(pictures: Sequence[Image]) -> list[Object]:
    return [{"type": "text", "text": _FROM_TOOLS}, *map(_user_part, pictures)] if pictures else []


def _append_user(wire: list[Object], parts: Sequence[Object]) -> None:
    """As one message with that of a person before it."""
    if not parts:
        return
    before = wire.pop()["content"] if wire and wire[-1]["role"] == "user" else []
    whole = [*([{"type": "text", "text": before}] if isinstance(before, str) else before), *parts]
    plain = all(part["type"] == "text" for part in whole)
    wire.append({"role": "user", "content": "\n\n".join(part["text"] for part in whole) if plain else whole})


def _assistant(message: AssistantMessage, vendor: Vendor) -> list[Object]:
    """One message, or none where it says nothing that this wire has a place for."""
    texts = [well_formed(part.text) for part in message.content if isinstance(part, Text) and part.text.strip()]
    calls = [_call(call, vendor) for call in message.calls]
    if not texts and not calls:
        return []
    wire_message: Object = {"role": "assistant", "content": "\n\n".join(texts) if texts else vendor.call_content}
    if calls:
        wire_message["tool_calls"] = calls
    return [wire_message | replayed(message, vendor)]


def _call(call: ToolCall, vendor: Vendor) -> Object:
    function = {"name": wire_name(call.name), "arguments": _arguments(call, vendor)}
    return {"id": _id(call.id, vendor), "type": "function", "function": function}


def _arguments(call: ToolCall, vendor: Vendor) -> str:
    """The model's own string, byte for byte, wherever it may be sent."""
    if call.arguments is None and vendor.json_arguments:
        return "{}"
    if call.arguments_raw.strip():
        return well_formed(call.arguments_raw)
    return json.dumps(call.arguments or {}, ensure_ascii=False)


def _id(call_id: str, vendor: Vendor) -> str:
    return call_id if re.fullmatch(vendor.ids, call_id) else wire_id(call_id, chars_max=0)


def _result(message: ToolResultMessage, vendor: Vendor) -> Object:
    """Text only. The wire has no flag for a failure, so the text says it."""
    texts = [well_formed(part.text) for part in message.content if isinstance(part, Text) and part.text.strip()]
    if _images(message):
        texts.append(_SHOWN_BELOW)
    text = "\n\n".join(texts)
    content = _as_json(text, failed=message.is_error) if vendor.json_results else _plain(text, failed=message.is_error)
    return {"role": "tool", "tool_call_id": _id(message.call_id, vendor), "content": content}


def _plain(text: str, *, failed: bool) -> str:
    if failed and _object(text).get("ok") is not False:
        return f"Error: {text or _SILENT_FAILURE}"
    return text or "(no output)"


def _as_json(text: str, *, failed: bool) -> str:
    result = _object(text)
    if result and (not failed or result.get("ok") is False or "error" in result):
        return text
    return json.dumps({"error": text or _SILENT_FAILURE} if failed else {"output": text}, ensure_ascii=False)


def _object(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def _images(message: ToolResultMessage) -> list[Image]:
    return [part for part in message.content if isinstance(part, Image)]

"""Our request as a body of Chat Completions, as one vendor takes it. Pure; the history is repaired already.

What differs from vendor to vendor is asked of its record. Text is sent as a string, never as a list with one part:
servers of text-only models refuse lists.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import structlog

from agents.messages import AssistantMessage, Message, ToolCall, ToolResultMessage, UserMessage, UserPart, texts
from agents.providers import request as shared
from agents.providers.chat.thinking import may_think, replayed, thinking_members
from agents.providers.chat.vendors import Vendor, for_model
from agents.providers.payload import json_object
from agents.providers.provider import ModelRequest, OneTool
from tools.tool import Image, ToolSpec

Object: TypeAlias = dict[str, Any]

log = structlog.get_logger()


def wire_request(request: ModelRequest, vendor: Vendor) -> Object:
    """The body of `POST /chat/completions`."""
    vendor, request = for_model(vendor, request.model), shared.with_lost_tools(request)
    body: Object = {"model": request.model, "messages": conversation(request, vendor), "stream": True}
    if vendor.stream_options:
        body["stream_options"] = {"include_usage": True}
    body[vendor.limit_field] = shared.output_tokens(request)
    if vendor.prompt_cache_key and request.conversation:
        body["prompt_cache_key"] = shared.cache_key(request)
    body |= _tool_members(request, vendor)
    return body | thinking_members(request, vendor, armed="tools" in body)


def _tool_members(request: ModelRequest, vendor: Vendor) -> Object:
    """`tools` and `tool_choice`. `auto`, the default if there are tools, is said only if the vendor wants to hear it."""
    if not request.tools:
        return {}
    choice = _choice(request, vendor)
    if choice == "none" and "none" not in vendor.choices and not shared.called_names(request):
        log.info("tools_left_out", model=request.model, reason=f"{vendor.name} has no tool_choice none")
        return {}
    members: Object = {"tools": [_tool(tool, vendor) for tool in request.tools]}
    if isinstance(choice, OneTool):
        members["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif vendor.always_choice if choice == "auto" else choice in vendor.choices:
        members["tool_choice"] = choice
    return members


def _choice(request: ModelRequest, vendor: Vendor) -> str | OneTool:
    refused = ""
    if not vendor.forced_while_thinking and may_think(request):
        refused = f"{vendor.name} forces no tool while the model thinks"
    return shared.sent_choice(
        request,
        required=refused or ("" if "required" in vendor.choices else f"{vendor.name} has no tool_choice required"),
        named=refused or ("" if "named" in vendor.choices else f"{vendor.name} names no tool in tool_choice"),
    )


def _tool(tool: ToolSpec, vendor: Vendor) -> Object:
    """A server of the Clawdbot kind silently drops a tool whose schema leaves `properties` or `required` out."""
    text, chars_max, schema = shared.description_of(tool), vendor.description_chars_max, tool.input_schema
    text = text if chars_max is None or len(text) <= chars_max else text[: chars_max - 1] + "…"
    parameters = {**schema, "type": "object", "properties": schema.get("properties") or {}}
    parameters["required"] = schema.get("required") or []
    return {"type": "function", "function": {"name": tool.name, "description": text, "parameters": parameters}}


def conversation(request: ModelRequest, vendor: Vendor) -> list[Any]:
    """`messages`, with the system prompt as the first."""
    halves = shared.system_texts(request.system)
    system = [{"role": "system", "content": "\n\n".join(halves)}] if halves else []
    convert = partial(_messages, vendor=vendor)
    written = shared.written(request.settled, convert, "chat", vendor.name)
    return [*system, *written, *convert(request.unsettled)]


def _messages(messages: Sequence[Message], vendor: Vendor) -> list[Object]:
    wire: list[Object] = []
    for message in shared.with_pictures_behind(messages):
        match message:
            case ToolResultMessage():
                content = _json_result(message) if vendor.json_results else shared.result_text(message)
                id_ = shared.wire_id(message.call_id, pattern=vendor.ids)
                wire.append({"role": "tool", "tool_call_id": id_, "content": content})
            case UserMessage():
                _append_user(wire, [_user_part(part) for part in message.sent_parts])
            case AssistantMessage():
                wire.extend(_assistant(message, vendor))
    return wire


def _user_part(part: UserPart) -> Object:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": shared.data_url(part)}}
    return {"type": "text", "text": part.text}


def _append_user(wire: list[Object], parts: Sequence[Object]) -> None:
    """Adds the parts, as one message with that of a person before it."""
    before = wire.pop()["content"] if wire and wire[-1]["role"] == "user" else []
    whole = [*([{"type": "text", "text": before}] if isinstance(before, str) else before), *parts]
    plain = all(part["type"] == "text" for part in whole)
    wire.append({"role": "user", "content": "\n\n".join(part["text"] for part in whole) if plain else whole})


def _assistant(message: AssistantMessage, vendor: Vendor) -> list[Object]:
    """One message, or none if it says nothing that this wire has a place for."""
    spoken, calls = texts(message), [_call(call, vendor) for call in message.calls]
    if not spoken and not calls:
        return []
    wire_message: Object = {"role": "assistant", "content": "\n\n".join(spoken) if spoken else vendor.call_content}
    if calls:
        wire_message["tool_calls"] = calls
    return [wire_message | replayed(message, vendor)]


def _call(call: ToolCall, vendor: Vendor) -> Object:
    function = {"name": shared.wire_name(call.name), "arguments": _arguments(call, vendor)}
    return {"id": shared.wire_id(call.id, pattern=vendor.ids), "type": "function", "function": function}


def _arguments(call: ToolCall, vendor: Vendor) -> str:
    """The model's own string, byte for byte, wherever it may be sent."""
    if call.arguments is None and vendor.json_arguments:
        return "{}"
    if call.arguments_raw.strip():
        return call.arguments_raw
    return json.dumps(call.arguments or {}, ensure_ascii=False)


def _json_result(message: ToolResultMessage) -> str:
    text, failed = "\n".join(texts(message)), message.is_error
    result = json_object(text)
    if result and (not failed or result.get("ok") is False or "error" in result):
        return text
    return json.dumps({"error": text or shared.SILENT_FAILURE} if failed else {"output": text}, ensure_ascii=False)

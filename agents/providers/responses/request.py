"""Our request as OpenAI's Responses body. Pure: nothing is sent here, and the history is taken as repaired.

Stateless: nothing is stored over there, so every item is sent again, and reasoning comes back to us encrypted. A
message becomes several items in order; items' own ids, which only a stored response needs, are not sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
    texts,
)
from agents.providers import request as shared
from agents.providers.provider import ModelRequest, OneTool
from tools.tool import Image, ToolSpec

API = "openai-responses"
OUTPUT_TOKENS_MIN = 16
"""OpenAI's own minimum."""

Item: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST /v1/responses`, without `stream`."""
    request = shared.with_lost_tools(request)
    body: dict[str, Any] = {
        "model": request.model,
        "input": [*shared.written(request.settled, _input, API), *_input(request.unsettled)],
        "store": False,
        "max_output_tokens": max(OUTPUT_TOKENS_MIN, shared.output_tokens(request)),
    }
    if instructions := shared.system_texts(request.system):
        body["instructions"] = "\n\n".join(instructions)
    if request.conversation:
        body["prompt_cache_key"] = shared.cache_key(request)
    return body | _tool_members(request) | _reasoning_members(request)


def _reasoning_members(request: ModelRequest) -> dict[str, Any]:
    """A model that does not reason refuses both members."""
    if not request.facts.thinking:
        return {}
    members: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
    if request.thinking is not None:
        effort = "none" if request.thinking == "off" else request.thinking
        members["reasoning"] = {"effort": effort, "summary": "auto"}
    return members


def _tool_members(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    members: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    match shared.sent_choice(request):
        case "auto":
            pass  # the server's default
        case OneTool(name=name):
            members["tool_choice"] = {"type": "function", "name": name}
        case choice:
            members["tool_choice"] = choice
    return members


def _tool(tool: ToolSpec) -> dict[str, Any]:
    """`strict` is always said: left out, the server tries to make the schema strict in its own way."""
    strict = strict_schema(tool.input_schema)
    return {
        "type": "function",
        "name": tool.name,
        "description": shared.description_of(tool),
        "parameters": {"properties": {}, **tool.input_schema} if strict is None else strict,
        "strict": strict is not None,
    }


_SAYABLE = frozenset({"type", "description", "enum", "items", "minimum", "maximum"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form of a tool's schema that constrained decoding takes: every member is required there, so an optional one
    may be null, which the toolbox drops. None if a member says more than the decoder knows, such as a length, or where
    the schema is not of our tools' form, closed and with flat members: nothing is dropped to make it fit."""
    members: Mapping[str, Any] = schema.get("properties", {})
    is_flat = all(_is_flat(it) and ("items" not in it or _is_flat(it["items"])) for it in members.values())
    if not is_flat or schema.get("additionalProperties") is not False or "$defs" in schema:
        return None
    required = schema.get("required", ())
    derived = {name: member if name in required else _or_null(member) for name, member in members.items()}
    return {**schema, "properties": derived, "required": list(derived)}


def _is_flat(member: Mapping[str, Any]) -> bool:
    return member.keys() <= _SAYABLE and member.get("type") in ("string", "number", "integer", "boolean", "array")


def _or_null(member: Mapping[str, Any]) -> dict[str, Any]:
    enum = {"enum": [*member["enum"], None]} if "enum" in member else {}
    return {**member, "type": [member["type"], "null"], **enum}


def _input(messages: Sequence[Message]) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        match message:
            case UserMessage():
                items.append({"role": "user", "content": _input_parts(message.sent_parts)})
            case AssistantMessage():
                items.extend(_assistant_items(message))
            case ToolResultMessage():
                items.append(_result_item(message))
    return items


def _input_parts(parts: Sequence[UserPart]) -> list[Item]:
    return [
        {"type": "input_image", "detail": "auto", "image_url": shared.data_url(part)}
        if isinstance(part, Image)
        else {"type": "input_text", "text": part.text}
        for part in parts
    ]


def _assistant_items(message: AssistantMessage) -> Iterator[Item]:
    """Reasoning goes back directly before the item it led to; what led to nothing is refused, so it is left out."""
    reasoning: list[Item] = []
    for part in message.content:
        match part:
            case Thinking(wire=wire):
                if wire is not None and wire.api == API:
                    reasoning.append(dict(wire.data))
            case Opaque():
                reasoning.clear()
            case Text() if not part.text.strip():
                reasoning.clear()
            case Text() | ToolCall():
                yield from reasoning
                reasoning.clear()
                yield _text_item(part) if isinstance(part, Text) else _call_item(part, own=message.api == API)


def _text_item(part: Text) -> Item:
    content = [{"type": "output_text", "text": part.text}]
    item: Item = {"type": "message", "role": "assistant", "content": content}
    if part.wire is not None and part.wire.api == API:
        item |= part.wire.data
    return item


def _call_item(call: ToolCall, *, own: bool) -> Item:
    """The arguments go back as they came, byte for byte; of another wire's, nothing at all means no arguments."""
    return {
        "type": "function_call",
        "call_id": shared.wire_id(call.id),
        "name": shared.wire_name(call.name),
        "arguments": call.arguments_raw if own or call.arguments_raw.strip() else "{}",
    }


def _result_item(message: ToolResultMessage) -> Item:
    text = shared.result_text(message)
    images = [part for part in message.content if isinstance(part, Image)]
    spoken = [Text(text=text)] if message.is_error or texts(message) else []
    output: str | list[Item] = _input_parts([*spoken, *images]) if images else text
    return {"type": "function_call_output", "call_id": shared.wire_id(message.call_id), "output": output}

"""Our request as the body of Mistral's chat completions. Pure: nothing is sent here, the history is taken as repaired.

Neighbours of one role become one message, also what repair left apart, because models differ in what they take. A user's
message may follow results directly, if a turn was broken off or a tool returned a picture: today's models accept
it, and to put invented words of the assistant between them would teach the model a lie. No thinking level is sent;
which models think is their own affair.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.provider import ModelRequest, OneTool
from tools.tool import Image

API = "mistral"

Chunk: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST /v1/chat/completions`, without `stream`."""
    request = shared.with_lost_tools(request)
    halves = shared.system_texts(request.system)
    system = [{"role": "system", "content": "\n\n".join(halves)}] if halves else []
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*system, *shared.written(request.settled, _converted, API), *_converted(request.unsettled)],
        "max_tokens": shared.output_tokens(request),
    }
    if request.tools:
        functions = (
            {"name": it.name, "description": shared.description_of(it), "parameters": dict(it.input_schema)}
            for it in request.tools
        )
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        if (choice := _tool_choice(request)) is not None:
            body["tool_choice"] = choice
    return body


def _tool_choice(request: ModelRequest) -> str | Chunk | None:
    """The choice for the body; None for `auto`, the server's default."""
    choice = shared.sent_choice(request)
    if isinstance(choice, OneTool):
        return {"type": "function", "function": {"name": choice.name}}
    return {"none": "none", "required": "any"}.get(choice)


def _converted(messages: Sequence[Message]) -> list[Chunk]:
    wire: list[Chunk] = []
    for message in shared.with_pictures_behind(messages):
        match message:
            case UserMessage():
                _append(wire, "user", [_part(part) for part in message.sent_parts])
            case AssistantMessage():
                _append(wire, "assistant", _assistant_chunks(message), [_call(call) for call in message.calls])
            case ToolResultMessage():
                wire.append(_result(message))
    return [_with_plain_content(message) for message in wire]


def _append(wire: list[Chunk], role: str, chunks: list[Chunk], calls: Sequence[Chunk] = ()) -> None:
    """Add to the last message if it has this role, else begin one."""
    if not chunks and not calls:
        return
    if not wire or wire[-1]["role"] != role:
        wire.append({"role": role, "content": []})
    wire[-1]["content"] += chunks
    if calls:
        wire[-1]["tool_calls"] = list(calls)


def _with_plain_content(message: Chunk) -> Chunk:
    """Content that is text alone is a string, which every model takes; none at all is left out."""
    content = message["content"]
    if isinstance(content, str):
        return message
    if not content:
        return {key: value for key, value in message.items() if key != "content"}
    if all(chunk["type"] == "text" for chunk in content):
        return message | {"content": "\n\n".join(chunk["text"] for chunk in content)}
    return message


def _part(part: UserPart) -> Chunk:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": shared.data_url(part)}
    return {"type": "text", "text": part.text}


def _assistant_chunks(message: AssistantMessage) -> list[Chunk]:
    chunks: list[Chunk] = []
    for part in message.content:
        match part:
            case Text():
                chunks.append(_part(part))
            case Thinking(wire=wire) if wire is not None and wire.api == API:
                chunks.append(dict(wire.data))
    return chunks


def _call(call: ToolCall) -> Chunk:
    """The arguments go back as the string that came, broken ones too: the model sees what it did wrong."""
    function = {
        "name": shared.wire_name(call.name),
        "arguments": call.arguments_raw if call.arguments_raw.strip() else "{}",
    }
    return {"id": fitting_id(call.id), "type": "function", "function": function}


def _result(message: ToolResultMessage) -> Chunk:
    text = shared.result_text(message)
    return {
        "role": "tool",
        "tool_call_id": fitting_id(message.call_id),
        "name": shared.wire_name(message.tool),
        "content": text,
    }


def fitting_id(call_id: str) -> str:
    """Nine letters and digits: the id as it is if it is that, else made from it, the same for the call and its result."""
    if re.fullmatch(r"[a-zA-Z0-9]{9}", call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()
    return base64.b64encode(digest, b"Az")[:9].decode()

"""Mistral's wire: our request as its body, and its chunks as one assistant message. Pure: nothing is sent here.

Neighbours of one role become one message, also what repair left apart, because models differ in what they take. A user's
message may follow results directly, if a turn was broken off or a tool returned a picture: today's models accept
it, and to put invented words of the assistant between them would teach the model a lie. No thinking level is sent;
which models think is their own affair.

Calls are beside the content in this protocol, not in it: text that goes on after a call goes on in its own block. A
`finish_reason` is the only proof of an end. Unknown members and chunks are passed over; what a server of the same
shape is known to do otherwise (arguments as an object, calls in pieces, an id "null" or none) is understood.
"""

import base64
import hashlib
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.chat import COMPLETION, Calls, content_of, usage_of, whole_message
from agents.providers.draft import Draft, Payload
from agents.providers.payload import BadStream, object_of, objects_of, text_of
from agents.providers.provider import ModelEvent, ModelRequest, OneTool
from agents.providers.refusals import broken_off, failure_of
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


@dataclass(slots=True)
class Thought:
    """`items` is the chunk's `thinking`; `beside` are its other members, such as `signature`."""

    items: list[dict[str, Any]] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return self.beside.get("closed") is True

    @property
    def payload(self) -> Payload:
        """The chunk as one; None if nothing of it arrived."""
        if not self.items and not self.beside:
            return None
        return "thinking", {"type": "thinking", "thinking": self.items, **self.beside}

    def add(self, piece: dict[str, Any]) -> Iterator[str]:
        """Take one piece of the chunk; yields its texts."""
        members = {key: value for key, value in piece.items() if key not in ("type", "thinking") and value is not None}
        self.beside |= members
        whole = text_of(piece, "thinking")  # not documented, but the reading is plain
        for item in [{"type": "text", "text": whole}] if whole else objects_of(piece, "thinking"):
            text = item.get("text") if item.get("type") == "text" else None
            if not isinstance(text, str):
                self.items.append(item)
            elif text:
                self._join(text, item)
                yield text

    def _join(self, text: str, item: dict[str, Any]) -> None:
        last = self.items[-1] if self.items else None
        if last is not None and _plain(last) and _plain(item):
            last["text"] += text
        else:
            self.items.append(dict(item))


def _plain(item: dict[str, Any]) -> bool:
    return item.keys() == {"type", "text"} and item["type"] == "text" and isinstance(item["text"], str)


_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "model_length": "context_window",
    # Not Mistral's own: clouds that host its models have filters.
    "content_filter": "content_filter",
}


class MistralAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._current: Hashable = None
        """The block of the text or thought that goes on."""
        self._thought: Thought | None = None
        self._calls = Calls(draft)
        self._finish_reason = ""

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") or event.get("object") == "error" or ("detail" in event and "choices" not in event):
            raise failure_of(event)
        self.draft.response_id = self.draft.response_id or text_of(event, "id") or None
        if isinstance(usage := event.get("usage"), dict):
            self.draft.usage = usage_of(usage)
        for choice in objects_of(event, "choices"):
            if choice.get("index") in (0, None):
                message = whole_message(event, choice) if not self.draft.blocks else {}
                yield from self._choose(choice, message or object_of(choice, "delta"))
                if message and not self._finish_reason and event.get("object") == COMPLETION:
                    self._finish_reason, self.draft.ended = "stop", True
                    yield from self._calls.close()

    def _choose(self, choice: dict[str, Any], delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        content = delta.get("content")
        for chunk in content if isinstance(content, list) else [content]:
            if isinstance(chunk, dict) and chunk.get("type") == "thinking":
                yield from self._think(chunk)
            else:
                for _, text in content_of({"content": [chunk]}):
                    if text:
                        yield from self._write(text)
        pieces = objects_of(delta, "tool_calls")
        yield from self._calls.add([piece | {"id": None} if piece.get("id") == "null" else piece for piece in pieces])
        if reason := text_of(choice, "finish_reason"):
            self._finish_reason, self.draft.ended = reason, True
            yield from self._calls.close()

    def _write(self, text: str) -> Iterator[ModelEvent]:
        if self._current is None or self._thought is not None:
            self._current, self._thought = object(), None
            self.draft.open(self._current, "text")
        yield from self.draft.add(self._current, text)

    def _think(self, chunk: dict[str, Any]) -> Iterator[ModelEvent]:
        self.draft.count(len(str(chunk)))
        if self._thought is None or self._thought.closed:
            thought = self._thought = Thought()
            self._current = object()
            self.draft.open(self._current, "thinking", lambda _: thought.payload)
        for text in self._thought.add(chunk):
            yield from self.draft.add(self._current, text)

    def finish(self) -> AssistantMessage:
        match self._finish_reason:
            case "":
                raise BadStream("the stream ended without finish_reason")
            case "error":
                raise broken_off("error")
        return self.draft.finished(_STOP_REASONS.get(self._finish_reason))

"""Anthropic's stream of events put together into one assistant message. Pure: dicts in, our events out.

Blocks are kept in order and thinking is kept whole, as the server made it. `message_stop` is the only proof of an end.
Unknown events, deltas and blocks are passed over or kept opaque, for the protocol grows; what is plainly broken raises
`BadStream`. Nothing here knows a socket.
"""

import json
from collections.abc import Iterator
from typing import Any

from agents.messages import AssistantMessage, StopReason, Usage
from agents.providers.draft import Draft, Payload
from agents.providers.errors import BadStream
from agents.providers.payload import count_of, object_of, objects_of, required_index, required_object, text_of
from agents.providers.provider import ModelEvent
from agents.providers.refusals import failure_of

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}


class AnthropicAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._starts: dict[int, dict[str, Any]] = {}
        """The object that opened each block; a thinking block's collects its signature."""
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        match event.get("type"):
            case "message_start":
                message = required_object(event, "message")
                self.draft.response_id = text_of(message, "id") or None
                self._count(message.get("usage"))
            case "content_block_start":
                yield from self._open(required_index(event, "index"), required_object(event, "content_block"))
            case "content_block_delta":
                yield from self._extend(required_index(event, "index"), required_object(event, "delta"))
            case "content_block_stop":
                yield from self._close(required_index(event, "index"))
            case "message_delta":
                self._stop_reason = text_of(required_object(event, "delta"), "stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                for index in self._starts:
                    yield from self._close(index)
                self.draft.ended = True
            case "message" if isinstance(event.get("content"), list) and not self._starts:
                yield from self._take(event)
            case kind if kind == "error" or object_of(event, "error"):
                raise failure_of(event)

    def _take(self, message: dict[str, Any]) -> Iterator[ModelEvent]:
        """Takes an answer that came whole, though a stream was asked for."""
        self.draft.response_id = text_of(message, "id") or None
        self._count(message.get("usage"))
        for index, block in enumerate(objects_of(message, "content")):
            yield from self._open(index, block)
            yield from self._close(index)
        self._stop_reason = text_of(message, "stop_reason")
        self.draft.ended = True

    def _open(self, index: int, start: dict[str, Any]) -> Iterator[ModelEvent]:
        match kind := text_of(start, "type"):
            case "text":
                self.draft.open(index, "text", index=index)
                yield from self.draft.add(index, text_of(start, "text"))
            case "thinking":
                start = {**start, "signature": text_of(start, "signature")}
                self.draft.open(index, "thinking", lambda text: (kind, {**start, "thinking": text}), index=index)
                yield from self.draft.add(index, text_of(start, "thinking"))
            case "redacted_thinking":
                self.draft.open(index, "thinking", lambda _: (kind, start), index=index)
            case "tool_use":
                self.draft.open(index, "call", lambda _: _beyond(start), index=index)
                yield from self.draft.start(index, vendor_id=text_of(start, "id"), name=text_of(start, "name"))
            case _:
                self.draft.open(index, "opaque", lambda _: (kind, start), index=index)
        self._starts[index] = start

    def _extend(self, index: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        start = self._starts.get(index)
        if start is None:
            raise BadStream("a delta belongs to no block")
        match delta.get("type"), start.get("type"):
            case "text_delta", "text":
                yield from self.draft.add(index, text_of(delta, "text"))
            case "thinking_delta", "thinking":
                yield from self.draft.add(index, text_of(delta, "thinking"))
            case "input_json_delta", "tool_use":
                yield from self.draft.add(index, text_of(delta, "partial_json"))
            case "signature_delta", "thinking":
                start["signature"] += text_of(delta, "signature")
            case _:
                pass

    def _close(self, index: int) -> Iterator[ModelEvent]:
        block = self.draft.blocks.get(index)
        whole = self._starts.get(index, {}).get("input")
        if block is not None and not block.body.raw and isinstance(whole, dict | str) and whole:
            # Compatible servers may send the whole input at once.
            text = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)
            yield from self.draft.close(index, arguments=text)
        else:
            yield from self.draft.close(index)

    def _count(self, usage: object) -> None:
        """The members of message_delta replace those of message_start, its nulls do not."""
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}
            self.draft.usage = _usage(self._usage)

    def finish(self) -> AssistantMessage:
        if not self.draft.ended:
            raise BadStream("the stream ended without message_stop")
        return self.draft.finished(_STOP_REASONS.get(self._stop_reason))


def _beyond(start: dict[str, Any]) -> Payload:
    """The caller, if another than the model itself made a call; it goes back with the call."""
    caller = object_of(start, "caller")
    return ("tool_use", {"caller": caller}) if caller and caller.get("type") != "direct" else None


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=count_of(usage, "input_tokens"),
        cache_read=count_of(usage, "cache_read_input_tokens"),
        cache_write=count_of(usage, "cache_creation_input_tokens"),
        output=count_of(usage, "output_tokens"),
        reasoning=count_of(usage.get("output_tokens_details"), "thinking_tokens"),
    )

"""Anthropic's stream of events put together into one assistant message. Pure: dicts in, our events out.

Blocks are kept in order and thinking is kept whole, as the server made it. `message_stop` is the only proof of an end.
Unknown events, deltas and blocks are passed over or kept opaque, for the protocol grows; what is plainly broken raises
`BadStream`. Nothing here knows a socket.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    ModelError,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    Wire,
)
from agents.providers.anthropic.request import API
from agents.providers.arguments import parse_arguments
from agents.providers.errors import BadStream
from agents.providers.growing import Growing
from agents.providers.ids import CallIds
from agents.providers.models import family_of
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.providers.usage import count

ANSWER_CHARS_MAX = 8_000_000
"""No model writes this much; a server that does is broken."""

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


@dataclass(slots=True)
class _Block:
    """A block under way. `start` is what opened it; `body` is what its deltas added."""

    start: dict[str, Any]
    body: Growing = field(default_factory=Growing)
    signature: str = ""
    call: ToolCall | None = None

    @property
    def type(self) -> str:
        return str(self.start.get("type"))


@dataclass(slots=True)
class Assembly:
    """One answer in the making."""

    provider: str
    model: str
    timestamp: float
    whole: bool = False
    response_id: str | None = None
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _call_ids: CallIds = field(default_factory=CallIds)
    _stop_reason: str | None = None
    _usage: dict[str, Any] = field(default_factory=dict)
    _chars: int = 0

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one event. Raises BadStream."""
        match event.get("type"):
            case "message_start":
                message = _dict(event, "message")
                self.response_id = _text(message, "id") or None
                self._usage |= _given(message.get("usage"))
            case "content_block_start":
                yield from self._open(_index(event), _dict(event, "content_block"))
            case "content_block_delta":
                yield from self._extend(_index(event), _dict(event, "delta"))
            case "content_block_stop":
                yield from self._close(_index(event))
            case "message_delta":
                self._stop_reason = _text(_dict(event, "delta"), "stop_reason") or self._stop_reason
                self._usage |= _given(event.get("usage"))
            case "message_stop":
                for index in self._blocks:
                    yield from self._close(index)
                self.whole = True
            case _:
                pass

    def _open(self, index: int, start: dict[str, Any]) -> Iterator[ModelEvent]:
        if index in self._blocks:
            raise BadStream("a block was opened twice")
        block = self._blocks[index] = _Block(start=start)
        match block.type:
            case "text":
                yield from self._show(index, block, _text(start, "text"))
            case "thinking":
                block.signature = _text(start, "signature")
                yield from self._show(index, block, _text(start, "thinking"))
            case "tool_use":
                call_id = self._call_ids.unique(_text(start, "id"), answer=self.response_id, place=index)
                name = _text(start, "name")
                block.start = {**start, "id": call_id, "name": name}
                yield ToolCallStart(index=index, id=call_id, name=name)

    def _extend(self, index: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise BadStream("a delta belongs to no block")
        match delta.get("type"), block.type:
            case "text_delta", "text":
                yield from self._show(index, block, _text(delta, "text"))
            case "thinking_delta", "thinking":
                yield from self._show(index, block, _text(delta, "thinking"))
            case "input_json_delta", "tool_use":
                yield from self._show(index, block, _text(delta, "partial_json"))
            case "signature_delta", "thinking":
                block.signature += _text(delta, "signature")
            case _:
                pass

    def _show(self, index: int, block: _Block, text: str) -> Iterator[ModelEvent]:
        self._chars += len(text)
        if self._chars > ANSWER_CHARS_MAX:
            raise BadStream("the answer has no end")
        shown = block.body.add(text)
        if not shown:
            return
        match block.type:
            case "text":
                yield TextDelta(index=index, text=shown)
            case "thinking":
                yield ThinkingDelta(index=index, text=shown)
            case "tool_use":
                yield ToolCallDelta(index=index, text=shown)

    def _close(self, index: int) -> Iterator[ModelEvent]:
        block = self._blocks.get(index)
        if block is None or block.call is not None or block.type != "tool_use":
            return
        raw = block.body.text
        given = block.start.get("input")
        if not raw and isinstance(given, dict) and given:  # compatible servers may send the whole input at once
            raw = json.dumps(given, ensure_ascii=False)
        caller = block.start.get("caller")
        beyond = {"caller": caller} if isinstance(caller, dict) and caller.get("type") != "direct" else None
        block.call = ToolCall(
            id=block.start["id"],
            name=block.start["name"],
            arguments=parse_arguments(raw),
            arguments_raw=raw,
            wire=self._wire("tool_use", beyond) if beyond else None,
        )
        yield ToolCallEnd(index=index, call=block.call)

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where the end event never came, or the reason for ending is no reason."""
        if not self.whole:
            raise BadStream("the stream ended without message_stop")
        parts = tuple(part for block in self._blocks.values() for part in self._part(block))
        calls = any(isinstance(part, ToolCall) for part in parts)
        reason = _STOP_REASONS.get(self._stop_reason or "")
        if reason is None and calls:
            raise BadStream("calls, and an unknown reason to stop")  # never run what may have been cut or refused
        if reason is None or reason in ("end_turn", "tool_use"):
            reason = "tool_use" if calls else "end_turn"
        return self._message(parts, reason)

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """What was said before it broke, without calls and thinking, for neither is sure to be whole."""
        texts = (Text(text=block.body.text) for block in self._blocks.values() if block.type == "text")
        return self._message(tuple(part for part in texts if part.text.strip()), reason, error)

    def _message(
        self, parts: tuple[AssistantPart, ...], reason: StopReason, error: ModelError | None = None
    ) -> AssistantMessage:
        return AssistantMessage(
            content=parts,
            provider=self.provider,
            model=self.model,
            api=API,
            stop_reason=reason,
            usage=_usage(self._usage),
            error=error,
            response_id=self.response_id,
            timestamp=self.timestamp,
        )

    def _part(self, block: _Block) -> Iterator[AssistantPart]:
        text = block.body.text
        match block.type:
            case "text":
                if text:
                    yield Text(text=text)
            case "thinking":
                data = {**block.start, "thinking": text, "signature": block.signature}
                yield Thinking(text=text, wire=self._wire("thinking", data))
            case "redacted_thinking":
                yield Thinking(text="", wire=self._wire("redacted_thinking", block.start))
            case "tool_use":
                if block.call is not None:
                    yield block.call
            case kind:
                yield Opaque(wire=self._wire(kind, block.start))

    def _wire(self, kind: str, data: dict[str, Any]) -> Wire:
        return Wire(api=API, family=family_of(self.model), kind=kind, data=data)


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("output_tokens_details")
    return Usage(
        input=count(usage.get("input_tokens")),
        cache_read=count(usage.get("cache_read_input_tokens")),
        cache_write=count(usage.get("cache_creation_input_tokens")),
        output=count(usage.get("output_tokens")),
        reasoning=count(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
    )


def _given(usage: object) -> dict[str, Any]:
    """The members that are there: message_delta's replace those of message_start, its nulls do not."""
    return {key: value for key, value in usage.items() if value is not None} if isinstance(usage, dict) else {}


def _dict(event: dict[str, Any], key: str) -> dict[str, Any]:
    value = event.get(key)
    if not isinstance(value, dict):
        raise BadStream(f"{key} is missing")
    return value


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise BadStream("index is missing")
    return index

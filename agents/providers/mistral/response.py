"""Mistral's stream of chunks put together into one assistant message. Pure: dicts in, our events out.

Calls stand beside the content in this protocol, not in it: text that goes on after a call goes on in its own block. A
`finish_reason` is the only proof of an end. Unknown members and chunks are passed over; what a server of the same
shape is known to do otherwise (arguments as an object, calls in pieces, an id "null" or none) is understood.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agents.messages import AssistantMessage, AssistantPart, ModelError, StopReason, Text, Thinking, ToolCall, Wire
from agents.providers.arguments import parse_arguments
from agents.providers.errors import RETRYABLE, AttemptFailed, BadStream
from agents.providers.growing import Growing
from agents.providers.ids import CallIds
from agents.providers.mistral.answer_usage import usage_of
from agents.providers.mistral.errors import from_event
from agents.providers.mistral.request import API
from agents.providers.mistral.thought import Thought
from agents.providers.models import family_of
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

ANSWER_CHARS_MAX = 8_000_000
"""No model writes this much; a server that does is broken."""

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "model_length": "context_window",
    # Not Mistral's own: clouds that host its models have filters.
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class _Said:
    body: Growing = field(default_factory=Growing)


@dataclass(slots=True)
class _Called:
    """A call under way. `given_id` is the vendor's, `id` ours."""

    id: str
    given_id: str
    name: str
    body: Growing = field(default_factory=Growing)
    call: ToolCall | None = None

    def goes_on(self, given_id: str, name: str) -> bool:
        """Whether a piece with this id and name belongs to this call and begins no other."""
        if given_id and given_id != self.given_id:
            return False
        whole = bool(self.body.raw.strip()) and parse_arguments(self.body.raw) is not None
        return not name or (bool(given_id) and not whole)


_Block: TypeAlias = _Said | Thought | _Called


@dataclass(slots=True)
class Assembly:
    """One answer in the making."""

    provider: str
    model: str
    timestamp: float
    response_id: str | None = None
    finish_reason: str | None = None
    _blocks: list[_Block] = field(default_factory=list)
    _calls_at: dict[int, int] = field(default_factory=dict)
    _call_ids: CallIds = field(default_factory=CallIds)
    _usage: dict[str, Any] | None = None
    _chars: int = 0

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one chunk. Raises BadStream, or AttemptFailed for an error that is told."""
        if (told := from_event(event)) is not None:
            raise AttemptFailed(told)
        self.response_id = self.response_id or _text(event, "id") or None
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
        for choice in _dicts(event.get("choices")):
            if choice.get("index") in (0, None):
                yield from self._choose(choice)

    def _choose(self, choice: dict[str, Any]) -> Iterator[ModelEvent]:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            yield from self._content(delta.get("content"))
            for piece in _dicts(delta.get("tool_calls")):
                yield from self._call(piece)
        if reason := _text(choice, "finish_reason"):
            self.finish_reason = reason
            for index, block in enumerate(self._blocks):
                yield from self._close(index, block)

    def _content(self, content: object) -> Iterator[ModelEvent]:
        if isinstance(content, str):
            yield from self._say(content)
            return
        for chunk in _dicts(content):
            match chunk.get("type"):
                case "text":
                    yield from self._say(_text(chunk, "text"))
                case "thinking":
                    yield from self._think(chunk)
                case _:
                    pass

    def _say(self, text: str) -> Iterator[ModelEvent]:
        if not text:
            return
        self._count(len(text))
        index = self._last_content()
        block = self._blocks[index] if index is not None else None
        if index is None or not isinstance(block, _Said):
            index, block = len(self._blocks), _Said()
            self._blocks.append(block)
        if shown := block.body.add(text):
            yield TextDelta(index=index, text=shown)

    def _think(self, chunk: dict[str, Any]) -> Iterator[ModelEvent]:
        self._count(len(str(chunk)))
        index = self._last_content()
        block = self._blocks[index] if index is not None else None
        if index is None or not isinstance(block, Thought) or block.closed:
            index, block = len(self._blocks), Thought()
            self._blocks.append(block)
        for shown in block.add(chunk):
            if shown:
                yield ThinkingDelta(index=index, text=shown)

    def _last_content(self) -> int | None:
        numbers = range(len(self._blocks) - 1, -1, -1)
        return next((number for number in numbers if not isinstance(self._blocks[number], _Called)), None)

    def _call(self, piece: dict[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = _text(function, "name"), _arguments(function.get("arguments"))
        given_id = _text(piece, "id")
        given_id = "" if given_id == "null" else given_id
        place = piece.get("index")
        place = place if isinstance(place, int) else max(self._calls_at, default=0)
        index = self._calls_at.get(place)
        call = self._blocks[index] if index is not None else None
        if index is None or not isinstance(call, _Called) or not call.goes_on(given_id, name):
            index = self._calls_at[place] = len(self._blocks)
            call_id = self._call_ids.unique(given_id, answer=self.response_id, place=index)
            call = _Called(id=call_id, given_id=given_id, name=name)
            self._blocks.append(call)
            yield ToolCallStart(index=index, id=call_id, name=name)
        self._count(len(arguments))
        if shown := call.body.add(arguments):
            yield ToolCallDelta(index=index, text=shown)

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > ANSWER_CHARS_MAX:
            raise BadStream("the answer has no end")

    def _close(self, index: int, block: _Block) -> Iterator[ModelEvent]:
        if not isinstance(block, _Called) or block.call is not None:
            return
        raw = block.body.text
        block.call = ToolCall(id=block.id, name=block.name, arguments=parse_arguments(raw), arguments_raw=raw)
        yield ToolCallEnd(index=index, call=block.call)

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end never came, AttemptFailed where the model broke down."""
        match self.finish_reason:
            case None:
                raise BadStream("the stream ended without finish_reason")
            case "error":
                summary = "status=200 finish_reason=error"
                raise AttemptFailed(ModelError(kind="server", summary=summary, retryable="server" in RETRYABLE))
        parts = tuple(part for block in self._blocks for part in self._part(block))
        calls = any(isinstance(part, ToolCall) for part in parts)
        reason = _STOP_REASONS.get(self.finish_reason)
        if reason is None and calls:
            raise BadStream("calls, and an unknown reason to stop")  # never run what may have been cut or refused
        if reason is None or reason in ("end_turn", "tool_use"):
            reason = "tool_use" if calls else "end_turn"
        return self._message(parts, reason)

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """What was said before it broke, without calls and thinking, for neither is sure to be whole."""
        texts = (Text(text=block.body.text) for block in self._blocks if isinstance(block, _Said))
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
            usage=usage_of(self._usage),
            error=error,
            response_id=self.response_id,
            timestamp=self.timestamp,
        )

    def _part(self, block: _Block) -> Iterator[AssistantPart]:
        match block:
            case _Said(body=body):
                yield Text(text=body.text)
            case Thought():
                if not block.empty:
                    wire = Wire(api=API, family=family_of(self.model), kind="thinking", data=block.data)
                    yield Thinking(text=block.body.text, wire=wire)
            case _Called(call=call):
                if call is not None:
                    yield call


def _arguments(value: object) -> str:
    """The text of a call's arguments, which may also come as an object."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""

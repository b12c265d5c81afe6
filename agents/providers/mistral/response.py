"""Mistral's chunks, translated into a `Draft`. Pure: dicts in, our events out.

Calls stand beside the content in this protocol, not in it: text that goes on after a call goes on in its own block. A
`finish_reason` is the only proof of an end. Unknown members and chunks are passed over; what a server of the same
shape is known to do otherwise (arguments as an object, calls in pieces, an id "null" or none) is understood.
"""

import json
from collections.abc import Hashable, Iterator
from typing import Any

from agents.messages import AssistantMessage, ModelError, StopReason, Usage
from agents.providers.arguments import parse_arguments
from agents.providers.draft import Draft
from agents.providers.errors import RETRYABLE, AttemptFailed, BadStream
from agents.providers.mistral.errors import from_event
from agents.providers.mistral.request import API
from agents.providers.mistral.thought import Thought
from agents.providers.provider import ModelEvent
from agents.providers.usage import count

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "model_length": "context_window",
    # Not Mistral's own: clouds that host its models have filters.
    "content_filter": "content_filter",
}


class Assembly:
    """One answer in the making."""

    def __init__(self, *, provider: str, model: str, timestamp: float) -> None:
        self._draft = Draft(api=API, provider=provider, model=model, timestamp=timestamp)
        self._current: Hashable = None
        """The block of the text or thought that goes on."""
        self._thought: Thought | None = None
        self._calls: dict[int, tuple[Hashable, str]] = {}
        """By the vendor's index: the call's block, and the id that the vendor gave it."""
        self._finish_reason = ""

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one chunk. Raises BadStream, or AttemptFailed for an error that it reports."""
        if (error := from_event(event)) is not None:
            raise AttemptFailed(error)
        self._draft.response_id = self._draft.response_id or _text(event, "id") or None
        if isinstance(usage := event.get("usage"), dict):
            self._draft.usage = _usage(usage)
        for choice in _dicts(event.get("choices")):
            if choice.get("index") in (0, None):
                yield from self._choose(choice)

    def _choose(self, choice: dict[str, Any]) -> Iterator[ModelEvent]:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            content = delta.get("content")
            for chunk in [{"type": "text", "text": content}] if isinstance(content, str) else _dicts(content):
                if chunk.get("type") == "text" and _text(chunk, "text"):
                    yield from self._write(_text(chunk, "text"))
                elif chunk.get("type") == "thinking":
                    yield from self._think(chunk)
            for piece in _dicts(delta.get("tool_calls")):
                yield from self._call(piece)
        if reason := _text(choice, "finish_reason"):
            self._finish_reason = reason
            for key in self._draft.blocks:
                yield from self._draft.close(key)

    def _write(self, text: str) -> Iterator[ModelEvent]:
        if self._current is None or self._thought is not None:
            self._current, self._thought = object(), None
            self._draft.open(self._current, "text")
        yield from self._draft.add(self._current, text)

    def _think(self, chunk: dict[str, Any]) -> Iterator[ModelEvent]:
        self._draft.count(len(str(chunk)))
        if self._thought is None or self._thought.closed:
            thought = self._thought = Thought()
            self._current = object()
            self._draft.open(self._current, "thinking", lambda _: thought.payload)
        for text in self._thought.add(chunk):
            yield from self._draft.add(self._current, text)

    def _call(self, piece: dict[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments, vendor_id = _text(function, "name"), _arguments(function.get("arguments")), _text(piece, "id")
        vendor_id = "" if vendor_id == "null" else vendor_id
        place = piece.get("index")
        place = place if isinstance(place, int) else max(self._calls, default=0)
        if place not in self._calls or not self._continues(*self._calls[place], vendor_id, name):
            key = object()
            self._calls[place] = key, vendor_id
            self._draft.open(key, "call")
            yield from self._draft.start(key, vendor_id=vendor_id, name=name)
        yield from self._draft.add(self._calls[place][0], arguments)

    def _continues(self, key: Hashable, known_id: str, vendor_id: str, name: str) -> bool:
        """Whether a piece with this id and name belongs to this call and begins no other."""
        if vendor_id and vendor_id != known_id:
            return False
        raw = self._draft.blocks[key].body.raw
        whole = bool(raw.strip()) and parse_arguments(raw) is not None
        return not name or (bool(vendor_id) and not whole)

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end never came, AttemptFailed where the model broke down."""
        match self._finish_reason:
            case "":
                raise BadStream("the stream ended without finish_reason")
            case "error":
                summary = "status=200 finish_reason=error"
                raise AttemptFailed(ModelError(kind="server", summary=summary, retryable="server" in RETRYABLE))
        return self._draft.finished(_STOP_REASONS.get(self._finish_reason))

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        return self._draft.failed(error, reason)


def _usage(usage: dict[str, Any]) -> Usage:
    """Mistral's prompt includes what came from the cache, ours does not."""
    details = usage.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return Usage(
        input=max(0, count(usage.get("prompt_tokens")) - cached),
        cache_read=cached,
        output=count(usage.get("completion_tokens")),
    )


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

"""Mistral's chunks, translated into a `Draft`. Pure: dicts in, our events out.

Calls are beside the content in this protocol, not in it: text that goes on after a call goes on in its own block. A
`finish_reason` is the only proof of an end. Unknown members and chunks are passed over; what a server of the same
shape is known to do otherwise (arguments as an object, calls in pieces, an id "null" or none) is understood.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.messages import AssistantMessage, StopReason
from agents.providers.draft import Draft, Payload
from agents.providers.errors import BadStream
from agents.providers.openai.answer import COMPLETION, Calls, content_of, usage_of, whole_message
from agents.providers.payload import object_of, objects_of, text_of
from agents.providers.provider import ModelEvent
from agents.providers.refusals import broken_off, failure_of


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

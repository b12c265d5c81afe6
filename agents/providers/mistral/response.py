"""Mistral's chunks, translated into a `Draft`. Pure: dicts in, our events out.

Calls stand beside the content in this protocol, not in it: text that goes on after a call goes on in its own block. A
`finish_reason` is the only proof of an end. Unknown members and chunks are passed over; what a server of the same
shape is known to do otherwise (arguments as an object, calls in pieces, an id "null" or none) is understood.
"""

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.messages import AssistantMessage, ErrorKind, ModelError, StopReason, Usage
from agents.providers.draft import Draft, Payload
from agents.providers.errors import AttemptFailed, BadStream, failure, kind_of_status, overflows, word
from agents.providers.mistral.request import API
from agents.providers.payload import arguments_of, count_of, object_of, objects_of, parse_arguments, text_of
from agents.providers.provider import ModelEvent


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
        """The chunk as one; None where nothing of it arrived."""
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
    def __init__(self, *, provider: str, model: str, timestamp: float) -> None:
        self.draft = Draft(api=API, provider=provider, model=model, timestamp=timestamp)
        self._current: Hashable = None
        """The block of the text or thought that goes on."""
        self._thought: Thought | None = None
        self._calls: dict[int, tuple[Hashable, str]] = {}
        """By the vendor's index: the call's block, and the id that the vendor gave it."""
        self._finish_reason = ""

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if (error := from_event(event)) is not None:
            raise AttemptFailed(error)
        self.draft.response_id = self.draft.response_id or text_of(event, "id") or None
        if isinstance(usage := event.get("usage"), dict):
            self.draft.usage = _usage(usage)
        for choice in objects_of(event, "choices"):
            if choice.get("index") in (0, None):
                yield from self._choose(choice)

    def _choose(self, choice: dict[str, Any]) -> Iterator[ModelEvent]:
        delta = object_of(choice, "delta")
        content = text_of(delta, "content")
        for chunk in [{"type": "text", "text": content}] if content else objects_of(delta, "content"):
            if chunk.get("type") == "text" and text_of(chunk, "text"):
                yield from self._write(text_of(chunk, "text"))
            elif chunk.get("type") == "thinking":
                yield from self._think(chunk)
        for piece in objects_of(delta, "tool_calls"):
            yield from self._call(piece)
        if reason := text_of(choice, "finish_reason"):
            self._finish_reason = reason
            for key in self.draft.blocks:
                yield from self.draft.close(key)

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

    def _call(self, piece: dict[str, Any]) -> Iterator[ModelEvent]:
        function = object_of(piece, "function")
        name, vendor_id = text_of(function, "name"), text_of(piece, "id")
        vendor_id = "" if vendor_id == "null" else vendor_id
        place = piece.get("index")
        place = place if isinstance(place, int) else max(self._calls, default=0)
        if place not in self._calls or not self._continues(*self._calls[place], vendor_id, name):
            key = object()
            self._calls[place] = key, vendor_id
            self.draft.open(key, "call")
            yield from self.draft.start(key, vendor_id=vendor_id, name=name)
        yield from self.draft.add(self._calls[place][0], arguments_of(function))

    def _continues(self, key: Hashable, known_id: str, vendor_id: str, name: str) -> bool:
        """Whether a piece with this id and name belongs to this call and begins no other."""
        if vendor_id and vendor_id != known_id:
            return False
        raw = self.draft.blocks[key].body.raw
        whole = bool(raw.strip()) and parse_arguments(raw) is not None
        return not name or (bool(vendor_id) and not whole)

    def finish(self) -> AssistantMessage:
        match self._finish_reason:
            case "":
                raise BadStream("the stream ended without finish_reason")
            case "error":
                raise AttemptFailed(failure("server", "status=200 finish_reason=error", {}, 0.0))
        return self.draft.finished(_STOP_REASONS.get(self._finish_reason))


def _usage(usage: dict[str, Any]) -> Usage:
    """Mistral's prompt includes what came from the cache, ours does not."""
    cached = count_of(usage.get("prompt_tokens_details"), "cached_tokens")
    return Usage(
        input=max(0, count_of(usage, "prompt_tokens") - cached),
        cache_read=cached,
        output=count_of(usage, "completion_tokens"),
    )


_BY_WORD: tuple[tuple[str, ErrorKind], ...] = (
    ("credit", "billing"),
    ("billing", "billing"),
    ("quota", "billing"),
    ("rate_limit", "rate_limited"),
    ("overload", "overloaded"),
    ("capacity", "overloaded"),
    ("auth", "auth"),
    ("permission", "auth"),
    ("invalid_model", "not_found"),
    ("not_found", "not_found"),
    ("invalid", "invalid"),
    ("timeout", "timeout"),
)
"""Parts of a `type` or `code`, the first that fits: for errors that are told inside a stream, without a status."""
_STALE_THINKING = re.compile(r"thinking chunk|thinking signature|`signature`", re.IGNORECASE)
_TEXT_CHARS_MAX = 2000


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    error = _error_of(body)
    request_id = headers.get("mistral-correlation-id") or headers.get("x-request-id")
    summary = f"{_summary(status, error)} request_id={word(request_id)}"
    return failure(_kind(status, error), summary, headers, now)


def from_event(event: Mapping[str, Any]) -> ModelError | None:
    """An error that is told in the middle of a stream that began with 200; None where it is none."""
    reported = event.get("object") == "error" or isinstance(event.get("error"), dict | str)
    if not reported and not ("detail" in event and "choices" not in event):
        return None
    error = _error_of(event)
    kind = _kind_of_words(error) or "server"
    if kind == "invalid":
        kind = _kind(400, error)
    return failure(kind, _summary(200, error), {}, 0.0)


def _error_of(body: object) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    if isinstance(inner, dict):
        return inner
    return {"message": inner} if isinstance(inner, str) else body


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    if status in (400, 402, 403, 429) and _kind_of_words(error) == "billing":
        return "billing"
    if status not in (400, 413, 422):
        return kind_of_status(status)
    text = _text_of(error)
    if overflows(text):
        return "too_large"
    if _STALE_THINKING.search(text) or _about_thinking(error):
        return "stale_thinking"
    if _kind_of_words(error) == "not_found":
        return "not_found"
    return kind_of_status(status)


def _kind_of_words(error: Mapping[str, Any]) -> ErrorKind | None:
    words = f"{error.get('type')} {error.get('code')}".lower()
    return next((kind for part, kind in _BY_WORD if part in words), None)


def _text_of(error: Mapping[str, Any]) -> str:
    """The prose of a refusal, wherever it is: `message` may be text, or an object with `detail`."""
    message = error.get("message", error.get("detail"))
    if isinstance(message, dict):
        message = message.get("detail")
    if isinstance(message, list):
        message = "; ".join(str(item.get("msg")) for item in message if isinstance(item, dict))
    return message[:_TEXT_CHARS_MAX] if isinstance(message, str) else ""


def _about_thinking(error: Mapping[str, Any]) -> bool:
    """Whether the validator points at a thinking chunk."""
    places = [item.get("loc") for item in objects_of(error, "detail")]
    return any(isinstance(place, list) and "thinking" in place for place in places)


def _summary(status: int, error: Mapping[str, Any]) -> str:
    code = error.get("code")
    code = str(code) if isinstance(code, int) else code
    return f"status={status} type={word(error.get('type'))} code={word(code)}"

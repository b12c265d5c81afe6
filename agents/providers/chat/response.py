"""The chunks of a Chat answer put together into one assistant message. Pure: dicts in, our events out.

A finish reason is the proof of an end, or `[DONE]` for the vendors that send no reason at times. The servers that speak
this wire differ in every detail of it, so what a chunk lacks or says twice is borne; `Calls` keeps calls apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.messages import AssistantMessage, StopReason, Usage
from agents.providers.chat.thinking import DETAILS, merge
from agents.providers.chat.vendors import Vendor
from agents.providers.draft import Block, Draft, Payload
from agents.providers.errors import AttemptFailed, BadStream, failure, word
from agents.providers.http import END
from agents.providers.openai.errors import from_event
from agents.providers.payload import arguments_of, count_of, index_of, object_of, parse_arguments, text_of
from agents.providers.provider import ModelEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """What one delta says of a call; what it does not say is empty."""

    index: int | None
    id: str
    name: str
    arguments: str


@dataclass(kw_only=True, slots=True)
class _Call:
    """A call under way; `key` is its block's in the draft, `vendor_id` and `index` are the server's."""

    key: str
    block: Block
    index: int | None
    vendor_id: str = ""
    name: str = ""

    @property
    def complete(self) -> bool:
        """Whether its arguments are a whole object already."""
        raw = self.block.body.raw
        return raw.rstrip().endswith("}") and parse_arguments(raw) is not None


@dataclass(slots=True)
class Calls:
    draft: Draft
    _calls: list[_Call] = field(default_factory=list)

    def add(self, pieces: Sequence[object]) -> Iterator[ModelEvent]:
        here: list[_Call] = []
        for value in pieces:
            piece = _read(value)
            if not (piece.id or piece.name or piece.arguments):
                continue
            call = self._known(piece, here) or self._new(piece)
            here.append(call)
            if call.block.call is None:
                yield from self._extend(call, piece)

    def close(self) -> Iterator[ModelEvent]:
        """Nothing more is to come."""
        for call in self._calls:
            if call.block.call is None:
                yield from self.draft.start(call.key, vendor_id=call.vendor_id, name=call.name)
                yield from self.draft.close(call.key)

    def _known(self, piece: _Piece, here: Sequence[_Call]) -> _Call | None:
        """The call that the piece continues."""
        if piece.index is not None:
            same = [call for call in self._calls if call.index == piece.index]
        else:
            same = [call for call in self._calls if piece.id and call.vendor_id == piece.id]
            same = same or ([] if piece.id and piece.name else self._calls[-1:])
        if not same or (piece.name and _another(same[-1], piece, here)):
            return None
        return same[-1]

    def _new(self, piece: _Piece) -> _Call:
        key = f"call {len(self._calls)}"
        call = _Call(key=key, block=self.draft.open(key, "call"), index=piece.index)
        self._calls.append(call)
        return call

    def _extend(self, call: _Call, piece: _Piece) -> Iterator[ModelEvent]:
        """A call is shown as soon as its name is known."""
        call.vendor_id = call.vendor_id or piece.id
        call.name = call.name or piece.name
        yield from self.draft.add(call.key, piece.arguments)
        if call.name:
            yield from self.draft.start(call.key, vendor_id=call.vendor_id, name=call.name)


def _another(call: _Call, piece: _Piece, here: Sequence[_Call]) -> bool:
    """Whether a piece that brings a name opens a call of its own, though it could belong to `call`."""
    return (
        any(call is other for other in here)
        or (bool(call.name) and piece.name != call.name)
        or (bool(piece.id and call.vendor_id) and piece.id != call.vendor_id)
        or (piece.arguments.lstrip().startswith("{") and call.complete)
    )


def _read(value: object) -> _Piece:
    piece: dict[str, Any] = value if isinstance(value, dict) else {}
    function = object_of(piece, "function")
    return _Piece(
        index=index_of(piece, "index"),
        id=text_of(piece, "id"),
        name=text_of(function, "name"),
        arguments=arguments_of(function),
    )


API = "openai-chat"

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "error": "error",
}


class ChatAssembly:
    """One answer in the making. The wire has no order of parts: they stand in the order in which they began."""

    def __init__(self, *, provider: str, model: str, timestamp: float, vendor: Vendor) -> None:
        self.draft = Draft(api=API, provider=provider, model=model, timestamp=timestamp)
        self._calls = Calls(self.draft)
        self._vendor = vendor
        self._reasoning_field = ""
        self._details: list[dict[str, Any]] = []
        self._refused = False
        self._finish_reason = ""
        self._done = False

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") and not self._finish_reason:
            raise AttemptFailed(from_event(event))
        if event.get("type") == END:
            self._done = True
            yield from self._calls.close()
            return
        self.draft.response_id = self.draft.response_id or text_of(event, "id") or None
        choice = first_choice(event)
        if usage := object_of(event, "usage") or object_of(choice, "usage"):
            self.draft.usage = usage_of(usage)
        yield from self._extend(object_of(choice, "delta"))
        if (reason := text_of(choice, "finish_reason")) and not self._finish_reason:
            self._finish_reason = reason
            if self._stop_reason == "error":
                raise AttemptFailed(failure("server", f"status=200 finish_reason={word(reason)}", {}, 0.0))
            yield from self._calls.close()

    def _extend(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        field_name = next((name for name in self._vendor.reasoning_fields if text_of(delta, name)), "")
        if field_name:
            self._reasoning_field = self._reasoning_field or field_name
            yield from self._think(text_of(delta, field_name))
        if isinstance(details := delta.get(DETAILS), list) and details:
            text = merge(self._details, details)
            yield from self._think("" if field_name else text)
        yield from self._write(text_of(delta, "content"))
        if refusal := text_of(delta, "refusal"):
            self._refused = True
            yield from self._write(refusal)
        if isinstance(pieces := delta.get("tool_calls"), list):
            yield from self._calls.add(pieces)

    def _think(self, text: str) -> Iterator[ModelEvent]:
        if "thinking" not in self.draft.blocks:
            self.draft.open("thinking", "thinking", self._reasoning_payload)
        yield from self.draft.add("thinking", text)

    def _reasoning_payload(self, text: str) -> Payload:
        return (DETAILS, self._details) if self._details else (self._reasoning_field, text) if text else None

    def _write(self, text: str) -> Iterator[ModelEvent]:
        """Chat templates leave line ends before an answer; they are no part of it."""
        if "text" not in self.draft.blocks:
            self.draft.count(len(text))
            if not (text := text.lstrip("\r\n")):
                return
            self.draft.open("text", "text")
        yield from self.draft.add("text", text)

    def finish(self) -> AssistantMessage:
        if not self._finish_reason and not (self._done and self._vendor.finish_optional):
            raise BadStream("the stream ended without a finish reason")
        return self.draft.finished(self._reason())

    @property
    def _stop_reason(self) -> StopReason:
        """What the finish reason alone says; one that nobody knows is an end like any other."""
        return self._vendor.finish.get(self._finish_reason) or _STOP_REASONS.get(self._finish_reason, "end_turn")

    def _reason(self) -> StopReason:
        reason = self._stop_reason
        if self._refused and reason != "content_filter":
            return "refusal"
        if reason == "max_tokens" and not self.draft.blocks and self.draft.usage.output <= 1:
            return "context_window"  # cut off before its first word: the window is full
        return reason


def first_choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """We ask for one; an empty list is normal in chunks that bring something else."""
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def finishes(event: Mapping[str, Any]) -> bool:
    """Whether this chunk ends the answer; what comes behind it is its price."""
    return bool(text_of(first_choice(event), "finish_reason"))


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """`usage` is the last that came: each one replaces those before it."""
    prompt = usage.get("prompt_tokens_details")
    read = (
        count_of(prompt, "cached_tokens")
        or count_of(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or count_of(usage, "cached_tokens")  # Moonshot
    )
    write = count_of(prompt, "cache_write_tokens")
    return Usage(
        input=max(0, count_of(usage, "prompt_tokens") - read - write),
        cache_read=read,
        cache_write=write,
        output=count_of(usage, "completion_tokens"),
        reasoning=count_of(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )

"""The common part of answers on the wires in OpenAI's manner: calls in pieces, kept apart, and the price."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.messages import Usage
from agents.providers.draft import Block, Draft
from agents.providers.payload import arguments_of, count_of, index_of, object_of, parse_arguments, text_of
from agents.providers.provider import ModelEvent
from agents.providers.refusals import word


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """One delta's piece of a call; what it does not say is empty."""

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
        """True if its arguments are a whole object already."""
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
            call = self._known(piece, here)
            if call is None and self._is_repeated(piece):
                continue
            call = call or self._new(piece)
            here.append(call)
            if call.block.call is None:
                yield from self._extend(call, piece)

    def close(self) -> Iterator[ModelEvent]:
        """Closes all calls: no more pieces come."""
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

    def _is_repeated(self, piece: _Piece) -> bool:
        """True if it is a whole call that is there already, perhaps still open."""
        return bool(piece.id and piece.name and piece.arguments.strip()) and any(
            (call.vendor_id, call.name) == (piece.id, piece.name)
            and call.complete
            and parse_arguments(call.block.body.raw) == parse_arguments(piece.arguments)
            for call in self._calls
        )

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
    """True if a piece that brings a name opens its own call, though it could belong to `call`."""
    return (
        any(call is other for other in here)
        or (bool(call.name) and piece.name != call.name)
        or (bool(piece.id and call.vendor_id) and piece.id != call.vendor_id)
        or (piece.arguments.lstrip().startswith("{") and call.complete and not _continues(call, piece))
    )


def _continues(call: _Call, piece: _Piece) -> bool:
    """True if the arguments began with an empty object, which some servers send before the real ones."""
    same = bool(piece.id) and piece.id == call.vendor_id and piece.index is not None
    return same and call.block.body.raw.strip() == "{}"


def _read(value: object) -> _Piece:
    piece: dict[str, Any] = value if isinstance(value, dict) else {}
    function = object_of(piece, "function")
    return _Piece(
        index=index_of(piece, "index"),
        id=text_of(piece, "id"),
        name=text_of(function, "name"),
        arguments=arguments_of(function),
    )


COMPLETION = "chat.completion"
"""The type of an answer that is whole, though a stream was asked for."""


def whole_message(event: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """The message of an answer that came whole; a chunk may repeat it beside its own delta, and then it is no news."""
    if event.get("object") == COMPLETION or "delta" not in choice:
        return object_of(choice, "message")
    return {}


def content_of(message: Mapping[str, Any]) -> Iterator[tuple[Literal["text", "thinking"], str]]:
    """The pieces of a content that is a text or a list of parts. A part without a text is named."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if isinstance(part, str):
            yield "text", part
        elif isinstance(part, dict):
            kind = text_of(part, "type")
            is_thought = kind in ("thinking", "reasoning", "reasoning_text")
            inner = next(
                (part[it] for it in ("text", "thinking", "reasoning", "refusal", "content") if part.get(it)), ""
            )
            texts = inner if isinstance(inner, list) else [inner]
            text = "".join(it if isinstance(it, str) else text_of(it, "text") for it in texts)
            if text or is_thought or kind in ("", "text", "output_text"):
                yield "thinking" if is_thought else "text", text
            else:
                yield "text", f"[unreadable part: {word(kind)}]"


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Their input is the sum, and has two names; ours is what neither came from the cache nor went into it."""
    into = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    out = usage.get("completion_tokens_details", usage.get("output_tokens_details"))
    read = (
        count_of(into, "cached_tokens")
        or count_of(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or count_of(usage, "cached_tokens")  # Moonshot
    )
    write = count_of(into, "cache_write_tokens")
    input_tokens = count_of(usage, "prompt_tokens") or count_of(usage, "input_tokens")
    return Usage(
        input=max(0, input_tokens - read - write),
        cache_read=read,
        cache_write=write,
        output=count_of(usage, "completion_tokens") or count_of(usage, "output_tokens"),
        reasoning=count_of(out, "reasoning_tokens"),
    )

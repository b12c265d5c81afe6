"""The tool calls of one Chat answer, told apart however a server streams them.

OpenAI numbers its calls and sends each id and name once. Others leave the number out, repeat id and name with every
piece, send a call in one piece, give two calls one id or one number, or no id at all. A new call is one that nothing
before it can be: that has another name, another id, or arguments although those before it are whole.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.providers.arguments import parse_arguments
from agents.providers.draft import Block, Draft
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
    """The calls of `draft`."""

    draft: Draft
    _calls: list[_Call] = field(default_factory=list)

    def add(self, pieces: Sequence[object]) -> Iterator[ModelEvent]:
        """The pieces of one delta."""
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
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
    index, call_id, name = piece.get("index"), piece.get("id"), function.get("name")
    return _Piece(
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        id=call_id if isinstance(call_id, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=_arguments(function.get("arguments")),
    )


def _arguments(value: object) -> str:
    """A string of JSON, or as some servers send them the value itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)

"""The tool calls of one Chat answer, told apart however a server streams them.

OpenAI numbers its calls and sends each id and name once. Others leave the number out, repeat id and name with every
piece, send a call in one piece, give two calls one id or one number, or no id at all. A new call is one that nothing
before it can be: that has another name, another id, or arguments although those before it are whole.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.messages import ToolCall
from agents.providers.arguments import parse_arguments
from agents.providers.chat.places import Places
from agents.providers.growing import Growing
from agents.providers.ids import CallIds
from agents.providers.provider import ToolCallDelta, ToolCallEnd, ToolCallStart


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """What one delta says of a call; what it does not say is empty."""

    index: int | None
    id: str
    name: str
    arguments: str


@dataclass(kw_only=True, slots=True)
class _Call:
    """A call under way. `wire_id` is the server's, `id` the one that it has from us."""

    key: str
    place: int
    index: int | None
    wire_id: str = ""
    name: str = ""
    id: str = ""
    body: Growing = field(default_factory=Growing)
    unshown: str = ""
    started: bool = False

    @property
    def complete(self) -> bool:
        """Whether its arguments are a whole object already."""
        raw = self.body.raw
        return raw.rstrip().endswith("}") and parse_arguments(raw) is not None


@dataclass(slots=True)
class Calls:
    made: dict[str, ToolCall] = field(default_factory=dict)
    """The calls that are whole, by the name of their part."""
    _calls: list[_Call] = field(default_factory=list)
    _ids: CallIds = field(default_factory=CallIds)

    def add(
        self, pieces: Sequence[object], places: Places, answer: str | None
    ) -> Iterator[ToolCallStart | ToolCallDelta]:
        """The pieces of one delta. `answer` is the id of the answer, of which a missing id is made."""
        here: list[_Call] = []
        for told in pieces:
            piece = _read(told)
            if not (piece.id or piece.name or piece.arguments):
                continue
            call = self._known(piece, here) or self._new(piece, places)
            here.append(call)
            if call.key not in self.made:
                yield from self._extend(call, piece, answer)

    def close(self, answer: str | None) -> Iterator[ToolCallStart | ToolCallDelta | ToolCallEnd]:
        """Nothing more is to come."""
        for call in self._calls:
            if call.key in self.made:
                continue
            yield from self._start(call, answer)
            raw = call.body.text
            made = ToolCall(id=call.id, name=call.name, arguments=parse_arguments(raw), arguments_raw=raw)
            self.made[call.key] = made
            yield ToolCallEnd(index=call.place, call=made)

    def _known(self, piece: _Piece, here: Sequence[_Call]) -> _Call | None:
        """The call that the piece continues."""
        if piece.index is not None:
            same = [call for call in self._calls if call.index == piece.index]
        else:
            same = [call for call in self._calls if piece.id and call.wire_id == piece.id]
            same = same or ([] if piece.id and piece.name else self._calls[-1:])
        if not same or (piece.name and _another(same[-1], piece, here)):
            return None
        return same[-1]

    def _new(self, piece: _Piece, places: Places) -> _Call:
        key = f"call {len(self._calls)}"
        call = _Call(key=key, place=places.of(key), index=piece.index)
        self._calls.append(call)
        return call

    def _extend(self, call: _Call, piece: _Piece, answer: str | None) -> Iterator[ToolCallStart | ToolCallDelta]:
        call.wire_id = call.wire_id or piece.id
        call.name = call.name or piece.name
        call.unshown += call.body.add(piece.arguments)
        if call.name:
            yield from self._start(call, answer)

    def _start(self, call: _Call, answer: str | None) -> Iterator[ToolCallStart | ToolCallDelta]:
        """Tell of it, with what it has said so far: not before its name is known."""
        if not call.started:
            call.started = True
            call.id = self._ids.unique(call.wire_id, answer=answer, place=call.place)
            yield ToolCallStart(index=call.place, id=call.id, name=call.name)
        if call.unshown:
            yield ToolCallDelta(index=call.place, text=call.unshown)
            call.unshown = ""


def _another(call: _Call, piece: _Piece, here: Sequence[_Call]) -> bool:
    """Whether a piece that brings a name opens a call of its own, though it could belong to `call`."""
    return (
        any(call is other for other in here)
        or (bool(call.name) and piece.name != call.name)
        or (bool(piece.id and call.wire_id) and piece.id != call.wire_id)
        or (piece.arguments.lstrip().startswith("{") and call.complete)
    )


def _read(told: object) -> _Piece:
    piece: dict[str, Any] = told if isinstance(told, dict) else {}
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
    index, call_id, name = piece.get("index"), piece.get("id"), function.get("name")
    return _Piece(
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        id=call_id if isinstance(call_id, str) else "",
        name=name if isinstance(name, str) else "",
        arguments=_arguments(function.get("arguments")),
    )


def _arguments(told: object) -> str:
    """A string of JSON, or as some servers send them the value itself."""
    if told is None or isinstance(told, str):
        return told or ""
    return json.dumps(told, ensure_ascii=False)

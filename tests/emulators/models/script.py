"""What an emulated model says, whatever its wire: answers and faults, and the accidents that may befall them.

Tests, the demo and rehearsals write their models with this. Each emulator puts it into its own vendor's form; what only
one vendor has (a redacted block, a phase) is in that vendor's own script.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from agents.messages import Usage

PIECE_CHARS = 12
"""A stream brings texts and arguments in pieces of this size."""

Stop: TypeAlias = Literal["length", "refusal", "filter", "context"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Think:
    """Reasoning, in the vendor's own signed or encrypted form. `shown`: its text is shown to us."""

    text: str
    shown: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call. `raw` is sent in place of the arguments, whatever it is; without `id` the emulator makes one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamFault:
    """What happens to an answer on its way."""

    cut_after: int | None = None
    """After so many events the stream goes wrong, in the way that `then` names."""
    then: Literal["end", "reset", "stall", "error"] = "end"
    """`end`: the body ends as if whole. `reset`: the connection breaks. `stall`: silence. `error`: an error is sent."""
    error_type: str = "overloaded_error"
    """The vendor's name for that error."""
    chunk_bytes: int | None = None
    """Send the stream in pieces of this size, across events and characters."""
    pause_seconds: float = 0.0
    """Silence before each piece."""
    noise: bool = False
    """Mix in events and members that do not exist yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn(StreamFault):
    """One answer. Without `stop` the vendor's natural reason to end."""

    parts: tuple[Say | Think | Call, ...]
    stop: Stop | None = None
    usage: Usage | None = None
    """What the answer says it cost; an estimate of the emulator's where it is None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An answer that is none. With `body` those words are sent as they are, else the vendor's error object; what is
    None is what the vendor says with this status."""

    status: int
    type: str | None = None
    message: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    content_type: str = "application/json"
    then: Literal["end", "reset", "stall"] = "end"
    """What befalls the second half of its body."""


HTML_200 = Fault(status=200, body="<!doctype html><title>Sign in</title>", content_type="text/html")


def says(text: str, **members: Any) -> Turn:
    """A plain answer; `members` are others of the `Turn`."""
    return Turn(parts=(Say(text=text),), **members)


def calls(*made: tuple[str, dict[str, Any]], before: str = "", **members: Any) -> Turn:
    """Tool calls, as (name, arguments), with words before them if there are any."""
    words = (Say(text=before),) if before else ()
    return Turn(parts=(*words, *(Call(name=name, arguments=arguments) for name, arguments in made)), **members)


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


def raw_arguments(call: Call) -> str:
    """The arguments as the text that is sent."""
    return call.raw if call.raw is not None else json.dumps(dict(call.arguments), ensure_ascii=False)


def neutral(turn: StreamFault) -> Turn:
    """Raises TypeError for an answer in another vendor's own form."""
    if not isinstance(turn, Turn):
        raise TypeError(f"not an answer of this vendor's: {type(turn).__name__}")
    return turn


def faults_of(turn: StreamFault) -> dict[str, Any]:
    """The members that say what happens to an answer on its way, for the same answer in a vendor's own form."""
    return {member.name: getattr(turn, member.name) for member in fields(StreamFault)}

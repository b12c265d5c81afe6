"""What was seen from outside the product: what the platform pushed and showed, what the model was asked, what ran.

Every message of a user carries a serial and a wish, `S000017 long`; every answer of the model carries the serial, which
of its answers to that message it is, and the part: `R S000017 n2 p1/3`. So lost, doubled and out of order are questions
about sets and sequences. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Wish: TypeAlias = Literal["plain", "exec", "write", "ls", "long"]

WORDS = re.compile(rf"\b(S\d{{6}}) ({'|'.join(get_args(Wish))})\b")
ANSWER = re.compile(r"\bR (S\d{6}) n(\d+) p(\d)/(\d)\b")


@dataclass(kw_only=True, slots=True)
class Message:
    """What a user wrote. `acked` is its place among the acknowledged messages of all chats; None before the 200."""

    serial: str
    chat: str
    wish: Wish
    message_id: str
    kills_before: int = 0
    """How many kills there had been when it was first pushed."""
    acked: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A message that people see in a chat. `take` is 0 where the words are not the model's but the gateway's own."""

    chat: str
    serial: str
    take: int
    part: int = 1
    parts: int = 1
    kills: int = 0
    """How many kills there had been by then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A part of which the gateway says that it may have been sent, `times` over; `told` where a dead letter says so."""

    chat: str
    serial: str
    take: int
    part: int
    parts: int
    times: int
    given_up: bool
    told: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request to the model: the serials its user messages carry, its answers in the history, why it was refused."""

    serials: tuple[str, ...]
    takes: tuple[tuple[str, int], ...] = ()
    refused: str = ""


@dataclass(kw_only=True)
class Ledger:
    """`repeats` and `recognises` are what config and platform make of a send that may have arrived, see `emulated`."""

    repeats: bool = True
    recognises: bool = True
    messages: dict[str, Message] = field(default_factory=dict)
    """By serial."""
    shown: list[Shown] = field(default_factory=list)
    """As the platform shows it: a send that it recognised by its uuid is not here again."""
    asked_to_show: set[tuple[str, int, int]] = field(default_factory=set)
    """The parts of which the platform had a request, answered or not: by serial, take and part."""
    doubts: dict[tuple[str, int, int], Doubt] = field(default_factory=dict)
    """By serial, take and part."""
    counted: int | None = None
    """How many the metric has counted; None where a life ended before it was asked."""
    asked: list[Asked] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    """One serial for each time that a command ran."""
    kills: int = 0
    freezes: int = 0
    refused: list[str] = field(default_factory=list)
    """What the platform did not take, in its own words."""
    orphans: list[str] = field(default_factory=list)
    """Command lines that outlived the gateway they were started by."""
    litter: list[str] = field(default_factory=list)
    """Half-written files left in the workspace."""
    torn: list[str] = field(default_factory=list)
    """Files that hold neither what they held nor what was to be written."""


def asked_of(body: Mapping[str, Any], refused: str = "") -> Asked:
    """What the ledger keeps of a request to the model."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages", [])
    serials = [found[0] for message in messages if message["role"] == "user" for found in WORDS.findall(_text(message))]
    answers = [found for m in messages if m["role"] == "assistant" for found in ANSWER.findall(_text(m))]
    takes = {(serial, int(take)): None for serial, take, _, _ in answers}
    return Asked(serials=tuple(serials), takes=tuple(takes), refused=refused)


def running(body: Mapping[str, Any]) -> tuple[str, Wish, bool] | None:
    """Serial and wish of the message that is being answered, and whether a tool was called for it."""
    called = False
    for message in reversed(body["messages"]):
        if message["role"] == "user" and (found := WORDS.findall(_text(message))):
            serial, wish = found[-1]
            return serial, wish, called
        called = called or (message["role"] == "assistant" and any(b["type"] == "tool_use" for b in _blocks(message)))
    return None


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in _blocks(message) if block["type"] == "text")


def _blocks(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content

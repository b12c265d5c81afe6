"""What was seen from outside the product: what the platform pushed and showed, what the model was asked, what ran.

Every message of a user carries a serial and a wish, `S000017 long`; every answer of the model carries the serial, which
of its answers to that message it is, and the part: `R S000017 n2 p1/3`. So lost, doubled and out of order are questions
about sets and sequences. A command that needs an approval has two serials more: `Q000017` is the gateway's question, and
`A000017` what is answered after the decision. The task that a message has handed over has the serial `T000017`. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from tests.emulators.models.dialogue import summary_names

Wish: TypeAlias = Literal[
    "plain", "exec", "write", "ls", "long", "file", "task", "/new", "/undo", "/approve", "decided", "handed", "say"
]
"""What begins with a slash is written as it is, and answered by the gateway itself. `decided` and `handed` are written by
nobody: a conversation goes on after a decision, and a task has its result. `say` is sent without a model."""
BESIDE: Sequence[Wish] = ("/approve", "decided", "handed", "say")
"""What has no place among the messages of its chat."""
Key: TypeAlias = tuple[str, int, int]
"""A part of an answer: serial, take and part."""

WORDS = re.compile(rf"\b([ST]\d{{6}}) ({'|'.join(get_args(Wish))})\b")
ANSWER = re.compile(r"\bR ([SAT]\d{6}) n(\d+) p(\d)/(\d)\b")
FAILURE = re.compile(r"^Task \w+, `(T\d{6})`, has failed:")
QUESTION = re.compile(r"echo S(\d{6}) .*/approve (\S+) deny", re.DOTALL)
CALLED = re.compile(r"echo S(\d{6}) ")
NOTE = "[message_id: approval-"
"""How the message begins with which the conversation goes on after a decision."""
PENDING, FAILED = "EXEC_APPROVAL_PENDING", "error_code"


@dataclass(kw_only=True, slots=True)
class Message:
    """What a user wrote. `acked` is its place among the acknowledged messages of all chats; None before the 200."""

    serial: str
    chat: str
    wish: Wish
    event: Mapping[str, Any] = field(default_factory=dict)
    """What tells the gateway."""
    kills_before: int = 0
    """How many kills there had been when it was first pushed."""
    acked: int | None = None

    @property
    def is_command(self) -> bool:
        return self.wish.startswith("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A message of the bot. `take` is 0 where the words are not the model's but the gateway's own."""

    chat: str
    serial: str
    take: int = 0
    part: int = 1
    parts: int = 1
    kills: int = 0
    """How many kills there had been by then."""

    @property
    def key(self) -> Key:
        return self.serial, self.take, self.part


def shown(text: str, *, chat: str, serial: str, kills: int) -> Shown:
    """Read from its text; `serial` is that of the message it replies to, for what is no answer of the model."""
    if question := QUESTION.search(text):
        return Shown(chat=chat, serial=f"Q{question[1]}", kills=kills)
    if failure := FAILURE.search(text):
        return Shown(chat=chat, serial=failure[1], kills=kills)
    if (found := ANSWER.search(text)) is None:
        return Shown(chat=chat, serial=serial, kills=kills)
    take, part, parts = (int(found[group]) for group in (2, 3, 4))
    return Shown(chat=chat, serial=found[1], take=take, part=part, parts=parts, kills=kills)


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A part that the gateway may have sent, `times` over; `reported` where a dead letter says so."""

    part: Shown
    times: int = 1
    given_up: bool = True
    reported: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request to the model: the serials its user messages carry, its answers in the history, why it was refused."""

    serials: tuple[str, ...]
    takes: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    asked: tuple[str, ...] = ()
    """The serials of the commands of which it says that they wait for an approval."""
    ran: tuple[str, ...] = ()
    """And of those that it has the result of, after their approval."""
    results: tuple[str, ...] = ()
    """The serials of the tasks whose results stand in it."""


@dataclass(kw_only=True, slots=True)
class Due:
    """The moment at which a row is due, and how late it may be seen: the lease, and what restarts took meanwhile."""

    at: float
    late_seconds: float = 0.0


@dataclass(kw_only=True)
class Ledger:
    """`repeats` and `recognises` are what config and platform make of a send that may have arrived, see `emulated`."""

    repeats: bool = True
    recognises: bool = True
    messages: dict[str, Message] = field(default_factory=dict)
    """By serial."""
    due: dict[str, Due] = field(default_factory=dict)
    """What comes at its time, by serial."""
    first_seen: dict[str, float] = field(default_factory=dict)
    """When something was shown for the first time, by serial."""
    shown: list[Shown] = field(default_factory=list)
    """As the platform shows it: a send that it recognised by its uuid is not here again."""
    sends: set[Key] = field(default_factory=set)
    """The parts of which the platform had a request, answered or not."""
    doubts: dict[Key, Doubt] = field(default_factory=dict)
    counted: int | None = None
    """How many doubts the metric has counted; None where a life ended before it was read."""
    requests: list[Request] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    """One serial for each time that a command ran."""
    decisions: dict[str, str] | None = None
    """By serial what somebody has answered to the question; None where commands need no approval."""
    kills: int = 0
    freezes: int = 0
    stops: int = 0
    """SIGTERMs."""
    refused: list[str] = field(default_factory=list)
    """What the platform did not take, in its own words."""
    unfinished: list[str] = field(default_factory=list)
    """Cards that still wait for an end, and reactions that nobody took away."""
    orphans: list[str] = field(default_factory=list)
    """Command lines that outlived the gateway they were started by."""
    litter: list[str] = field(default_factory=list)
    """Files left half written in the workspace, under a temporary name or their own."""
    unsettled: list[str] = field(default_factory=list)
    """Approvals without an end."""
    miscounted: list[str] = field(default_factory=list)
    """Sums of the budgets that are not what the journaled answers took."""


def request(body: Mapping[str, Any], refused: str = "") -> Request:
    """What the ledger keeps of a request to the model."""
    messages = [] if summary_names(body) is not None else body.get("messages", [])
    texts = [(message["role"], _text(message)) for message in messages]
    serials = [serial for _, serial, _ in _wishes(messages)]
    results = [(f"S{called[1]}", text) for call, text in _results(messages) if (called := CALLED.search(call))]
    approved = {serial for serial in serials if serial.startswith("A")}
    answers = [found for role, text in texts if role == "assistant" for found in ANSWER.findall(text)]
    takes = {(serial, int(take)): None for serial, take, _, _ in answers}
    return Request(
        serials=tuple(serials),
        takes=tuple(takes),
        refused=refused,
        asked=tuple(serial for serial, text in results if PENDING in text),
        ran=tuple(serial for serial, text in results if f"A{serial[1:]}" in approved and FAILED not in text),
        results=tuple(found[0] for _, text in _results(messages) for found in ANSWER.findall(text)),
    )


def running(body: Mapping[str, Any]) -> tuple[str, Wish, bool] | None:
    """Serial and wish of the message that is being answered, and whether a tool was called for it."""
    place, serial, wish = max(_wishes(body["messages"]), default=(-1, "", "plain"))
    called = any(_calls(message) for message in body["messages"][place + 1 :])
    return (serial, wish, called) if serial else None


def _wishes(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, Wish]]:
    """What people wish for, with the place of its message. A decision names nothing: the call behind it does."""
    for place, message in enumerate(messages):
        if message["role"] != "user":
            continue
        text = _text(message)
        yield from ((place, serial, wish) for serial, wish in WORDS.findall(text))
        if NOTE in text and (called := CALLED.search(str(messages[place + 1]["content"]))):
            yield place, f"A{called[1]}", "decided"


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block for block in _blocks(message) if message["role"] == "assistant" and block["type"] == "tool_use"]


def _results(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The arguments of each call, and what came of it."""
    calls = {call["id"]: str(call["input"]) for message in messages for call in _calls(message)}
    for message in messages:
        for block in _blocks(message):
            if block["type"] == "tool_result":
                yield calls[block["tool_use_id"]], str(block["content"])


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in _blocks(message) if block["type"] == "text")


def _blocks(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content

"""Records that the store takes and gives: messages, chats and their leases, transcripts with marks, and reply parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from agents.messages import AssistantMessage, Message
from gateway.config.budgets import Rate, Rated
from gateway.records.inbound import LoadedBody
from gateway.records.sessions import CONTROL
from gateway.store.spending import Spent
from gateway.store.spoken import Spoken

Kind: TypeAlias = Literal["user", "steered", "assistant", "toolResult", "drained", "final"]
MarkKind: TypeAlias = Literal["new", "summary", "settings", "undone", "draft"]
Reading: TypeAlias = Literal["whole", "continued"]
"""A row in front of a history says if it has all turns, or only those behind what was known."""
Standing: TypeAlias = Literal["paired", "waiting", "crowded", "new"]
"""A person at a channel account may write, has a code or had one lately, too many others wait, or none of these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPart:
    """A reply part to queue. `key` is its idempotency key, the same whatever database it stands in."""

    key: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message to accept. `dedupe` is one or two keys, scoped to channel and account.

    `sender` is whom it counts for, over all chats; nobody where None. `interrupts`: whatever the chat had
    before this message is to be stopped. `chat` is the chat with all its topics. It counts towards `rates`.
    """

    sid: str
    dedupe: tuple[str, ...]
    body: str
    at: float
    sender: str | None = None
    interrupts: bool = False
    chat: str = ""
    rates: Mapping[Rated, Rate] = field(default_factory=dict)
    internal: bool = False
    """It is the gateway's own, and no limit of messages that wait keeps it out."""
    again: bool = False  # a copy of a message that came before
    repeatable: bool = False
    """If it is refused, it may come again under its key: whoever sends it repeats it on purpose, as a program does."""

    @property
    def control(self) -> str:
        """The session for commands, and for a message beyond a limit, which is answered with a note."""
        return CONTROL + self.sid.removeprefix(CONTROL)

    @property
    def row(self) -> dict[str, Any]:
        """The values that the inbox keeps of it, by column."""
        first, *second = self.dedupe
        row = {"dedupe": first, "dedupe_text": second[0] if second else None, "sid": self.sid, "body": self.body}
        channel, _, rest = (self.sender or "").partition(":")
        person, again = f"{channel}:{rest.partition(':')[2]}" if self.sender else None, self.internal or self.again
        row |= {"person": person, "sender": self.sender, "chat": self.chat if self.rates else None}
        return row | {"at": self.at, "again": 1 if again else None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """One chat, owned."""

    sid: str
    epoch: int

    @property
    def row(self) -> dict[str, Any]:
        return {"sid": self.sid, "epoch": self.epoch}


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """`turn` is None for a redelivery. `lease` is the chat's where this worker owns it, now or since before: a lane is
    to be started for an epoch that has none yet. `beyond` is whose rate it exceeds."""

    turn: int | None
    lease: Lease | None = None
    overflow: bool = False
    beyond: Rated | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One row of a transcript; as loaded also a mark, or how it was read. What it `spent` is counted in the commit that
    writes it, and that commit also records what is `spoken` in it."""

    turn: int
    kind: Kind | MarkKind | Reading
    content: str
    spent: Spent | None = None
    spoken: Sequence[Spoken] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionMark:
    """A command's or a compaction's word on a conversation; its rows stay as they are. `new`: it begins anew behind `turn`.
    `summary`: a `Summary` stands for all turns up to `turn`. `settings`: what holds from `turn` on, until the next ones or a
    `new`. `undone`: that one turn is out of the history. Written once: a second one about the same turn is none."""

    turn: int
    kind: MarkKind
    at: float
    content: str = "{}"

    @property
    def row(self) -> dict[str, Any]:
        return {"turn": self.turn, "kind": self.kind, "content": self.content, "at": self.at}


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The content of a `summary` mark. `by` is the turn or the command that made it, of so many `turns`. What that took,
    `answers` without their words, is counted with the first step behind the `steps` that the turn had by then."""

    text: str
    by: int
    turns: int = 0
    steps: int = 0
    answers: tuple[AssistantMessage, ...] = ()
    external: bool = False
    """It stands for text of strangers."""

    def mark(self, turn: int, at: float) -> SessionMark:
        return SessionMark(turn=turn, kind="summary", content=summary_json.dump_json(self).decode(), at=at)

    @classmethod
    def read(cls, content: str) -> "Summary":
        """Also from a mark of the time when it was the text alone."""
        try:
            return summary_json.validate_json(content)
        except ValidationError:
            return cls(text=content, by=0)


summary_json: TypeAdapter[Summary] = TypeAdapter(Summary)


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingMessage:
    """A message that waits for its turn. `turn` is its number, and its turn's unless it joins another's."""

    turn: int
    body: str
    at: float
    attempts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Concerned:
    """A message that a stop concerns. `begun`: its turn has begun, or had."""

    turn: int
    body: str
    begun: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """The content of a turn's `final` row. `current`: it belongs to the conversation since it began; `recent`: to the time
    that was asked for."""

    content: str
    current: bool
    recent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The finished turns of a conversation that a reader has, up to the row `seq`. While `standing` is what the database
    says of them, none was taken out and they begin where they did."""

    seq: int
    standing: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of a chat: its oldest waiting messages, with what is journaled of the first one's turn so far and the
    finished turns before it. Turns below `stopped` are not to be run on; `superseded`: it was a message of this chat that
    stopped them. `settings` is JSON, `summary` stands for what was before `history`; its text is empty where there is
    none."""

    waiting: Sequence[WaitingMessage]
    history: Sequence[Entry]
    stopped: int = 0
    superseded: bool = False
    so_far: Sequence[Entry] = ()
    settings: str = "{}"
    summary: Summary = Summary(text="", by=0)
    begun: int = 0
    """The turn that the database has as begun; 0 for none."""
    has_notes: bool = False
    """True if the sender of the first message has had notes taken."""
    known: Known | None = None
    """For the next time, where `history` was read with what was known."""
    continues: bool = False
    """`history` begins behind what was known, which still stands."""
    numbers: Sequence[int] = ()
    turns: Sequence[Sequence[Message]] = ()
    """The turns of the history and their numbers, where `gateway.turns.history` has read it."""
    revision: int = 0
    """The number of times that something had been taken out of the conversation when this was read."""

    @property
    def steps(self) -> int:
        """The answers and results that the turn has journaled."""
        return sum(row.kind in ("assistant", "toolResult") for row in self.so_far)

    @property
    def made(self) -> Summary | None:
        """The summary that the turn has made, before its process died."""
        return self.summary if self.so_far and self.so_far[0].turn == self.summary.by else None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "Work":
        """From the messages that wait, as rows, and the transcript from the oldest turn to be shown on, with its marks."""
        first = rows[0]["turn"] if rows else None
        marks = {entry.kind: entry for entry in entries if entry.kind in ("new", "summary", "settings")}
        begin = marks["new"].turn if "new" in marks else 0
        held = {kind: mark.content for kind, mark in marks.items() if mark.turn > begin}
        read = next((entry for entry in entries if entry.kind in ("whole", "continued")), None)
        steps = [entry for entry in entries if entry.kind not in marks and entry is not read]
        return cls(
            waiting=[
                WaitingMessage(turn=it["turn"], body=LoadedBody(it["body"]), at=it["at"], attempts=it["attempts"])
                for it in rows
            ],
            history=[entry for entry in steps if entry.turn != first],
            so_far=[entry for entry in steps if entry.turn == first],
            settings=held.get("settings", "{}"),
            summary=Summary.read(held.get("summary", "")),
            known=Known(seq=read.turn, standing=read.content) if read else None,
            continues=read is not None and read.kind == "continued",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPart:
    """One row of the outbox. `ambiguous` counts the attempts that may have arrived. `next_at` is below zero while an attempt
    is under way: from `begin` until its outcome is recorded. `begun`: this process recorded the start and has yet to
    send."""

    id: int
    turn: int
    part: int
    key: str
    payload: str
    created: float
    attempts: int = 0
    ambiguous: int = 0
    next_at: float = 0.0
    begun: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPart:
    """A part that was sent, its session, and the inbox's body of the message that it answers, empty where that is gone.
    `ext_id` is None for one of the `message` tool's while it is being sent."""

    payload: str
    body: str
    sid: str
    ext_id: str | None
    turn: int
    part: int
    """Below zero for one of the `message` tool's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """The outcome of a message that is done with: the content of its `final` row, and the payloads of its reply."""

    final: str
    payloads: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A session as loaded: the parts still to be sent, in order, and the work behind them."""

    parts: Sequence[OutboxPart]
    work: Work | None

    @classmethod
    def of(cls, parts: Sequence[OutboxPart], rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "View":
        """From the messages that wait, as rows, and the transcript from the oldest turn to be shown on."""
        if not rows:
            return cls(parts=parts, work=None)
        work = Work.of(rows, entries)
        superseded, has_notes = bool(rows[0]["superseded"]), bool(rows[0]["has_notes"])
        first = {name: rows[0][name] for name in ("stopped", "revision", "begun")}
        work = replace(work, superseded=superseded, has_notes=has_notes, **first)
        return cls(parts=parts, work=work)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """The state of a chat at a write: messages that wait, the turn below which all is stopped, and its revision."""

    pending: int
    stopped: int
    revision: int

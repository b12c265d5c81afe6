"""The port of the durable store: what the door, the lanes and the outbox ask of the database.

Every method is one round trip and one commit. A write under an old epoch raises `Fenced`: somebody else owns the chat
now. SQLite (`sqlite.py`) and PostgreSQL (`postgres.py`) stand behind it; nothing above may know which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from channels.web.admission import Sessions
from channels.web.archive import ChatHistory
from gateway.store.spending import DayUsage, Rate, Rated, Spent

if TYPE_CHECKING:
    from gateway.store.memory import DatabaseMemory

NOTIFY_CHANNEL = "clawgate"
"""Where the workers of a shared database wake each other."""

CONTROL = "aside:"
"""What the ids of control sessions begin with: commands and notes, which never wait behind a turn."""

CHOICE = "choice:"
"""What the ids begin with under which `gateway.choices` keeps its marks; no conversation's does."""

Kind: TypeAlias = Literal["user", "steered", "assistant", "toolResult", "drained", "final"]
MarkKind: TypeAlias = Literal["new", "summary", "settings", "undone"]


class StoreUnavailable(Exception):
    """The database did not take the write: it is busy, full, read-only or gone. Nothing was stored."""


class Fenced(Exception):
    """This worker no longer owns the chat; whoever does goes on with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPart:
    """A reply part to queue. `key` is its idempotency key, the same whatever database it stands in."""

    key: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message to accept. `dedupe` is one or two keys, scoped to channel and account.

    `control` is the session beside the chat's own: commands go there, and so does a message beyond a limit, to be answered
    with a note. `sender` is whom it counts for, over all chats; nobody where None. `interrupts`: whatever the chat had
    before this message is to be stopped. `chat` is the chat with all its topics. It counts towards `rates`.
    """

    sid: str
    control: str
    dedupe: tuple[str, ...]
    body: str
    at: float
    sender: str | None = None
    interrupts: bool = False
    chat: str = ""
    rates: Mapping[Rated, Rate] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        """What the inbox keeps of it, by column."""
        first, *second = self.dedupe
        row = {"dedupe": first, "dedupe_text": second[0] if second else None, "sid": self.sid, "body": self.body}
        return row | {"at": self.at, "sender": self.sender, "chat": self.chat if self.rates else None}


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
    """One row of a transcript; as loaded also a mark. What it `spent` is counted in the commit that writes it."""

    turn: int
    kind: Kind | MarkKind
    content: str
    spent: Spent | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What a command or a compaction says of a conversation; its rows stay as they are. `new`: it begins anew behind `turn`.
    `summary`: `content` stands for all turns up to `turn`. `settings`: what holds from `turn` on, until the next ones or a
    `new`. `undone`: that one turn is out of the history. Written once: a second one about the same turn is none."""

    turn: int
    kind: MarkKind
    at: float
    content: str = "{}"

    @property
    def row(self) -> dict[str, Any]:
        return {"turn": self.turn, "kind": self.kind, "content": self.content, "at": self.at}


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
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
class Work:
    """What a chat has to do: its oldest waiting messages, with what is journaled of the first one's turn so far and the
    finished turns before it. Turns below `stopped` are not to be run on; `superseded`: it was a message of this chat that
    stopped them. `settings` is JSON, `summary` the content of the one that stands for what was before `history`, empty for
    none."""

    waiting: Sequence[Waiting]
    history: Sequence[Entry]
    stopped: int = 0
    superseded: bool = False
    so_far: Sequence[Entry] = ()
    settings: str = "{}"
    summary: str = ""
    has_notes: bool = False
    """Whether the sender of the first message has had notes taken."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "Work":
        """From the messages that wait, as rows, and the transcript from the oldest turn to be shown on, with its marks."""
        first = rows[0]["turn"] if rows else None
        marks = {entry.kind: entry for entry in entries if entry.kind in ("new", "summary", "settings")}
        begin = marks["new"].turn if "new" in marks else 0
        held = {kind: mark.content for kind, mark in marks.items() if mark.turn > begin}
        steps = [entry for entry in entries if entry.kind not in marks]
        return cls(
            waiting=[Waiting(**{name: row[name] for name in ("turn", "body", "at", "attempts")}) for row in rows],
            history=[entry for entry in steps if entry.turn != first],
            so_far=[entry for entry in steps if entry.turn == first],
            settings=held.get("settings", "{}"),
            summary=held.get("summary", ""),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
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
class View:
    """A session as loaded: the parts still to be sent, in order, and the work behind them."""

    parts: Sequence[Part]
    work: Work | None

    @classmethod
    def of(cls, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "View":
        """From the messages that wait, as rows, and the transcript from the oldest turn to be shown on."""
        if not rows:
            return cls(parts=parts, work=None)
        work = Work.of(rows, entries)
        superseded, has_notes = bool(rows[0]["superseded"]), bool(rows[0]["has_notes"])
        work = replace(work, stopped=rows[0]["stopped"], superseded=superseded, has_notes=has_notes)
        return cls(parts=parts, work=work)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """How a chat stands at a write: messages accepted and not finished, and the turn below which all is stopped."""

    pending: int
    stopped: int


class Store(Protocol):
    shared: bool
    """Whether other processes work on the same database."""
    archive: ChatHistory
    """The memory of the web chat, in the same database."""
    sessions: Sessions
    """Who is signed in to the web chat, in the same database."""
    memory: "DatabaseMemory"
    """People's notes, and the index of past turns, in the same database."""

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        """Announce this worker. `on_notify` is called on this loop with the session to load, or None for any."""

    def lease_valid(self) -> bool:
        """Whether this worker's claim on its chats can still be trusted, from memory: nothing is sent where not."""

    async def accept(self, delivery: Delivery, *, pending_max: int, sender_max: int, claim: bool) -> Acceptance:
        """Write the message and its dedupe keys; with `claim`, take its chat where that is idle. At most `pending_max`
        wait in a chat and `sender_max` of one sender, who may have as many commands besides; of what is beyond that, or
        beyond a rate, only the keys are kept, but for the first of a burst, which is to be answered with a note.

        Raises StoreUnavailable."""

    async def claim(self, limit: int) -> Sequence[Lease]:
        """Take at most `limit` chats that have work and no living owner, counting the turns that a crash cut off."""

    async def leased(self) -> Sequence[Lease]:
        """The chats that this worker owns, as the database has it."""

    async def load(self, lease: Lease, *, history_turns: int, waiting_max: int) -> View:
        """What there is to do for the chat, with at most `history_turns` (at least 1) turns before it."""

    async def append(self, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = ()) -> SessionState:
        """Journal a step, and let the messages `joined` be answered by its turn. Raises Fenced."""

    async def finish(
        self, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], *, at: float, dead: bool = False
    ) -> Sequence[Part]:
        """End the turn of `entries` (the last is its `final` row) and queue its reply, in one commit.

        A `dead` message is kept for the operator. Raises Fenced."""

    async def usage(self, day: str, scopes: Sequence[str]) -> Sequence[DayUsage]:
        """What each of at most three scopes has spent on that day, if anything."""

    async def claim_warning(self, scope: str, day: str, turn: int) -> bool:
        """Whether the answer of this turn is the one of the day that warns of the scope's budget; the same however often the
        turn asks."""

    async def beyond(self, turn: int, counts: Mapping[Rated, int]) -> tuple[Rated, float] | None:
        """Whose rate, of `counts` messages, a message exceeded, and when the oldest one came that kept it out."""

    async def sent(self, lease: Lease, part: Part, ext_id: str) -> bool:
        """Mark a part as sent; True where that was the last work of the chat and it has been released."""

    async def failed(self, lease: Lease, part: Part, reason: str) -> bool:
        """Give a part up: it is a dead letter. True as for `sent`."""

    async def begin(self, lease: Lease, part: Part, next_at: float) -> None:
        """Record that a send is starting, with a `next_at` below zero, so that a crash leaves it ambiguous. Clears the doubt
        of a part that no attempt was ever begun for. Raises Fenced."""

    async def postpone(self, lease: Lease, part: Part, next_at: float, *, ambiguous: bool) -> None:
        """Count an attempt; record when the next one is due and whether this one may have arrived."""

    async def release(self, lease: Lease) -> bool:
        """Give the chat back unless more work has come in; True where it is released."""

    async def release_for_takeover(self, lease: Lease) -> None:
        """Give the chat back with its work, for whoever claims next."""

    async def renew(self, lease: Lease) -> Lease:
        """The chat under a new epoch, so that whoever still writes under the old one is fenced. Raises Fenced."""

    async def session_state(self, lease: Lease) -> SessionState:
        """How the chat stands. Raises Fenced."""

    async def mark(self, sid: str, mark: Mark) -> bool:
        """Say something of a conversation, whoever works on it; False where that was said before."""

    async def conversation(self, sid: str, *, before: int, history_turns: int, waiting_max: int) -> Work:
        """The conversation as it stands for a command numbered `before`: what waits since before it, with or without a turn
        that runs, and at most `history_turns` turns."""

    async def body(self, sid: str, turn: int) -> str | None:
        """The inbox's body of a message; None where it is gone."""

    async def bodies(self, sid: str, turn: int) -> Sequence[str]:
        """The bodies of all messages that a turn answered, oldest first; none where its own is gone."""

    async def newest_words(self, sid: str, *, before: int) -> str | None:
        """The newest message of a person below turn `before` as it is journaled, whatever marks stand behind it."""

    async def last_turn(self, sid: str, *, before: int, by: str) -> int | None:
        """The newest finished turn of the conversation below `before` that was not undone; but the one whose `undone` mark
        has the content `by`, if there is one: what is undone by one command is one turn, however often it runs."""

    async def concerned(self, sid: str, *, before: int, by: str) -> Sequence[Concerned]:
        """The messages below `before` that wait, or that were stopped with `by` in their final row, in order."""

    async def bills(self, sid: str, *, since: float) -> Sequence[Bill]:
        """The final rows of the conversation and its control session: those since it began, and those since then."""

    async def transcript(self, sid: str) -> Sequence[Entry]:
        """The whole conversation since it began, what a summary stands for included, without what was undone."""

    async def choices(self) -> Mapping[str, str]:
        """What was chosen last for each sid that begins with `CHOICE`, by the rest of the sid."""

    async def stop(self, sid: str, before: int) -> int:
        """Stop every turn of the chat below `before`; how many messages that concerns."""

    async def notify(self, sid: str | None) -> None:
        """Ask the other workers to load a session, or with None to look for sessions without an owner."""

    async def oldest(self) -> float | None:
        """When the oldest message that is neither answered nor given up was accepted."""

    async def prune(self, before: float) -> int:
        """Delete finished inbox and outbox rows older than `before` (the dedupe horizon)."""

    async def probe(self) -> None:
        """Prove that a write would be taken. Raises StoreUnavailable."""

    async def close(self) -> None: ...

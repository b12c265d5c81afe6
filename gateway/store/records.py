"""Records that the store accepts and returns: messages and reply parts, sessions and leases, transcripts with marks,
usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError

from agents.messages import AssistantMessage, Message
from gateway.config.budgets import Rate, Rated
from gateway.store.inbound import Inbound, LoadedBody, inbound_json
from gateway.store.sessions import CONTROL, sender_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """The usage of model requests, counted for each of `scopes` on `day`, such as 2026-11-22. Scopes are ordered
    agent, chat, sender, so two turns with the same scopes never deadlock."""

    scopes: tuple[str, ...]
    day: str
    tokens: int
    cost: float

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{"scope": it, "day": self.day, "tokens": self.tokens, "cost": self.cost} for it in self.scopes]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeUsage:
    """A scope's usage on a day, and in its month up to that day. `warned` is the turn with the warning that most of
    the budget is used, 0 for none."""

    scope: str
    tokens: int = 0
    cost: float = 0.0
    warned: int = 0
    month_cost: float = 0.0
    month_warned: int = 0


def month_of(day: str) -> str:
    """Return the month of a day, such as `2026-11`, the key of the month's warning."""
    return day[:7]


def limits_of(rates: Mapping[Rated, Rate]) -> dict[str, float]:
    """Return the rates as statement parameters; a missing rate gets a limit that is never reached."""
    of = {whose: rates.get(whose, Rate(count=2**31 - 1, seconds=0.0)) for whose in get_args(Rated)}
    counts = {f"{whose}_count": rate.count for whose, rate in of.items()}
    return counts | {f"{whose}_seconds": rate.seconds for whose, rate in of.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPart:
    """A reply part to queue. `key` is its idempotency key, the same in every database."""

    key: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPart:
    """A row of the outbox. `ambiguous` counts the attempts that may have arrived. `attempt_started_at` is set from
    `begin` until the outcome is recorded. `begun`: this process recorded the start and has not sent yet."""

    id: int
    turn: int
    part: int
    key: str
    payload: str
    created: float
    attempts: int = 0
    ambiguous: int = 0
    next_at: float = 0.0
    attempt_started_at: float | None = None
    begun: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPart:
    """A sent part, its session, and the inbox body that it answers, empty if erased. `ext_id` is None while the
    `message` tool is sending it."""

    payload: str
    body: str
    sid: str
    ext_id: str | None
    turn: int
    part: int
    """Negative for a part of the `message` tool."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """The outcome of a finished message: the content of its `final` row, and the payloads of its reply."""

    final: str
    payloads: Sequence[str]


Kind: TypeAlias = Literal["user", "steered", "assistant", "toolResult", "drained", "final"]
MarkKind: TypeAlias = Literal["new", "summary", "settings", "undone", "draft"]
HistoryMode: TypeAlias = Literal["full", "incremental"]
"""The first row of a loaded history says whether it has all turns, or only those after the known ones."""
ContactState: TypeAlias = Literal["paired", "waiting", "silent", "crowded", "new"]
"""A user at a channel account: may write, waits with a code, has had every line of this hour, finds too many others
waiting, or is new."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoken:
    """A message whose text is in a transcript row, so that a recall and an erasure find it: in `parts` parts of its
    content or, if quoted or heard, in its metadata. `copied` is a tool result or a reminder's run: `message` names
    the older text that it repeats, as `tools.tool` does. `person` is `channel:id`, empty if unknown; `direct`: it is
    a direct chat."""

    message: str
    person: str
    name: str = ""
    direct: bool = False
    how: Literal["said", "quoted", "heard", "copied"] = "said"
    parts: int = 0

    @property
    def row(self) -> dict[str, Any]:
        row = {"message": self.message, "person": self.person, "name": self.name, "how": self.how}
        return row | {"direct": int(self.direct), "parts": self.parts}


@dataclass(frozen=True, kw_only=True, slots=True)
class BotRounds:
    """The bound on answers to bots in a group or topic, with its conversations of all bots of the gateway: `sessions`, and
    those of single members, which begin with one of `members`."""

    place: str
    sessions: Sequence[str]
    members: Sequence[str]
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptLine:
    """A message of a group that is kept: a row of `chatter`. `sender` is `channel:account:id`, of the bot's own answer the
    turn as a source. The body is empty once the message was recalled."""

    chat: str
    thread: str
    message: str
    sender: str
    body: str
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message to accept. `dedupe` is one or two keys, scoped to channel and account. `sender` is counted over all
    chats, if set. `interrupts`: stop the session's earlier work. `chat` is the chat with all its topics; it counts
    towards `rates`."""

    sid: str
    dedupe: tuple[str, ...]
    body: str
    at: float
    sender: str | None = None
    interrupts: bool = False
    chat: str = ""
    rates: Mapping[Rated, Rate] = field(default_factory=dict)
    internal: bool = False
    """It is the gateway's own message, exempt from queue limits."""
    rounds: "BotRounds | None" = None
    """Set for a message of a bot: it is stored without a person."""
    again: bool = False  # a copy of a message that came before
    line: KeptLine | None = None
    """Set if its group is remembered: stored in the same transaction."""
    at_once: bool = False
    """It stops or decides something, which takes effect when it is accepted."""
    repeatable: bool = False
    """A rejected message may be sent again under its key: an API client retries on purpose."""

    @classmethod
    def of(cls, inbound: Inbound, *, sid: str, names: Sequence[str], at: float, **options: Any) -> "Delivery":
        """Build a delivery to a session, by default as the message's sender. `names` are its dedupe keys within the
        account."""
        message, options = inbound.context, {"sender": sender_of(inbound.context), **options}
        dedupe = tuple(f"{message.channel}:{message.account}:{name}" for name in names)
        body = inbound_json.dump_json(inbound).decode()
        return cls(sid=sid, dedupe=dedupe, body=body, at=at, **options)

    @classmethod
    def own(cls, inbound: Inbound, *names: str, sid: str, at: float, sender: str | None = None) -> "Delivery":
        """Build a delivery of a gateway message to a session. `names` are its dedupe keys, for any account."""
        body = inbound_json.dump_json(inbound).decode()
        return cls(sid=sid, dedupe=names, body=body, at=at, sender=sender, internal=True)

    @property
    def control(self) -> str:
        """The session for commands, and for a message beyond a limit, which is answered with a note."""
        return CONTROL + self.sid.removeprefix(CONTROL)

    @property
    def row(self) -> dict[str, Any]:
        """The values of the inbox row, by column."""
        first, *second = self.dedupe
        row = {"dedupe": first, "dedupe_text": second[0] if second else None, "sid": self.sid, "body": self.body}
        channel, _, rest = (self.sender or "").partition(":")
        person = f"{channel}:{rest.partition(':')[2]}" if self.sender and not self.rounds else None
        again = self.internal or self.again
        row |= {"person": person, "sender": self.sender, "chat": self.chat if self.rates else None}
        return row | {"at": self.at, "again": 1 if again else None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Ownership of one session, with its fencing token."""

    sid: str
    epoch: int

    @property
    def row(self) -> dict[str, Any]:
        return {"sid": self.sid, "epoch": self.epoch}


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """The result of accepting a message. `turn` is None for a redelivery. `lease` is set if this worker owns the
    session: a lane is started for a new epoch. `rate_limited_by` is the exceeded rate. `out_of_rounds`: a bot's message
    gets no answer."""

    turn: int | None
    lease: Lease | None = None
    overflow: bool = False
    rate_limited_by: Rated | None = None
    out_of_rounds: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One row of a transcript; as loaded also a mark, or how it was read. The commit that writes it also counts what
    it `spent` and records what is `spoken` in it."""

    turn: int
    kind: Kind | MarkKind | HistoryMode
    content: str
    spent: Spent | None = None
    spoken: Sequence[Spoken] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionMark:
    """A note of a command or of compaction on a conversation; its rows stay. `new`: the conversation restarts after
    `turn`. `summary`: a `Summary` replaces all turns up to `turn`. `settings`: valid from `turn` until the next ones
    or a `new`. `undone`: that turn is not part of the history. Each is written once per turn."""

    turn: int
    kind: MarkKind
    at: float
    content: str = "{}"

    @property
    def row(self) -> dict[str, Any]:
        return {"turn": self.turn, "kind": self.kind, "content": self.content, "at": self.at}


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The content of a `summary` mark. `by` is the turn or command that summarised `turns` turns. Its cost, in
    `answers` without text, is counted with the first step after the turn's first `steps`."""

    text: str
    by: int
    turns: int = 0
    steps: int = 0
    answers: tuple[AssistantMessage, ...] = ()
    external: bool = False
    """It replaces untrusted text."""

    def mark(self, turn: int, at: float) -> SessionMark:
        return SessionMark(turn=turn, kind="summary", content=summary_json.dump_json(self).decode(), at=at)

    @classmethod
    def read(cls, content: str) -> "Summary":
        """Parse a mark, including old ones, which held only the text."""
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
    """A message that a stop applies to. `begun`: its turn has begun."""

    turn: int
    body: str
    begun: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """The content of a turn's `final` row. `current`: it belongs to the current conversation; `recent`: it is within
    the requested time."""

    content: str
    current: bool
    recent: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The finished turns that a reader has, up to the row `seq`. While the database returns the same `version`, none
    was removed."""

    seq: int
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of a session: its oldest waiting messages, the journaled rows of the first one's turn, and the
    finished turns before it. Turns below `stopped` do not run; `superseded`: a message of this chat stopped them.
    `settings` is JSON; `summary` replaces what was before `history`, and its text is empty if there is none."""

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
    """True if the sender of the first message has notes."""
    has_question: bool = False
    """True if a question is open in the conversation, or the first message has answered it."""
    known: Known | None = None
    """The `known` to pass to the next load."""
    continues: bool = False
    """`history` holds only the turns after `known`."""
    numbers: Sequence[int] = ()
    turns: Sequence[Sequence[Message]] = ()
    """The turns of the history, once `gateway.turns.history` has read them."""
    revision: int = 0
    """The number of removals from the conversation up to this read."""

    @property
    def steps(self) -> int:
        """The number of answers and results that the turn has journaled."""
        return sum(row.kind in ("assistant", "toolResult") for row in self.so_far)

    @property
    def made(self) -> Summary | None:
        """The summary that the turn made before its process died."""
        return self.summary if self.so_far and self.so_far[0].turn == self.summary.by else None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "Work":
        """Build the work from waiting rows and the transcript with its marks."""
        first = rows[0]["turn"] if rows else None
        marks = {entry.kind: entry for entry in entries if entry.kind in ("new", "summary", "settings")}
        begin = marks["new"].turn if "new" in marks else 0
        held = {kind: mark.content for kind, mark in marks.items() if mark.turn > begin}
        read = next((entry for entry in entries if entry.kind in ("full", "incremental")), None)
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
            known=Known(seq=read.turn, version=read.content) if read else None,
            continues=read is not None and read.kind == "incremental",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A loaded session: the parts still to be sent, in order, and the work after them."""

    parts: Sequence[OutboxPart]
    work: Work | None

    @classmethod
    def of(cls, parts: Sequence[OutboxPart], rows: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> "View":
        """Build the view from waiting rows and the transcript with its marks."""
        if not rows:
            return cls(parts=parts, work=None)
        first: Any = {name: rows[0][name] for name in ("stopped", "revision", "begun")}
        first |= {name: bool(rows[0][name]) for name in ("superseded", "has_notes", "has_question")}
        return cls(parts=parts, work=replace(Work.of(rows, entries), **first))


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """The state of a session at a write: the number of waiting messages, the turn below which everything is stopped,
    and its revision."""

    pending: int
    stopped: int
    revision: int

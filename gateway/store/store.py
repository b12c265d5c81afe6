"""The durable store: what the door, the lanes and the outbox need of the database, on SQLite and PostgreSQL.

Each method is one commit. `StoreEngine` has the steps with several statements; a method here is one statement, or a
part with its own tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from gateway.config.budgets import Rate, Rated
from gateway.store import statements as sql
from gateway.store.approvals import DatabaseApprovals
from gateway.store.archive import DatabaseArchive, DatabaseSearch, DatabaseSessions
from gateway.store.branches import DatabaseBranches
from gateway.store.changes import DatabaseChanges
from gateway.store.chatter import DatabaseChatter
from gateway.store.contacts import DatabaseContacts
from gateway.store.engine import StoreEngine
from gateway.store.erasure import DatabasePeople
from gateway.store.errors import DatabaseFault, Fenced
from gateway.store.files import DatabaseFiles
from gateway.store.later import DatabaseLater
from gateway.store.layers import DatabaseLayers
from gateway.store.logins import DatabaseLogins
from gateway.store.memory import DatabaseMemory
from gateway.store.operations import Run, rows
from gateway.store.owners import DatabaseOwners
from gateway.store.records import (
    Bill,
    Concerned,
    ContactState,
    Entry,
    KeptLine,
    Lease,
    NewPart,
    OutboxPart,
    ScopeUsage,
    SentPart,
    SessionMark,
    SessionState,
    Spent,
    StoredAnswer,
    Work,
    month_of,
)
from gateway.store.reviews import DatabaseReviews
from gateway.store.sends import DatabaseSends
from gateway.store.sessions import CHOICE, CONTROL
from gateway.store.tasks import DatabaseTasks


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Counts of waiting messages and unsent reply parts, and the time of the oldest message."""

    messages: int
    parts: int
    oldest: float | None


class Store(StoreEngine):
    """The store on either database; `SqliteStore` and `PostgresStore` define how an operation runs and which workers
    are alive. The defaults here are those of a single process."""

    shared = False
    """True if other processes use the same database."""

    def __init__(self, *, read: Run, write: Run) -> None:
        super().__init__(read=read, write=write)
        self.worker = uuid4().hex
        self.files = DatabaseFiles(read=read, write=write)
        self.archive = DatabaseArchive(read=read, write=write)
        self.search = DatabaseSearch(read=read, write=write)
        self.branches = DatabaseBranches(read=read, write=write)
        self.sessions = DatabaseSessions(read=read, write=write)
        self.memory = DatabaseMemory(read=read, write=write)
        self.changes = DatabaseChanges(read=read, write=write)
        self.chatter = DatabaseChatter(read=read, write=write)
        self.contacts = DatabaseContacts(read=read, write=write)
        self.owners = DatabaseOwners(read=read, write=write)
        self.reviews = DatabaseReviews(read=read, write=write)
        self.approvals = DatabaseApprovals(read=read, write=write)
        self.layers = DatabaseLayers(read=read, write=write)
        self.sends = DatabaseSends(read=read, write=write)
        self.tasks = DatabaseTasks(read=read, write=write)
        self.later = DatabaseLater(read=read, write=write)
        self.logins = DatabaseLogins(read=read, write=write)
        self.people = DatabasePeople(read=read, write=write)

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        """Announce this worker. `on_notify` is called on this loop with the session to load, or None for any."""

    def lease_valid(self) -> bool:
        """Return whether this worker can still trust its claim on its sessions; if not, nothing is sent. Needs no
        query."""
        return True

    @property
    def failing(self) -> DatabaseFault | None:
        """The fault of this worker's newest writes; None if they succeeded. Needs no query."""
        return None

    async def waiting_as(self, dedupe: Sequence[str]) -> tuple[int, str, str] | None:
        """Return number, session and body of the waiting message with these keys."""
        first, second = dedupe[0], dedupe[-1]
        row = await self._one(sql.WAITING_AS, {"first": first, "second": second})
        return (row["id"], row["sid"], row["body"]) if row else None

    async def leased(self) -> Sequence[Lease]:
        """Return the sessions that this worker owns according to the database."""
        return [Lease(**row) for row in await self._rows(sql.LEASED, {"owner": self.worker})]

    async def begun(self, lease: Lease, turn: int) -> None:
        """Record that a turn of all messages up to `turn` is about to begin; 0 for none. If the process dies before
        that turn's end, one attempt counts for these messages only. Raises Fenced."""
        await self._ours(sql.BEGUN, lease.row | {"turn": turn})

    async def usage(self, day: str, scopes: Sequence[str]) -> Sequence[ScopeUsage]:
        """Return the usage of at most three scopes on the day, and in its month so far."""
        first, second, third = (*scopes, "", "", "")[:3]
        names = {"day": day, "month": month_of(day), "first": first, "second": second, "third": third}
        return [ScopeUsage(**row) for row in await self._rows(sql.USAGE, names)]

    async def spend(self, spent: Spent) -> None:
        """Count usage that is no turn's."""
        for row in spent.rows:
            await self._rows(sql.SPEND, row)

    async def claim_warning(self, scope: str, period: str, turn: int) -> bool:
        """Return whether this turn's answer carries the budget warning of the scope for the period. Idempotent per
        turn."""
        return await self._one(sql.CLAIM_WARNING, {"scope": scope, "day": period, "turn": turn}) is not None

    async def rate_limit(self, turn: int, rates: Mapping[Rated, Rate]) -> tuple[Rated, float] | None:
        """Return which of the rates a message exceeded, and the time of the oldest message in the window."""
        row = await self._one(sql.RATE_LIMITED_BY, {"turn": turn})
        rate: Rated | None = row["rate"] if row else None
        if rate is None or rate not in rates:
            return None
        oldest = await self._one(sql.KEPT_OUT[rate], {"turn": turn, "skip": rates[rate].count - 1})
        return (rate, oldest["at"]) if oldest else None

    async def sent(self, lease: Lease, part: OutboxPart, ext_id: str, line: KeptLine | None = None) -> bool:
        """Mark a part as sent, and keep its `line` of a remembered group. Return True if that was the last work of the
        session, which is then released."""
        return await self._close(lease, part, line, status=sql.OutboxStatus.SENT, ext_id=ext_id, reason=None)

    async def failed(self, lease: Lease, part: OutboxPart, reason: str) -> bool:
        """Mark a part as failed: it becomes a dead letter. Returns as `sent` does."""
        return await self._close(lease, part, status=sql.OutboxStatus.FAILED, ext_id=None, reason=reason)

    async def is_queued(self, part: OutboxPart) -> bool:
        """Return whether the part is still to be sent."""
        return bool(await self._rows(sql.IS_QUEUED, {"part": part.id}))

    async def sent_parts(self, *, ext_id: str = "", key: str = "", poll: str = "") -> Sequence[SentPart]:
        """Return the recently sent parts with that platform id, key or poll id."""
        names = {"key": key or None, "poll": poll or None, "ext_id": ext_id or None}
        return [SentPart(**row) for row in await self._rows(sql.SENT_PARTS, names)]

    async def keep_sent(self, sid: str, part: NewPart, ext_id: str | None, at: float, *, poll: str = "") -> None:
        """Record a message that a tool sends during the running turn, and call again with its id once that is known.
        `poll` is the platform's id if the message is a poll."""
        names = {"sid": sid, "key": part.key, "payload": part.payload, "ext_id": ext_id, "poll": poll or None, "at": at}
        if await self._one(sql.KEEP_SENT, names) is None and ext_id:
            await self._rows(sql.SET_SENT, {"key": part.key, "ext_id": ext_id})

    async def lately_done(self, since: float, limit: int) -> Sequence[str]:
        """Return the bodies of the newest finished messages accepted since then."""
        return [row["body"] for row in await self._rows(sql.LATELY_DONE, {"since": since, "limit": limit})]

    async def accepted(self, first: str, second: str) -> Sequence[str]:
        """Return the inbox bodies of the messages with one of these dedupe keys."""
        return [row["body"] for row in await self._rows(sql.ACCEPTED, {"first": first, "second": second})]

    async def answer(self, dedupe: str) -> StoredAnswer | None:
        """Return the outcome of the message with that dedupe key, which the inbox has or had; None while it waits."""
        return sql.answer_of(await self._rows(sql.ANSWER, {"dedupe": dedupe}))

    async def begin(self, lease: Lease, part: OutboxPart, at: float) -> bool:
        """Record the start of an attempt, so that a crash leaves it ambiguous, and clear older ambiguity if no
        attempt was started. Return False if the part is not queued any more. Raises Fenced."""
        row = await self._ours(sql.BEGIN, lease.row | {"part": part.id, "at": at})
        return bool(row["status"] == sql.OutboxStatus.QUEUED)

    async def postpone(self, lease: Lease, part: OutboxPart, next_at: float, *, ambiguous: bool) -> None:
        """Count an attempt that has ended. Record when the next one is due and whether this one may have arrived."""
        names = {"part": part.id, "next_at": next_at, "ambiguous": int(ambiguous)}
        await self._rows(sql.POSTPONE, lease.row | names)

    async def cut_off(self, lease: Lease, part: OutboxPart) -> None:
        """Count an attempt whose end this process does not see: it may have arrived, and stays started."""
        await self._rows(sql.CUT_OFF, lease.row | {"part": part.id})

    async def release(self, lease: Lease) -> bool:
        """Release the session unless it has new work. Return whether it is released."""
        return await self._one(sql.RELEASE, lease.row | {"part": 0}) is not None

    async def release_for_takeover(self, lease: Lease) -> None:
        """Release the session with its work, for the next worker that claims."""
        await self._rows(sql.RELEASE_FOR_TAKEOVER, lease.row)

    async def renew(self, lease: Lease) -> Lease:
        """Give the session a new epoch, which fences writes under the old one. Raises Fenced."""
        return Lease(sid=lease.sid, **await self._ours(sql.RENEW, lease.row))

    async def session_state(self, lease: Lease) -> SessionState:
        """Return the state of the session. Raises Fenced."""
        return SessionState(**await self._ours(sql.STATE, lease.row))

    async def mark(self, sid: str, mark: SessionMark) -> bool:
        """Add a mark. Return False if it exists."""
        return await self._one(sql.MARK, mark.row | {"sid": sid}) is not None

    async def draft(self, sid: str, turn: int) -> str | None:
        """Return the handle of the draft that a turn has opened."""
        row = await self._one(sql.DRAFT, {"sid": sid, "turn": turn})
        return row["content"] if row else None

    async def notify(self, sid: str | None) -> None:
        """Ask the other workers to load a session, or with None to look for sessions without an owner."""

    async def contact_state(self, channel: str, account: str, person: str, at: float) -> ContactState:
        """Return the user's pairing state. Raises StoreUnavailable."""
        names = {"channel": channel, "account": account, "person": person, "since": at - sql.PAIRING_SECONDS}
        return sql.contact_state_of(await self._ours(sql.CONTACT_STATE, names))

    async def backlog(self) -> Backlog:
        """Count the messages and parts that are neither answered nor dead letters."""
        return Backlog(**await self._ours(sql.BACKLOG, {}))

    async def close(self) -> None: ...

    async def conversation(self, sid: str, *, before: int, history_turns: int, waiting_max: int) -> Work:
        """Return the conversation before the command `before`: the waiting messages, with or without a running turn,
        and at most `history_turns` turns."""
        names = {"sid": sid, "before": before}
        waiting = await self._rows(sql.WAITING_BEFORE, names | {"waiting_max": waiting_max})
        revision = (await self._ours(sql.REVISION, names))["revision"]
        entries = await self._rows(sql.HISTORY, names | sql.bounds(history_turns))
        return replace(Work.of(waiting, [Entry(**row) for row in entries]), revision=revision, known=None)

    async def bodies(self, sid: str, turn: int) -> Mapping[int, str]:
        """Return the bodies of all messages that a turn answered, by number, oldest first; empty if its own is gone."""
        return {row["id"]: row["body"] for row in await self._rows(sql.BODIES, {"sid": sid, "turn": turn})}

    async def last_turn(self, sid: str, *, command: int, by: str) -> int | None:
        """Return the newest finished turn, not undone, on the branch of a command, or the turn that `by` has undone:
        a command that runs again undoes the same turn."""
        turn: int | None = (await self._one(sql.LAST_TURN, {"sid": sid, "before": command, "by": by}))["turn"]
        return turn

    async def stopped_at(self, sid: str) -> int:
        """Return the number of the command that last stopped the conversation; 0 if none did, or a message has
        interrupted it since."""
        row = await self._one(sql.STOPPED_AT, {"sid": sid})
        return row["stopped"] if row else 0

    async def concerned(self, sid: str, *, before: int, by: str) -> Sequence[Concerned]:
        """Return the messages below `before` that wait, or that were stopped with `by` in their final row, in order."""
        rows = await self._rows(sql.CONCERNED, {"sid": sid, "before": before, "by": f'%"{by}"%'})
        return [Concerned(turn=row["turn"], body=row["body"], begun=bool(row["begun"])) for row in rows]

    async def bills(self, sid: str, *, since: float) -> Sequence[Bill]:
        """Return the final rows of the conversation and its control session: those of the current conversation, and
        those since `since`."""
        rows = await self._rows(sql.BILLS, {"sid": sid, "control": CONTROL + sid, "since": since})
        return [Bill(content=it["content"], current=bool(it["current"]), recent=bool(it["recent"])) for it in rows]

    async def transcript(self, sid: str) -> Sequence[Entry]:
        """Return the whole current conversation, including summarised turns, without undone ones."""
        return [Entry(**row) for row in await self._rows(sql.TRANSCRIPT, {"sid": sid})]

    async def has_arrived(self, first: str, second: str = "") -> bool:
        """Return whether a message has one of these dedupe keys, even if its text is erased."""
        return bool(await self._rows(sql.ARRIVED, {"first": first, "second": second}))

    async def choices(self) -> Mapping[str, str]:
        """Return the newest choice for each sid with the prefix `CHOICE`, by the rest of the sid."""
        rows = await self._rows(sql.CHOICES, {"prefix": f"{CHOICE}%"})
        return {row["sid"].removeprefix(CHOICE): row["content"] for row in rows}

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        """Return the rows of one statement, after its commit."""
        run = self.read if statement.lstrip().startswith(("SELECT", "WITH")) else self.write
        return await run(lambda connection: rows(connection, statement, **names))

    async def _one(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Return the first row or None."""
        return next(iter(await self._rows(statement, names)), None)

    async def _ours(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Return the first row. Raises Fenced if there is none, because another worker owns the session."""
        if (row := await self._one(statement, names)) is None:
            raise Fenced
        return row

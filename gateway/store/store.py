"""The port of the durable store: what the door, the lanes and the outbox ask of the database.

Every method is one round trip and one commit. A write under an old epoch raises `Fenced`: somebody else owns the chat
now. SQLite (`sqlite.py`) and PostgreSQL (`postgres.py`) stand behind it; nothing above may know which. What is one
statement and the same on both is here, the rest is theirs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from channels.web.admission import Sessions
from channels.web.archive import ChatHistory
from gateway.store import statements as sql
from gateway.store.records import (
    CONTROL,
    Acceptance,
    Answer,
    Backlog,
    Bill,
    Concerned,
    Delivery,
    Entry,
    Known,
    Lease,
    Mark,
    NewPart,
    Part,
    SentPart,
    SessionState,
    Standing,
    View,
    Work,
)
from gateway.store.spending import DayUsage, Rated

if TYPE_CHECKING:
    from gateway.store.approvals import DatabaseApprovals
    from gateway.store.changes import DatabaseChanges
    from gateway.store.chatter import DatabaseChatter
    from gateway.store.contacts import DatabaseContacts
    from gateway.store.memory import DatabaseMemory
    from gateway.store.writer import Run

NOTIFY_CHANNEL = "clawgate"
"""Where the workers of a shared database wake each other."""

CHOICE = "choice:"
"""What the ids begin with under which `gateway.choices` keeps its marks; no conversation's does."""


class StoreUnavailable(Exception):
    """The database did not take the write: it is busy, full, read-only or gone. Nothing was stored."""


class Fenced(Exception):
    """This worker no longer owns the chat; whoever does goes on with it."""


class Store(Protocol):
    _worker: str
    shared: bool
    """Whether other processes work on the same database."""
    archive: ChatHistory
    """The memory of the web chat; this and all that follows is in the same database."""
    sessions: Sessions
    """Who is signed in to the web chat."""
    memory: "DatabaseMemory"
    """People's notes, and the index of past turns."""
    changes: "DatabaseChanges"
    """What people do to messages that were accepted."""
    chatter: "DatabaseChatter"
    """What groups say beside the bot."""
    contacts: "DatabaseContacts"
    """Who waits for pairing and whom it has let in."""
    approvals: "DatabaseApprovals"
    """What waits for a person's decision, and what was approved for good."""

    def _share(self, read: "Run", write: "Run") -> None:
        """What is one text for both databases."""
        from gateway.store import approvals, archive, changes, chatter, contacts, memory

        self.archive = archive.DatabaseArchive(read=read, write=write)
        self.sessions = archive.DatabaseSessions(read=read, write=write)
        self.memory = memory.DatabaseMemory(read=read, write=write)
        self.changes = changes.DatabaseChanges(read=read, write=write)
        self.chatter = chatter.DatabaseChatter(read=read, write=write)
        self.contacts = contacts.DatabaseContacts(read=read, write=write)
        self.approvals = approvals.DatabaseApprovals(read=read, write=write)

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
        return [Lease(**row) for row in await self._rows(sql.LEASED, {"owner": self._worker})]

    async def load(self, lease: Lease, *, history_turns: int, waiting_max: int, known: Known | None = None) -> View:
        """What there is to do for the chat, with at most `history_turns` (at least 1) turns before it: only those behind
        what is `known`, where that still stands."""

    async def append(self, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = ()) -> SessionState:
        """Journal a step, and let the messages `joined` be answered by its turn. Raises Fenced."""

    async def finish(
        self, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], *, at: float, dead: bool = False
    ) -> Sequence[Part]:
        """End the turn of `entries` (the last is its `final` row) and queue its reply, in one commit.

        A `dead` message is kept for the operator. Of a turn that has ended nothing happens: who was stopped in the
        middle of this may not know that it was committed. Raises Fenced."""

    async def usage(self, day: str, scopes: Sequence[str]) -> Sequence[DayUsage]:
        """What each of at most three scopes has spent on that day, if anything."""
        first, second, third = (*scopes, "", "", "")[:3]
        names = {"day": day, "first": first, "second": second, "third": third}
        return [DayUsage(**row) for row in await self._rows(sql.USAGE, names)]

    async def claim_warning(self, scope: str, day: str, turn: int) -> bool:
        """Whether the answer of this turn is the one of the day that warns of the scope's budget; the same however often the
        turn asks."""
        return await self._one(sql.CLAIM_WARNING, {"scope": scope, "day": day, "turn": turn}) is not None

    async def beyond(self, turn: int, counts: Mapping[Rated, int]) -> tuple[Rated, float] | None:
        """Whose rate, of `counts` messages, a message exceeded, and when the oldest one came that kept it out."""
        row = await self._one(sql.BEYOND, {"turn": turn})
        whose: Rated | None = row["beyond"] if row else None
        if whose is None or whose not in counts:
            return None
        oldest = await self._one(sql.KEPT_OUT.format(whose), {"turn": turn, "skip": counts[whose] - 1})
        return (whose, oldest["at"]) if oldest else None

    async def sent(self, lease: Lease, part: Part, ext_id: str) -> bool:
        """Mark a part as sent; True where that was the last work of the chat and it has been released."""
        return await self._close(lease, part, sql.OutboxStatus.SENT, ext_id=ext_id)

    async def failed(self, lease: Lease, part: Part, reason: str) -> bool:
        """Give a part up: it is a dead letter. True as for `sent`."""
        return await self._close(lease, part, sql.OutboxStatus.FAILED, reason=reason)

    async def _close(
        self,
        lease: Lease,
        part: Part,
        status: sql.OutboxStatus,
        *,
        ext_id: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """By the counter on the chat's own row, so that no message can slip in between."""
        raise NotImplementedError

    async def sent_parts(self, *, ext_id: str = "", key: str = "") -> Sequence[SentPart]:
        """The parts that platforms know by that id, or the one with that key, where they were sent lately."""
        statement = sql.SENT_PARTS.format(column="key" if key else "ext_id")
        return [SentPart(**row) for row in await self._rows(statement, {"value": key or ext_id})]

    async def keep_sent(self, sid: str, part: NewPart, ext_id: str | None, at: float) -> None:
        """Record what a tool sends during the running turn of a session; again with its id once that is known."""
        names = {"sid": sid, "key": part.key, "payload": part.payload, "ext_id": ext_id, "at": at}
        if await self._one(sql.KEEP_SENT, names) is None and ext_id:
            await self._rows(sql.SET_SENT, {"key": part.key, "ext_id": ext_id})

    async def lately_done(self, since: float, limit: int) -> Sequence[str]:
        """The newest messages that were accepted since then and are done with, as the inbox has them."""
        return [row["body"] for row in await self._rows(sql.LATELY_DONE, {"since": since, "limit": limit})]

    async def accepted(self, first: str, second: str) -> Sequence[str]:
        """The inbox's bodies of the messages with one of these dedupe keys."""
        return [row["body"] for row in await self._rows(sql.ACCEPTED, {"first": first, "second": second})]

    async def answer(self, dedupe: str) -> Answer | None:
        """What became of the message with that dedupe key, which the inbox has or had; None while it waits."""
        return sql.answer_of(await self._rows(sql.ANSWER, {"dedupe": dedupe}))

    async def begin(self, lease: Lease, part: Part, next_at: float) -> None:
        """Record that a send is starting, with a `next_at` below zero, so that a crash leaves it ambiguous. Clears the doubt
        of a part that no attempt was ever begun for. Raises Fenced."""
        await self._ours(sql.BEGIN, lease.row | {"part": part.id, "next_at": next_at})

    async def postpone(self, lease: Lease, part: Part, next_at: float, *, ambiguous: bool) -> None:
        """Count an attempt; record when the next one is due and whether this one may have arrived."""
        names = {"part": part.id, "next_at": next_at, "ambiguous": int(ambiguous)}
        await self._rows(sql.POSTPONE, lease.row | names)

    async def release(self, lease: Lease) -> bool:
        """Give the chat back unless more work has come in; True where it is released."""
        return await self._one(sql.RELEASE, lease.row | {"part": 0}) is not None

    async def release_for_takeover(self, lease: Lease) -> None:
        """Give the chat back with its work, for whoever claims next."""
        await self._rows(sql.RELEASE_FOR_TAKEOVER, lease.row)

    async def renew(self, lease: Lease) -> Lease:
        """The chat under a new epoch, so that whoever still writes under the old one is fenced. Raises Fenced."""
        return Lease(sid=lease.sid, **await self._ours(sql.RENEW, lease.row))

    async def session_state(self, lease: Lease) -> SessionState:
        """How the chat stands. Raises Fenced."""
        return SessionState(**await self._ours(sql.STATE, lease.row))

    async def mark(self, sid: str, mark: Mark) -> bool:
        """Say something of a conversation, whoever works on it; False where that was said before."""
        return await self._one(sql.MARK, mark.row | {"sid": sid}) is not None

    async def draft(self, sid: str, turn: int) -> str | None:
        """The handle of the unfinished answer that a turn has opened."""
        row = await self._one(sql.DRAFT, {"sid": sid, "turn": turn})
        return row["content"] if row else None

    async def conversation(self, sid: str, *, before: int, history_turns: int, waiting_max: int) -> Work:
        """The conversation as it stands for a command numbered `before`: what waits since before it, with or without a turn
        that runs, and at most `history_turns` turns."""
        names = {"sid": sid, "before": before}
        waiting = await self._rows(sql.WAITING_BEFORE, names | {"waiting_max": waiting_max})
        entries = await self._rows(sql.HISTORY_BEFORE, names | {"skip": history_turns - 1})
        return Work.of(waiting, [Entry(**row) for row in entries])

    async def bodies(self, sid: str, turn: int) -> Mapping[int, str]:
        """The bodies of all messages that a turn answered, by number, oldest first; none where its own is gone."""
        return {row["id"]: row["body"] for row in await self._rows(sql.BODIES, {"sid": sid, "turn": turn})}

    async def newest_words(self, sid: str, *, before: int) -> str | None:
        """The newest message of a person below turn `before` as it is journaled, whatever marks stand behind it."""
        row = await self._one(sql.NEWEST_WORDS, {"sid": sid, "before": before})
        return row["content"] if row else None

    async def last_turn(self, sid: str, *, before: int, by: str) -> int | None:
        """The newest finished turn of the conversation below `before` that was not undone; but the one whose `undone` mark
        has the content `by`, if there is one: what is undone by one command is one turn, however often it runs."""
        turn: int | None = (await self._one(sql.LAST_TURN, {"sid": sid, "before": before, "by": by}))["turn"]
        return turn

    async def concerned(self, sid: str, *, before: int, by: str) -> Sequence[Concerned]:
        """The messages below `before` that wait, or that were stopped with `by` in their final row, in order."""
        rows = await self._rows(sql.CONCERNED, {"sid": sid, "before": before, "by": f'%"{by}"%'})
        return [Concerned(turn=row["turn"], body=row["body"], begun=bool(row["begun"])) for row in rows]

    async def bills(self, sid: str, *, since: float) -> Sequence[Bill]:
        """The final rows of the conversation and its control session: those since it began, and those since then."""
        rows = await self._rows(sql.BILLS, {"sid": sid, "control": CONTROL + sid, "since": since})
        return [Bill(content=it["content"], current=bool(it["current"]), recent=bool(it["recent"])) for it in rows]

    async def transcript(self, sid: str) -> Sequence[Entry]:
        """The whole conversation since it began, what a summary stands for included, without what was undone."""
        return [Entry(**row) for row in await self._rows(sql.TRANSCRIPT, {"sid": sid})]

    async def choices(self) -> Mapping[str, str]:
        """What was chosen last for each sid that begins with `CHOICE`, by the rest of the sid."""
        rows = await self._rows(sql.CHOICES, {"prefix": f"{CHOICE}%"})
        return {row["sid"].removeprefix(CHOICE): row["content"] for row in rows}

    async def stop(self, sid: str, before: int) -> int:
        """Stop every turn of the chat below `before`; how many messages that concerns."""

    async def notify(self, sid: str | None) -> None:
        """Ask the other workers to load a session, or with None to look for sessions without an owner."""

    async def standing(self, channel: str, account: str, person: str, at: float) -> Standing:
        """Whether pairing has let a person in. Raises StoreUnavailable."""
        names = {"channel": channel, "account": account, "person": person, "since": at - sql.PAIRING_SECONDS}
        return sql.standing_of(await self._ours(sql.CONTACT_STANDING, names))

    async def backlog(self) -> Backlog:
        """What is neither answered nor given up."""
        return Backlog(**await self._ours(sql.BACKLOG, {}))

    async def prune(self, before: float) -> int:
        """Delete finished inbox and outbox rows older than `before` (the dedupe horizon)."""

    async def probe(self) -> None:
        """Prove that a write would be taken. Raises StoreUnavailable."""

    async def close(self) -> None: ...

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        """What one statement returns, after its commit."""
        raise NotImplementedError

    async def _one(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Its first row; None where there is none."""
        return next(iter(await self._rows(statement, names)), None)

    async def _ours(self, statement: str, names: Mapping[str, Any]) -> Any:
        """Raises Fenced where there is no row: the chat is somebody else's."""
        if (row := await self._one(statement, names)) is None:
            raise Fenced
        return row

"""The steps of the queue: accept a message, journal a turn, queue a reply. Each is one transaction, on SQLite and
PostgreSQL.

A write under an old epoch raises `Fenced`: another worker owns the session. SQLite has one writer. On PostgreSQL a step
that changes a session locks its row first and then reads the rest, so it sees earlier commits. A new message also waits
for those before it in its chat and of its sender, so limits are exact with any number of replicas.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from gateway.config.budgets import Rated
from gateway.store import statements as sql
from gateway.store.chatter import bot_rounds, keep_answer, keep_line
from gateway.store.errors import Fenced, Revised
from gateway.store.layers import LayerRow
from gateway.store.operations import Database, Lock, insert, is_shared, lock, reads, rows, run, value, values, writes
from gateway.store.records import (
    Acceptance,
    Delivery,
    Entry,
    KeptLine,
    Known,
    Lease,
    NewPart,
    OutboxPart,
    SessionState,
    View,
    limits_of,
)
from gateway.store.sends import count, held
from gateway.store.sessions import CONTROL
from gateway.store.statements import InboxStatus
from gateway.store.tasks import TaskEnd, end_task


class StoreEngine(Database):
    worker: str
    """The name under which this process owns sessions."""
    claimable: str
    """The statement that finds sessions with work and no living owner."""

    @writes
    def accept(
        self,
        connection: Connection,
        delivery: Delivery,
        *,
        pending_max: int,
        sender_max: int,
        claim: bool,
        begin: bool = False,
    ) -> Acceptance:
        """Store the message and its dedupe keys. `claim` takes an idle chat; `begin` also records that its turn begins
        immediately. At most `pending_max` wait in a chat and `sender_max` of one sender, who may have as many commands
        in addition. Beyond these limits or a rate only the keys are kept, but the first of a burst is answered with a
        note.

        Raises StoreUnavailable.
        """
        row, owner, rounds = delivery.row, self.worker if claim else None, delivery.rounds
        if rounds:
            lock(connection, Lock.BOTS, rounds.place)
        statement = sql.INSERT_MESSAGE_LOCKED if is_shared(connection) else sql.INSERT_MESSAGE
        turn = value(connection, statement, **row)
        if turn is None:
            return Acceptance(turn=None)
        if delivery.line:
            keep_line(connection, delivery.line)
        if rounds and bot_rounds(connection, rounds, before=turn) >= rounds.most:
            rows(connection, sql.REFUSE_MESSAGE, turn=turn)
            return Acceptance(turn=turn, overflow=True, out_of_rounds=True)
        if delivery.rates:
            noted, rate = values(connection, sql.RATES, **row, **limits_of(delivery.rates))
            if rate is not None:
                return _refuse(connection, delivery, turn, owner, noted=bool(noted), rate=rate)
        is_command = delivery.sid == delivery.control
        waiting = {"sid": delivery.sid, "sender": delivery.sender, "control_sids": CONTROL + "%"}
        theirs_max = sender_max * (2 if is_command else 1)
        interrupts = delivery.interrupts and not value(connection, sql.OTHERS_WAIT, **waiting)
        counted = {"stopped": turn if interrupts else 0, "begun": turn if claim and begin else 0}
        limits = {"theirs_max": theirs_max, "pending_max": pending_max}
        if within := values(connection, sql.COUNT_WITHIN, **waiting, **counted, **limits, owner=owner):
            return Acceptance(turn=turn, lease=held(delivery.sid, owner, *within))
        theirs, since, notes = values(connection, sql.WAITING_OF, **waiting)
        if theirs <= theirs_max:
            if value(connection, sql.WAITING_OF_PEOPLE, sid=delivery.sid) <= pending_max:
                return Acceptance(turn=turn, lease=count(connection, delivery.sid, owner, **counted))
            since, notes = value(connection, sql.OLDEST_WAITING, sid=delivery.sid), 0
        noted = is_command or notes or value(connection, sql.NOTED, control=delivery.control, since=since)
        return _refuse(connection, delivery, turn, owner, noted=bool(noted), rate=None)

    @writes
    def claim(self, connection: Connection, limit: int) -> Sequence[Lease]:
        """Take at most `limit` chats that have work and no living owner. A turn that a crash cut off counts one attempt,
        and the part that was about to be sent is ambiguous."""
        leases = []
        for chat in rows(connection, self.claimable, owner=self.worker, limit=limit):
            if chat["owner"] is not None:
                rows(connection, sql.COUNT_ATTEMPT, sid=chat["id"])
                rows(connection, sql.COUNT_AMBIGUOUS, sid=chat["id"])
            epoch = value(connection, sql.TAKE, sid=chat["id"], owner=self.worker)
            leases.append(Lease(sid=chat["id"], epoch=epoch))
        return leases

    @reads
    def load(
        self, connection: Connection, lease: Lease, *, history_turns: int, waiting_max: int, known: Known | None = None
    ) -> View:
        """Load the chat's work with at most `history_turns` (at least 1) turns before it: only those after `known`, if
        that is unchanged."""
        parts = [OutboxPart(**row) for row in rows(connection, sql.QUEUED, **lease.row)]
        waiting = rows(connection, sql.WAITING, **lease.row, waiting_max=waiting_max)
        names = {"sid": lease.sid, "before": waiting[0]["turn"]} | sql.bounds(history_turns, known) if waiting else {}
        entries = rows(connection, sql.HISTORY, **names) if waiting else ()
        return View.of(parts, [dict(row) for row in waiting], [Entry(**row) for row in entries])

    @writes
    def append(
        self,
        connection: Connection,
        lease: Lease,
        entries: Sequence[Entry],
        joined: Sequence[int] = (),
        *,
        revision: int | None = None,
    ) -> SessionState:
        """Journal a step and join the messages `joined` to its turn. Raises Fenced, or Revised if the conversation has
        another `revision` now."""
        state = _locked(connection, lease)
        if revision not in (None, state.revision):
            raise Revised
        _journal(connection, lease, entries)
        joins = sum(len(rows(connection, sql.JOIN, joined=turn, turn=entries[-1].turn)) for turn in joined)
        if joins:
            rows(connection, sql.COUNT_DOWN, sid=lease.sid, by=joins)
        _spend(connection, entries)
        return replace(state, pending=state.pending - joins)

    @writes
    def finish(
        self,
        connection: Connection,
        lease: Lease,
        entries: Sequence[Entry],
        parts: Sequence[NewPart],
        *,
        at: float,
        dead: bool = False,
        revision: int | None = None,
        layers: LayerRow | None = None,
        task: TaskEnd | None = None,
        beside: str | None = None,
    ) -> Sequence[OutboxPart]:
        """End the turn of `entries` (the last is its `final` row) and queue its reply, for the session `beside` if set.
        The same commit keeps its `layers` and ends the `task` whose last turn it is.

        A `dead` message is kept for the operator. A turn that has ended is left alone: a stopped caller may not know of
        its commit. Raises Fenced, or Revised as `append` does and if the turn was stopped.
        """
        turn, state = entries[-1].turn, _locked(connection, lease)
        status = InboxStatus.DEAD if dead else InboxStatus.DONE
        if not rows(connection, sql.CLOSE_MESSAGE, turn=turn, status=int(status)):
            return []
        if revision is not None and (revision != state.revision or state.stopped > turn):
            raise Revised
        _journal(connection, lease, entries)
        rows(connection, sql.COUNT_FINISHED, sid=lease.sid)
        if layers:
            _keep(connection, turn, lease.sid, layers)
        if beside:
            rows(connection, sql.OPEN_BESIDE, sid=beside)
        row: dict[str, Any] = {"sid": beside or lease.sid, "turn": turn, "created": at}
        new = [row | {"part": number, "key": part.key, "payload": part.payload} for number, part in enumerate(parts)]
        queued = [OutboxPart(**row) for row in insert(connection, sql.INSERT_PART, new)]
        if task is not None:
            end_task(connection, task)
        _spend(connection, entries)
        return sorted(queued, key=lambda part: part.part)

    @writes
    def _close(
        self, connection: Connection, lease: Lease, part: OutboxPart, line: KeptLine | None = None, /, **outcome: Any
    ) -> bool:
        """Release by the counter on the session's own row, so that no message can be missed in between. `line` is what the
        part adds to a remembered group."""
        released = rows(connection, sql.RELEASE, **lease.row, part=part.id)
        if line:
            keep_answer(connection, line, part)
        rows(connection, sql.CLOSE_PART, part=part.id, **outcome)
        return bool(released)

    @writes
    def stop(self, connection: Connection, sid: str, before: int) -> int:
        """Stop every turn of the chat below `before`; returns the number of messages concerned."""
        rows(connection, sql.STOP, sid=sid, before=before)
        concerned: int = value(connection, sql.STOPPED, sid=sid, before=before)
        return concerned

    @writes
    def prune(self, connection: Connection, before: float) -> int:
        """Delete finished inbox and outbox rows older than `before` (the dedupe horizon)."""
        day = f"{datetime.fromtimestamp(before, UTC) - timedelta(days=31):%Y-%m-%d}"
        return [run(connection, statement, before=before, day=day).rowcount for statement in sql.PRUNE][-1]

    @writes
    def probe(self, connection: Connection) -> None:
        """Prove that the database accepts writes. Raises StoreUnavailable."""
        rows(connection, sql.PROBE)


def _refuse(
    connection: Connection, delivery: Delivery, turn: int, owner: str | None, *, noted: bool, rate: Rated | None
) -> Acceptance:
    """Keep the keys of a message beyond a limit, and answer it with a note unless its burst already had one."""
    if delivery.repeatable:
        rows(connection, sql.FREE_KEY, turn=turn)
    lease = None
    if noted:
        rows(connection, sql.REFUSE_MESSAGE, turn=turn)
    else:
        rows(connection, sql.MOVE_MESSAGE, turn=turn, sid=delivery.control, rate=rate)
        lease = count(connection, delivery.control, owner)
    return Acceptance(turn=turn, lease=lease, overflow=True, rate_limited_by=rate)


def _locked(connection: Connection, lease: Lease) -> SessionState:
    """Lock the chat's row until the commit and return its state. Raises Fenced."""
    statement = sql.STATE_LOCKED if is_shared(connection) else sql.STATE
    for row in rows(connection, statement, **lease.row):
        return SessionState(**row)
    raise Fenced


def _journal(connection: Connection, lease: Lease, entries: Sequence[Entry]) -> None:
    written: list[dict[str, Any]] = [
        {"sid": lease.sid, "place": place, "turn": entry.turn, "kind": entry.kind, "content": entry.content}
        for place, entry in enumerate(entries, 1)
    ]
    numbers = sorted(row["seq"] for row in insert(connection, sql.APPEND, written))
    spoken = [
        {"sid": lease.sid, "seq": seq, "turn": entry.turn, "place": place, **spoken.row}
        for seq, entry in zip(numbers, entries, strict=True)
        for place, spoken in enumerate(entry.spoken)
    ]
    insert(connection, sql.SPEAK, spoken)


def _keep(connection: Connection, turn: int, sid: str, layers: LayerRow) -> None:
    known = value(connection, sql.KEEP_LAYERS, turn=turn, sid=sid, **asdict(layers))
    if known is not None and known < len(layers.texts):
        for name, content in sorted(layers.texts.items()):  # in one order, so that no two turns wait for each other
            rows(connection, sql.KEEP_LAYER_TEXT, hash=name, content=content)


def _spend(connection: Connection, entries: Sequence[Entry]) -> None:
    # Last in its transaction: all chats of an agent share a row, which is locked until the commit.
    spent: dict[Any, dict[str, Any]] = {}
    for row in (row for entry in entries if entry.spent for row in entry.spent.rows):
        total = spent.setdefault((row["scope"], row["day"]), row | {"tokens": 0, "cost": 0.0})
        total |= {"tokens": total["tokens"] + row["tokens"], "cost": total["cost"] + row["cost"]}
    insert(connection, sql.SPEND, list(spent.values()))

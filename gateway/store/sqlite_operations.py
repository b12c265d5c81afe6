"""The engine's operations on SQLite: each function is one, run inside a transaction of `Writer`.

What they say is in `sqlite_statements`; `postgres_statements` says the same in one round trip each. The steps and the
guarantees are the same.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, func, select, update

from gateway.store import sqlite_statements as sql
from gateway.store.store import (
    Acceptance,
    Delivery,
    Entry,
    Fenced,
    Lease,
    NewPart,
    Part,
    SessionState,
    View,
    Waiting,
    Work,
)
from gateway.store.tables import InboxStatus, OutboxStatus, inbox, outbox, session


def accept(
    connection: Connection, owner: str | None, delivery: Delivery, pending_max: int, sender_max: int
) -> Acceptance:
    """Insert the message unless it is known, then count it on its chat's row and own the chat if nobody does."""
    row = {
        "dedupe": delivery.dedupe[0],
        "dedupe_text": delivery.dedupe[1] if len(delivery.dedupe) > 1 else None,
        "sid": delivery.sid,
        "body": delivery.body,
        "at": delivery.at,
        "sender": delivery.sender,
    }
    turn = connection.scalar(sql.INSERT_MESSAGE, row)
    if turn is None:
        return Acceptance(turn=None)
    is_command = delivery.sid == delivery.aside
    theirs, since, notes = connection.execute(sql.OF_SENDER, {"b_sender": delivery.sender}).one()
    if theirs <= sender_max * (2 if is_command else 1):
        lease, pending = _count(connection, delivery.sid, owner, turn if delivery.interrupts else 0)
        if pending <= pending_max:
            return Acceptance(turn=turn, lease=lease)
        connection.execute(sql.COUNT_DOWN, {"b_sid": delivery.sid})
        since, notes = connection.scalar(sql.OLDEST_WAITING, {"b_sid": delivery.sid}), 0
    if is_command or notes or connection.scalar(sql.NOTED, {"b_aside": delivery.aside, "b_since": since}):
        connection.execute(sql.REFUSE_MESSAGE, {"b_turn": turn})
        return Acceptance(turn=turn, overflow=True)
    connection.execute(update(inbox).where(inbox.c.id == turn).values(sid=delivery.aside))
    lease, _ = _count(connection, delivery.aside, owner, 0)
    return Acceptance(turn=turn, lease=lease, overflow=True)


def _count(connection: Connection, sid: str, owner: str | None, stopped: int) -> tuple[Lease | None, int]:
    row = connection.execute(sql.COUNT_MESSAGE, {"b_sid": sid, "b_owner": owner, "b_stopped": stopped}).one()
    return (Lease(sid=sid, epoch=row.epoch) if owner is not None and row.owner == owner else None), row.pending


def claim(connection: Connection, me: str, limit: int) -> Sequence[Lease]:
    """One process per file: whoever else owned a chat is dead. A turn it had begun counts one attempt, and the part
    it was about to send may have arrived."""
    found = connection.execute(sql.CLAIMABLE, {"b_owner": me, "b_limit": limit}).all()
    leases = []
    for sid, owner in found:
        epoch = connection.scalar(sql.TAKE, {"b_sid": sid, "b_owner": me})
        leases.append(Lease(sid=sid, epoch=epoch or 0))
        if owner is not None:
            connection.execute(sql.COUNT_ATTEMPT, {"b_sid": sid})
            connection.execute(sql.COUNT_AMBIGUOUS, {"b_sid": sid})
    return leases


def leased(connection: Connection, me: str) -> Sequence[Lease]:
    rows = connection.execute(select(session.c.id, session.c.epoch).where(session.c.owner == me))
    return [Lease(sid=sid, epoch=epoch) for sid, epoch in rows]


def load(connection: Connection, lease: Lease, history_turns: int, waiting_max: int) -> View:
    parts = [Part(**row._mapping) for row in connection.execute(sql.QUEUED, _owned(lease))]
    rows = connection.execute(sql.WAITING, _owned(lease) | {"b_limit": waiting_max}).all()
    if not rows:
        return View(parts=parts, work=None)
    first = rows[0].turn
    since = connection.scalar(sql.HISTORY_START, {"b_sid": lease.sid, "b_turn": first, "b_skip": history_turns - 1})
    transcript = connection.execute(sql.ENTRIES, {"b_sid": lease.sid, "b_since": since or 0})
    entries = [Entry(turn=turn, kind=kind, content=content) for turn, kind, content in transcript]
    work = Work(
        waiting=[Waiting(turn=row.turn, body=row.body, at=row.at, attempts=row.attempts) for row in rows],
        stopped=rows[0].stopped,
        superseded=rows[0].superseded,
        history=[entry for entry in entries if entry.turn != first],
        so_far=[entry for entry in entries if entry.turn == first],
    )
    return View(parts=parts, work=work)


def append(connection: Connection, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = ()) -> SessionState:
    state = session_state(connection, lease)
    for entry in entries:
        row = {"b_turn": entry.turn, "b_kind": entry.kind, "b_content": entry.content, "b_sid": lease.sid}
        connection.execute(sql.APPEND, row)
    if joined:
        rows = [{"b_turn": turn, "b_joins": entries[-1].turn} for turn in joined]
        connection.execute(sql.JOIN, rows)
        connection.execute(sql.COUNT_DOWN_BY, {"b_sid": lease.sid, "b_by": len(joined)})
    return SessionState(pending=state.pending - len(joined), stopped=state.stopped)


def session_state(connection: Connection, lease: Lease) -> SessionState:
    row = connection.execute(sql.STANDING, _owned(lease)).first()
    if row is None:
        raise Fenced
    return SessionState(pending=row.pending, stopped=row.stopped)


def finish(
    connection: Connection, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], at: float, dead: bool
) -> Sequence[Part]:
    """The turn's last rows, its reply and the end of its message, all or nothing."""
    append(connection, lease, entries)
    turn = entries[-1].turn
    connection.execute(sql.COUNT_DOWN, {"b_sid": lease.sid})
    connection.execute(sql.CLOSE_MESSAGE, {"b_turn": turn, "b_to": InboxStatus.DEAD if dead else InboxStatus.DONE})
    queued = []
    for number, part in enumerate(parts):
        row = {"sid": lease.sid, "turn": turn, "part": number, "key": part.key, "payload": part.payload, "created": at}
        queued.append(Part(**connection.execute(sql.INSERT_PART, row).one()._mapping))
    return queued


def sent(connection: Connection, lease: Lease, part: int, ext_id: str) -> bool:
    connection.execute(sql.MARK, {"b_part": part, "b_to": OutboxStatus.SENT, "b_ext": ext_id, "b_reason": None})
    return release(connection, lease)


def failed(connection: Connection, lease: Lease, part: int, reason: str) -> bool:
    connection.execute(sql.MARK, {"b_part": part, "b_to": OutboxStatus.FAILED, "b_ext": None, "b_reason": reason})
    return release(connection, lease)


def begin(connection: Connection, lease: Lease, part: int, next_at: float) -> None:
    if not connection.execute(sql.BEGIN, _owned(lease) | {"b_part": part, "b_due": next_at}).rowcount:
        raise Fenced


def postpone(connection: Connection, lease: Lease, part: int, next_at: float, ambiguous: bool) -> None:
    row = {"b_part": part, "b_due": next_at, "b_ambiguous": int(ambiguous)}
    connection.execute(sql.POSTPONE, _owned(lease) | row)


def release(connection: Connection, lease: Lease) -> bool:
    """By the counter on the chat's own row, so that no message can slip in between."""
    return connection.execute(sql.RELEASE, _owned(lease)).first() is not None


def release_for_takeover(connection: Connection, lease: Lease) -> None:
    connection.execute(update(session).where(sql.OWNED).values(owner=None), _owned(lease))


def renew(connection: Connection, lease: Lease) -> Lease:
    raised = update(session).where(sql.OWNED).values(epoch=session.c.epoch + 1).returning(session.c.epoch)
    epoch = connection.scalar(raised, _owned(lease))
    if epoch is None:
        raise Fenced
    return Lease(sid=lease.sid, epoch=epoch)


def stop(connection: Connection, sid: str, before: int) -> int:
    raised = update(session).where(session.c.id == sid).values(stopped=func.max(session.c.stopped, before))
    connection.execute(raised)
    waiting = select(func.count()).where(inbox.c.sid == sid, inbox.c.id < before)
    return connection.scalar(waiting.where(inbox.c.status == InboxStatus.WAITING)) or 0


def oldest(connection: Connection) -> float | None:
    message = select(func.min(inbox.c.at)).where(inbox.c.status == InboxStatus.WAITING)
    part = select(func.min(outbox.c.created)).where(sql.is_queued)
    times = [connection.scalar(message), connection.scalar(part)]
    return min((time for time in times if time is not None), default=None)


def probe(connection: Connection) -> None:
    row = {"id": "probe", "lock_key": 0, "expires": datetime.now(UTC)}
    connection.execute(sql.PROBE, row)


def prune(connection: Connection, before: float) -> int:
    over = (InboxStatus.JOINED, InboxStatus.DONE, InboxStatus.OVERFLOW)
    gone = connection.execute(delete(inbox).where(inbox.c.status.in_(over), inbox.c.at < before)).rowcount
    connection.execute(delete(outbox).where(outbox.c.status == OutboxStatus.SENT, outbox.c.created < before))
    return gone


def _owned(lease: Lease) -> dict[str, object]:
    return {"b_sid": lease.sid, "b_epoch": lease.epoch}

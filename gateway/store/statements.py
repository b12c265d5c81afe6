"""What the engine says to SQLite: each function is one operation, run inside a transaction of `Writer`.

PostgreSQL will say the same in one round trip each (`WITH … RETURNING`); the steps and the guarantees are the same.
"""

from collections.abc import Sequence

from sqlalchemy import BindParameter, Connection, bindparam, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from gateway.store.store import Acceptance, Delivery, Entry, Fenced, Lease, NewPart, Part, Work
from gateway.store.tables import InboxStatus, OutboxStatus, inbox, outbox, session, transcript


def accept(connection: Connection, worker: str, delivery: Delivery, pending_max: int) -> Acceptance:
    """Insert the message unless it is known, then count it on its chat's row and own the chat if nobody does."""
    row = {
        "dedupe": delivery.dedupe[0],
        "dedupe_text": delivery.dedupe[1] if len(delivery.dedupe) > 1 else None,
        "sid": delivery.sid,
        "body": delivery.body,
        "at": delivery.at,
    }
    turn = connection.scalar(_INSERT_MESSAGE, row)
    if turn is None:
        return Acceptance(turn=None)
    owner, epoch, pending = connection.execute(_COUNT_MESSAGE, {"b_sid": delivery.sid, "b_owner": worker}).one()
    if pending > pending_max:
        _overflow(connection, delivery, turn)
    lease = Lease(sid=delivery.sid, epoch=epoch) if owner == worker else None
    return Acceptance(turn=turn, lease=lease, overflow=pending > pending_max)


def _overflow(connection: Connection, delivery: Delivery, turn: int) -> None:
    """Close the message at once. One note answers a whole burst: none is added while one still waits to be sent."""
    connection.execute(update(session).where(session.c.id == delivery.sid).values(pending=session.c.pending - 1))
    connection.execute(update(inbox).where(inbox.c.id == turn).values(status=InboxStatus.OVERFLOW))
    told = select(outbox.c.id).join(inbox, inbox.c.id == outbox.c.turn)
    told = told.where(outbox.c.sid == delivery.sid, outbox.c.status == OutboxStatus.QUEUED)
    if connection.execute(told.where(inbox.c.status == InboxStatus.OVERFLOW).limit(1)).first() is None:
        _queue(connection, delivery.sid, turn, [delivery.overflow], delivery.at)


def claim(connection: Connection, worker: str) -> Sequence[Lease]:
    """One process per file: whoever else owned a chat is dead. A turn it had begun counts one attempt."""
    mine = (
        update(session)
        .where(session.c.owner.is_distinct_from(worker), or_(session.c.owner.is_not(None), session.c.pending > 0))
        .values(owner=worker, epoch=session.c.epoch + 1)
        .returning(session.c.id, session.c.epoch)
    )
    leases = [Lease(sid=sid, epoch=epoch) for sid, epoch in connection.execute(mine)]
    last = (
        select(transcript.c.kind)
        .where(transcript.c.sid == inbox.c.sid, transcript.c.turn == inbox.c.id)
        .order_by(transcript.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    begun = update(inbox).where(inbox.c.status == InboxStatus.WAITING, inbox.c.sid == bindparam("b_sid"))
    begun = begun.where(last != "drained").values(attempts=inbox.c.attempts + 1)
    if leases:
        connection.execute(begun, [{"b_sid": lease.sid} for lease in leases])
    return leases


def next_work(connection: Connection, lease: Lease, history_turns: int) -> Work | None:
    row = connection.execute(_NEXT_MESSAGE, {"b_sid": lease.sid}).first()
    if row is None:
        return None
    since = connection.scalar(_HISTORY_START, {"b_sid": lease.sid, "b_turn": row.id, "b_skip": history_turns - 1})
    rows = connection.execute(_ENTRIES, {"b_sid": lease.sid, "b_since": since or 0})
    entries = [Entry(turn=turn, kind=kind, content=content) for turn, kind, content in rows]
    return Work(
        turn=row.id,
        body=row.body,
        at=row.at,
        attempts=row.attempts,
        history=[entry for entry in entries if entry.turn != row.id],
        so_far=[entry for entry in entries if entry.turn == row.id],
    )


def append(connection: Connection, lease: Lease, entry: Entry) -> None:
    row = {"b_turn": entry.turn, "b_kind": entry.kind, "b_content": entry.content}
    if connection.execute(_APPEND, _owned(lease) | row).first() is None:
        raise Fenced


def finish(connection: Connection, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], at: float) -> None:
    """The turn's last rows, its reply and the end of its message, all or nothing."""
    for entry in entries:
        append(connection, lease, entry)
    turn = entries[-1].turn
    connection.execute(_COUNT_DOWN, _owned(lease))
    connection.execute(_CLOSE_MESSAGE, {"b_turn": turn})
    _queue(connection, lease.sid, turn, parts, at)


def _queue(connection: Connection, sid: str, turn: int, parts: Sequence[NewPart], at: float) -> None:
    rows = [
        {"sid": sid, "turn": turn, "part": number, "key": part.key, "payload": part.payload, "created": at}
        for number, part in enumerate(parts)
    ]
    if rows:
        connection.execute(_INSERT_PART, rows)


def queued(connection: Connection, sid: str) -> Sequence[Part]:
    return [Part(**row._mapping) for row in connection.execute(_QUEUED, {"b_sid": sid})]


def sent(connection: Connection, lease: Lease, part: int, ext_id: str) -> bool:
    connection.execute(_MARK, {"b_part": part, "b_to": OutboxStatus.SENT, "b_ext": ext_id})
    return release(connection, lease)


def failed(connection: Connection, lease: Lease, part: int) -> bool:
    connection.execute(_MARK, {"b_part": part, "b_to": OutboxStatus.FAILED, "b_ext": None})
    return release(connection, lease)


def postpone(connection: Connection, lease: Lease, part: int, next_at: float) -> None:
    connection.execute(_POSTPONE, _owned(lease) | {"b_part": part, "b_due": next_at})


def release(connection: Connection, lease: Lease) -> bool:
    """By the counter on the chat's own row, so that no message can slip in between."""
    return connection.execute(_RELEASE, _owned(lease)).first() is not None


def prune(connection: Connection, before: float) -> int:
    old = delete(inbox).where(inbox.c.status != InboxStatus.WAITING, inbox.c.at < before)
    gone = connection.execute(old).rowcount
    connection.execute(delete(outbox).where(outbox.c.status != OutboxStatus.QUEUED, outbox.c.created < before))
    return gone


def _owned(lease: Lease) -> dict[str, object]:
    return {"b_sid": lease.sid, "b_epoch": lease.epoch}


# The statements of the hot path, built once. A bound name starts with `b_`: a column's own name is SQLAlchemy's.

_SID: BindParameter[str] = bindparam("b_sid")
_EPOCH: BindParameter[int] = bindparam("b_epoch")
_TURN: BindParameter[int] = bindparam("b_turn")
_OWNED = (session.c.id == _SID) & (session.c.epoch == _EPOCH)

_INSERT_MESSAGE = insert(inbox).on_conflict_do_nothing().returning(inbox.c.id)

_new_session = insert(session).values(id=_SID, owner=bindparam("b_owner"), epoch=1, pending=1)
_COUNT_MESSAGE = _new_session.on_conflict_do_update(
    index_elements=[session.c.id],
    set_={
        "pending": session.c.pending + 1,
        "epoch": session.c.epoch + case((session.c.owner.is_(None), 1), else_=0),
        "owner": func.coalesce(session.c.owner, _new_session.excluded.owner),
    },
).returning(session.c.owner, session.c.epoch, session.c.pending)

_NEXT_MESSAGE = (
    select(inbox.c.id, inbox.c.body, inbox.c.at, inbox.c.attempts)
    .where(inbox.c.sid == _SID, inbox.c.status == InboxStatus.WAITING)
    .order_by(inbox.c.id)
    .limit(1)
)
_HISTORY_START = (
    select(transcript.c.seq)
    .where(transcript.c.sid == _SID, transcript.c.kind == "user", transcript.c.turn < _TURN)
    .order_by(transcript.c.seq.desc())
    .limit(1)
    .offset(bindparam("b_skip"))
)
_ENTRIES = (
    select(transcript.c.turn, transcript.c.kind, transcript.c.content)
    .where(transcript.c.sid == _SID, transcript.c.seq >= bindparam("b_since"))
    .order_by(transcript.c.seq)
)

_next_seq = select(func.coalesce(func.max(transcript.c.seq), 0) + 1).where(transcript.c.sid == _SID).scalar_subquery()
_APPEND = (
    insert(transcript)
    .from_select(
        ["sid", "seq", "turn", "kind", "content"],
        select(session.c.id, _next_seq, _TURN, bindparam("b_kind"), bindparam("b_content")).where(_OWNED),
    )
    .returning(transcript.c.seq)
)
_COUNT_DOWN = update(session).where(_OWNED).values(pending=session.c.pending - 1)
_CLOSE_MESSAGE = update(inbox).where(inbox.c.id == _TURN).values(status=InboxStatus.DONE)
_INSERT_PART = insert(outbox)

_part_columns = (
    outbox.c.id, outbox.c.turn, outbox.c.part, outbox.c.key,
    outbox.c.payload, outbox.c.attempts, outbox.c.next_at, outbox.c.created,
)  # fmt: skip
_is_queued = outbox.c.status == OutboxStatus.QUEUED
_QUEUED = select(*_part_columns).where(outbox.c.sid == _SID, _is_queued).order_by(outbox.c.id)
_this_part = outbox.c.id == bindparam("b_part")
_MARK = update(outbox).where(_this_part).values(status=bindparam("b_to"), ext_id=bindparam("b_ext"))
_POSTPONE = (
    update(outbox)
    .where(_this_part, exists(select(session.c.id).where(_OWNED)))
    .values(attempts=outbox.c.attempts + 1, next_at=bindparam("b_due"))
)
_RELEASE = (
    update(session)
    .where(_OWNED, session.c.pending == 0, ~exists(select(outbox.c.id).where(outbox.c.sid == _SID, _is_queued)))
    .values(owner=None)
    .returning(session.c.id)
)

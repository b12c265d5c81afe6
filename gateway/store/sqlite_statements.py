"""What the engine says to SQLite: each function is one operation, run inside a transaction of `Writer`.

`postgres_statements` says the same in one round trip each; the steps and the guarantees are the same.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import BindParameter, Connection, bindparam, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from gateway.store.store import (
    Acceptance,
    Delivery,
    Entry,
    Fenced,
    Lease,
    NewPart,
    Part,
    Standing,
    View,
    Waiting,
    Work,
)
from gateway.store.tables import InboxStatus, OutboxStatus, inbox, outbox, session, transcript, worker


def accept(connection: Connection, me: str, delivery: Delivery, pending_max: int, claim: bool) -> Acceptance:
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
    owner = me if claim else None
    lease, pending = _count(connection, delivery.sid, owner, turn if delivery.interrupts else 0)
    if pending <= pending_max:
        return Acceptance(turn=turn, lease=lease)
    connection.execute(_COUNT_DOWN, {"b_sid": delivery.sid})
    if delivery.sid == delivery.aside or connection.scalar(_TOLD, {"b_sid": delivery.sid, "b_aside": delivery.aside}):
        connection.execute(_CLOSE_MESSAGE, {"b_turn": turn, "b_to": InboxStatus.OVERFLOW})
        return Acceptance(turn=turn, overflow=True)
    connection.execute(update(inbox).where(inbox.c.id == turn).values(sid=delivery.aside))
    lease, _ = _count(connection, delivery.aside, owner, 0)
    return Acceptance(turn=turn, lease=lease, overflow=True)


def _count(connection: Connection, sid: str, owner: str | None, stopped: int) -> tuple[Lease | None, int]:
    row = connection.execute(_COUNT_MESSAGE, {"b_sid": sid, "b_owner": owner, "b_stopped": stopped}).one()
    return (Lease(sid=sid, epoch=row.epoch) if owner is not None and row.owner == owner else None), row.pending


def claim(connection: Connection, me: str, limit: int) -> Sequence[Lease]:
    """One process per file: whoever else owned a chat is dead. A turn it had begun counts one attempt, and the part
    it was about to send may have arrived."""
    found = connection.execute(_CLAIMABLE, {"b_owner": me, "b_limit": limit}).all()
    leases = []
    for sid, owner in found:
        epoch = connection.scalar(_TAKE, {"b_sid": sid, "b_owner": me})
        leases.append(Lease(sid=sid, epoch=epoch or 0))
        if owner is not None:
            connection.execute(_COUNT_ATTEMPT, {"b_sid": sid})
            connection.execute(_COUNT_AMBIGUOUS, {"b_sid": sid})
    return leases


def owned(connection: Connection, me: str) -> Sequence[Lease]:
    rows = connection.execute(select(session.c.id, session.c.epoch).where(session.c.owner == me))
    return [Lease(sid=sid, epoch=epoch) for sid, epoch in rows]


def look(connection: Connection, lease: Lease, history_turns: int, waiting_max: int) -> View:
    parts = [Part(**row._mapping) for row in connection.execute(_QUEUED, _owned(lease))]
    rows = connection.execute(_WAITING, _owned(lease) | {"b_limit": waiting_max}).all()
    if not rows:
        return View(parts=parts, work=None)
    first = rows[0].turn
    since = connection.scalar(_HISTORY_START, {"b_sid": lease.sid, "b_turn": first, "b_skip": history_turns - 1})
    told = connection.execute(_ENTRIES, {"b_sid": lease.sid, "b_since": since or 0})
    entries = [Entry(turn=turn, kind=kind, content=content) for turn, kind, content in told]
    work = Work(
        waiting=[Waiting(turn=row.turn, body=row.body, at=row.at, attempts=row.attempts) for row in rows],
        stopped=rows[0].stopped,
        superseded=rows[0].superseded,
        history=[entry for entry in entries if entry.turn != first],
        so_far=[entry for entry in entries if entry.turn == first],
    )
    return View(parts=parts, work=work)


def append(connection: Connection, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = ()) -> Standing:
    standing = _standing(connection, lease)
    for entry in entries:
        row = {"b_turn": entry.turn, "b_kind": entry.kind, "b_content": entry.content, "b_sid": lease.sid}
        connection.execute(_APPEND, row)
    if joined:
        rows = [{"b_turn": turn, "b_joins": entries[-1].turn} for turn in joined]
        connection.execute(_JOIN, rows)
        connection.execute(_COUNT_DOWN_BY, {"b_sid": lease.sid, "b_by": len(joined)})
    return Standing(pending=standing.pending - len(joined), stopped=standing.stopped)


def standing(connection: Connection, lease: Lease) -> Standing:
    return _standing(connection, lease)


def _standing(connection: Connection, lease: Lease) -> Standing:
    row = connection.execute(_STANDING, _owned(lease)).first()
    if row is None:
        raise Fenced
    return Standing(pending=row.pending, stopped=row.stopped)


def finish(
    connection: Connection, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], at: float, dead: bool
) -> Sequence[Part]:
    """The turn's last rows, its reply and the end of its message, all or nothing."""
    append(connection, lease, entries)
    turn = entries[-1].turn
    connection.execute(_COUNT_DOWN, {"b_sid": lease.sid})
    connection.execute(_CLOSE_MESSAGE, {"b_turn": turn, "b_to": InboxStatus.DEAD if dead else InboxStatus.DONE})
    queued = []
    for number, part in enumerate(parts):
        row = {"sid": lease.sid, "turn": turn, "part": number, "key": part.key, "payload": part.payload, "created": at}
        queued.append(Part(**connection.execute(_INSERT_PART, row).one()._mapping))
    return queued


def sent(connection: Connection, lease: Lease, part: int, ext_id: str) -> bool:
    connection.execute(_MARK, {"b_part": part, "b_to": OutboxStatus.SENT, "b_ext": ext_id, "b_reason": None})
    return release(connection, lease)


def failed(connection: Connection, lease: Lease, part: int, reason: str) -> bool:
    connection.execute(_MARK, {"b_part": part, "b_to": OutboxStatus.FAILED, "b_ext": None, "b_reason": reason})
    return release(connection, lease)


def begin(connection: Connection, lease: Lease, part: int, next_at: float) -> None:
    if not connection.execute(_BEGIN, _owned(lease) | {"b_part": part, "b_due": next_at}).rowcount:
        raise Fenced


def postpone(connection: Connection, lease: Lease, part: int, next_at: float, ambiguous: bool) -> None:
    row = {"b_part": part, "b_due": next_at, "b_ambiguous": int(ambiguous)}
    connection.execute(_POSTPONE, _owned(lease) | row)


def release(connection: Connection, lease: Lease) -> bool:
    """By the counter on the chat's own row, so that no message can slip in between."""
    return connection.execute(_RELEASE, _owned(lease)).first() is not None


def hand_over(connection: Connection, lease: Lease) -> None:
    connection.execute(update(session).where(_OWNED).values(owner=None), _owned(lease))


def renew(connection: Connection, lease: Lease) -> Lease:
    raised = update(session).where(_OWNED).values(epoch=session.c.epoch + 1).returning(session.c.epoch)
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
    part = select(func.min(outbox.c.created)).where(_is_queued)
    times = [connection.scalar(message), connection.scalar(part)]
    return min((time for time in times if time is not None), default=None)


def probe(connection: Connection) -> None:
    row = {"id": "probe", "lock_key": 0, "expires": datetime.now(UTC)}
    connection.execute(_PROBE, row)


def prune(connection: Connection, before: float) -> int:
    over = (InboxStatus.JOINED, InboxStatus.DONE, InboxStatus.OVERFLOW)
    gone = connection.execute(delete(inbox).where(inbox.c.status.in_(over), inbox.c.at < before)).rowcount
    connection.execute(delete(outbox).where(outbox.c.status == OutboxStatus.SENT, outbox.c.created < before))
    return gone


def _owned(lease: Lease) -> dict[str, object]:
    return {"b_sid": lease.sid, "b_epoch": lease.epoch}


# The statements of the hot path, built once. A bound name starts with `b_`: a column's own name is SQLAlchemy's.

_SID: BindParameter[str] = bindparam("b_sid")
_EPOCH: BindParameter[int] = bindparam("b_epoch")
_TURN: BindParameter[int] = bindparam("b_turn")
_OWNED = (session.c.id == _SID) & (session.c.epoch == _EPOCH)
_is_ours = (session.c.epoch == _EPOCH) & session.c.owner.is_not(None)
_is_waiting = (inbox.c.sid == _SID) & (inbox.c.status == InboxStatus.WAITING)
_is_queued = outbox.c.status == OutboxStatus.QUEUED

_INSERT_MESSAGE = insert(inbox).on_conflict_do_nothing().returning(inbox.c.id)

_new_session = insert(session).values(
    id=_SID, owner=bindparam("b_owner"), epoch=1, pending=1, stopped=bindparam("b_stopped")
)
_COUNT_MESSAGE = _new_session.on_conflict_do_update(
    index_elements=[session.c.id],
    set_={
        "pending": session.c.pending + 1,
        "epoch": session.c.epoch
        + case((session.c.owner.is_(None) & _new_session.excluded.owner.is_not(None), 1), else_=0),
        "owner": func.coalesce(session.c.owner, _new_session.excluded.owner),
        "stopped": func.max(session.c.stopped, _new_session.excluded.stopped),
    },
).returning(session.c.owner, session.c.epoch, session.c.pending)
_noted = inbox.alias()
_oldest_waiting = select(func.min(inbox.c.id)).where(_is_waiting).scalar_subquery()
_TOLD = select(exists(select(_noted.c.id).where(_noted.c.sid == bindparam("b_aside"), _noted.c.id > _oldest_waiting)))
"""Whether there has been a note since the message came that is still the chat's oldest."""

_CLAIMABLE = (
    select(session.c.id, session.c.owner)
    .where(
        or_(
            session.c.owner.is_not(None) & (session.c.owner != bindparam("b_owner")),
            session.c.owner.is_(None) & (session.c.pending > 0),
            session.c.owner.is_(None) & session.c.id.in_(select(outbox.c.sid).where(_is_queued)),
        )
    )
    .order_by(session.c.id)
    .limit(bindparam("b_limit"))
)
_TAKE = (
    update(session)
    .where(session.c.id == _SID)
    .values(owner=bindparam("b_owner"), epoch=session.c.epoch + 1)
    .returning(session.c.epoch)
)
_last_kind = (
    select(transcript.c.kind)
    .where(transcript.c.sid == inbox.c.sid, transcript.c.turn == inbox.c.id)
    .order_by(transcript.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_COUNT_ATTEMPT = update(inbox).where(_is_waiting, _last_kind != "drained").values(attempts=inbox.c.attempts + 1)
_first_part = select(func.min(outbox.c.id)).where(outbox.c.sid == _SID, _is_queued).scalar_subquery()
_COUNT_AMBIGUOUS = update(outbox).where(outbox.c.id == _first_part).values(ambiguous=outbox.c.ambiguous + 1)

_stopper = inbox.alias()
_superseded = exists(select(_stopper.c.id).where(_stopper.c.id == session.c.stopped, _stopper.c.sid == session.c.id))
_WAITING = (
    select(
        inbox.c.id.label("turn"),
        inbox.c.body,
        inbox.c.at,
        inbox.c.attempts,
        session.c.stopped,
        _superseded.label("superseded"),
    )
    .join(session, session.c.id == inbox.c.sid)
    .where(_is_waiting, _is_ours)
    .order_by(inbox.c.id)
    .limit(bindparam("b_limit"))
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

_probe_row = insert(worker)
_PROBE = _probe_row.on_conflict_do_update(index_elements=[worker.c.id], set_={"expires": _probe_row.excluded.expires})

_STANDING = select(session.c.pending, session.c.stopped).where(_OWNED)
_next_seq = select(func.coalesce(func.max(transcript.c.seq), 0) + 1).where(transcript.c.sid == _SID).scalar_subquery()
_APPEND = insert(transcript).values(
    sid=_SID, seq=_next_seq, turn=_TURN, kind=bindparam("b_kind"), content=bindparam("b_content")
)
_JOIN = update(inbox).where(inbox.c.id == _TURN).values(status=InboxStatus.JOINED, turn=bindparam("b_joins"))
_COUNT_DOWN = update(session).where(session.c.id == _SID).values(pending=session.c.pending - 1)
_COUNT_DOWN_BY = update(session).where(session.c.id == _SID).values(pending=session.c.pending - bindparam("b_by"))
_CLOSE_MESSAGE = update(inbox).where(inbox.c.id == _TURN).values(status=bindparam("b_to"))

_part_columns = (
    outbox.c.id, outbox.c.turn, outbox.c.part, outbox.c.key, outbox.c.payload,
    outbox.c.attempts, outbox.c.ambiguous, outbox.c.next_at, outbox.c.created,
)  # fmt: skip
_INSERT_PART = insert(outbox).returning(*_part_columns)
_QUEUED = (
    select(*_part_columns)
    .join(session, session.c.id == outbox.c.sid)
    .where(outbox.c.sid == _SID, _is_queued, _is_ours)
    .order_by(outbox.c.id)
)
_this_part = outbox.c.id == bindparam("b_part")
_MARK = (
    update(outbox)
    .where(_this_part)
    .values(status=bindparam("b_to"), ext_id=bindparam("b_ext"), reason=bindparam("b_reason"))
)
_this_owned_part = (_this_part, exists(select(session.c.id).where(_OWNED)))
_BEGIN = (
    update(outbox)
    .where(*_this_owned_part)
    .values(next_at=bindparam("b_due"), ambiguous=case((outbox.c.next_at == 0, 0), else_=outbox.c.ambiguous))
)
_POSTPONE = (
    update(outbox)
    .where(*_this_owned_part)
    .values(
        attempts=outbox.c.attempts + 1,
        ambiguous=outbox.c.ambiguous + bindparam("b_ambiguous"),
        next_at=bindparam("b_due"),
    )
)
_RELEASE = (
    update(session)
    .where(_OWNED, session.c.pending == 0, ~exists(select(outbox.c.id).where(outbox.c.sid == _SID, _is_queued)))
    .values(owner=None)
    .returning(session.c.id)
)

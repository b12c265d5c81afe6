"""What the engine says to SQLite: the statements of the hot path, built once. `sqlite_operations` runs them.

A bound name starts with `b_`: a column's own name is SQLAlchemy's.
"""

from sqlalchemy import BindParameter, bindparam, case, exists, func, literal_column, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from gateway.store.store import ASIDE
from gateway.store.tables import InboxStatus, OutboxStatus, inbox, outbox, session, transcript, worker

_SID: BindParameter[str] = bindparam("b_sid")
_EPOCH: BindParameter[int] = bindparam("b_epoch")
_TURN: BindParameter[int] = bindparam("b_turn")
OWNED = (session.c.id == _SID) & (session.c.epoch == _EPOCH)
_is_ours = (session.c.epoch == _EPOCH) & session.c.owner.is_not(None)
_waits = inbox.c.status == literal_column(str(InboxStatus.WAITING.value))
"""A number and no bound name: SQLite finds the partial index without compiling the statement anew."""
_is_waiting = (inbox.c.sid == _SID) & _waits
is_queued = outbox.c.status == OutboxStatus.QUEUED

INSERT_MESSAGE = insert(inbox).on_conflict_do_nothing().returning(inbox.c.id)

_new_session = insert(session).values(
    id=_SID, owner=bindparam("b_owner"), epoch=1, pending=1, stopped=bindparam("b_stopped")
)
COUNT_MESSAGE = _new_session.on_conflict_do_update(
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
OF_SENDER = select(func.count(), func.min(inbox.c.id), func.count().filter(inbox.c.sid.startswith(ASIDE))).where(
    inbox.c.sender == bindparam("b_sender"), _waits
)
OLDEST_WAITING = select(func.min(inbox.c.id)).where(_is_waiting)
NOTED = select(
    exists(select(_noted.c.id).where(_noted.c.sid == bindparam("b_aside"), _noted.c.id > bindparam("b_since")))
)
"""Whether the chat has had a note since a message came."""

CLAIMABLE = (
    select(session.c.id, session.c.owner)
    .where(
        or_(
            session.c.owner.is_not(None) & (session.c.owner != bindparam("b_owner")),
            session.c.owner.is_(None) & (session.c.pending > 0),
            session.c.owner.is_(None) & session.c.id.in_(select(outbox.c.sid).where(is_queued)),
        )
    )
    .order_by(session.c.id)
    .limit(bindparam("b_limit"))
)
TAKE = (
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
COUNT_ATTEMPT = update(inbox).where(_is_waiting, _last_kind != "drained").values(attempts=inbox.c.attempts + 1)
_first_part = select(func.min(outbox.c.id)).where(outbox.c.sid == _SID, is_queued).scalar_subquery()
COUNT_AMBIGUOUS = update(outbox).where(outbox.c.id == _first_part).values(ambiguous=outbox.c.ambiguous + 1)

_stopper = inbox.alias()
_superseded = exists(select(_stopper.c.id).where(_stopper.c.id == session.c.stopped, _stopper.c.sid == session.c.id))
WAITING = (
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
HISTORY_START = (
    select(transcript.c.seq)
    .where(transcript.c.sid == _SID, transcript.c.kind == "user", transcript.c.turn < _TURN)
    .order_by(transcript.c.seq.desc())
    .limit(1)
    .offset(bindparam("b_skip"))
)
ENTRIES = (
    select(transcript.c.turn, transcript.c.kind, transcript.c.content)
    .where(transcript.c.sid == _SID, transcript.c.seq >= bindparam("b_since"))
    .order_by(transcript.c.seq)
)

_probe_row = insert(worker)
PROBE = _probe_row.on_conflict_do_update(index_elements=[worker.c.id], set_={"expires": _probe_row.excluded.expires})

STANDING = select(session.c.pending, session.c.stopped).where(OWNED)
_next_seq = select(func.coalesce(func.max(transcript.c.seq), 0) + 1).where(transcript.c.sid == _SID).scalar_subquery()
APPEND = insert(transcript).values(
    sid=_SID, seq=_next_seq, turn=_TURN, kind=bindparam("b_kind"), content=bindparam("b_content")
)
JOIN = update(inbox).where(inbox.c.id == _TURN).values(status=InboxStatus.JOINED, turn=bindparam("b_joins"))
COUNT_DOWN = update(session).where(session.c.id == _SID).values(pending=session.c.pending - 1)
COUNT_DOWN_BY = update(session).where(session.c.id == _SID).values(pending=session.c.pending - bindparam("b_by"))
REFUSE_MESSAGE = update(inbox).where(inbox.c.id == _TURN).values(status=InboxStatus.OVERFLOW, body="")
CLOSE_MESSAGE = update(inbox).where(inbox.c.id == _TURN).values(status=bindparam("b_to"))

_part_columns = (
    outbox.c.id, outbox.c.turn, outbox.c.part, outbox.c.key, outbox.c.payload,
    outbox.c.attempts, outbox.c.ambiguous, outbox.c.next_at, outbox.c.created,
)  # fmt: skip
INSERT_PART = insert(outbox).returning(*_part_columns)
QUEUED = (
    select(*_part_columns)
    .join(session, session.c.id == outbox.c.sid)
    .where(outbox.c.sid == _SID, is_queued, _is_ours)
    .order_by(outbox.c.id)
)
_this_part = outbox.c.id == bindparam("b_part")
MARK = (
    update(outbox)
    .where(_this_part)
    .values(status=bindparam("b_to"), ext_id=bindparam("b_ext"), reason=bindparam("b_reason"))
)
_this_owned_part = (_this_part, exists(select(session.c.id).where(OWNED)))
BEGIN = (
    update(outbox)
    .where(*_this_owned_part)
    .values(next_at=bindparam("b_due"), ambiguous=case((outbox.c.next_at == 0, 0), else_=outbox.c.ambiguous))
)
POSTPONE = (
    update(outbox)
    .where(*_this_owned_part)
    .values(
        attempts=outbox.c.attempts + 1,
        ambiguous=outbox.c.ambiguous + bindparam("b_ambiguous"),
        next_at=bindparam("b_due"),
    )
)
RELEASE = (
    update(session)
    .where(OWNED, session.c.pending == 0, ~exists(select(outbox.c.id).where(outbox.c.sid == _SID, is_queued)))
    .values(owner=None)
    .returning(session.c.id)
)

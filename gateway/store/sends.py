"""Messages that the gateway itself puts into the inbox, and the outcome of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection

from gateway.store.operations import Database, reads, run, value, values, writes
from gateway.store.records import Delivery, Lease
from gateway.store.statements import COUNT_WITHIN, INSERT_MESSAGE, NEVER, InboxStatus, OutboxStatus


def put(connection: Connection, delivery: Delivery, worker: str | None = None) -> tuple[int | None, Lease | None]:
    """Put the message into the inbox and count it on its session's row. Idempotent by key: the number is None if it
    exists already. An idle session becomes the worker's, whose lease is returned too; without a worker, the
    session's lane or the next sweep finds the message."""
    turn: int | None = value(connection, INSERT_MESSAGE, **delivery.row)
    return turn, count(connection, delivery.sid, worker) if turn is not None else None


def count(connection: Connection, sid: str, owner: str | None, *, stopped: int = 0, begun: int = 0) -> Lease | None:
    """Count a message on its session's row. Return the lease if the owner has the session."""
    names = {"sid": sid, "owner": owner, "stopped": stopped, "begun": begun}
    counted = values(connection, COUNT_WITHIN, **names, sender=None, theirs_max=NEVER, pending_max=NEVER)
    return held(sid, owner, *counted)


def held(sid: str, owner: str | None, holder: str | None, epoch: int) -> Lease | None:
    return Lease(sid=sid, epoch=epoch) if owner is not None and holder == owner else None


_OUTCOME = """
SELECT i.status, o.status AS part, o.ext_id, o.reason
FROM inbox i LEFT JOIN outbox o ON o.turn = i.id AND o.part >= 0 WHERE i.dedupe = :dedupe ORDER BY o.part
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOutcome:
    """The outcome of a send. `message_ids` are the platform's ids of the sent parts, in order. `reason` says why it
    was rejected."""

    state: Literal["waiting", "sent", "refused"]
    message_ids: tuple[str, ...] = ()
    reason: str = ""


class DatabaseSends(Database):
    @writes
    def queue(self, connection: Connection, delivery: Delivery) -> None:
        """Put a message into the inbox without a worker; the next sweep finds it."""
        put(connection, delivery)

    @reads
    def outcome(self, connection: Connection, dedupe: str) -> SendOutcome:
        return _outcome(run(connection, _OUTCOME, dedupe=dedupe).mappings().all())


def _outcome(rows: Sequence[Any]) -> SendOutcome:
    sent = tuple(row["ext_id"] for row in rows if row["part"] == OutboxStatus.SENT)
    if not rows or rows[0]["status"] == InboxStatus.WAITING or any(it["part"] == OutboxStatus.QUEUED for it in rows):
        return SendOutcome(state="waiting", message_ids=sent)
    if reason := next((row["reason"] for row in rows if row["part"] == OutboxStatus.FAILED), None):
        return SendOutcome(state="refused", message_ids=sent, reason=reason)
    if not sent:
        return SendOutcome(state="refused", reason="the gateway could not make a message of it: see its log")
    return SendOutcome(state="sent", message_ids=sent)

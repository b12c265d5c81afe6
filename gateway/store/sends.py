"""Messages that the gateway is told to send: one put into the inbox from the command line, and the outcome of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection

from gateway.store.arrivals import put
from gateway.store.records import Delivery
from gateway.store.statements import InboxStatus, OutboxStatus
from gateway.store.writer import Database, reads, run, writes

_OUTCOME = """
SELECT i.status, o.status AS part, o.ext_id, o.reason
FROM inbox i LEFT JOIN outbox o ON o.turn = i.id AND o.part >= 0 WHERE i.dedupe = :dedupe ORDER BY o.part
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOutcome:
    """`message_ids` are the platform's, of the parts that were sent, in order. `reason` says why it was refused."""

    state: Literal["waiting", "sent", "refused"]
    message_ids: tuple[str, ...] = ()
    reason: str = ""


class DatabaseSends(Database):
    @writes
    def queue(self, connection: Connection, delivery: Delivery) -> None:
        """Puts a message into the inbox without a worker; the next sweep finds it."""
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

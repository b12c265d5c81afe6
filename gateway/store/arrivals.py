"""Messages that come into the inbox by a commit of the gateway's own, instead of through a door."""

from sqlalchemy import Connection

from gateway.store.records import Delivery, Lease
from gateway.store.statements import INSERT_MESSAGE
from gateway.store.writer import run

_COUNT = """
INSERT INTO session AS t (id, owner, epoch, pending, stopped, begun) VALUES (:sid, CAST(:owner AS TEXT), 1, 1, 0, 0)
ON CONFLICT (id) DO UPDATE SET
    begun = CASE WHEN t.owner IS NULL AND t.pending = 0 THEN 0 ELSE t.begun END,
    pending = t.pending + 1,
    owner = COALESCE(t.owner, excluded.owner),
    epoch = t.epoch + CASE WHEN t.owner IS NULL AND excluded.owner IS NOT NULL THEN 1 ELSE 0 END
RETURNING owner, epoch
"""


def put(connection: Connection, delivery: Delivery, worker: str | None = None) -> tuple[int | None, Lease | None]:
    """Put the message into the inbox, once for its key, and count it on its chat's row. Returns its number, None if it
    is there already. An idle chat becomes the worker's, whose lease is returned, too; without a worker the chat's lane or
    the next sweep finds the message."""
    turn: int | None = run(connection, INSERT_MESSAGE, **delivery.row).scalar()
    if turn is None:
        return None, None
    row = run(connection, _COUNT, sid=delivery.sid, owner=worker).one()
    return turn, Lease(sid=delivery.sid, epoch=row.epoch) if worker is not None and row.owner == worker else None

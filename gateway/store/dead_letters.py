"""Dead letters, to list and to replay: messages whose turn failed for good, and reply parts that could not be
delivered.

They serve the command line, with or without a running gateway, on either database. The next sweep picks up a replayed
one. A part keeps its idempotency key; a message becomes a new one, whose reply has other keys, and its old turn stays.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

from pydantic import ValidationError
from sqlalchemy import Connection, text

from gateway.config.root import DatabaseConfig
from gateway.program import OperatorError
from gateway.store.inbound import inbound_json
from gateway.store.opening import connected
from gateway.store.records import Delivery
from gateway.store.sends import put


class UnreadableMessage(OperatorError):
    """This version cannot read the message: replay it with the version that accepted it, or erase its conversation."""


LISTED_MAX = 1_000
_MESSAGES = """
SELECT 'message' AS kind, id AS number, sid AS session, at, attempts
FROM inbox WHERE status = 4 ORDER BY id DESC LIMIT :most
"""
_PARTS = """
SELECT 'part' AS kind, id AS number, sid AS session, created AS at, attempts, ambiguous, COALESCE(reason, '') AS reason
FROM outbox WHERE status = 3 ORDER BY id DESC LIMIT :most
"""
_QUEUE_PART = """
UPDATE outbox SET status = 0, attempts = 0, next_at = 0, attempt_started_at = NULL, created = :at,
    reason = NULL
WHERE id = :number AND status = 3
"""
_CLOSE_MESSAGE = """
UPDATE inbox SET status = 2 WHERE id = :number AND status = 4
RETURNING sid, body, sender
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """`name` is what `replay` accepts: `message-12` or `part-7`. `at` is when it was accepted or queued."""

    kind: Literal["message", "part"]
    number: int
    session: str
    at: float
    attempts: int
    ambiguous: int = 0
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"


def dead_letters(config: DatabaseConfig) -> list[DeadLetter]:
    """Return the newest 1,000 of each kind, oldest first. Raises DatabaseUnusable."""
    with connected(config) as connection:
        return _found(connection)


def replay(config: DatabaseConfig, names: Sequence[str]) -> list[str]:
    """Requeue these dead letters and return the names that exist. Raises DatabaseUnusable."""
    with connected(config) as connection:
        return [it.name for it in _found(connection) if it.name in names and _replay(connection, it)]


def _found(connection: Connection) -> list[DeadLetter]:
    rows = (reversed(connection.execute(text(it), {"most": LISTED_MAX}).mappings().all()) for it in (_MESSAGES, _PARTS))
    return [DeadLetter(**row) for kind in rows for row in kind]


def _replay(connection: Connection, dead_letter: DeadLetter) -> bool:
    names: dict[str, object] = {"number": dead_letter.number, "at": time.time()}
    if dead_letter.kind == "part":
        return connection.execute(text(_QUEUE_PART), names).rowcount == 1
    row = connection.execute(text(_CLOSE_MESSAGE), names).first()
    if row is None:
        return False
    try:
        inbound = inbound_json.validate_json(row.body)
    except ValidationError as error:
        raise UnreadableMessage(f"{dead_letter.name}: {UnreadableMessage.__doc__}") from error
    body = inbound_json.dump_json(replace(inbound, replays=inbound.replays + 1)).decode()
    dedupe = (f"replay:{dead_letter.number}:{uuid4().hex}",)
    again = Delivery(sid=row.sid, dedupe=dedupe, body=body, at=time.time(), sender=row.sender, again=True)
    put(connection, again)
    return True

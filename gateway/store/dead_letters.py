"""Dead letters: messages whose turn was given up and reply parts that could not be delivered, to list and to replay.

For the command line, beside a running gateway or without one, on either database. What is replayed is found by the next
sweep. A part keeps its idempotency key; a message becomes a new one, whose reply has keys of its own, and its old turn
stays in the history.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

from sqlalchemy import Connection, create_engine, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.root import DatabaseConfig
from gateway.queue import inbound_json
from gateway.store.migrate import DatabaseUnusable
from gateway.store.tables import InboxStatus, OutboxStatus, inbox, outbox, session

LISTED_MAX = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """`name` is what `replay` takes: `message-12` or `part-7`. `at` is when it was accepted or queued."""

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
    """The newest 1,000 of each kind, oldest first. Raises DatabaseUnusable."""
    with _connected(config) as connection:
        return _found(connection)


def replay(config: DatabaseConfig, names: Sequence[str]) -> list[str]:
    """Queue these again; returns the names that are dead letters. Raises DatabaseUnusable."""
    with _connected(config) as connection:
        return [it.name for it in _found(connection) if it.name in names and _replay(connection, it)]


def _found(connection: Connection) -> list[DeadLetter]:
    message = select(inbox.c.id.label("number"), inbox.c.sid.label("session"), inbox.c.at, inbox.c.attempts)
    part = select(
        outbox.c.id.label("number"),
        outbox.c.sid.label("session"),
        outbox.c.created.label("at"),
        outbox.c.attempts,
        outbox.c.ambiguous,
        func.coalesce(outbox.c.reason, "").label("reason"),
    )
    messages = message.where(inbox.c.status == InboxStatus.DEAD).order_by(inbox.c.id.desc()).limit(LISTED_MAX)
    parts = part.where(outbox.c.status == OutboxStatus.FAILED).order_by(outbox.c.id.desc()).limit(LISTED_MAX)
    return [
        *(DeadLetter(kind="message", **row) for row in reversed(connection.execute(messages).mappings().all())),
        *(DeadLetter(kind="part", **row) for row in reversed(connection.execute(parts).mappings().all())),
    ]


def _replay(connection: Connection, dead_letter: DeadLetter) -> bool:
    if dead_letter.kind == "part":
        again = update(outbox).where(outbox.c.id == dead_letter.number, outbox.c.status == OutboxStatus.FAILED)
        fresh = {"status": OutboxStatus.QUEUED, "attempts": 0, "next_at": 0.0, "created": time.time(), "reason": None}
        return connection.execute(again.values(**fresh)).rowcount == 1
    dead = update(inbox).where(inbox.c.id == dead_letter.number, inbox.c.status == InboxStatus.DEAD)
    row = connection.execute(dead.values(status=InboxStatus.DONE).returning(inbox.c.sid, inbox.c.body)).first()
    if row is None:
        return False
    dedupe = f"replay:{dead_letter.number}:{uuid4().hex}"
    inbound = inbound_json.validate_json(row.body)
    body = inbound_json.dump_json(replace(inbound, replays=inbound.replays + 1)).decode()
    connection.execute(insert(inbox).values(dedupe=dedupe, sid=row.sid, body=body, at=time.time()))
    counted = update(session).where(session.c.id == row.sid)
    connection.execute(counted.values(pending=session.c.pending + 1))
    return True


@contextmanager
def _connected(config: DatabaseConfig) -> Iterator[Connection]:
    if config.path is not None and not Path(config.path).is_file():
        raise DatabaseUnusable(f"{config.path}: there is no database yet. {DatabaseUnusable.__doc__}")
    url = config.url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url, connect_args={"timeout": 10} if config.path is not None else {})
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise DatabaseUnusable(f"{config.shown}: {reason}. {DatabaseUnusable.__doc__}") from error
    finally:
        engine.dispose()

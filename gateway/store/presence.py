"""Worker heartbeat: lease row, advisory lock, LISTEN connection.

It has a connection and a thread to itself: on the event loop a blocking tool would starve it, and a healthy worker would
be taken for dead. A process that dies drops its lock with its connection, and its chats are taken over within a second;
a frozen one is taken over when its row expires, by the database's clock. A broken connection is opened again: a chat
that was taken meanwhile has a higher epoch, so nothing can be written twice.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import psycopg
import structlog
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.errors import NOTIFY_CHANNEL, StoreUnavailable, fault_of

BEATS_PER_LEASE = 3
RECONNECT_SECONDS = 1.0
KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "connect_timeout": 5,
}

log = structlog.get_logger()

CONNECTIONS = 2
T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Presence:
    """Announces `worker` until it is closed. `on_notify` is called on its thread with a session, or None for all."""

    conninfo: str
    worker: str
    lease_seconds: float
    on_notify: Callable[[str | None], None]

    def __post_init__(self) -> None:
        self._renewed = 0.0
        self.is_connected = True
        """False while the database cannot be reached."""
        self._closing = threading.Event()
        self.announced = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store-presence", daemon=True)
        self._thread.start()

    def lease_valid(self) -> bool:
        """Returns True if the last renewal is recent enough that no other worker can own our chats. A thawed process may
        trust it too: the monotonic clock ran on while it was frozen."""
        return time.monotonic() - self._renewed < self.lease_seconds

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                with psycopg.connect(self.conninfo, autocommit=True, **KEEPALIVE) as connection:
                    self.is_connected = True
                    self._announce(connection)
                    self._beat(connection)
            except psycopg.Error as error:
                self.is_connected = False
                log.warning("presence_lost", error=type(error).__name__)
                self._closing.wait(RECONNECT_SECONDS)

    def _announce(self, connection: psycopg.Connection) -> None:
        """Takes the lock before writing the row that names it: a row whose lock is free belongs to a dead worker."""
        lock_key = secrets.randbits(62)
        connection.execute("SELECT pg_advisory_lock(%s)", [lock_key])
        connection.execute(
            "INSERT INTO worker (id, lock_key, expires) VALUES (%s, %s, clock_timestamp() + %s * interval '1 second')"
            " ON CONFLICT (id) DO UPDATE SET lock_key = excluded.lock_key, expires = excluded.expires",
            [self.worker, lock_key, self.lease_seconds],
        )
        connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
        self._renewed = time.monotonic()
        self.announced.set()
        self.on_notify(None)

    def _beat(self, connection: psycopg.Connection) -> None:
        every = self.lease_seconds / BEATS_PER_LEASE
        while not self._closing.is_set():
            due = time.monotonic() + every
            while (left := due - time.monotonic()) > 0 and not self._closing.is_set():
                # Short waits, so that a close is noticed; a notice ends them at once.
                for note in connection.notifies(timeout=min(left, 0.2), stop_after=1):
                    self.on_notify(note.payload or None)
            began = time.monotonic()
            renewed = connection.execute(
                "UPDATE worker SET expires = clock_timestamp() + %s * interval '1 second' WHERE id = %s",
                [self.lease_seconds, self.worker],
            )
            if renewed.rowcount == 0:  # buried by the others after a long silence: announce it again
                return
            self._renewed = began
        with contextlib.suppress(psycopg.Error):
            connection.execute("UPDATE worker SET expires = clock_timestamp() WHERE id = %s", [self.worker])


class Transactions:
    """Rare transactions: SQLAlchemy's text, off the event loop and the turns' pool. Connects with the first call."""

    def __init__(self, conninfo: str, *, statement_seconds: int) -> None:
        creator = partial(_connected, conninfo, statement_seconds)
        self._engine = create_engine(
            "postgresql+psycopg://", creator=creator, pool_size=CONNECTIONS, pool_pre_ping=True
        )
        self._closed = False

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run it and commit. Raises StoreUnavailable, which says nothing of what was to be written."""

        def run() -> T:
            try:
                with self._engine.connect() as connection:
                    try:
                        with connection.begin():
                            return operation(connection)
                    finally:
                        if self._closed:  # no pool takes it back
                            connection.detach()
            except (SQLAlchemyError, psycopg.Error) as error:
                state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
                raise StoreUnavailable(f"{type(error).__name__}: {state}".strip(": "), fault_of(error)) from error

        return await asyncio.to_thread(run)

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()


def _connected(conninfo: str, statement_seconds: int) -> psycopg.Connection[Any]:
    connection = psycopg.connect(conninfo, autocommit=True, **KEEPALIVE)
    connection.execute(f"SET statement_timeout = '{statement_seconds}s'")
    connection.autocommit = False
    return connection

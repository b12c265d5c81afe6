"""The store on PostgreSQL, with the same guarantees for any number of replicas behind a load balancer.

No connection is held while a model or a tool runs. `Presence` announces this worker; every write names its epoch, so a
worker that was presumed dead can do no harm. A replica that freezes within a transaction keeps no lock: the server ends
a transaction that is idle for as long as a lease.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import psycopg
import structlog
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from gateway.store.errors import NOTIFY_CHANNEL, DatabaseFault, Fenced, StoreUnavailable, fault_of
from gateway.store.migrate import migrate, unusable
from gateway.store.operations import rows
from gateway.store.records import Acceptance, Delivery, Lease
from gateway.store.store import Store

POOL_WAIT_SECONDS = 2.0
STATEMENT_SECONDS = 5
START_SECONDS = 10.0
APART_MAX = 2
BURY_EVERY_CLAIMS = 60
BEATS_PER_LEASE = 3
RECONNECT_SECONDS = 1.0
KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "connect_timeout": 5,
}
CLAIMABLE = """
WITH dead AS MATERIALIZED (
    SELECT id FROM worker
    WHERE id <> :owner AND (expires < clock_timestamp() OR pg_try_advisory_xact_lock(lock_key))
)
SELECT s.id, s.owner FROM session s
WHERE s.owner IS NULL AND s.pending > 0
   OR s.owner IS NULL AND s.id IN (SELECT sid FROM outbox WHERE status = 0)
   OR s.owner IN (SELECT id FROM dead)
   OR s.owner IS NOT NULL AND NOT EXISTS (SELECT FROM worker w WHERE w.id = s.owner)
ORDER BY s.id LIMIT :limit FOR UPDATE OF s SKIP LOCKED
"""
"""Skips a session that another worker is claiming."""
BURY = """
DELETE FROM worker w WHERE expires < clock_timestamp() - interval '1 minute'
AND NOT EXISTS (SELECT FROM session WHERE owner = w.id)
"""
T = TypeVar("T")

log = structlog.get_logger()


class PostgresStore(Store):
    """`Store` on the database at `conninfo`, a libpq address; `at` is its display name. Creates missing tables."""

    shared = True
    claimable = CLAIMABLE

    def __init__(self, conninfo: str, *, at: str, lease_seconds: float, connections: int) -> None:
        self._conninfo = conninfo
        self._lease_seconds = lease_seconds
        self._presence: Presence | None = None
        self._claims = 0
        self._turnstiles: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._transactions = Transactions(conninfo, connections=connections, idle_seconds=lease_seconds)
        super().__init__(read=self._transactions.apart, write=self._transactions.apart)
        self.read, self.write = self._transactions.each, self._transactions.call
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo, **KEEPALIVE))
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                migrate(connection, begin="BEGIN")
        except (SQLAlchemyError, psycopg.Error) as error:
            raise unusable(error, at) from error
        finally:
            engine.dispose()

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        try:
            await self._start(on_notify)
        except BaseException:
            await self.close()  # its threads would keep the process from ending
            raise

    async def _start(self, on_notify: Callable[[str | None], None]) -> None:
        loop = asyncio.get_running_loop()

        def notify(sid: str | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_notify, sid)

        self._presence = Presence(
            conninfo=self._conninfo, worker=self.worker, lease_seconds=self._lease_seconds, on_notify=notify
        )
        if not await asyncio.to_thread(self._presence.announced.wait, START_SECONDS):
            raise StoreUnavailable("the worker could not be announced")

    def lease_valid(self) -> bool:
        return self._presence is not None and self._presence.lease_valid()

    @property
    def failing(self) -> DatabaseFault | None:
        return "gone" if self._presence is not None and not self._presence.is_connected else self._transactions.fault

    async def accept(self, delivery: Delivery, **limits: Any) -> Acceptance:
        """Serialise the messages of one session, so that their order is that of arrival, not of threads."""
        async with self._turnstiles.setdefault(delivery.sid, asyncio.Lock()):
            return await super().accept(delivery, **limits)

    async def claim(self, limit: int) -> Sequence[Lease]:
        self._claims += 1
        if self._claims % BURY_EVERY_CLAIMS == 1:
            await self._rows(BURY, {})
        return await super().claim(limit)

    async def notify(self, sid: str | None) -> None:
        await self._rows("SELECT pg_notify(:channel, :sid)", {"channel": NOTIFY_CHANNEL, "sid": sid or ""})

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        return await self._transactions.each(lambda connection: rows(connection, statement, **names))

    async def close(self) -> None:
        if self._presence is not None:
            await asyncio.to_thread(self._presence.close)
        await self._transactions.close()


class Transactions:
    """Run operations off the event loop, on at most `connections`, each opened when first needed."""

    def __init__(self, conninfo: str, *, connections: int, idle_seconds: float) -> None:
        creator = partial(_connected, conninfo, idle_seconds)
        self._engine = create_engine(
            "postgresql+psycopg://", creator=creator, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="store")
        self._open: list[Connection] = []
        """The idle connections."""
        self._free = asyncio.Semaphore(connections)
        self._apart = asyncio.Semaphore(min(APART_MAX, connections // 2))
        self.fault: DatabaseFault | None = None
        """The fault of the newest operations; None if they succeeded."""

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation in one transaction and commit. Raises Fenced, or StoreUnavailable, whose text never
        contains the data."""

        # Without psycopg's pipeline: within one, a frozen process is not idle to the server and would keep its locks.
        def transaction(connection: Connection) -> T:
            driver: Any = connection.connection.driver_connection
            command(driver, b"BEGIN")
            result = operation(connection)
            command(driver, b"COMMIT")
            return result

        return await self.each(transaction)

    async def apart(self, operation: Callable[[Connection], T]) -> T:
        """Run it as `call` does, but only a few at a time: some wait for a lock, and the queue must not wait for
        them."""
        async with self._apart:
            return await self.call(operation)

    async def each(self, operation: Callable[[Connection], T]) -> T:
        """Run it with a commit for each of its statements. Raises the errors of `call`."""
        try:
            async with asyncio.timeout(POOL_WAIT_SECONDS if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            self.fault = "slow"
            raise StoreUnavailable("no connection was free in time", "slow") from error
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._in_thread, operation)
        except RuntimeError as error:  # its threads have ended
            self._free.release()
            raise StoreUnavailable("the database is closed") from error
        try:
            return await future
        finally:
            self._free.release()

    def _in_thread(self, operation: Callable[[Connection], T], *, again: bool = False) -> T:
        connection = None
        try:
            connection = self._connection()
            result = operation(connection)
            self.fault = None
            self._open.append(connection)
            return result
        except BaseException as error:
            if connection is not None:
                self._give_back(connection, outdated=_is_outdated(error))
            if _is_outdated(error) and not again:
                return self._in_thread(operation, again=True)
            if isinstance(error, psycopg.errors.UniqueViolation):  # two workers wrote the same row of a transcript
                raise Fenced from error
            if not isinstance(error, SQLAlchemyError | psycopg.Error):
                raise
            cause = getattr(error, "orig", None) or error
            fault = fault_of(cause)
            self.fault = fault if fault != "broken" else self.fault  # a statement that is wrong says nothing of others
            reason = f"{type(cause).__name__}: {getattr(cause, 'sqlstate', None) or ''}".strip(": ")
            raise StoreUnavailable(reason, self.fault or fault) from error

    def _connection(self) -> Connection:
        try:
            return self._open.pop()
        except IndexError:
            return self._engine.connect()

    def _give_back(self, connection: Connection, *, outdated: bool) -> None:
        """Roll back and return the connection to the pool; close it if that fails or its statements are outdated."""
        try:
            driver: Any = connection.connection.driver_connection
            driver.execute("ROLLBACK")
            if outdated:
                connection.close()
            else:
                self._open.append(connection)
        except (psycopg.Error, SQLAlchemyError):
            connection.invalidate()
            connection.close()

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        while self._open:
            self._open.pop().close()
        self._engine.dispose()


def _is_outdated(error: BaseException) -> bool:
    """Return whether a prepared `SELECT *` has other columns since a newer version changed its table."""
    return isinstance(getattr(error, "orig", error), psycopg.errors.FeatureNotSupported)


def command(driver: psycopg.Connection[Any], statement: bytes) -> None:
    """Execute a statement without parameters or rows, and without the cost of a cursor."""
    result = driver.pgconn.exec_(statement)
    if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result)


def _connected(conninfo: str, idle_seconds: float) -> psycopg.Connection[Any]:
    connection = psycopg.connect(conninfo, autocommit=True, **KEEPALIVE)
    connection.execute(
        f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET idle_in_transaction_session_timeout = '{idle_seconds:.0f}s'"
    )
    return connection


@dataclass(eq=False, kw_only=True)
class Presence:
    """Announce `worker` by a lease row, an advisory lock and a LISTEN connection. `on_notify` is called on its
    thread with a session, or None for all. It has its own connection and thread: on the event loop a blocking tool
    would starve it, and a healthy worker would look dead. A process that dies drops its lock with its connection,
    and its sessions are taken over within a second; those of a frozen process when its row expires, by the
    database's clock. A broken connection is reopened. A session that was taken over meanwhile has a higher epoch, so
    nothing can be written twice."""

    conninfo: str
    worker: str
    lease_seconds: float
    on_notify: Callable[[str | None], None]

    def __post_init__(self) -> None:
        self._renewed = 0.0
        self.is_connected = True
        """False while the database is unreachable."""
        self._closing = threading.Event()
        self.announced = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store-presence", daemon=True)
        self._thread.start()

    def lease_valid(self) -> bool:
        """Return whether the last renewal is recent enough that no other worker can own our sessions. A thawed
        process may trust it too, because the monotonic clock ran on while it was frozen."""
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
        """Take the lock before writing the row that names it: a row whose lock is free belongs to a dead worker."""
        lock_key = secrets.randbits(62)
        connection.execute("SELECT pg_advisory_lock(%s)", [lock_key])
        connection.execute(
            "INSERT INTO worker (id, lock_key, expires) VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))"
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
                "UPDATE worker SET expires = clock_timestamp() + make_interval(secs => %s) WHERE id = %s",
                [self.lease_seconds, self.worker],
            )
            if renewed.rowcount == 0:  # buried by the others after a long silence: announce it again
                return
            self._renewed = began
        with contextlib.suppress(psycopg.Error):
            connection.execute("UPDATE worker SET expires = clock_timestamp() WHERE id = %s", [self.worker])

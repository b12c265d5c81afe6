"""The store on SQLite: one file, one process, no services.

Every write goes through one `Writer`; reads have a separate connection. A lock file excludes a second gateway.
`synchronous=FULL`: what was acknowledged is on disk. There are no deferred transactions that read and then write: their
upgrade fails immediately, even with a busy_timeout.
"""

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.errors import DatabaseFault, Fenced, StoreUnavailable, fault_of
from gateway.store.migrate import DatabaseUnusable, migrate, unusable
from gateway.store.store import Store

GROUP_MAX = 64
QUEUE_MAX = 5_000
LOCKED_SECONDS = 0.3
"""Seconds without a transaction start after which another program is assumed to hold the lock."""
CLAIMABLE = """
SELECT id, owner FROM session
WHERE owner IS NOT NULL AND owner <> :owner
   OR owner IS NULL AND pending > 0
   OR owner IS NULL AND id IN (SELECT sid FROM outbox WHERE status = 0)
ORDER BY id LIMIT :limit
"""
"""One process per file: any other owner is dead."""
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000", "secure_delete=ON")
T = TypeVar("T")
_Queued: TypeAlias = tuple[Callable[[Connection], Any], asyncio.Future[Any]]


class SqliteStore(Store):
    """`Store` on a SQLite file; creates a missing one."""

    claimable = CLAIMABLE

    def __init__(self, path: Path) -> None:
        try:
            # If we are root, commands run as another user, who passes through to a workspace and sees nothing here.
            path.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            self._lock = lock_file(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise unusable(error, str(path), file=str(path)) from error
        engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _configure)
        self._engine = engine
        try:
            make_private(path)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                migrate(connection, begin="BEGIN IMMEDIATE")
        except (SQLAlchemyError, OSError, DatabaseUnusable) as error:
            self._let_go()
            if isinstance(error, DatabaseUnusable):
                raise
            raise unusable(error, str(path), file=str(path)) from error
        self._writer = Writer(engine, name="store-writer", begin="BEGIN IMMEDIATE")
        self._reader = Writer(engine, name="store-reader", begin="BEGIN")
        super().__init__(read=self._reader.call, write=self._writer.call)

    @property
    def failing(self) -> DatabaseFault | None:
        return self._writer.failing

    async def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._let_go()

    def _let_go(self) -> None:
        self._engine.dispose()
        self._lock.close()


class Writer:
    """Run operations in sequence on its own thread. `call` awaits the commit. Waiting operations share a `BEGIN
    IMMEDIATE` … `COMMIT`, so fifty sessions cost one fsync, not fifty. If one of a group fails, the group is rolled
    back and each operation runs alone, so only the faulty one fails."""

    def __init__(self, engine: Engine, *, name: str, begin: str) -> None:
        self._engine = engine
        self._begin = begin
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._closed = False
        self._fault: DatabaseFault | None = None
        self._beginning: float | None = None
        """The time since which a transaction has been trying to start."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation and commit. Raises Fenced, or StoreUnavailable for any database error."""
        if self._closed:  # its thread has ended and answers no more
            raise StoreUnavailable("the database is closed")
        if self._queue.qsize() >= QUEUE_MAX:
            raise StoreUnavailable("too many writes are waiting")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((operation, future))
        return await future

    @property
    def failing(self) -> DatabaseFault | None:
        """The fault that blocks the newest operations; None if they run."""
        beginning = self._beginning
        if beginning is not None and time.monotonic() - beginning >= LOCKED_SECONDS:
            return "locked"
        return self._fault

    def close(self) -> None:
        """Finish what is queued, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while group := self._next_group():
                results = self._run(connection, group)
                if results is None:
                    results = [result for single in group for result in self._run(connection, [single]) or ()]
                futures = [future for _, future in group]
                with suppress(RuntimeError):  # the loop has ended, and its callers with it
                    futures[0].get_loop().call_soon_threadsafe(_resolve, futures, results)
                del group, futures, results  # while it waits for the next, what was written is not kept

    def _next_group(self) -> list[_Queued]:
        group: list[_Queued] = []
        item = self._queue.get()
        while item is not None:
            if not item[1].cancelled():  # a caller that gave up before its turn came wants nothing written
                group.append(item)
            if len(group) >= GROUP_MAX:
                return group
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group or self._next_group()
        if group:
            self._queue.put(None)
        return group

    def _run(self, connection: Connection, group: list[_Queued]) -> list[Any] | None:
        """Run one transaction for the group. Return the results, or the error of a single operation; None if several
        were rolled back because one failed."""
        driver: Any = connection.connection.driver_connection
        try:
            self._beginning = time.monotonic()
            driver.execute(self._begin)
            self._beginning = None
            results = [operation(connection) for operation, _ in group]
            driver.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - any error of SQLAlchemy, sqlite3 or a statement goes to the caller
            self._beginning = None
            with suppress(sqlite3.Error):  # a failed BEGIN leaves nothing to roll back
                driver.execute("ROLLBACK")
            return [self._unavailable(error)] if len(group) == 1 else None
        self._fault = None
        return results

    def _unavailable(self, error: Exception) -> Exception:
        if isinstance(error, Fenced):
            return error
        fault = fault_of(error, self._engine.url.database)
        self._fault = fault if fault != "broken" else self._fault  # a statement that is wrong says nothing of others
        unavailable = StoreUnavailable(f"{type(error).__name__}: {getattr(error, 'orig', error)}".strip(": "), fault)
        unavailable.__cause__ = error
        return unavailable


def _resolve(futures: Sequence[asyncio.Future[Any]], results: Sequence[Any]) -> None:
    """Resolve the futures of a group on the loop, in one wake-up."""
    for future, result in zip(futures, results, strict=True):
        if future.done():  # given up meanwhile; it is committed all the same
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


class DatabaseInUse(DatabaseUnusable):
    """Another Clawgate is running on this database file."""

    fix = "stop it first, or give this one its own database.url"


def make_private(path: Path) -> None:
    """Create the file before SQLite does, which gives the files next to it the mode of the database."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, *(Path(f"{path.resolve()}{ending}") for ending in ("-wal", "-shm", ".lock"))):
        with suppress(FileNotFoundError):
            file.chmod(0o600)


def lock_file(path: Path) -> Any:
    """Return the lock file, held open for the life of the process: flock is released with it, also on kill -9."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with suppress(OSError):
            file.close()
        raise DatabaseInUse from error
    return file


def is_locked(path: str | None) -> bool:
    """Return whether a gateway uses the file; False for None, which is PostgreSQL."""
    with suppress(FileNotFoundError), Path(f"{path}.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False

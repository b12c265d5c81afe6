"""The store on SQLite: one file, one process, zero services.

Every write goes through the one `Writer`; reads have a connection of their own. A lock on the file beside the database
keeps a second gateway out. `synchronous=FULL`: what was acknowledged is on the disk.

Waiting operations share a `BEGIN IMMEDIATE` … `COMMIT`, so that fifty chats cost one fsync, not fifty. If one of a
group fails, the group is rolled back and each operation runs alone, so that only the guilty one fails. There is never
a deferred transaction that reads and then writes: its upgrade fails at once whatever busy_timeout says.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from channels.web.admission import Sessions
from channels.web.archive import ChatHistory
from gateway.store import sqlite_operations as operations
from gateway.store.archive import DatabaseArchive, DatabaseSessions
from gateway.store.migrate import DatabaseUnusable, migrate
from gateway.store.store import (
    Acceptance,
    Delivery,
    Entry,
    Fenced,
    Lease,
    NewPart,
    Part,
    SessionState,
    StoreUnavailable,
    View,
)

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000")

GROUP_MAX = 64
QUEUE_MAX = 5_000
T = TypeVar("T")
Operation = Callable[[Connection], Any]


class DatabaseInUse(DatabaseUnusable):
    """Another Clawgate is running on this database file. Stop it first, or give this one its own `database.url`."""


class SqliteStore:
    """`Store` on a SQLite file, made where it is missing."""

    def __init__(self, path: Path) -> None:
        self._worker = uuid4().hex
        try:
            # Where we are root, commands run as somebody else, who passes through to a workspace and sees nothing here.
            path.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            self._lock = _lock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise DatabaseUnusable(f"{path}: {error.strerror}. {DatabaseUnusable.__doc__}") from error
        engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _configure)
        self._engine = engine
        try:
            _make_private(path)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                migrate(connection, begin="BEGIN IMMEDIATE")
        except (SQLAlchemyError, OSError) as error:
            self._let_go()
            reason = getattr(error, "orig", None) or error
            raise DatabaseUnusable(f"{path}: {reason}. {DatabaseUnusable.__doc__}") from error
        except DatabaseUnusable:
            self._let_go()
            raise
        self._writer = Writer(engine, name="store-writer", begin="BEGIN IMMEDIATE")
        self._reader = Writer(engine, name="store-reader", begin="BEGIN")
        self._archive = DatabaseArchive(read=self._reader.call, write=self._writer.call)
        self._sessions = DatabaseSessions(read=self._reader.call, write=self._writer.call)

    @property
    def shared(self) -> bool:
        return False

    @property
    def archive(self) -> ChatHistory:
        return self._archive

    @property
    def sessions(self) -> Sessions:
        return self._sessions

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        """Nobody else is on this file: there is nobody to announce to, and nobody who notifies."""

    def lease_valid(self) -> bool:
        return True

    async def accept(self, delivery: Delivery, *, pending_max: int, sender_max: int, claim: bool) -> Acceptance:
        me = self._worker if claim else None
        return await self._writer.call(lambda c: operations.accept(c, me, delivery, pending_max, sender_max))

    async def claim(self, limit: int) -> Sequence[Lease]:
        return await self._writer.call(lambda c: operations.claim(c, self._worker, limit))

    async def leased(self) -> Sequence[Lease]:
        return await self._reader.call(lambda c: operations.leased(c, self._worker))

    async def load(self, lease: Lease, *, history_turns: int, waiting_max: int) -> View:
        return await self._reader.call(lambda c: operations.load(c, lease, history_turns, waiting_max))

    async def append(self, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = ()) -> SessionState:
        return await self._writer.call(lambda c: operations.append(c, lease, entries, joined))

    async def finish(
        self, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], *, at: float, dead: bool = False
    ) -> Sequence[Part]:
        return await self._writer.call(lambda c: operations.finish(c, lease, entries, parts, at, dead))

    async def sent(self, lease: Lease, part: Part, ext_id: str) -> bool:
        return await self._writer.call(lambda c: operations.sent(c, lease, part.id, ext_id))

    async def failed(self, lease: Lease, part: Part, reason: str) -> bool:
        return await self._writer.call(lambda c: operations.failed(c, lease, part.id, reason))

    async def begin(self, lease: Lease, part: Part, next_at: float) -> None:
        await self._writer.call(lambda c: operations.begin(c, lease, part.id, next_at))

    async def postpone(self, lease: Lease, part: Part, next_at: float, *, ambiguous: bool) -> None:
        await self._writer.call(lambda c: operations.postpone(c, lease, part.id, next_at, ambiguous))

    async def release(self, lease: Lease) -> bool:
        return await self._writer.call(lambda c: operations.release(c, lease))

    async def release_for_takeover(self, lease: Lease) -> None:
        await self._writer.call(lambda c: operations.release_for_takeover(c, lease))

    async def renew(self, lease: Lease) -> Lease:
        return await self._writer.call(lambda c: operations.renew(c, lease))

    async def session_state(self, lease: Lease) -> SessionState:
        return await self._reader.call(lambda c: operations.session_state(c, lease))

    async def stop(self, sid: str, before: int) -> int:
        return await self._writer.call(lambda c: operations.stop(c, sid, before))

    async def notify(self, sid: str | None) -> None:
        """There are no other workers."""

    async def oldest(self) -> float | None:
        return await self._reader.call(operations.oldest)

    async def prune(self, before: float) -> int:
        return await self._writer.call(lambda c: operations.prune(c, before))

    async def probe(self) -> None:
        """A statement that changes nothing would pass on a full or read-only disk: this one changes a row."""
        await self._writer.call(operations.probe)

    async def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._let_go()

    def _let_go(self) -> None:
        self._engine.dispose()
        self._lock.close()


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _make_private(path: Path) -> None:
    """Before anything is in it: SQLite gives the files beside it the mode of the database."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, *(Path(f"{path.resolve()}{ending}") for ending in ("-wal", "-shm", ".lock"))):
        with contextlib.suppress(FileNotFoundError):
            file.chmod(0o600)


def _lock(path: Path) -> Any:
    """The lock file, held open for the life of the process: flock falls with it, also on kill -9."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.close()
        raise DatabaseInUse(DatabaseInUse.__doc__) from error
    return file


class Writer:
    """Runs operations one after the other on its own thread. `call` awaits the commit."""

    def __init__(self, engine: Engine, *, name: str, begin: str) -> None:
        self._engine = engine
        self._begin = begin
        self._queue: SimpleQueue[tuple[Operation, Future[Any]] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run it and commit. Raises Fenced, or StoreUnavailable for whatever the database says."""
        if self._closed:  # its thread has ended: nobody would ever answer
            raise StoreUnavailable("the database is closed")
        if self._queue.qsize() >= QUEUE_MAX:
            raise StoreUnavailable("too many writes are waiting")
        future: Future[T] = Future()
        self._queue.put((operation, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish what is queued, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            while group := self._take():
                if not self._run(connection, group) and len(group) > 1:
                    for single in group:
                        self._run(connection, [single])
                del group  # while it waits for the next, what was written is not kept
        finally:
            connection.close()

    def _take(self) -> list[tuple[Operation, Future[Any]]]:
        first = self._queue.get()
        group = []
        item: tuple[Operation, Future[Any]] | None = first
        while item is not None:
            # A caller that was cancelled before its turn came wants nothing written.
            if item[1].set_running_or_notify_cancel():
                group.append(item)
            if len(group) >= GROUP_MAX:
                return group
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group or self._take()
        if group:
            self._queue.put(None)
        return group

    def _run(self, connection: Connection, group: list[tuple[Operation, Future[Any]]]) -> bool:
        """One transaction for the group. False where it was rolled back and no caller has its result yet."""
        results: list[Any] = []
        try:
            connection.exec_driver_sql(self._begin)
            results.extend(operation(connection) for operation, _ in group)
            connection.exec_driver_sql("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever SQLAlchemy, sqlite3 or a statement says goes to the caller
            _roll_back(connection)
            if len(group) > 1:
                return False
            group[0][1].set_exception(_unavailable(error))
            return True
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)
        return True


def _roll_back(connection: Connection) -> None:
    try:
        connection.exec_driver_sql("ROLLBACK")
    except Exception:  # noqa: BLE001 - a failed BEGIN leaves nothing to roll back
        return


def _unavailable(error: Exception) -> Exception:
    if isinstance(error, Fenced):
        return error
    unavailable = StoreUnavailable(f"{type(error).__name__}: {getattr(error, 'orig', None) or ''}".strip(": "))
    unavailable.__cause__ = error
    return unavailable

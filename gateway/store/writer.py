"""Operations: methods that take a connection. `reads` and `writes` make them awaitable: they run off the event loop, in a
transaction, and return after the commit.

SQLite's `Writer` runs them one after the other on its thread. Waiting operations share a `BEGIN IMMEDIATE` … `COMMIT`, so
that fifty chats cost one fsync, not fifty. If one of a group fails, the group is rolled back and each operation runs
alone, so that only the guilty one fails. There is never a deferred transaction that reads and then writes: its upgrade
fails at once, even with a busy_timeout.
"""

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, unique
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from sqlalchemy import BindParameter, Connection, CursorResult, Engine, bindparam, text

from gateway.store.errors import DatabaseFault, Fenced, StoreUnavailable, fault_of

GROUP_MAX = 64
QUEUE_MAX = 5_000
LOCKED_SECONDS = 0.3
"""A transaction that cannot begin for so long is kept out by another program's lock."""
P = ParamSpec("P")
T = TypeVar("T")
_Queued: TypeAlias = tuple[Callable[[Connection], Any], asyncio.Future[Any]]


class Run(Protocol):
    """Runs an operation in one transaction and commits. Raises StoreUnavailable."""

    def __call__(self, operation: Callable[[Connection], T]) -> Awaitable[T]: ...


@dataclass(eq=False, kw_only=True)
class Database:
    """`read` and `write` may be the same."""

    read: Run
    write: Run


D = TypeVar("D", bound=Database)
Operation: TypeAlias = Callable[Concatenate[D, Connection, P], T]
Method: TypeAlias = Callable[Concatenate[D, P], Coroutine[Any, Any, T]]


def run(connection: Connection, statement: str, **names: object) -> CursorResult[Any]:
    """Executes a statement with its own parameters among `names`. A list is expanded for `IN`; an empty one matches
    nothing."""
    given = {name: value for name, value in names.items() if f":{name}" in statement}
    lists = {name: list(value) or [None] for name, value in given.items() if isinstance(value, list | tuple)}
    expanding: list[BindParameter[Any]] = [bindparam(name, expanding=True) for name in lists]
    return connection.execute(text(statement).bindparams(*expanding), given | lists)


def rows(connection: Connection, statement: str, **names: object) -> list[Any]:
    """Execute a statement on the driver itself and return all its rows, by name: SQLAlchemy's way there costs more than
    the statement. A list is not expanded."""
    driver: Any = connection.connection.driver_connection
    if not is_shared(connection):
        cursor = driver.cursor()
        cursor.row_factory = sqlite3.Row
        return list(cursor.execute(statement, names))
    from psycopg.rows import dict_row

    cursor = driver.cursor(row_factory=dict_row).execute(_psycopg(statement), names)
    return cursor.fetchall() if cursor.description else []


@cache
def _psycopg(statement: str) -> str:
    """Write the placeholders as psycopg does. A `::` is a cast."""
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", statement.replace("%", "%%"))


def values(connection: Connection, statement: str, **names: object) -> tuple[Any, ...]:
    """Return the values of the first row; empty if there is no row."""
    row = next(iter(rows(connection, statement, **names)), ())
    return tuple(row.values() if isinstance(row, dict) else row)


def value(connection: Connection, statement: str, **names: object) -> Any:
    """Return the first value of the first row; None if there is no row."""
    return next(iter(values(connection, statement, **names)), None)


def is_shared(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def reads(operation: Operation[D, P, T]) -> Method[D, P, T]:
    return _awaited(operation, lambda database: database.read)


def writes(operation: Operation[D, P, T]) -> Method[D, P, T]:
    return _awaited(operation, lambda database: database.write)


def _awaited(operation: Operation[D, P, T], run: Callable[[D], Run]) -> Method[D, P, T]:
    async def method(self: D, /, *args: P.args, **names: P.kwargs) -> T:
        return await run(self)(lambda connection: operation(self, connection, *args, **names))

    return method


class Writer:
    """Runs operations one after the other on its own thread. `call` awaits the commit."""

    def __init__(self, engine: Engine, *, name: str, begin: str) -> None:
        self._engine = engine
        self._begin = begin
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._closed = False
        self._fault: DatabaseFault | None = None
        self._beginning: float | None = None
        """The time since which a transaction is about to begin."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Runs it and commits. Raises Fenced, or StoreUnavailable for any database error."""
        if self._closed:  # its thread has ended and answers no more
            raise StoreUnavailable("the database is closed")
        if self._queue.qsize() >= QUEUE_MAX:
            raise StoreUnavailable("too many writes are waiting")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((operation, future))
        return await future

    @property
    def failing(self) -> DatabaseFault | None:
        """The fault that keeps the newest operations from being run; None if they are."""
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
        """Runs one transaction for the group: returns the results, or the error of a single operation; None if several
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
    """Resolves the futures of a group on the loop, in one wake-up."""
    for future, result in zip(futures, results, strict=True):
        if future.done():  # given up meanwhile; it is committed all the same
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


@unique
class Lock(IntEnum):
    """Locks that let one transaction in at a time, on any replica; SQLite has one writer anyway.

    The numbers below 100 are classes: a name in one keeps out that name alone. A number never changes: during an update,
    replicas of two versions keep each other out by it. A worker's own lock has a random number of 62 bits (`Presence`).
    """

    SENDER = 1
    """Held while a message of that sender arrives."""
    CHAT = 2
    """Held while a message arrives in that chat, whichever its topic, if there is a rate."""
    STRANGERS = 3
    CODES = 4
    CLAIM = 5
    SCHEDULES = 6
    REVIEWS = 7
    SESSION = 8
    """Held while a message arrives in that session."""
    MIGRATION = 7_305_843_001_216
    ARCHIVE = 7_305_843_001_217
    """Held while a conversation of the web chat is added to or erased."""
    UPLOADS = 7_305_843_001_218
    NOTES = 7_305_843_001_219
    APPROVALS = 7_305_843_001_231


def lock(connection: Connection, kind: Lock, name: str | None = None) -> None:
    """Waits for its turn, which lasts until the commit."""
    if is_shared(connection):
        key = ":kind, COALESCE(hashtext(CAST(:name AS TEXT)), 0)" if kind < 100 else ":kind"
        run(connection, f"SELECT pg_advisory_xact_lock({key})", kind=int(kind), name=name)


_LOCK_ARRIVAL = f"""
SELECT pg_advisory_xact_lock({Lock.SESSION:d}, hashtext(:sid)),
    pg_advisory_xact_lock({Lock.SENDER:d}, hashtext(:sender)),
    pg_advisory_xact_lock({Lock.CHAT:d}, hashtext(:chat))
"""


def lock_arrival(connection: Connection, *, sid: str, sender: str | None, chat: str | None) -> None:
    """Wait, in one round trip, for the messages that arrive before this one; None waits for nobody."""
    if is_shared(connection):
        rows(connection, _LOCK_ARRIVAL, sid=sid, sender=sender, chat=chat)

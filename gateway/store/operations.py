"""Database operations: methods that take a connection. `reads` and `writes` make them awaitable: they run off the
event loop, in a transaction, and return after the commit. This module also executes their statements and locks with
the driver directly."""

import re
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, unique
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from sqlalchemy import BindParameter, Connection, CursorResult, bindparam, text

_PLACEHOLDER = re.compile(r"(?<![:\w]):([a-z]\w*)")
"""Matches named placeholders, as SQLAlchemy does. A `::` is a cast; `'gateway:task:'` has none."""
P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Run an operation in one transaction and commit. Raises StoreUnavailable."""

    def __call__(self, operation: Callable[[Connection], T]) -> Awaitable[T]: ...


@dataclass(eq=False, kw_only=True)
class Database:
    """A part of the store. `read` and `write` may be the same runner."""

    read: Run
    write: Run


D = TypeVar("D", bound=Database)
Operation: TypeAlias = Callable[Concatenate[D, Connection, P], T]
Method: TypeAlias = Callable[Concatenate[D, P], Coroutine[Any, Any, T]]


def run(connection: Connection, statement: str, **names: object) -> CursorResult[Any]:
    """Execute a statement with those of `names` that it uses. A list is expanded for `IN`; an empty one matches
    nothing."""
    given = {name: value for name, value in names.items() if f":{name}" in statement}
    lists = {name: list(value) or [None] for name, value in given.items() if isinstance(value, list | tuple)}
    expanding: list[BindParameter[Any]] = [bindparam(name, expanding=True) for name in lists]
    return connection.execute(text(statement).bindparams(*expanding), given | lists)


def records(connection: Connection, kind: Callable[..., T], statement: str, **names: object) -> list[T]:
    """Execute a statement as `run` does, and build a record of each row from the columns that the class `kind` has: a
    newer version may have added others."""
    known: Any = kind
    columns = [it.name for it in fields(known)]
    return [kind(**{it: row[it] for it in columns}) for row in run(connection, statement, **names).mappings()]


def rows(connection: Connection, statement: str, **names: object) -> list[Any]:
    """Execute a statement on the driver directly and return all its rows, by name: SQLAlchemy's overhead exceeds the
    cost of the statement. A list is not expanded."""
    driver: Any = connection.connection.driver_connection
    if not is_shared(connection):
        cursor = driver.cursor()
        cursor.row_factory = sqlite3.Row
        return list(cursor.execute(statement, names))
    from psycopg import RawCursor  # the usual one reads a long statement anew each time
    from psycopg.rows import dict_row

    query, places = _numbered(statement)
    cursor = RawCursor(driver, row_factory=dict_row).execute(query, [names[name] for name in places])
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


@lru_cache(maxsize=1024)
def _numbered(statement: str) -> tuple[bytes, Sequence[str]]:
    """Return the statement with `$1` for its first placeholder, and the names of all."""
    places = list(dict.fromkeys(_PLACEHOLDER.findall(statement)))
    query = _PLACEHOLDER.sub(lambda match: f"${places.index(match[1]) + 1}", statement)
    return query.encode(), places


def insert(connection: Connection, statement: str, given: Sequence[Mapping[str, object]]) -> list[Any]:
    """Insert several rows with one statement by repeating its `VALUES` line; returns rows as `rows` does."""
    if not given:
        return []
    names = {f"{name}_{at}": one for at, row in enumerate(given) for name, one in row.items()}
    return rows(connection, _repeated(statement, len(given)), **names)


@lru_cache(maxsize=256)
def _repeated(statement: str, times: int) -> str:
    def repeat(line: re.Match[str]) -> str:
        return "VALUES " + ", ".join(_PLACEHOLDER.sub(rf":\1_{at}", line[1]) for at in range(times))

    return re.sub(r"VALUES (\(.+\))$", repeat, statement, flags=re.MULTILINE)


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


@unique
class Lock(IntEnum):
    """Locks that serialise transactions across replicas; SQLite has one writer anyway. Numbers below 100 are
    classes: a named lock in one excludes only the same name. A number never changes, because replicas of two
    versions exclude each other by it during an update. A worker's own lock has a random number of 62 bits
    (`Presence`)."""

    SENDER = 1
    """Held while a message of that sender is accepted."""
    CHAT = 2
    """Held while a message is accepted in that chat, in any topic, if there is a rate."""
    STRANGERS = 3
    CODES = 4
    CLAIM = 5
    SCHEDULES = 6
    REVIEWS = 7
    SESSION = 8
    """Held while a message arrives in that session."""
    LOGIN = 9
    BOTS = 10
    """Held while a bot's message is accepted in that group or topic, for any bot of the gateway."""
    MIGRATION = 7_305_843_001_216
    ARCHIVE = 7_305_843_001_217
    """Held while a web chat conversation is extended or erased."""
    UPLOADS = 7_305_843_001_218
    NOTES = 7_305_843_001_219
    APPROVALS = 7_305_843_001_231


_LOCK = "SELECT pg_advisory_xact_lock(:kind)"
_LOCK_NAMED = "SELECT pg_advisory_xact_lock(:kind, COALESCE(hashtext(CAST(:name AS TEXT)), 0))"


def lock(connection: Connection, kind: Lock, name: str | None = None) -> None:
    """Acquire the lock until the commit."""
    if is_shared(connection):
        run(connection, _LOCK_NAMED if kind < 100 else _LOCK, kind=int(kind), name=name)

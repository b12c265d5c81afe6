"""The store on SQLite: one file, one process, zero services.

Every write goes through the one `Writer`; reads have a connection of their own. A lock on the file beside the database
keeps a second gateway out. `synchronous=FULL`: what was acknowledged is on the disk.
"""

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from gateway.store import statements
from gateway.store.store import Acceptance, Delivery, Entry, Lease, NewPart, Part, Work
from gateway.store.tables import SCHEMA_VERSION, metadata
from gateway.store.writer import Writer

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000")


class DatabaseUnusable(Exception):
    """The database cannot be opened: is its folder writable, and the file one of ours? See `database.url`."""


class DatabaseInUse(DatabaseUnusable):
    """Another Clawgate is running on this database file. Stop it first, or give this one its own `database.url`."""


class DatabaseTooNew(DatabaseUnusable):
    """The database was written by a newer Clawgate than this one: run that version, or restore a backup."""


class SqliteStore:
    """`Store` on a SQLite file, made where it is missing."""

    def __init__(self, path: Path) -> None:
        self._worker = uuid4().hex
        try:
            path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock = _lock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise DatabaseUnusable(f"{path}: {error.strerror}. {DatabaseUnusable.__doc__}") from error
        engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _configure)
        self._engine = engine
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                _migrate(connection)
            path.chmod(0o600)
        except (SQLAlchemyError, OSError) as error:
            self._let_go()
            reason = getattr(error, "orig", None) or error
            raise DatabaseUnusable(f"{path}: {reason}. {DatabaseUnusable.__doc__}") from error
        except DatabaseUnusable:
            self._let_go()
            raise
        self._writer = Writer(engine, name="store-writer", begin="BEGIN IMMEDIATE")
        self._reader = Writer(engine, name="store-reader", begin="BEGIN")

    async def accept(self, delivery: Delivery, *, pending_max: int) -> Acceptance:
        return await self._writer.call(lambda c: statements.accept(c, self._worker, delivery, pending_max))

    async def claim(self) -> Sequence[Lease]:
        return await self._writer.call(lambda c: statements.claim(c, self._worker))

    async def next(self, lease: Lease, *, history_turns: int) -> Work | None:
        return await self._reader.call(lambda c: statements.next_work(c, lease, history_turns))

    async def append(self, lease: Lease, entry: Entry) -> None:
        await self._writer.call(lambda c: statements.append(c, lease, entry))

    async def finish(self, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], *, at: float) -> None:
        await self._writer.call(lambda c: statements.finish(c, lease, entries, parts, at))

    async def queued(self, lease: Lease) -> Sequence[Part]:
        return await self._reader.call(lambda c: statements.queued(c, lease.sid))

    async def sent(self, lease: Lease, part: Part, ext_id: str) -> bool:
        return await self._writer.call(lambda c: statements.sent(c, lease, part.id, ext_id))

    async def failed(self, lease: Lease, part: Part) -> bool:
        return await self._writer.call(lambda c: statements.failed(c, lease, part.id))

    async def postpone(self, lease: Lease, part: Part, next_at: float) -> None:
        await self._writer.call(lambda c: statements.postpone(c, lease, part.id, next_at))

    async def release(self, lease: Lease) -> bool:
        return await self._writer.call(lambda c: statements.release(c, lease))

    async def prune(self, before: float) -> int:
        return await self._writer.call(lambda c: statements.prune(c, before))

    async def probe(self) -> None:
        await self._writer.call(lambda c: c.execute(text("UPDATE session SET pending = pending WHERE 0")))

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


def _migrate(connection: Connection) -> None:
    version = connection.scalar(text("PRAGMA user_version")) or 0
    if version > SCHEMA_VERSION:
        raise DatabaseTooNew(DatabaseTooNew.__doc__)
    if version < SCHEMA_VERSION:
        metadata.create_all(connection)
        connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")


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

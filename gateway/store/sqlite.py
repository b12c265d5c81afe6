"""The store on SQLite: one file, one process, zero services.

Every write goes through the one `Writer`; reads have a connection of their own. A lock on the file beside the database
keeps a second gateway out. `synchronous=FULL`: what was acknowledged is on the disk.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from channels.web.admission import Sessions
from channels.web.archive import ChatHistory
from gateway.store import sqlite_operations as operations
from gateway.store.archive import DatabaseArchive
from gateway.store.migrate import DatabaseUnusable, migrate
from gateway.store.sessions import DatabaseSessions
from gateway.store.store import Acceptance, Delivery, Entry, Lease, NewPart, Part, SessionState, View
from gateway.store.writer import Writer

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000")


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

    async def accept(self, delivery: Delivery, *, pending_max: int, claim: bool) -> Acceptance:
        return await self._writer.call(lambda c: operations.accept(c, self._worker, delivery, pending_max, claim))

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

"""The store on SQLite: one file, one process, zero services.

Every write goes through the one `Writer`; reads have a separate connection. A lock on the file beside the database
keeps a second gateway out. `synchronous=FULL`: what was acknowledged is on the disk.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.errors import DatabaseFault
from gateway.store.migrate import DatabaseUnusable, migrate, unusable
from gateway.store.statements import TO_SEND
from gateway.store.store import Store
from gateway.store.writer import Writer

CLAIMABLE = f"""
SELECT id, owner FROM session
WHERE owner IS NOT NULL AND owner <> :owner
   OR owner IS NULL AND pending > 0
   OR owner IS NULL AND id IN (SELECT sid FROM outbox WHERE {TO_SEND})
ORDER BY id LIMIT :limit
"""
"""One process per file: any other owner is dead."""
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000", "secure_delete=ON")


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


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


class DatabaseInUse(DatabaseUnusable):
    """Another Clawgate is running on this database file."""

    fix = "stop it first, or give this one its own database.url"


def make_private(path: Path) -> None:
    """Creates the file before SQLite does, which gives the files beside it the mode of the database."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, *(Path(f"{path.resolve()}{ending}") for ending in ("-wal", "-shm", ".lock"))):
        with contextlib.suppress(FileNotFoundError):
            file.chmod(0o600)


def lock_file(path: Path) -> Any:
    """The lock file, held open for the life of the process: flock falls with it, also on kill -9."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.close()
        raise DatabaseInUse from error
    return file


def is_locked(path: str | None) -> bool:
    """Return True if a gateway works with the file; False for None, which is PostgreSQL."""
    with contextlib.suppress(FileNotFoundError), Path(f"{path}.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False

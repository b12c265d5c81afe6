"""The file of a SQLite database: private to its user, and locked by the one process that uses it."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any

from gateway.store.migrate import DatabaseUnusable


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

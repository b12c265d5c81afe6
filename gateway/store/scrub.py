"""The scrub after an erasure: SQLite's file and its log keep no copy of what was deleted."""

import time

from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.root import DatabaseConfig
from gateway.store.migrate import OVERWRITES, DatabaseUnusable

SCRUB_SECONDS = 60.0


def scrub(config: DatabaseConfig) -> None:
    """Empty SQLite's log. A file from before deleted rows were overwritten is once rewritten. Raises DatabaseUnusable."""
    engine = create_engine(config.url, connect_args={"timeout": SCRUB_SECONDS})
    deadline = time.monotonic() + SCRUB_SECONDS
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if connection.exec_driver_sql("PRAGMA user_version").scalar() != OVERWRITES:
                connection.exec_driver_sql("VACUUM")
                connection.exec_driver_sql(f"PRAGMA user_version = {OVERWRITES}")
            while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar():
                if time.monotonic() > deadline:
                    raise _unscrubbed(config.path, "its log is in use")
                time.sleep(0.05)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise _unscrubbed(config.path, reason) from error
    finally:
        engine.dispose()


def _unscrubbed(file: str | None, reason: object) -> DatabaseUnusable:
    left = (
        f"{file}: all of it was removed, but the file was not rewritten ({reason}), so copies may be in its free pages"
    )
    return DatabaseUnusable(left, f"type: sqlite3 {file} 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'")

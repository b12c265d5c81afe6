"""The store of a gateway in a test: where there is no SQLite file yet, it begins with a copy of an empty one, since making
the tables takes longer than most tests. `postgres_url` in `tests/conftest.py` does the same there. What starts as a process
makes its own file."""

import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine

from gateway.config.root import DatabaseConfig
from gateway.store import opening
from gateway.store.migrate import migrate
from gateway.store.store import Store


def open_store(config: DatabaseConfig) -> Store:
    if config.path is not None and not (path := Path(config.path)).exists():
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        path.write_bytes(_empty_database())
        path.chmod(0o600)
    return opening.open_store(config)


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory(prefix="clawgate-empty-") as folder:
        path = Path(folder, "empty.db")
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            migrate(connection, begin="BEGIN IMMEDIATE")
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # as the store wants it: no copy is written again
        engine.dispose()
        return path.read_bytes()

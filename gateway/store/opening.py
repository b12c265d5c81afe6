"""The store behind a `database.url`, and the command line's way to its database beside it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.root import DatabaseConfig
from gateway.store.migrate import DatabaseUnusable, refuse_unknown, revision_of, unusable
from gateway.store.store import Store
from gateway.store.writer import Run

T = TypeVar("T")
Access: TypeAlias = Literal["write", "read"]


def open_store(config: DatabaseConfig) -> Store:
    """The store, its tables brought up to date. Raises DatabaseUnusable with what to do."""
    if config.path is not None:
        from gateway.store.sqlite import SqliteStore

        return SqliteStore(Path(config.path))
    from gateway.store.postgres import PostgresStore

    return PostgresStore(
        config.url, at=config.shown, lease_seconds=config.lease_seconds, connections=config.connections
    )


def offline(config: DatabaseConfig, *, access: Access = "write") -> Run:
    """Runs one transaction from the command line, with or without a running gateway."""

    async def run(operation: Callable[[Connection], T]) -> T:
        with connected(config, access=access) as connection:
            return operation(connection)

    return run


@contextmanager
def connected(config: DatabaseConfig, *, seconds: float = 10.0, access: Access = "write") -> Iterator[Connection]:
    """One transaction, with or without a running gateway; SQLite overwrites what it deletes. The database itself refuses
    to write if `access` is to read. Raises DatabaseUnusable."""
    if config.path is not None and not Path(config.path).is_file():
        raise DatabaseUnusable(f"{config.path}: there is no database yet")
    url = config.url.replace("postgresql://", "postgresql+psycopg://", 1)
    patience = {"timeout": seconds} if config.path is not None else {"connect_timeout": max(2, round(seconds))}
    engine = create_engine(url, connect_args=patience)
    try:
        with engine.begin() as connection:
            refuse_unknown(revision_of(connection))
            if access == "read":
                connection.exec_driver_sql("PRAGMA query_only = ON" if config.path else "SET TRANSACTION READ ONLY")
            elif config.path is not None:
                connection.exec_driver_sql("PRAGMA secure_delete = ON")
            yield connection
    except SQLAlchemyError as error:
        raise unusable(error, config.shown, file=config.path) from error
    finally:
        engine.dispose()

"""Open the store of a `database.url`, or open its database next to a running gateway to change, check or read it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from channels.bilingual import NO_WORDS, Bilingual
from gateway.config.root import DatabaseConfig
from gateway.store.migrate import HEAD, DatabaseUnusable, refuse_unknown, revision_of, unusable
from gateway.store.operations import Run, run
from gateway.store.records import StoredAnswer
from gateway.store.statements import ANSWER, CONTACT_STATE, PAIRING_SECONDS, answer_of, contact_state_of
from gateway.store.store import Store

T = TypeVar("T")
Access: TypeAlias = Literal["write", "read"]


def open_store(config: DatabaseConfig) -> Store:
    """Return the store with its tables upgraded. Raises DatabaseUnusable, which says what to do."""
    if config.path is not None:
        from gateway.store.sqlite import SqliteStore

        return SqliteStore(Path(config.path))
    from gateway.store.postgres import PostgresStore

    return PostgresStore(
        config.url, at=config.shown, lease_seconds=config.lease_seconds, connections=config.connections
    )


def offline(config: DatabaseConfig, *, access: Access = "write") -> Run:
    """Return a runner for single transactions of the command line, with or without a running gateway."""

    async def run(operation: Callable[[Connection], T]) -> T:
        with connected(config, access=access) as connection:
            return operation(connection)

    return run


@contextmanager
def connected(config: DatabaseConfig, *, seconds: float = 10.0, access: Access = "write") -> Iterator[Connection]:
    """Open one transaction, with or without a running gateway. SQLite overwrites what it deletes. The database
    itself rejects writes if `access` is read. Raises DatabaseUnusable."""
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


CHECK_SECONDS = 8.0
_PROGRESS_STEPS = 20_000
_WRITE = "UPDATE alembic_version SET version_num = version_num"
"""A write that changes nothing, and fails if the database is not writable."""
_SETTINGS = """
SELECT content FROM mark WHERE sid = :sid AND kind = 'settings'
AND turn > COALESCE((SELECT max(turn) FROM mark WHERE sid = :sid AND kind = 'new'), 0) ORDER BY turn DESC LIMIT 1
"""


def health(config: DatabaseConfig) -> Bilingual:
    """Return a sentence about a healthy database. Raises DatabaseUnusable if it has a problem."""
    if config.path is not None and not Path(config.path).exists():
        return Bilingual(f"{config.path}: will be made at the first start", f"{config.path}：将在首次启动时创建")
    with connected(config, seconds=CHECK_SECONDS) as connection:
        revision = revision_of(connection)
        checked = _quick_check(connection) if config.path is not None else NO_WORDS
        if config.path is None:
            connection.execute(text(f"SET LOCAL statement_timeout = {CHECK_SECONDS * 1000:.0f}"))
        if revision == HEAD:  # last, since a write makes others wait
            connection.execute(text(_WRITE))
    migrated = Bilingual(
        f", to be migrated from {revision or 'nothing'} to {HEAD} at the next start",
        f"，下次启动时将从 {revision or '空'} 迁移到 {HEAD}",
    )
    migrated = NO_WORDS if revision == HEAD else migrated
    return Bilingual(f"{config.shown}: writable{checked}{migrated}", f"{config.shown}：可写入{checked.zh}{migrated.zh}")


def _quick_check(connection: Connection) -> Bilingual:
    """Check the file for a few seconds at most: a full check of a large one takes minutes, and damage shows early."""
    end, driver = time.monotonic() + CHECK_SECONDS / 2, connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(lambda: time.monotonic() > end, _PROGRESS_STEPS)
    try:
        verdict = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    except OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return Bilingual(
            ", too large to be checked whole (PRAGMA quick_check)", "，文件太大，未能完整检查（PRAGMA quick_check）"
        )
    finally:
        driver.set_progress_handler(None, 0)
    if verdict != "ok":
        raise DatabaseUnusable(f"the file is damaged ({verdict.splitlines()[-1][:200]})", "restore a backup")
    return Bilingual(", sound", "，完好")


def settings(connection: Connection, sid: str) -> str:
    """Return the settings chosen for a session since its beginning, or for a chat (`CHOICE`); empty if none."""
    return run(connection, _SETTINGS, sid=sid).scalar() or ""


def contact_state(connection: Connection, channel: str, account: str, person: str, at: float) -> str:
    names = {"channel": channel, "account": account, "person": person, "since": at - PAIRING_SECONDS}
    return contact_state_of(run(connection, CONTACT_STATE, **names).mappings().one())


def answer(connection: Connection, dedupe: str) -> StoredAnswer | None:
    return answer_of(run(connection, ANSWER, dedupe=dedupe).mappings().all())


class ReadOnlyStore(Store):
    """A store that is only read, with or without a running gateway. Every write is rejected, by the database too."""

    def __init__(self, config: DatabaseConfig) -> None:
        super().__init__(read=offline(config, access="read"), write=_refuse)


async def _refuse(operation: Callable[[Connection], T]) -> T:
    raise RuntimeError(f"this database is only read: {operation}")

"""Migrations: forward only, on both databases, in one transaction.

alembic runs the revisions in `migrations/versions/`. It is imported only when needed: an up-to-date database costs two
queries. A database of a newer version, or of one before 1.0.0, is rejected and left unchanged.
"""

from pathlib import Path

import structlog
from sqlalchemy import Connection, inspect, text

from channels.bilingual import Bilingual, Finding
from gateway.program import VERSION, OperatorError
from gateway.store.errors import StoreUnavailable, fault_of, outage_of
from gateway.store.operations import Lock, lock

log = structlog.get_logger()

HEAD = "0029"
OVERWRITES = 13
"""The `user_version` of a SQLite file in which every deleted row was overwritten."""
OLDEST = "0015"
"""The schema of Clawgate 1.0.0, the oldest version that can be upgraded. Earlier migrations are squashed into one
revision."""
SCRIPTS = Path(__file__).with_name("migrations")


class DatabaseUnusable(OperatorError):
    """The database cannot be opened."""

    fix = "is its folder writable, and the file one of ours? See database.url"

    def __init__(self, reason: str = "", fix: str = "") -> None:
        reason, fix = reason or str(self.__doc__), fix or self.fix
        self.finding = Finding("database", "error", _in_both(reason), _in_both(fix))
        super().__init__(str(self.finding))

    def text(self, language: str) -> str:
        return self.finding("zh" if language == "zh" else "en")


class DatabaseTooNew(DatabaseUnusable):
    """The database was migrated by a newer Clawgate than this one."""

    fix = "install a newer Clawgate, or restore the backup from before the update (docs/upgrade.md)"

    def __init__(self, revision: str) -> None:
        super().__init__(f"the database has revision {revision}, and Clawgate {VERSION} knows none after {HEAD}")


class DatabaseTooOld(DatabaseUnusable):
    """The database is from before Clawgate 1.0.0."""

    fix = "nothing is changed: start it once with Clawgate 1.0.0, then with this version (docs/upgrade.md)"

    def __init__(self, revision: str) -> None:
        super().__init__(f"the database has revision {revision}, from before Clawgate 1.0.0 (revision {OLDEST})")


def unusable(error: Exception, at: str, *, file: str | None = None) -> DatabaseUnusable:
    """Return the operator's error for an error of a driver or of SQLAlchemy. `at` names the database; `file` is the
    SQLite file."""
    outage = outage_of(fault_of(error, file), at)
    words = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    if outage.kind == "broken":
        return DatabaseUnusable(f"{at}: {words}")
    detail = "" if file else words  # SQLite's words add nothing
    reason = Bilingual(f"{outage.reason} ({detail})", f"{outage.reason.zh}（{detail}）") if detail else outage.reason
    return DatabaseUnusable(reason, outage.fix)


def refused(error: StoreUnavailable, at: str) -> DatabaseUnusable:
    """Return the operator's error for an error of the open store."""
    if error.fault == "broken":
        return DatabaseUnusable(f"{at}: {error}")
    outage = outage_of(error.fault, at)
    return DatabaseUnusable(outage.reason, outage.fix)


def _in_both(text: str) -> Bilingual:
    return text if isinstance(text, Bilingual) else Bilingual(text)


def refuse_unknown(revision: str | None) -> None:
    """Raise DatabaseTooNew or DatabaseTooOld. Revisions are numbers of four digits; an empty database has None."""
    if revision is not None and revision > HEAD:
        raise DatabaseTooNew(revision)
    if revision is not None and revision < OLDEST:
        raise DatabaseTooOld(revision)


def migrate(connection: Connection, *, begin: str) -> None:
    """Upgrade the database to `HEAD`. The connection autocommits; `begin` opens its transaction. Raises
    DatabaseTooNew and DatabaseTooOld."""
    if revision_of(connection) == HEAD:
        return
    connection.exec_driver_sql(begin)
    try:
        lock(connection, Lock.MIGRATION)
        before = revision_of(connection)
        upgrade(connection, before)
        if before is None and connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA user_version = {OVERWRITES}")
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    if before not in (None, HEAD):
        log.info("database_upgraded", before=before, now=HEAD)


def revision_of(connection: Connection) -> str | None:
    """Return the database's revision; None if it is empty. It checks for the table first, because a failed query
    would abort a transaction."""
    tables = inspect(connection)
    if not tables.has_table("alembic_version"):
        return "0001" if tables.has_table("inbox") else None  # the first databases did not record it
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def upgrade(connection: Connection, revision: str | None, to: str = HEAD) -> None:
    """Migrate a database from `revision` to another one, within the open transaction. Raises DatabaseTooNew and
    DatabaseTooOld."""
    refuse_unknown(revision)
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(SCRIPTS))
    with EnvironmentContext(Config(), scripts, fn=lambda at, _: scripts._upgrade_revs(to, at)) as environment:
        environment.configure(connection=connection, transactional_ddl=False)
        environment.run_migrations()

"""Take a consistent copy of the database next to a running gateway, and restore it.

SQLite is copied with its online backup. The tables of PostgreSQL are read in one snapshot, as lines of JSON, and
restored into an empty database in one transaction, so none of PostgreSQL's programs is needed.
"""

import base64
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.root import DatabaseConfig
from gateway.store.migrate import SCRIPTS, DatabaseUnusable, refuse_unknown, revision_of, upgrade
from gateway.store.sqlite import is_locked

LOCKED_SECONDS = 30.0
BATCH_ROWS = 500
RESTORED = "restored"
"""The reason recorded for work that was in flight when the copy was made."""
_UNCOPIED = {"alembic_version", "worker"}
_TOKENS = ("access", "refresh")
"""The columns of `login` that no copy has."""
_SEQUENCES = """
SELECT c.relname, a.attname, pg_get_serial_sequence(quote_ident(c.relname), a.attname) FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
AND pg_get_serial_sequence(quote_ident(c.relname), a.attname) IS NOT NULL ORDER BY c.relname
"""
_CLOSE_TURNS = """
INSERT INTO transcript (sid, seq, turn, kind, content)
SELECT i.sid, COALESCE((SELECT max(t.seq) FROM transcript t WHERE t.sid = i.sid), 0)
    + row_number() OVER (PARTITION BY i.sid ORDER BY i.id), i.id, 'final', :final
FROM inbox i WHERE i.status = 0
"""
_END_TASKS = """
UPDATE task SET state = 'failed', ended = :at WHERE ended IS NULL
AND EXISTS (SELECT 1 FROM inbox i WHERE i.sid = task.sid AND i.status = 0)
"""
_CLOSE_MESSAGES = "UPDATE inbox SET status = 4 WHERE status = 0"
_CLOSE_PARTS = "UPDATE outbox SET status = 3, reason = 'restored' WHERE status = 0"
_FREE_CHATS = "UPDATE session SET owner = NULL, pending = 0, begun = 0"


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """The messages and reply parts that a restored copy keeps as dead letters."""

    messages: int = 0
    parts: int = 0


def is_served(config: DatabaseConfig) -> bool:
    """Return whether a gateway is using the database now. Raises DatabaseUnusable."""
    if config.path is None:
        with _postgres(config) as connection:
            if not inspect(connection).has_table("worker"):
                return False
            return bool(
                connection.scalar(text("SELECT EXISTS (SELECT 1 FROM worker WHERE expires > clock_timestamp())"))
            )
    return is_locked(config.path)


def take_snapshot(config: DatabaseConfig, target: Path) -> str | None:
    """Write the copy and return its revision; None, and no file, if the database has no tables yet. Raises
    DatabaseUnusable, OSError."""
    return _copy_rows(config, target) if config.path is None else _copy_file(Path(config.path), target)


def _copy_file(source: Path, target: Path) -> str | None:
    if not source.is_file():
        return None
    began = time.monotonic()

    def patience(status: int, remaining: int, total: int) -> None:
        if status not in (sqlite3.SQLITE_OK, sqlite3.SQLITE_DONE) and time.monotonic() - began > LOCKED_SECONDS:
            raise sqlite3.OperationalError("database is locked")

    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as live,
            closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy, progress=patience)  # all pages in one step: nobody's write lies between two of them
            copy.execute("PRAGMA journal_mode = DELETE")
            _forget_tokens(copy)
            if (verdict := copy.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(verdict)
    except sqlite3.Error as error:
        raise DatabaseUnusable(f"{source}: {error}") from error
    with _sqlite(target) as connection:
        return revision_of(connection)


def _forget_tokens(copy: sqlite3.Connection) -> None:
    """Leave the logins' names alone in a copy: the key may be in the same backup, in `.env`."""
    if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'login'").fetchone():
        copy.execute("PRAGMA secure_delete = ON")
        copy.execute("UPDATE login SET access = NULL, refresh = NULL")
        copy.commit()


def _copy_rows(config: DatabaseConfig, target: Path) -> str | None:
    with _postgres(config) as connection, target.open("w", encoding="utf-8") as file:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if (revision := revision_of(connection)) is None:
            target.unlink()
            return None
        refuse_unknown(revision)
        _write(file, {"revision": revision})
        quote = connection.dialect.identifier_preparer.quote
        for table in sorted({*inspect(connection).get_table_names()} - _UNCOPIED):
            every = text(f"SELECT * FROM {quote(table)}")
            rows = connection.execute(every, execution_options={"yield_per": BATCH_ROWS})
            columns = [*rows.keys()]
            _write(file, {"table": table, "columns": columns})
            for row in rows:
                secret = _TOKENS if table == "login" else ()
                _write(file, [None if name in secret else it for name, it in zip(columns, row, strict=True)])
        for table, column, sequence in connection.execute(text(_SEQUENCES)).all():
            last = connection.scalar(text(f"SELECT CASE WHEN is_called THEN last_value END FROM {sequence}"))
            _write(file, {"numbered": table, "column": column, "last": last})
        return revision


def restore_rows(config: DatabaseConfig, source: Path, *, final: str, parks: bool) -> InFlight:
    """Write the rows into an empty PostgreSQL database, all or none, and upgrade it; `parks` as in `restore_file`.
    Raises DatabaseUnusable."""
    with _postgres(config) as connection, source.open(encoding="utf-8") as file:
        refuse_full(config, connection)
        lines = map(_read, file)
        try:
            revision = _known(next(lines)["revision"])
            upgrade(connection, None, to=revision)
            _insert(connection, lines)
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
            raise DatabaseUnusable("the rows of the backup cannot be read", "try an older backup") from None
        upgrade(connection, revision)
        return _park(connection, final) if parks else InFlight()


def refuse_full(config: DatabaseConfig, connection: Connection | None = None) -> None:
    """Raise DatabaseUnusable if the database is unreachable or has a table."""
    if connection is None:
        with _postgres(config) as connection:
            return refuse_full(config, connection)
    if inspect(connection).get_table_names():
        reason = f"{config.shown}: it has tables already, and a restore overwrites nothing"
        raise DatabaseUnusable(reason, "make an empty database, and name it with --database-url")
    return None


def restore_file(file: Path, *, final: str, parks: bool) -> InFlight:
    """Upgrade the copy of a SQLite database. `parks`: keep work in flight as dead letters, because the original
    gateway continued it; `final` closes their turns. Raises DatabaseUnusable."""
    with _sqlite(file) as connection:
        upgrade(connection, _known(revision_of(connection)))
        return _park(connection, final) if parks else InFlight()


def _known(revision: object) -> str:
    """Return a revision that this version can upgrade. Raises DatabaseUnusable."""
    if revision not in (known := {it.name.partition("_")[0] for it in (SCRIPTS / "versions").glob("[0-9]*.py")}):
        refuse_unknown(str(revision) if revision else None)
        raise DatabaseUnusable(
            f"the backup has no database of Clawgate (revisions {min(known)} to {max(known)})", "try an older backup"
        )
    return str(revision)


def _park(connection: Connection, final: str) -> InFlight:
    connection.execute(text(_CLOSE_TURNS), {"final": final})
    connection.execute(text(_END_TASKS), {"at": time.time()})
    messages = connection.execute(text(_CLOSE_MESSAGES)).rowcount
    parts = connection.execute(text(_CLOSE_PARTS)).rowcount
    connection.execute(text(_FREE_CHATS))
    return InFlight(messages=messages, parts=parts)


def _insert(connection: Connection, lines: Iterator[Any]) -> None:
    quote, there = connection.dialect.identifier_preparer.quote, {*inspect(connection).get_table_names()} - _UNCOPIED
    table, columns = "", list[str]()
    rows: list[list[Any]] = []

    def write() -> None:
        if rows:
            values = ", ".join(f":c{n}" for n in range(len(columns)))
            names = ", ".join(map(quote, columns))
            statement = text(f"INSERT INTO {quote(table)} ({names}) VALUES ({values})")
            connection.execute(statement, [{f"c{n}": it for n, it in enumerate(row)} for row in rows])
        rows.clear()

    for line in lines:
        if isinstance(line, list):
            rows.append(line)
            if len(rows) >= BATCH_ROWS:
                write()
            continue
        write()
        if (name := line.get("table") or line["numbered"]) not in there:
            raise DatabaseUnusable(f"the backup has rows of {name!r}, and Clawgate no such table")
        if "table" in line:
            table, columns = line["table"], line["columns"]
        elif line["last"] is not None:
            named = {"table": quote(line["numbered"]), "column": line["column"], "last": line["last"]}
            connection.execute(text("SELECT setval(pg_get_serial_sequence(:table, :column), :last)"), named)
    write()


@contextmanager
def _postgres(config: DatabaseConfig) -> Iterator[Connection]:
    """Open one transaction. Raises DatabaseUnusable."""
    engine = create_engine(
        config.url.replace("postgresql://", "postgresql+psycopg://", 1), connect_args={"connect_timeout": 10}
    )
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise DatabaseUnusable(f"{config.shown}: {reason}") from error
    finally:
        engine.dispose()


@contextmanager
def _sqlite(file: Path) -> Iterator[Connection]:
    """Open one transaction on a file that no gateway uses. Raises DatabaseUnusable."""
    engine = create_engine(URL.create("sqlite", database=str(file)))
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise DatabaseUnusable(f"{file.name}: {getattr(error, 'orig', None) or error}") from error
    finally:
        engine.dispose()


def _write(file: TextIO, value: object) -> None:
    file.write(json.dumps(value, default=_as_text) + "\n")


def _as_text(value: object) -> dict[str, str]:
    return {"base64": base64.b64encode(cast("bytes", value)).decode()}


def _read(line: str) -> Any:
    return json.loads(line, object_hook=lambda it: base64.b64decode(it["base64"]) if it.keys() == {"base64"} else it)

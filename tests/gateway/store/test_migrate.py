"""Migrations: the same tables on every database, an old file goes on, a newer one is refused, a kill is harmless."""

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from gateway.config.root import DatabaseConfig
from gateway.store.erasure import scrub
from gateway.store.migrate import HEAD, OVERWRITES, DatabaseTooNew, DatabaseTooOld, migrate
from tests.gateway.store.chats import leased, opened
from tests.gateway.store.release_1_0 import ROWS, make_old

ROOT = Path(__file__).resolve().parents[3]


def sync(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


TYPES = {"TEXT": "", "BYTEA": " BLOB", "DOUBLE PRECISION": " FLOAT", "TIMESTAMP": " DATETIME"}


def tables(connection: Connection) -> Iterator[str]:
    found = inspect(connection)
    for table in sorted(it for it in found.get_table_names() if it != "alembic_version"):
        columns = [(it["name"] + "?" * it["nullable"], str(it["type"])) for it in found.get_columns(table)]
        yield f"{table}: " + ", ".join(name + TYPES.get(type_, f" {type_}") for name, type_ in columns)
        unique = [it["column_names"] for it in found.get_unique_constraints(table)]
        keys = [found.get_pk_constraint(table)["constrained_columns"], *unique]
        yield "  keys " + ", ".join(sorted(" ".join(map(str, it)) for it in keys))
        for index in sorted(found.get_indexes(table), key=lambda it: str(it["name"])):
            if not index["unique"]:
                yield f"  {index['name']}: " + " ".join(map(str, index["column_names"]))


SMALL = {"always", "announced", "owner", "surface", "tainted", "uses", "version"}
SMALL |= {"by_hand", "external", "runs", "skips"}
SMALL |= {"ambiguous", "attempts", "epoch", "part", "pending", "seq", "status"}
INDEXES = {"file_chat", "inbox_sender", "inbox_waiting", "outbox_queued", "session_left", "session_owned"}
INDEXES |= {
    "inbox_chat_rate",
    "inbox_sender_rate",
    "transcript_turns",
    "web_conversation_owner",
    "web_message_chat",
    "web_message_follows",
}
INDEXES |= {"contact_waiting", "wrong_code_sender"}
INDEXES |= {"approval_audit_actor", "approval_grant_digest", "approval_of_session", "approval_open", "approval_turn"}
INDEXES |= {"inbox_again", "inbox_joined", "inbox_person", "inbox_ended", "note_session"}
INDEXES |= {"layer_found", "later_asked", "later_due", "later_owner", "later_place", "task_chat", "task_parent"}
INDEXES |= {"mark_kind", "spoken_message", "spoken_person", "spoken_turn", "transcript_turn"}


async def test_migration_makes_the_same_tables_on_both_databases(tmp_path: Path, postgres_url: str) -> None:
    made = []
    for url in (f"sqlite:///{tmp_path}/clawgate.db", postgres_url):
        async with opened(url):
            engine = create_engine(sync(url))
            with engine.connect() as connection:
                made.append("\n".join(tables(connection)))
            engine.dispose()
    sqlite, postgres = made
    assert sqlite.replace("BIGINT", "INTEGER") == postgres.replace("BIGINT", "INTEGER")
    assert set(re.findall(r"(\w+) INTEGER", postgres)) == SMALL  # in SQLite an INTEGER is as large as its number
    assert set(re.findall(r"^  (\w+): ", postgres, re.MULTILINE)) == INDEXES


async def test_migration_leaves_a_newer_database_alone(database_url: str) -> None:
    async with opened(database_url) as store:
        await leased(store)
    engine = create_engine(sync(database_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match=r"revision 9999.*newer Clawgate"):
        async with opened(database_url):
            pass
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        assert connection.scalar(text("SELECT count(*) FROM inbox")) == 1
    engine.dispose()


def old_file(path: Path) -> None:
    """A database from before 1.0.0 and before revisions were recorded, with one message that waits."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            CREATE TABLE session (id TEXT NOT NULL, owner TEXT, epoch INTEGER NOT NULL, pending INTEGER NOT NULL,
                PRIMARY KEY (id));
            CREATE TABLE inbox (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, dedupe TEXT NOT NULL, dedupe_text TEXT,
                sid TEXT NOT NULL, body TEXT NOT NULL, at FLOAT NOT NULL, status INTEGER NOT NULL,
                attempts INTEGER NOT NULL, UNIQUE (dedupe), UNIQUE (dedupe_text));
            INSERT INTO session VALUES ('chat', 'dead', 1, 1);
            INSERT INTO inbox VALUES (7, 'a:b:c', NULL, 'chat', 'body 7', 1.0, 0, 0);
            PRAGMA user_version = 1;
        """)
        connection.commit()


async def test_migration_refuses_a_file_from_before_1_0_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    old_file(path)
    with pytest.raises(DatabaseTooOld, match=r"revision 0001.*Clawgate 1\.0\.0, then with this version"):
        async with opened(f"sqlite:///{path}"):
            pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT body FROM inbox").fetchall() == [("body 7",)]
        assert not connection.execute("SELECT name FROM sqlite_master WHERE name = 'alembic_version'").fetchall()


KILLED = """
import gc, os, signal, sys
from pathlib import Path
import alembic.config, alembic.runtime.environment, alembic.script, sqlalchemy.dialects.sqlite
from sqlalchemy import event
from sqlalchemy.engine import Engine
from gateway.store.sqlite import SqliteStore

gc.freeze()

left = 0

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *more):
    global left
    if statement.lstrip().upper().startswith(("CREATE", "ALTER", "INSERT", "UPDATE", "DROP", "COMMIT")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

step, *paths = sys.argv[1:]
for number, path in enumerate(paths):
    left = 1 + number * int(step)
    if (child := os.fork()) == 0:
        SqliteStore(Path(path))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("ended", code, flush=True)
    if code != -signal.SIGKILL:
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "step"), [(False, 11), (True, 6), *(pytest.param(it, 1, marks=pytest.mark.long) for it in (False, True))]
)
async def test_migration_killed_at_any_statement_goes_on(tmp_path: Path, old: bool, step: int) -> None:
    """K21: the whole of it or nothing. `make test` kills at every eleventh or sixth statement."""
    paths = [tmp_path / f"{statement}.db" for statement in range(200 // step)]
    if old:
        make_old(f"sqlite:///{paths[0]}")
        for path in paths[1:]:
            shutil.copy(paths[0], path)
    command: list[str | Path] = [sys.executable, "-c", KILLED, str(step), *paths]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    codes = [int(code) for code in re.findall(r"^ended (-?\d+)$", done.stdout, re.MULTILINE)]
    assert 8 < len(codes) < len(paths)
    assert (set(codes[:-1]), codes[-1]) == ({-9}, 0)
    for path in paths[: len(codes)]:
        async with opened(f"sqlite:///{path}"):
            pass
        with closing(sqlite3.connect(path)) as connection:
            kept = connection.execute("SELECT (SELECT count(*) FROM transcript), version_num FROM alembic_version")
            assert kept.fetchall() == [(len(ROWS["transcript"]) * old, HEAD)]


@pytest.mark.parametrize("old", [False, True])
def test_migration_marks_only_a_new_file_as_overwriting(tmp_path: Path, old: bool) -> None:
    """What an older file had deleted before is still in its free pages, so an erasure writes that one anew, once."""
    path = tmp_path / "clawgate.db"
    if old:
        make_old(f"sqlite:///{path}")
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        migrate(connection, begin="BEGIN IMMEDIATE")
    engine.dispose()

    def marked() -> int:
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    assert marked() == (0 if old else OVERWRITES)
    scrub(DatabaseConfig(url=f"sqlite:///{path}"))
    assert marked() == OVERWRITES


def test_migration_revisions_are_a_single_line() -> None:
    scripts = sorted((ROOT / "gateway/store/migrations/versions").glob("*.py"))
    assert [script.name.partition("_")[0] for script in scripts][-1] == HEAD
    assert all("def downgrade" not in script.read_text() for script in scripts)

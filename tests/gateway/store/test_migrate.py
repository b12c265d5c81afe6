"""Migrations: what they make is what the tables say, an old file goes on, a newer one is refused, a kill is harmless."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from gateway.store.migrate import HEAD, DatabaseTooNew
from tests.gateway.store.chats import leased, opened, work_of
from tests.gateway.store.schema import inbox, metadata, outbox, session, transcript

ROOT = Path(__file__).resolve().parents[3]


def sync(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


async def test_what_the_migrations_make_is_what_the_tables_say(database_url: str) -> None:
    async with opened(database_url):
        engine = create_engine(sync(database_url))
        with engine.connect() as connection:
            found = compare_metadata(MigrationContext.configure(connection), metadata)
            assert [difference for difference in found if "comment" not in str(difference[0])] == []
            names = {index["name"] for table in inspect(connection).get_table_names()
                     for index in inspect(connection).get_indexes(table)}  # fmt: skip
        engine.dispose()
    assert {"inbox_waiting", "outbox_queued", "session_owned", "session_left", "transcript_turns"} <= names


async def test_a_newer_database_is_refused_and_left_alone(database_url: str) -> None:
    async with opened(database_url) as store:
        await leased(store)
    engine = create_engine(sync(database_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match="newer Clawgate"):
        async with opened(database_url):
            pass
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        assert connection.scalar(text("SELECT count(*) FROM inbox")) == 1
    engine.dispose()


def old_file(path: Path) -> None:
    """A database of the first release: no revision in it, and one message that waits."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            CREATE TABLE session (id TEXT NOT NULL, owner TEXT, epoch INTEGER NOT NULL, pending INTEGER NOT NULL,
                PRIMARY KEY (id));
            CREATE TABLE inbox (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, dedupe TEXT NOT NULL, dedupe_text TEXT,
                sid TEXT NOT NULL, body TEXT NOT NULL, at FLOAT NOT NULL, status INTEGER NOT NULL,
                attempts INTEGER NOT NULL, UNIQUE (dedupe), UNIQUE (dedupe_text));
            CREATE INDEX inbox_waiting ON inbox (sid, id) WHERE status = 0;
            CREATE TABLE transcript (sid TEXT NOT NULL, seq INTEGER NOT NULL, turn INTEGER NOT NULL,
                kind TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (sid, seq));
            CREATE INDEX transcript_turns ON transcript (sid, seq) WHERE kind = 'user';
            CREATE TABLE outbox (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, sid TEXT NOT NULL, turn INTEGER NOT NULL,
                part INTEGER NOT NULL, key TEXT NOT NULL, payload TEXT NOT NULL, status INTEGER NOT NULL, ext_id TEXT,
                attempts INTEGER NOT NULL, next_at FLOAT NOT NULL, created FLOAT NOT NULL, UNIQUE (turn, part));
            CREATE INDEX outbox_queued ON outbox (sid, id) WHERE status = 0;
            INSERT INTO session VALUES ('chat', 'dead', 1, 1);
            INSERT INTO inbox VALUES (7, 'a:b:c', NULL, 'chat', 'body 7', 1.0, 0, 0);
            PRAGMA user_version = 1;
        """)
        connection.commit()


async def test_a_file_of_the_first_release_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    old_file(path)
    async with opened(f"sqlite:///{path}") as store:
        (lease,) = await store.claim(10)
        assert (await work_of(store, lease)).waiting[0].body == "body 7"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)


KILLED = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from gateway.store.sqlite import SqliteStore

left = int(sys.argv[2])

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *more):
    global left
    if statement.lstrip().upper().startswith(("CREATE", "ALTER", "INSERT", "UPDATE", "DROP", "COMMIT")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

SqliteStore(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
async def test_killed_at_any_statement_of_a_migration_the_next_start_goes_on(tmp_path: Path, old: bool) -> None:
    """K21: the whole of it or nothing."""
    for statement in range(1, 40):
        path = tmp_path / f"{statement}.db"
        if old:
            old_file(path)
        killed = subprocess.run([sys.executable, "-c", KILLED, path, str(statement)], cwd=ROOT, check=False)
        async with opened(f"sqlite:///{path}") as store:
            assert len(await store.claim(10)) == old
        if killed.returncode == 0:
            break
        assert killed.returncode == -9
    assert 8 < statement < 39


def test_the_revisions_are_a_single_line_to_the_head() -> None:
    scripts = sorted((ROOT / "gateway/store/migrations/versions").glob("*.py"))
    assert [script.name.partition("_")[0] for script in scripts][-1] == HEAD
    assert all("def downgrade" not in script.read_text() for script in scripts)
    assert {table.name for table in (inbox, outbox, session, transcript)} < set(metadata.tables)

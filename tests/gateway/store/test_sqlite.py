"""What is SQLite's alone: one file, one process, group commit."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.store.errors import StoreUnavailable
from gateway.store.migrate import DatabaseUnusable
from gateway.store.records import Acceptance
from gateway.store.sqlite import SqliteStore
from tests.gateway.store.chats import accept, opened
from tests.gateway.store.test_migrate import KILLED, ROOT
from tests.waiting import until


async def test_sqlite_bad_operation_spares_its_batch(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/clawgate.db") as store:
        assert isinstance(store, SqliteStore)

        def bad(connection: object) -> None:
            raise RuntimeError("bad")

        outcomes = await asyncio.gather(
            *(accept(store, number) for number in range(5)),
            store._writer.call(bad),
            *(accept(store, number) for number in range(5, 10)),
            return_exceptions=True,
        )
    assert [type(outcome) for outcome in outcomes] == [Acceptance] * 5 + [StoreUnavailable] + [Acceptance] * 5
    assert len({outcome.turn for outcome in outcomes if isinstance(outcome, Acceptance)}) == 10


async def test_sqlite_write_is_flushed_immediately(tmp_path: Path) -> None:
    """An upload is twenty megabytes, and a group of writes holds many."""
    store = SqliteStore(tmp_path / "a.db")
    try:
        data = bytearray(100)
        await store._writer.call(lambda _, data=data: len(data))  # type: ignore[misc]
        await until(lambda: sys.getrefcount(data) <= 2)
    finally:
        await store.close()


def test_its_files_are_private_before_anything_is_in_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, "1", tmp_path / "clawgate.db"], cwd=ROOT, check=False, umask=0)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"clawgate.db", "clawgate.db-wal", "clawgate.db-shm"} <= names
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("spoil", ["a folder in its place", "not a database", "a file in the folder's place"])
def test_sqlite_that_cannot_be_opened_is_one_sentence(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "data" / "clawgate.db"
    match spoil:
        case "a folder in its place":
            path.mkdir(parents=True)
        case "not a database":
            path.parent.mkdir()
            path.write_text("this is a letter to my aunt " * 100)
        case _:
            path.parent.write_text("")
    with pytest.raises(DatabaseUnusable, match=r"database\.url"):
        SqliteStore(path)


async def test_sqlite_closed_answers_late_callers(database_url: str) -> None:
    """A lane that ends after the gateway's patience did would wait for ever for a writer that has gone."""
    async with opened(database_url) as store:
        await accept(store, 1)
        await store.close()
        for late in (accept(store, 2), store.leased(), store.probe()):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(late, 30)

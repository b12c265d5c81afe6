"""The database in trouble: busy, full, read-only, gone. The platform is asked to come again, and nothing is lost."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from gateway.store.errors import StoreUnavailable
from gateway.store.migrate import DatabaseUnusable
from tests.emulators.models.script import calls, says
from tests.postgres import PostgresServer, name_of, postgres_server
from tests.running import ALICE, ALICE_CHAT, Running, client, running

pytestmark = pytest.mark.slow  # it fills disks and stops databases


async def push_until_taken(house: Running, event: dict[str, Any]) -> None:
    """Deliver like Feishu."""

    async def is_taken() -> bool:
        return (await house.push(event)).status_code == 200

    await house.until(is_taken)


async def is_ready(house: Running) -> bool:
    async with client() as http:
        return (await http.get(f"{house.url}/readyz")).status_code == 200


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 3 MB at `folder`. Skips where this machine lets nobody mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0711", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until nothing more fits."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 512):
            while True:
                try:
                    if file.write(b"x" * size) < size:
                        break
                except OSError:
                    break
    return filler


async def test_disk_full_answers_503_and_recovers(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "data"):
        async with running(tmp_path, script=[says("first"), says("second")]) as house:
            await house.say("one")
            await house.replies(1)
            await house.idle()
            filler = fill(tmp_path / "data")
            event = house.feishu.text_event("two " + "x" * 9_000, sender=ALICE, chat=ALICE_CHAT)
            assert [(await house.push(event)).status_code for _ in range(2)] == [503, 503]
            filler.unlink()
            assert (await house.push(event)).status_code == 200
            assert await house.replies(2) == ["first", "second"]
            assert await is_ready(house)
        filler = fill(tmp_path / "data")
        with pytest.raises(DatabaseUnusable, match=r"disk is full — make room"):
            async with running(tmp_path):
                pass
        filler.unlink()
        async with running(tmp_path, script=[says("third")], emulator=house.feishu) as house:
            await house.say("three")
            assert (await house.replies(3))[2] == "third"


async def test_disk_full_mid_turn_delays_it_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data"):
        async with running(tmp_path, script=[says("never lost")]) as house:
            house.line.hold()
            await house.say("one")
            await house.requested(1)
            filler = fill(tmp_path / "data")
            with capture_logs() as logs:
                house.line.release()
                await house.until(lambda: any(line["event"] == "lane_failed" for line in logs))
            filler.unlink()
            await house.replies(1)
            await house.idle()
            assert len(house.feishu.messages) == 1


async def test_database_read_only_answers_503_and_recovers(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("here")]) as house:
        writer = house.gateway.runtime.store._writer  # type: ignore[attr-defined]
        with suppress(StoreUnavailable):  # whatever is written in the same commit fails, and this with it
            await writer.call(lambda connection: connection.exec_driver_sql("PRAGMA query_only=ON"))
        event = house.feishu.text_event("one", sender=ALICE, chat=ALICE_CHAT)
        assert (await house.push(event)).status_code == 503
        assert not await is_ready(house)
        writer._begin, begin = "PRAGMA query_only=OFF", writer._begin
        with suppress(StoreUnavailable):  # a read-only connection cannot begin what would let it write
            await writer.call(lambda connection: None)
        writer._begin = begin
        await push_until_taken(house, event)
        assert await house.replies(1) == ["here"]
        await house.until(lambda: is_ready(house))


async def test_database_busy_is_retried_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("one")]) as house:
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            taking = asyncio.create_task(house.say("short"))
            await asyncio.sleep(0.3)
            foreign.execute("COMMIT")
            assert (await taking).status_code == 200
        assert await house.replies(1) == ["one"]


async def test_database_restart_mid_turn_is_survived_on_postgresql(tmp_path: Path) -> None:
    with postgres_server() as server:
        script = [calls(("write", {"file_path": "a.txt", "content": "x"})), says("one"), says("two"), says("three")]
        database = f'database: {{ url: "{server.new_database()}" }}'
        async with running(tmp_path, script=script, more=database) as house:
            house.line.hold()
            await house.say("one")
            await house.requested(2)
            server.crash()
            house.line.release()
            assert (await house.say("while it is away")).status_code == 503
            assert not await is_ready(house)
            server.start_again()
            await push_until_taken(house, house.feishu.text_event("two", sender=ALICE, chat=ALICE_CHAT))
            await house.replies(2)
            await house.until(lambda: is_ready(house))
            assert (await house.say("three")).status_code == 200
            await house.replies(3)
            assert len({message.uuid for message in house.feishu.messages}) == 3


async def test_database_connection_lost_is_one_503_at_most(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    more = f'database: {{ url: "{postgres_url}" }}'
    async with running(tmp_path, script=lambda _: says("here"), more=more) as house:
        await house.say("one")
        await house.replies(1)
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [name_of(postgres_url)],
            )
        await push_until_taken(house, house.feishu.text_event("two", sender=ALICE, chat=ALICE_CHAT))
        await house.replies(2)

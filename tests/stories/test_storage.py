"""The database in trouble: busy, full, read-only, gone. The platform is asked to come again, and nothing is lost."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from gateway.store.migrate import DatabaseUnusable
from gateway.store.store import StoreUnavailable
from tests.emulators.models.script import calls, says
from tests.postgres import PostgresServer, postgres_server
from tests.running import ALICE, ALICE_CHAT, Running, running
from tests.stories.test_queue import SLOW, asked

pytestmark = pytest.mark.slow  # it fills disks and stops databases


async def push_until_taken(house: Running, text: str) -> list[int]:
    """Deliver like Feishu until it is taken; the answers on the way."""
    event = house.feishu.text_event(text, sender=ALICE, chat=ALICE_CHAT)
    answers: list[int] = []
    async with asyncio.timeout(60):
        while not answers or answers[-1] != 200:
            answers.append((await house.push(event)).status_code)
            await asyncio.sleep(0.1)
    return answers


async def readiness(house: Running) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{house.url}/readyz")).status_code


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


async def test_a_full_disk_answers_503_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data"):
        async with running(tmp_path, script=[says("first"), says("second")]) as house:
            await house.say("one")
            await house.replies(1)
            await house.idle()
            filler = fill(tmp_path / "data")
            event = house.feishu.text_event("two " + "x" * 9_000, sender=ALICE, chat=ALICE_CHAT)
            assert (await house.push(event)).status_code == 503
            assert (await house.push(event)).status_code == 503
            filler.unlink()
            assert (await house.push(event)).status_code == 200
            assert await house.replies(2) == ["first", "second"]
            assert await readiness(house) == 200


async def test_started_on_a_full_disk_it_says_so_and_starts_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data"):
        async with running(tmp_path, script=[says("first")]) as house:
            await house.say("one")
            await house.replies(1)
        filler = fill(tmp_path / "data")
        with pytest.raises(DatabaseUnusable, match=r"disk .*database\.url"):
            async with running(tmp_path):
                pass
        filler.unlink()
        async with running(tmp_path, script=[says("second")], emulator=house.feishu) as house:
            await house.say("two")
            assert await house.replies(2) == ["first", "second"]


async def test_a_disk_that_fills_in_the_middle_of_a_turn_delays_it_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data"):
        async with running(tmp_path, script=[SLOW, says("never lost")]) as house:
            await house.say("one")
            await asked(house, 1)
            filler = fill(tmp_path / "data")
            await asyncio.sleep(1.0)
            filler.unlink()
            async with asyncio.timeout(40):
                while not house.feishu.messages:
                    await asyncio.sleep(0.05)
            await house.idle()
            assert len(house.feishu.messages) == 1


async def test_a_read_only_database_answers_503_is_not_ready_and_recovers(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("here")]) as house:
        writer = house.gateway.runtime.store._writer  # type: ignore[attr-defined]
        await writer.call(lambda connection: connection.exec_driver_sql("PRAGMA query_only=ON"))
        event = house.feishu.text_event("one", sender=ALICE, chat=ALICE_CHAT)
        assert (await house.push(event)).status_code == 503
        assert await readiness(house) == 503
        writer._begin, begin = "PRAGMA query_only=OFF", writer._begin
        with suppress(StoreUnavailable):  # a read-only connection cannot begin what would let it write
            await writer.call(lambda connection: None)
        writer._begin = begin
        await asyncio.sleep(0.3)
        assert (await house.push(event)).status_code == 200
        assert await house.replies(1) == ["here"]
        assert await readiness(house) == 200


async def test_a_busy_database_costs_a_moment_or_a_503_and_never_the_message(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("one"), says("two")]) as house:
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            taking = asyncio.create_task(house.say("short"))
            await asyncio.sleep(0.3)
            foreign.execute("COMMIT")
            assert (await taking).status_code == 200
            await house.replies(1)
            await house.idle()
            foreign.execute("BEGIN IMMEDIATE")
            assert (await house.say("long")).status_code == 503
            foreign.execute("COMMIT")
        assert await house.replies(2) == ["one", "two"]


async def test_a_restart_of_postgresql_in_the_middle_of_a_turn_is_survived(tmp_path: Path) -> None:
    with postgres_server() as server:
        script = [calls(("write", {"file_path": "a.txt", "content": "x"})), SLOW, says("two"), says("three")]
        database = f'database: {{ url: "{server.new_database()}" }}'
        async with running(tmp_path, script=script, more=database) as house:
            await house.say("one")
            await asked(house, 2)
            server.crash()
            assert (await house.say("while it is away")).status_code == 503
            assert await readiness(house) == 503
            server.start_again()
            answers = await push_until_taken(house, "two")
            assert answers[-1] == 200
            async with asyncio.timeout(60):
                while len(house.feishu.messages) < 2:
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(30):
                while await readiness(house) != 200:
                    await asyncio.sleep(0.1)
            assert (await house.say("three")).status_code == 200
            async with asyncio.timeout(30):
                while len(house.feishu.messages) < 3:
                    await asyncio.sleep(0.05)
            assert len({message.uuid for message in house.feishu.messages}) == 3


async def test_a_lost_connection_is_one_503_at_most(tmp_path: Path, postgres: PostgresServer) -> None:
    address = postgres.new_database()
    async with running(tmp_path, script=lambda _: says("here"), more=f'database: {{ url: "{address}" }}') as house:
        await house.say("one")
        await house.replies(1)
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [address.rpartition("?")[0].rpartition("/")[2]],
            )
        await push_until_taken(house, "two")
        async with asyncio.timeout(30):
            while len(house.feishu.messages) < 2:
                await asyncio.sleep(0.05)
    postgres.drop(address)

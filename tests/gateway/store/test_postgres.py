"""What is PostgreSQL's alone: who is alive, who takes over, and what reaches the other workers."""

import asyncio
import re
from pathlib import Path
from threading import Event

import psycopg
import pytest
from sqlalchemy import Connection

from gateway.config.root import DatabaseConfig
from gateway.store import postgres
from gateway.store import statements as sql
from gateway.store.errors import StoreUnavailable
from gateway.store.later import Later
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import open_store
from gateway.store.operations import Lock, rows
from gateway.store.postgres import PostgresStore
from tests.gateway.store.chats import leased, message, opened, work_of
from tests.waiting import until


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


async def test_lease_of_a_live_worker_is_respected(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        lease = await leased(one)
        assert await other.claim(10) == []
        assert await one.claim(10) == []
        assert await one.leased() == [lease]


async def test_lease_expiry_hands_over_a_silent_workers_chats(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        old = await leased(one)
        await one.begun(old, (await work_of(one, old)).waiting[0].turn)
        execute(
            postgres_url,
            "UPDATE worker SET expires = now() - interval '1 s' WHERE id = (SELECT owner FROM session)",
        )
        (lease,) = await other.claim(10)
        assert lease.epoch == old.epoch + 1
        assert (await work_of(other, lease)).waiting[0].attempts == 1
        assert await one.leased() == []


async def test_lease_of_a_disconnected_worker_is_taken_over_immediately(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        await leased(one)
        assert isinstance(one, PostgresStore)
        assert one._presence is not None
        one._presence._closing.set()  # as if its process were gone: nothing announces it again
        execute(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()",
        )
        await until(lambda: other.claim(10))


async def test_lease_worker_that_comes_back_is_announced_again(postgres_url: str) -> None:
    async with opened(postgres_url, lease_seconds=1) as one, opened(postgres_url) as other:
        execute(postgres_url, "DELETE FROM worker")
        await until(lambda: count(postgres_url))
        await leased(one)
        await until(one.lease_valid)
        assert other.shared


async def count(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute("SELECT count(*) FROM worker")).fetchone()
        return int(row[0]) if row else 0


async def test_lease_row_of_a_dead_worker_is_removed(postgres_url: str) -> None:
    async with opened(postgres_url):
        pass
    execute(postgres_url, "UPDATE worker SET expires = now() - interval '1 hour'")
    async with opened(postgres_url) as store:
        await store.claim(10)
        assert await count(postgres_url) == 1


def test_a_database_that_is_not_there_is_one_sentence_without_the_password() -> None:
    with pytest.raises(DatabaseUnusable) as raised:
        open_store(DatabaseConfig(url="postgresql://nobody:sekret@127.0.0.1:1/x"))
    assert "Connection refused" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "sekret" not in str(raised.value)


async def test_lease_start_timeout_leaves_nothing_running(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "START_SECONDS", 0.2)
    store = open_store(DatabaseConfig(url=postgres_url))
    with psycopg.connect(postgres_url) as holding:
        holding.execute("LOCK TABLE worker")
        with pytest.raises(StoreUnavailable):
            await store.start(lambda sid: None)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_no_two_locks_have_one_number_and_all_are_in_one_list() -> None:
    assert [*Lock.__members__] == [it.name for it in Lock]
    sources = Path(postgres.__file__).parents[1].rglob("*.py")
    taken = [it for it in sources for line in it.read_text().splitlines() if "pg_advisory_xact_lock(" in line]
    assert {it.stem for it in taken} == {"operations", "statements"}
    numbers = re.findall(r"pg_advisory_xact_lock\((\d+)", sql.INSERT_MESSAGE_LOCKED)
    assert [Lock(int(it)) for it in numbers] == [Lock.SESSION, Lock.SENDER, Lock.CHAT]


async def test_limits_are_exact_with_two_replicas(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:

        async def burst(sender: str, chats: int) -> list[str]:
            deliveries = [message(it, sid=f"{sender} {it % chats}", sender=f"f:d:{sender}") for it in range(40)]
            accepted = await asyncio.gather(
                *(
                    (one, other)[at % 2].accept(it, pending_max=6, sender_max=7, claim=True)
                    for at, it in enumerate(deliveries)
                )
            )
            return [it.sid for it, acceptance in zip(deliveries, accepted, strict=True) if not acceptance.overflow]

        assert len(await burst("in one chat", 1)) == 6
        assert len(await burst("in many chats", 20)) == 7


async def test_frozen_replica_holds_no_chat_beyond_its_lease(postgres_url: str) -> None:
    async with opened(postgres_url, lease_seconds=1) as one, opened(postgres_url) as other:
        lease, thawed = await leased(one), Event()
        assert isinstance(one, PostgresStore)

        def freeze(connection: Connection) -> None:
            assert rows(connection, sql.STATE_LOCKED, **lease.row)
            thawed.wait()
            rows(connection, sql.COUNT_DOWN, sid=lease.sid, by=1)

        frozen = asyncio.ensure_future(one.write(freeze))
        assert one._presence is not None
        one._presence._closing.set()
        try:
            await until(lambda: other.claim(10))
        finally:
            thawed.set()
        with pytest.raises(StoreUnavailable):
            await frozen
        (taken,) = await other.leased()
        assert (taken.epoch, (await other.session_state(taken)).pending) == (lease.epoch + 1, 1)


async def test_a_column_that_a_newer_version_adds_does_not_stop_a_replica(postgres_url: str) -> None:
    """It migrates while this one still answers, whose connections have prepared `SELECT *`."""
    row = Later(id="a", kind="schedule", due=9.0, owner=None, place="", state="active", body="{}", since=1.0)
    async with opened(postgres_url) as store:
        await store.later.expect(row)
        for _ in range(9):  # the driver prepares what it runs often
            assert await store.later.every() == [row]
        execute(postgres_url, "ALTER TABLE later ADD COLUMN newer INTEGER")
        try:
            for _ in range(9):
                assert await store.later.every() == [row]
        finally:
            execute(postgres_url, "ALTER TABLE later DROP COLUMN newer")

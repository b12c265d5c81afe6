"""The web chat's memory on PostgreSQL, seen from several replicas at once."""

import asyncio

import psycopg

from channels.web.archive import MessageBody
from gateway.config.root import DatabaseConfig
from gateway.store.archive import WEB_NOTICE
from gateway.store.opening import open_store
from tests.gateway.store.chats import opened, since
from tests.waiting import PATIENCE_SECONDS, until


def words(text: str) -> MessageBody:
    return MessageBody(text=text, agent="helper")


async def test_a_writer_that_has_not_committed_holds_every_later_number_back(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url) as slow:
            slow.execute("SELECT pg_advisory_xact_lock(7305843001217)")
            slow.execute("INSERT INTO web_message (chat, key, author, words, at) VALUES ('c', 'k', 'you', %s, 1)", [W])
            later = asyncio.create_task(store.archive.keep("c_later", "m_1", words("later"), 2.0))
            await until(lambda: waits(slow))
            assert await since(store.archive, 0, limit=10) == []
            slow.commit()
        await later
        assert [it.words.text for it in await since(store.archive, 0, limit=10)] == ["first", "later"]


W = '{"text": "first", "agent": "helper"}'


def waits(connection: psycopg.Connection) -> bool:
    found = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
    return bool(found and found[0])


async def test_what_one_replica_keeps_wakes_the_other_and_what_was_known_wakes_nobody(postgres_url: str) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    one, other = (open_store(DatabaseConfig(url=postgres_url)) for _ in range(2))
    await one.start(heard.put_nowait)
    await other.start(lambda _: None)

    async def notices() -> list[str | None]:
        """Up to the one we ask for ourselves."""
        await other.notify("marker")
        notices: list[str | None] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (notice := await heard.get()) != "marker":
                notices.append(notice)
        return notices

    try:
        await notices()
        await other.archive.keep("c_one_one", "m_1", words("hello"), 1.0)
        assert await notices() == [WEB_NOTICE]
        await other.archive.answer("c_one_one", "key", words("hi"), 2.0)
        assert await notices() == [WEB_NOTICE]
        await other.archive.keep("c_one_one", "m_1", words("hello"), 3.0)
        await other.archive.answer("c_one_one", "key", words("hi"), 3.0)
        assert await notices() == []
    finally:
        await one.close()
        await other.close()

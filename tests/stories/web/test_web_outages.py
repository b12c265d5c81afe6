"""The web chat when something breaks: the database, the process, the connection, or one of two replicas."""

import sqlite3
from contextlib import closing
from pathlib import Path
from signal import SIGKILL

import psycopg
import pytest

from tests.emulators.models.script import says
from tests.running import WITHOUT_EXEC, Running
from tests.stories.at_work import NEVER
from tests.stories.process.test_process import platforms, started
from tests.stories.store.test_replicas import two
from tests.waiting import until
from tests.web_page import CHAT, WEB, new_id, opened


async def test_web_outage_of_the_database_is_a_503_on_every_route(house: Running) -> None:
    def rename(before: str, after: str) -> None:
        with closing(sqlite3.connect(house.folder / "data" / "clawgate.db", timeout=10)) as database:
            for table in ("web_message", "web_conversation", "file"):
                database.execute(f"ALTER TABLE {table}{before} RENAME TO {table}{after}")
            database.commit()

    async with opened(house.url, watching=False) as page:
        await page.say("hello")
        await house.idle()
        for pool in (house.gateway.runtime.store._reader, house.gateway.runtime.store._writer):  # type: ignore[attr-defined]
            await pool.call(lambda connection: connection.exec_driver_sql("PRAGMA query_only=ON"))
        rename("", "_elsewhere")
        answers = [
            *[await page.http.get(path) for path in ("/api/chats", f"/api/chats/{CHAT}", "/api/files/f_12345678")],
            await page.http.patch(f"/api/chats/{CHAT}", json={"title": "x"}),
            await page.http.delete(f"/api/chats/{CHAT}"),
            await page.upload(b"x", "a.txt"),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "unavailable")] * 6
        assert (await page.say("hello")).status_code == 503
        async with page.http.stream("GET", "/api/events") as stream:
            assert [chunk async for chunk in stream.aiter_bytes()] == []
        assert (await page.http.get("/")).status_code == 200
        rename("_elsewhere", "")
        assert len((await page.conversation())["messages"]) == 2


@pytest.mark.slow
async def test_web_outage_killed_mid_answer_shows_each_once(tmp_path: Path) -> None:
    async with platforms(tmp_path, channels="web: {}", agents=WITHOUT_EXEC) as (_, anthropic, config):
        anthropic.script = [says("first answer"), NEVER]
        message = new_id()
        async with started(config) as run:
            async with opened(run.url) as before:
                await before.say("first")
                await before.answers(1)
                await before.say("second", message=message)
                await before.until(lambda: len(before.written("you")) == 2)
                await until(lambda: len(anthropic.requests) == 2)
            assert await run.end(SIGKILL) == -SIGKILL
        anthropic.script = [says("second answer")]
        async with started(config) as run, opened(run.url, watching=False) as again:
            again.events = before.events
            async with again.watching():
                assert (await again.say("second", message=message)).status_code == 200
                assert await again.answers(2) == ["first answer", "second answer"]
                kept = (await again.conversation())["messages"]
            assert [it["text"] for it in kept] == ["first", "first answer", "second", "second answer"]
            assert [event.data["id"] for event in again.events if event.name == "message"] == [it["id"] for it in kept]


async def test_web_page_at_one_replica_sees_the_others_answer(tmp_path: Path, postgres_url: str) -> None:
    async with (
        two(tmp_path, postgres_url, [says("slow"), says("again")], feishu=WEB) as (one, other),
        opened(one.url) as here,
        opened(other.url) as there,
    ):
        await there.say("hello")
        await one.requested(1)
        assert await here.answers(1) == ["slow"]
        assert [it["text"] for it in here.written("you")] == ["hello"]
        assert (here.named("chat")[0]["id"], here.named("chat")[0]["title"]) == (CHAT, "hello")
        await here.say("and now?")
        assert await there.answers(2) == ["slow", "again"]
        await here.answers(2)
        assert here.named("message") == there.named("message")


async def test_web_erase_at_one_replica_stops_the_other(tmp_path: Path, postgres_url: str) -> None:
    secret = "canary-of-the-conversation"
    async with (
        two(tmp_path, postgres_url, [NEVER, says("fresh")], feishu=WEB) as (one, other),
        opened(one.url) as here,
        opened(other.url) as there,
    ):
        await there.say(secret)
        await one.requested(1)
        assert (await here.http.delete(f"/api/chats/{CHAT}")).status_code == 204
        await other.idle()
        with psycopg.connect(one.gateway.runtime.store._conninfo) as database:  # type: ignore[attr-defined]
            for table in ("inbox", "outbox", "transcript", "web_message", "web_conversation", "file"):
                rows = database.execute(f"SELECT * FROM {table}").fetchall()
                assert secret not in str(rows), table
        assert (await there.say("hello again")).status_code == 200
        assert (await there.answers(1)) == ["fresh"]


async def test_web_ids_no_database_takes_are_not_found(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, lambda _: says("here"), feishu=WEB) as (one, _), opened(one.url) as page:
        for path in ("/api/chats/%00", "/api/files/%00", "/api/chats/%F0%9F%98%80"):
            assert (await page.http.get(path)).status_code == 404
        assert (await page.say("hello", agent="a\x00b")).status_code == 200
        await page.answers(1)
        answer = await page.http.patch(f"/api/chats/{CHAT}", json={"title": "a\x00b"})
        assert (answer.status_code, answer.json()["title"]) == (200, "a b")
        assert (await page.upload(b"\x00", "a\x00.bin", "text/plain")).status_code == 200

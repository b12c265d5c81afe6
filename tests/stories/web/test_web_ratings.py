"""👍 and 👎 under an answer on the page, and what becomes of all ratings: counts in `usage`, a weekly line to the owners."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import text

from gateway.operate.usage import facts, table, usage
from gateway.store.chatter import RATINGS_SECONDS
from gateway.store.opening import connected
from tests.emulators.models.script import says
from tests.running import ALICE, FEISHU, SECRETS, Running, feishu_emulator, running
from tests.stories.process.test_process import platforms, started
from tests.stories.store.test_replicas import two
from tests.stories.web.test_web_users import SERVER, bearer
from tests.waiting import until
from tests.web_page import CHAT, WEB, Page, opened


async def rate(page: Page, message: int, rating: str | None, *, chat: str = CHAT) -> httpx.Response:
    return await page.http.put(f"/api/chats/{chat}/messages/{message}/rating", json={"rating": rating})


async def verdicts(house: Running) -> list[tuple[str, str]]:
    found = await house.gateway.runtime.store.chatter.feedback(0.0)
    return sorted((it.by, it.verdict) for it in found)


async def given(page: Page) -> dict[str, str]:
    return dict((await page.conversation())["ratings"])


async def answered(page: Page, words: str = "hello", count: int = 1) -> int:
    """The number of the newest answer."""
    await page.say(words)
    await page.answers(count)
    return int(page.written()[count - 1]["id"])


async def test_rating_on_the_page_is_stored_once_replaced_and_taken_back(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with (
        running(tmp_path, script=lambda _: says("hi"), feishu=WEB, more=more) as house,
        opened(house.url) as page,
    ):
        answer = await answered(page)
        for rating, times in (("good", 2), ("bad", 1), (None, 2), ("bad", 1)):
            for _ in range(times):
                assert (await rate(page, answer, rating)).status_code == 200
            assert await given(page) == ({str(answer): rating} if rating else {})
            assert await verdicts(house) == ([("web:default:local", rating)] if rating else [])
        await page.until(lambda: len(page.named("rated")) == 6)
        assert page.named("rated")[-1] == {"chat": CHAT, "ratings": {str(answer): "bad"}}
        await page.say("/good")
        await page.answers(2)
        assert await verdicts(house) == [("web:default:local", "good")]
        with connected(house.gateway.config.database) as connection:  # as the nightly pruning does after a week
            connection.execute(text("DELETE FROM outbox"))
        assert (await rate(page, answer, "bad")).status_code == 200
        assert await verdicts(house) == [("web:default:local", "bad")]
        assert (await page.http.delete(f"/api/chats/{CHAT}")).status_code == 204
        assert await verdicts(house) == []


async def test_rating_is_for_the_persons_own_answers_alone(tmp_path: Path) -> None:
    more = f"{SERVER}\ncommands: {{ bad: owner }}"
    async with (
        running(tmp_path, script=lambda _: says("hi"), feishu=WEB, more=more) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("operator")) as operator,
    ):
        answer = await answered(ann)
        command = await answered(ann, "/status", 2)
        own = (await ann.conversation())["messages"][0]["id"]
        for page, message, rating, status in (
            (operator, answer, "good", 404),
            (ann, own, "good", 404),
            (ann, command, "good", 404),
            (ann, 4711, "good", 404),
            (ann, answer, "bad", 403),
            (ann, answer, "splendid", 400),
        ):
            assert (await rate(page, message, rating)).status_code == status, (message, rating)
        assert await verdicts(house) == []
        assert (await rate(ann, answer, "good")).status_code == 200


async def test_rating_at_two_replicas_is_one(tmp_path: Path, postgres_url: str) -> None:
    async with (
        two(tmp_path, postgres_url, lambda _: says("hi"), feishu=WEB) as (one, other),
        opened(one.url) as here,
        opened(other.url) as there,
    ):
        answer = await answered(here)
        pressed = [rate(page, answer, "good") for page in (here, there) * 5]
        assert {it.status_code for it in await asyncio.gather(*pressed)} == {200}
        assert await verdicts(one) == [("web:default:local", "good")]
        assert (await rate(there, answer, None)).status_code == 200
        assert await given(here) == {}


@pytest.mark.slow
async def test_rating_killed_before_its_commit_is_given_again(tmp_path: Path, postgres_url: str) -> None:
    """The process dies while the press waits for the table; what was not answered is not stored, and the next press is."""
    more = f'database: {{ url: "{postgres_url}" }}'
    async with platforms(tmp_path, channels="web: {}", more=more) as (_, anthropic, config):
        anthropic.script = [says("hi")]
        async with started(config, SECRETS) as run, opened(run.url) as page:
            answer = await answered(page)
            async with await psycopg.AsyncConnection.connect(postgres_url) as locking:
                await locking.execute("LOCK TABLE mark IN ACCESS EXCLUSIVE MODE")
                pressed = asyncio.create_task(rate(page, answer, "good"))
                await until(lambda: _waits(postgres_url))
                await run.end(signal.SIGKILL)
                with pytest.raises(httpx.TransportError):
                    await pressed
                await locking.rollback()
        async with started(config, SECRETS) as run, opened(run.url) as page:
            assert await given(page) == {}
            for _ in range(2):
                assert (await rate(page, answer, "good")).status_code == 200
            await run.end(signal.SIGKILL)
        async with started(config, SECRETS) as run, opened(run.url) as page:
            assert await given(page) == {str(answer): "good"}
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM mark WHERE kind LIKE 'reaction %'").fetchall() == [(1,)]


def _waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%mark%'"
        return connection.execute(waits).fetchone() is not None


async def test_ratings_are_counted_in_usage(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with (
        running(tmp_path, script=lambda _: says("hi"), feishu=WEB, more=more) as house,
        opened(house.url) as page,
    ):
        now, config = house.gateway.runtime.now(), house.gateway.config
        assert facts(usage(config, "agent", now - 60), config)["feedback"] == {"good": 0, "bad": 0}
        for count, rating in enumerate(("good", "bad", "bad"), 1):
            assert (await rate(page, await answered(page, count=count), rating)).status_code == 200
        report = usage(config, "agent", now - 60)
        assert facts(report, config)["feedback"] == {"good": 1, "bad": 2}
        assert "Ratings of answers: 👍 1  👎 2" in list(table(report, config))
        assert "对回答的评价：👍 1  👎 2" in list(table(report, config, "zh"))
        assert facts(usage(config, "agent", now + 60), config)["feedback"] == {"good": 0, "bad": 0}


@dataclass
class Clock:
    now: float = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now


OWNED = f"owners: [feishu:{ALICE}]"


@asynccontextmanager
async def timed(folder: Path, clock: Clock, more: str = OWNED) -> AsyncIterator[Running]:
    """A gateway and a Feishu by this clock."""
    emulator, feishu = feishu_emulator(), f"{FEISHU}    timestampWindowSeconds: null\n"
    emulator.now = clock
    given: dict[str, Any] = {"more": more, "feishu": feishu, "now": clock, "emulator": emulator}
    async with running(folder, script=lambda _: says("hi"), **given) as house:
        yield house


def weekly(house: Running) -> list[str]:
    return [it.text for it in house.feishu.messages if "rated in the last week" in it.text]


async def none_due(house: Running) -> bool:
    return not [it for it in await house.gateway.runtime.store.later.every() if it.kind == "ratings"]


async def rated_week(house: Running, clock: Clock, *commands: str) -> None:
    """Alice rates answers, and a week passes."""
    for it in ("hello", *commands):
        clock.now += 1  # Feishu's second of the message is part of its key
        count = len(house.feishu.messages)
        await house.say(it)
        await house.replies(count + 1)
        await house.idle()
    clock.now += RATINGS_SECONDS - 9
    await house.gateway.due.once()
    assert not await none_due(house)
    clock.now += 10
    house.gateway.due._wanted.set()
    await house.until(lambda: none_due(house))
    await house.idle()


async def test_weekly_notice_counts_the_ratings_once(tmp_path: Path, database_url: str) -> None:
    """None without ratings; a rating that is taken back is none; the next week counts for itself."""
    clock, more = Clock(), f'{OWNED}\ndatabase: {{ url: "{database_url}" }}'
    async with timed(tmp_path, clock, more) as house:
        await house.say("hello")
        await house.replies(1)
        assert await none_due(house)
        await rated_week(house, clock, "/good", "/bad too long")
        assert ["👍 0, 👎 1" in it for it in weekly(house)] == [True]
        await rated_week(house, clock, "/good")
        assert ["👍 1, 👎 0" in it for it in weekly(house)[1:]] == [True]
        store = house.gateway.runtime.store.chatter
        (newest, *_) = await store.feedback(0.0)
        await store.react(newest.session, newest.turn, newest.by, "👍", clock.now)
        await store.unreact(newest.session, newest.turn, newest.by, "👍")
        clock.now += RATINGS_SECONDS + 1
        await house.until(lambda: none_due(house))
        await house.idle()
        assert len(weekly(house)) == 2


async def test_weekly_notice_is_off_with_the_other_notices(tmp_path: Path) -> None:
    clock = Clock()
    async with timed(tmp_path, clock, f"{OWNED}\nnotifyOwners: false") as house:
        await rated_week(house, clock, "/good")
        assert weekly(house) == []


async def test_weekly_notice_survives_a_stop_between_its_steps(tmp_path: Path) -> None:
    """The row is due again, and the owner has the line already."""
    clock = Clock()
    async with timed(tmp_path, clock) as house:
        later = house.gateway.runtime.store.later
        drop, dropped = later.drop, list[str]()

        async def dies(id_: str) -> None:
            dropped.append(id_)
            if len(dropped) == 1:
                raise RuntimeError("killed")
            await drop(id_)

        later.drop = dies  # type: ignore[method-assign]
        await house.say("hello")
        await house.replies(1)
        await house.idle()
        await house.say("/good")
        await house.replies(2)
        await house.idle()
        clock.now += RATINGS_SECONDS + 1
        await house.until(lambda: dropped)
        clock.now += 601
        await house.until(lambda: len(dropped) == 2)
        await house.idle()
        assert len(weekly(house)) == 1


async def test_weekly_notice_of_two_replicas_is_one(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, lambda _: says("hi"), OWNED) as (one, other):
        await one.say("hello")
        await one.replies(1)
        await one.idle()
        await other.say("/good")
        await one.replies(2)
        with connected(one.gateway.config.database) as connection:
            connection.execute(text("UPDATE later SET due = 1 WHERE kind = 'ratings'"))
        await one.until(lambda: none_due(one))
        await asyncio.gather(one.idle(), other.idle())
        assert len(weekly(one)) == 1

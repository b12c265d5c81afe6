""" "typing…" in a chat: as long as a turn runs, in its topic, and never at the cost of an answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from channels.abilities import Progress
from channels.channel import RateLimited
from channels.message import Chat, Outbound, Target
from channels.telegram.channel import TelegramChannel
from channels.telegram.timing import AGAIN_SECONDS, QUICK_SECONDS, Timing
from tests.channels.contexts import context
from tests.channels.telegram_bot import SILENCE, Telegram, connected, refusal

ALICE, GROUP = "500000011", "-1002000000041"
TYPING = {"chat_id": 500000011, "action": "typing"}


@dataclass(slots=True)
class Beats:
    """A clock that a test turns: whoever sleeps wakes when the time has come."""

    now: float = 0.0
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.now + seconds, asyncio.Event())
        self.sleepers.append(sleeper)
        try:
            await sleeper[1].wait()
        finally:
            self.sleepers.remove(sleeper)

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        for until, event in self.sleepers:
            if until <= self.now:
                event.set()

    async def asleep(self, count: int = 1) -> None:
        """Return when so many are waiting for a later time."""
        async with asyncio.timeout(20):
            while sum(until > self.now for until, _ in self.sleepers) != count:
                await asyncio.sleep(0.001)

    @property
    def timing(self) -> Timing:
        return Timing(sleep=self.sleep, clock=lambda: self.now)


def at_work(chat: str = ALICE, *, message: str = "1", thread: str | None = None, **facts: Any) -> Progress:
    place = Chat(id=chat, kind="direct" if chat == ALICE else "group", thread=thread)
    return Progress(context=context("telegram", place, message_id=message), **facts)


def actions(telegram: Telegram) -> list[dict[str, Any]]:
    return telegram.of("sendChatAction")


def topics(telegram: Telegram) -> list[int]:
    return [body["message_thread_id"] for body in actions(telegram)]


async def beat(beats: Beats, seconds: float = AGAIN_SECONDS, *, sleepers: int = 1) -> None:
    beats.pass_(seconds)
    await beats.asleep(sleepers)


async def begin(beats: Beats, sleepers: int = 1) -> None:
    """Let so much time pass that a reply is no longer a quick one."""
    await beats.asleep(sleepers)
    await beat(beats, QUICK_SECONDS, sleepers=sleepers)


@asynccontextmanager
async def typing() -> AsyncIterator[tuple[Beats, Telegram, TelegramChannel]]:
    beats = Beats()
    async with connected(timing=beats.timing) as (telegram, channel):
        yield beats, telegram, channel


async def ended(beats: Beats) -> None:
    """Nobody is left who could say anything, whatever time passes."""
    await beats.asleep(0)
    beats.pass_(3600.0)
    assert beats.sleepers == []


async def test_a_quick_reply_needs_none_and_a_turn_shows_it_again_until_its_end() -> None:
    async with typing() as (beats, telegram, channel):
        channel.show(at_work())
        await beats.asleep()
        beats.pass_(0.29)
        channel.show(at_work(outcome="replied"))
        await ended(beats)
        assert actions(telegram) == []
        for _ in range(100):
            channel.show(at_work())
        await begin(beats)
        assert actions(telegram) == [TYPING]
        channel.show(at_work(text="so far"))
        await beat(beats)
        assert actions(telegram) == [TYPING] * 2
        channel.show(at_work(outcome="replied"))
        await ended(beats)
        channel.show(at_work(message="2"))
        await begin(beats)
        assert actions(telegram) == [TYPING] * 3
    assert 4.0 <= AGAIN_SECONDS < 5.0  # Telegram shows an action for five


async def test_each_topic_has_its_own_until_the_last_of_its_answers() -> None:
    async with typing() as (beats, telegram, channel):
        channel.show(at_work(message="0", outcome="stopped"))  # an end without a beginning is nothing
        for message, thread in (("1", "345"), ("2", "345"), ("3", "346")):
            channel.show(at_work(GROUP, thread=thread, message=message))
        await begin(beats, 2)
        channel.show(at_work(GROUP, thread="345", message="1", outcome="silent"))
        await beat(beats, sleepers=2)
        assert topics(telegram) == [345, 346] * 2
        channel.show(at_work(GROUP, thread="345", message="2", outcome="replied"))
        await beats.asleep(1)
        await beat(beats)
        assert topics(telegram) == [345, 346, 345, 346, 346]


async def test_typing_pauses_for_a_rate_limit() -> None:
    async with typing() as (beats, telegram, channel):
        telegram.answers["sendChatAction"] = [refusal(429, "Too Many Requests: retry after 10", retry_after=10)]
        channel.show(at_work())
        await begin(beats)
        channel.show(at_work(GROUP, message="2"))
        await begin(beats, 2)
        for shown_times in (1, 1, 3):
            await beat(beats, sleepers=2)
            assert len(actions(telegram)) == shown_times
        telegram.answers["sendMessage"] = [refusal(429, "Too Many Requests: retry after 8", retry_after=8)]
        with pytest.raises(RateLimited):
            await channel.send(Outbound(target=Target(chat=ALICE), text="hi"), "k")
        for shown_times in (3, 5):
            await beat(beats, sleepers=2)
            assert len(actions(telegram)) == shown_times


@pytest.mark.parametrize(
    ("answer", "shown_times"),
    [((502, b"<html>"), 2), (refusal(403, "Forbidden: bot was blocked by the user"), 1)],
)
async def test_typing_failure_is_left_alone(answer: Any, shown_times: int) -> None:
    async with typing() as (beats, telegram, channel):
        telegram.answers["sendChatAction"] = [answer]
        channel.show(at_work())
        await beats.asleep()
        beats.pass_(QUICK_SECONDS)
        await telegram.until(lambda: actions(telegram))
        await beats.asleep(shown_times - 1)
        channel.show(at_work())
        await beat(beats, sleepers=shown_times - 1)
        assert len(actions(telegram)) == shown_times
        channel.show(at_work(outcome="replied"))
        await ended(beats)
        channel.show(at_work(message="2"))
        await begin(beats)
        assert len(actions(telegram)) == shown_times + 1


async def test_a_group_that_moved_is_typed_in_at_its_new_place() -> None:
    async with typing() as (beats, telegram, channel):
        moved = refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=int(GROUP))
        telegram.answers["sendMessage"] = [moved]
        await channel.send(Outbound(target=Target(chat="-4000000031"), text="hi"), "k")
        channel.show(at_work("-4000000031", thread="7"))
        await begin(beats)
        assert actions(telegram) == [{"chat_id": int(GROUP), "action": "typing"}]


async def test_an_answer_does_not_wait_for_it_and_closing_ends_it() -> None:
    async with typing() as (beats, telegram, channel):
        telegram.answers["sendChatAction"] = [SILENCE]
        channel.show(at_work())
        await beats.asleep()
        beats.pass_(QUICK_SECONDS)
        await telegram.until(lambda: actions(telegram))
        assert await channel.send(Outbound(target=Target(chat=ALICE), text="hi"), "k")
        before = asyncio.all_tasks()
        await channel.close()
        assert any(task.cancelled() for task in before)
        assert len(actions(telegram)) == 1

"""Token buckets: full speed until the platform complains, then its pace, for the one chat or for the whole account."""

import asyncio

import pytest

from channels.channel import RateLimited
from channels.pace import CAREFUL_SECONDS, Pace
from tests.channels.contexts import Clock


async def waits(pace: Pace, chat: str, clock: Clock) -> float:
    """How long a send to the chat has to wait, without waiting."""
    before = clock.now
    while True:
        try:
            await pace.wait(chat)
        except RateLimited as error:
            clock.now += error.retry_after_seconds or 0.0
        else:
            return clock.now - before


def pace(clock: Clock, per_second: float | None = None) -> Pace:
    return Pace(per_second=per_second, account_rate=50, chat_rate=lambda chat: 5.0, clock=clock)


async def test_nothing_waits_until_the_platform_has_complained() -> None:
    clock = Clock()
    paced = pace(clock)
    assert {await waits(paced, "a", clock) for _ in range(1_000)} == {0}


async def test_a_chat_or_an_account_that_was_too_fast_waits_as_requested() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.slow("a", 30.0)
    assert await waits(paced, "b", clock) == 0
    assert await waits(paced, "a", clock) == pytest.approx(30.0)
    paced.slow(None, 10.0)
    assert await waits(paced, "b", clock) == pytest.approx(10.0)


@pytest.mark.parametrize("chat", ["a", None])
async def test_afterwards_the_documented_rate_holds_for_a_minute(chat: str | None) -> None:
    clock = Clock()
    paced = pace(clock)
    paced.slow(chat, 1.0)
    clock.now += 3.0
    for _ in range(5 if chat else 50):
        await paced.wait("a")
    one_more = asyncio.ensure_future(paced.wait("a"))
    await asyncio.sleep(0)
    assert not one_more.done()
    one_more.cancel()
    clock.now += CAREFUL_SECONDS + 10
    assert {await waits(paced, "a", clock) for _ in range(1_000)} == {0}


async def test_a_configured_rate_holds_from_the_start_and_for_ever() -> None:
    clock = Clock()
    paced = pace(clock, per_second=0.25)
    paced.slow(None, 1.0)
    clock.now += 3 * CAREFUL_SECONDS
    assert [await waits(paced, "a", clock) for _ in range(3)] == [0, 4, 4]

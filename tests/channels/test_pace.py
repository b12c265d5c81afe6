"""Token buckets: full speed until the platform complains, then its pace, for the one chat or for the whole account."""

import asyncio

import pytest

from channels.channel import RateLimited
from channels.pace import CAREFUL_SECONDS, Pace
from channels.telegram.timing import TelegramPace
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


@pytest.mark.parametrize(("slowed", "elsewhere", "burst"), [("a", 0, 5), (None, 30, 50)])
async def test_pace_rate_limit_waits_as_requested_then_at_the_documented_rate(
    slowed: str | None, elsewhere: int, burst: int
) -> None:
    clock = Clock()
    paced = Pace(per_second=None, account_rate=50, chat_rate=lambda chat: 5.0, clock=clock)
    assert {await waits(paced, "a", clock) for _ in range(1_000)} == {0}
    paced.slow(slowed, 30.0)
    assert await waits(paced, "b", clock) == pytest.approx(elsewhere)
    assert await waits(paced, "a", clock) == pytest.approx(30 - elsewhere)
    clock.now += 2
    for _ in range(burst):
        await paced.wait("a")
    one_more = asyncio.ensure_future(paced.wait("a"))
    await asyncio.sleep(0)
    assert not one_more.done()
    one_more.cancel()
    clock.now += CAREFUL_SECONDS + 10
    assert {await waits(paced, "a", clock) for _ in range(1_000)} == {0}


async def test_pace_configured_rate_limit_always_holds() -> None:
    clock = Clock()
    paced = Pace(per_second=0.25, account_rate=50, chat_rate=lambda chat: 5.0, clock=clock)
    paced.slow(None, 1.0)
    clock.now += 3 * CAREFUL_SECONDS
    assert [await waits(paced, "a", clock) for _ in range(3)] == [0, 4, 4]


async def test_pace_rate_limit_of_a_telegram_group_is_its_own() -> None:
    clock = Clock()
    pace = TelegramPace(per_second=None, clock=clock)
    pace.refused("-5", 7)
    assert [await waits(pace, chat, clock) for chat in ("1", "-6", "-5", "-5")] == pytest.approx([0, 0, 7, 3])


async def test_pace_rate_limit_in_many_chats_slows_the_whole_bot() -> None:
    clock = Clock()
    pace = TelegramPace(per_second=None, clock=clock)
    waited = []
    for seconds, chats in ((0, ("-5", "1")), (0, ("2",)), (10, ("-5", "1"))):
        clock.now += seconds
        for chat in chats:
            pace.refused(chat, 7)
        waited.append(await waits(pace, "3", clock))
    assert waited == pytest.approx([0, 7, 0])

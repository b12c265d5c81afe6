"""Token buckets: full speed until the platform complains, then its pace, for the one chat or for the whole account."""

import pytest

from channels.channel import RateLimited
from channels.pace import CAREFUL_SECONDS, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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
    for _ in range(1_000):
        assert await waits(paced, "a", clock) == 0


async def test_a_chat_that_was_too_fast_waits_as_told_and_no_other_does() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.slow("a", 30.0)
    assert await waits(paced, "b", clock) == 0
    with pytest.raises(RateLimited) as raised:
        await paced.wait("a")
    assert raised.value.retry_after_seconds == pytest.approx(30.0)


async def test_an_account_that_was_too_fast_waits_in_every_chat() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.slow(None, 10.0)
    assert await waits(paced, "b", clock) == pytest.approx(10.0)


async def test_afterwards_the_documented_rate_holds_for_a_minute() -> None:
    clock = Clock()
    paced = pace(clock)
    paced.slow("a", 1.0)
    clock.now += 3.0
    for _ in range(5):
        await paced.wait("a")
    clock.now += 2.5  # what was owed has been worked off
    assert await waits(paced, "a", clock) == 0
    clock.now += CAREFUL_SECONDS + 10
    for _ in range(100):
        assert await waits(paced, "a", clock) == 0
    assert not paced._buckets


async def test_a_configured_rate_holds_from_the_start() -> None:
    clock = Clock()
    bucket = pace(clock, per_second=2.0)._buckets[""]
    assert [bucket.take(clock.now) for _ in range(5)] == [0, 0, 0.5, 1.0, 1.5]
    clock.now += 10
    assert bucket.take(clock.now) == 0

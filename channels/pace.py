"""Rate limiting of an account's sends: no delay until the platform asks to slow down.

Then the account, or the chat in question, waits for the requested time and keeps the platform's documented rate, by a token
bucket, for a minute more. A rate from the config always applies. `SingleFlight` merges concurrent identical requests.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from channels.channel import RateLimited, Unreachable

CAREFUL_SECONDS = 60.0
WAIT_SECONDS_MAX = 2.0
"""A part that must wait longer is returned to the outbox, which persists it."""
ACCOUNT = ""

T = TypeVar("T")


@dataclass(slots=True)
class _Bucket:
    """Token bucket of one second's tokens. Negative tokens are the queue of waiting sends."""

    rate: float
    tokens: float
    at: float
    closed_until: float = 0.0
    ends: float = float("inf")

    def reserve(self, now: float) -> float:
        """Take a token. Return the seconds to wait before sending."""
        self.tokens = min(max(1.0, self.rate), self.tokens + (now - self.at) * self.rate)
        self.at = now
        self.tokens -= 1
        return max(self.closed_until - now, -self.tokens / self.rate, 0.0)


@dataclass(kw_only=True)
class Pace:
    """The buckets of one account: its own, and one per throttled chat. Rates are in sends per second."""

    per_second: float | None
    account_rate: float
    chat_rate: Callable[[str], float]
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.per_second is not None:
            self._buckets[ACCOUNT] = _Bucket(self.per_second, max(1.0, self.per_second), self.clock())

    async def wait(self, chat: str) -> None:
        """Wait until a message may be sent to `chat`. Raises RateLimited if that takes longer than `WAIT_SECONDS_MAX`."""
        now = self.clock()
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.ends >= now}
        buckets = [bucket for key in (ACCOUNT, chat) if (bucket := self._buckets.get(key))]
        wait = max((bucket.reserve(now) for bucket in buckets), default=0.0)
        if wait > WAIT_SECONDS_MAX:
            for bucket in buckets:
                bucket.tokens += 1
            raise RateLimited("waiting for the platform's pace", code="paced", retry_after_seconds=wait)
        if wait:
            await asyncio.sleep(wait)

    def slow(self, chat: str | None, seconds: float) -> None:
        """Apply the platform's request to wait, for this chat or the whole account."""
        now, key = self.clock(), chat or ACCOUNT
        rate = self.chat_rate(key) if chat else self.per_second or self.account_rate
        bucket = self._buckets.setdefault(key, _Bucket(rate, 0.0, now))
        bucket.tokens = min(bucket.tokens, 0.0)
        bucket.closed_until = max(bucket.closed_until, now + seconds)
        if chat or self.per_second is None:
            bucket.ends = bucket.closed_until + CAREFUL_SECONDS


class SingleFlight(Generic[T]):
    """Share one running `request` between callers; a caller's timeout does not cancel it for others."""

    def __init__(self, request: Callable[[], Coroutine[Any, Any, T]], *, late: str = "no answer in time") -> None:
        self._request = request
        self._late = late
        self._task: asyncio.Task[T] | None = None

    async def get(self, timeout_seconds: float | None = None) -> T:
        """Return the result. Raises what `request` raises, or Unreachable."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._request())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(self._task)
        except TimeoutError:
            raise Unreachable(self._late) from None

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

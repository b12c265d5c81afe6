"""How fast an account sends: as fast as there is something to send, until the platform asks to slow down.

Then the whole account, or the one chat that was named, waits for the requested time, and for a minute after that keeps
to the platform's documented rate by a token bucket. A rate from the config holds from the start.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from channels.channel import RateLimited

CAREFUL_SECONDS = 60.0
WAIT_SECONDS_MAX = 2.0
"""What must wait longer is given back to the outbox, which remembers it over a restart."""
ACCOUNT = ""


@dataclass(slots=True)
class _Bucket:
    """One second's worth of tokens. Debt is allowed: it is the queue of those who wait."""

    rate: float
    tokens: float
    at: float
    closed_until: float = 0.0
    ends: float = float("inf")

    def take(self, now: float) -> float:
        """The seconds to wait before sending."""
        self.tokens = min(max(1.0, self.rate), self.tokens + (now - self.at) * self.rate)
        self.at = now
        self.tokens -= 1
        return max(self.closed_until - now, -self.tokens / self.rate, 0.0)


class Pace:
    """The buckets of one account: its own, and one for each chat that was too fast."""

    def __init__(
        self,
        *,
        per_second: float | None,
        account_rate: float,
        chat_rate: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = {ACCOUNT: per_second or account_rate}
        self._chat_rate = chat_rate
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        if per_second is not None:
            self._buckets[ACCOUNT] = _Bucket(per_second, max(1.0, per_second), clock())
        self._fixed = per_second is not None

    async def wait(self, chat: str) -> None:
        """Return when a message may go to `chat`. Raises RateLimited where that is not soon."""
        if not self._buckets:
            return
        now = self._clock()
        self._forget(now)
        wait = max((bucket.take(now) for key in (ACCOUNT, chat) if (bucket := self._buckets.get(key))), default=0.0)
        if wait > WAIT_SECONDS_MAX:
            for key in (ACCOUNT, chat):
                if bucket := self._buckets.get(key):
                    bucket.tokens += 1
            raise RateLimited("waiting for the platform's pace", code="paced", retry_after_seconds=wait)
        await asyncio.sleep(wait)

    def slow(self, chat: str | None, seconds: float) -> None:
        """The platform asked to wait: with this chat, or with everything."""
        now = self._clock()
        key = chat or ACCOUNT
        rate = self._rates.get(key, self._chat_rate)
        bucket = self._buckets.setdefault(key, _Bucket(rate, 0.0, now))
        bucket.tokens = min(bucket.tokens, 0.0)
        bucket.closed_until = max(bucket.closed_until, now + seconds)
        if not (self._fixed and key == ACCOUNT):
            bucket.ends = bucket.closed_until + CAREFUL_SECONDS

    def _forget(self, now: float) -> None:
        for key in [key for key, bucket in self._buckets.items() if bucket.ends < now]:
            del self._buckets[key]

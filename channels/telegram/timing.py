"""How long to wait: the waits of a connection, where a test can hold the clock, and the pace of sends."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from channels.channel import DeliveryError, RateLimited
from channels.pace import Pace
from channels.telegram.api import MethodError

BACKOFF_SECONDS_MAX = 60.0
ACCOUNT_RATE, CHAT_RATE, GROUP_RATE = 30.0, 1.0, 20 / 60
"""Sends a second for one bot, to one chat and to one group, as documented."""
SLOW_SECONDS = 1.0
"""Where Telegram did not say for how long."""
MANY_CHATS = 3
TOGETHER_SECONDS = 10.0

T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    poll_seconds: int = 50
    """How long Telegram holds a poll open where there is nothing new; it allows no more."""
    margin_seconds: float = 10.0
    """A poll that is silent for this much longer has lost its connection."""
    watch_seconds: float = 300.0
    """How often the webhook's state is checked."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def backoff(self, failures: int, *, most: float = BACKOFF_SECONDS_MAX) -> float:
        """Doubled with every failure, and never the same for two who failed together."""
        return float(min(2.0 ** min(failures, 10), most) * (0.75 + self.random() / 2))

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]], *, account: str) -> T:
        """Try until Telegram has done it. Also what it refuses is tried again: a new token can be a restart away, and
        the log says so all the while."""
        failures = 0
        while True:
            try:
                return await attempt()
            except (MethodError, DeliveryError) as caught:
                error = meaning(caught)
            failures += 1
            wait = requested_wait(error) or self.backoff(failures)
            log.error(what, account=account, reason=str(error), failures=failures, seconds=round(wait, 1))
            await self.sleep(wait)


def meaning(error: MethodError | DeliveryError) -> DeliveryError:
    return error.error if isinstance(error, MethodError) else error


def requested_wait(error: DeliveryError) -> float | None:
    """For how long Telegram asks to wait."""
    return error.retry_after_seconds if isinstance(error, RateLimited) else None


class TelegramPace:
    """Telegram counts a bot's messages: all, those to one chat, and more strictly those to one group.

    A refusal slows its chat; refusals in `MANY_CHATS` at a time slow the whole bot."""

    def __init__(self, *, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = Pace(per_second=per_second, account_rate=ACCOUNT_RATE, chat_rate=CHAT_RATE, clock=clock)
        self._groups = Pace(per_second=None, account_rate=ACCOUNT_RATE, chat_rate=GROUP_RATE, clock=clock)
        self._refused: dict[str, float] = {}
        self._clock = clock

    async def wait(self, chat: str) -> None:
        """Return when a message may go to `chat`. Raises RateLimited where that is not soon."""
        if is_group(chat):
            await self._groups.wait(chat)
        await self._all.wait(chat)

    def slow(self, chat: str, seconds: float | None) -> None:
        """Telegram refused a message to `chat` and asked to wait."""
        now, seconds = self._clock(), SLOW_SECONDS if seconds is None else seconds
        self._refused = {one: at for one, at in self._refused.items() if now - at < TOGETHER_SECONDS} | {chat: now}
        (self._groups if is_group(chat) else self._all).slow(chat, seconds)
        if len(self._refused) >= MANY_CHATS:
            self._all.slow(None, seconds)


def is_group(chat: str) -> bool:
    """By its id: people's are positive. A public name may be a group's."""
    return not chat.isdecimal()

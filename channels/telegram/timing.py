"""How long to wait: the waits of a connection, where a test can hold the clock, and the pace of sends."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from channels.channel import DeliveryError
from channels.pace import Pace

BACKOFF_SECONDS_MAX = 60.0
ACCOUNT_RATE, CHAT_RATE, GROUP_RATE = 30.0, 1.0, 20 / 60
"""Sends a second for one bot, to one chat and to one group, as documented."""
SLOW_SECONDS = 1.0
"""Where Telegram did not say for how long."""
MANY_CHATS = 3
TOGETHER_SECONDS = 10.0

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

    async def until_done(self, event: str, attempt: Callable[[], Awaitable[None]], *, account: str) -> None:
        """Try until Telegram has done it; `event` is logged meanwhile. Also what it refuses is tried again: a new token
        can be a restart away."""
        failures = 0
        while True:
            try:
                return await attempt()
            except DeliveryError as error:
                failures += 1
                wait = error.retry_after_seconds or self.backoff(failures)
                log.error(event, account=account, reason=str(error), failures=failures, seconds=round(wait, 1))
            await self.sleep(wait)


class TelegramPace(Pace):
    """Telegram counts a bot's messages: all, those to one chat, and more strictly those to one group.

    A refusal slows its chat; refusals in `MANY_CHATS` at a time slow the whole bot."""

    def __init__(self, *, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(per_second=per_second, account_rate=ACCOUNT_RATE, chat_rate=_chat_rate, clock=clock)
        self._refused: dict[str, float] = {}

    def refused(self, chat: str, seconds: float | None) -> None:
        """Telegram refused a message to `chat` and asked to wait."""
        now, seconds = self._clock(), SLOW_SECONDS if seconds is None else seconds
        self._refused = {one: at for one, at in self._refused.items() if now - at < TOGETHER_SECONDS} | {chat: now}
        self.slow(chat, seconds)
        if len(self._refused) >= MANY_CHATS:
            self.slow(None, seconds)


def is_group(chat: str) -> bool:
    """By its id: people's are positive. A public name may be a group's."""
    return not chat.isdecimal()


def _chat_rate(chat: str) -> float:
    return GROUP_RATE if is_group(chat) else CHAT_RATE

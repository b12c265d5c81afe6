"""Timing: the waits of a connection, with a clock that tests can control, the pace of sends, and the typing indicator.

Telegram shows "typing…" for five seconds or until the next message, so it is sent repeatedly. It is best effort: nothing
waits for it, failures are not retried, and it pauses while Telegram asks to slow down.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import structlog

from channels.abilities import Progress
from channels.channel import DeliveryError, RateLimited, Unreachable
from channels.pace import Pace
from channels.telegram.api import TelegramApi

BACKOFF_SECONDS_MAX = 60.0
ACCOUNT_RATE, CHAT_RATE, GROUP_RATE = 30.0, 1.0, 20 / 60
"""Documented sends per second, of one bot, to one chat and to one group."""
SLOW_SECONDS = 1.0
"""The wait if Telegram names no time."""
MANY_CHATS = 3
TOGETHER_SECONDS = 10.0

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    poll_seconds: int = 50
    """Timeout of a long poll; Telegram's maximum."""
    margin_seconds: float = 10.0
    """Additional seconds after which a silent poll has lost its connection."""
    watch_seconds: float = 300.0
    """Interval of checks of the webhook's state."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def backoff(self, failures: int, *, most: float = BACKOFF_SECONDS_MAX) -> float:
        """Return an exponential backoff with jitter."""
        return float(min(2.0 ** min(failures, 10), most) * (0.75 + self.random() / 2))

    async def until_done(self, event: str, attempt: Callable[[], Awaitable[None]], *, account: str) -> None:
        """Retry until it succeeds, also after a refusal, since the token may change; log `event` meanwhile."""
        failures = 0
        while True:
            try:
                return await attempt()
            except DeliveryError as error:
                failures += 1
                wait = error.retry_after_seconds or self.backoff(failures)
                log.error(event, account=account, reason=str(error), failures=failures, seconds=round(wait, 1))
            await self.sleep(wait)


@dataclass(kw_only=True)
class TelegramPace(Pace):
    """Telegram limits a bot's messages: all, per chat, and more strictly per group. A refusal slows down its chat; refusals
    in `MANY_CHATS` at a time slow down the whole bot."""

    account_rate: float = ACCOUNT_RATE
    chat_rate: Callable[[str], float] = lambda chat: GROUP_RATE if is_group(chat) else CHAT_RATE
    _refused: dict[str, float] = field(default_factory=dict)

    def refused(self, chat: str, seconds: float | None) -> None:
        now, seconds = self.clock(), SLOW_SECONDS if seconds is None else seconds
        self._refused = {one: at for one, at in self._refused.items() if now - at < TOGETHER_SECONDS} | {chat: now}
        self.slow(chat, seconds)
        if len(self._refused) >= MANY_CHATS:
            self.slow(None, seconds)


def is_group(chat: str) -> bool:
    """Return True for a group's id: people's are positive. A public name may be a group's."""
    return not chat.isdecimal()


QUICK_SECONDS = 0.3
"""A faster reply needs no typing indicator."""
AGAIN_SECONDS = 4.5
CALL_SECONDS = 4.0
"""Timeout of a call; later the indicator would be outdated."""

ChatThread: TypeAlias = tuple[str, str | None]
"""A chat, and the topic in it."""


@dataclass(kw_only=True, slots=True)
class Activity:
    """Typing indicator of chats with running turns. `migrated` has the new ids of groups."""

    api: TelegramApi
    account: str
    migrated: Mapping[str, str]
    timing: Timing
    _turns: dict[ChatThread, set[str]] = field(default_factory=dict)
    """Ids of the messages being answered; two agents may be active in one group."""
    _tasks: dict[ChatThread, asyncio.Task[None]] = field(default_factory=dict)
    _rests_until: float = float("-inf")

    def show(self, progress: Progress) -> None:
        context = progress.context
        place = (context.chat.id, context.chat.thread)
        turns = self._turns.setdefault(place, set())
        if progress.outcome is None:
            turns.add(context.message_id)
            if place not in self._tasks:
                self._tasks[place] = asyncio.create_task(self._type(place))
                self._tasks[place].add_done_callback(_report)
            return
        turns.discard(context.message_id)
        if not turns:
            del self._turns[place]
            if (task := self._tasks.pop(place, None)) is not None:
                task.cancel()

    def rest(self, seconds: float | None) -> None:
        """Pause for the time that Telegram asked for."""
        until = self.timing.clock() + (SLOW_SECONDS if seconds is None else seconds)
        self._rests_until = max(self._rests_until, until)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _type(self, place: ChatThread) -> None:
        (chat, thread), chat_id = place, self.migrated.get(place[0], place[0])
        body: dict[str, Any] = {"chat_id": int(chat_id), "action": "typing"}
        if thread is not None and chat_id == chat:  # topic ids are the old group's
            body["message_thread_id"] = int(thread)
        await self.timing.sleep(QUICK_SECONDS)
        while True:
            if self.timing.clock() >= self._rests_until:
                try:
                    await self.api.call("sendChatAction", body, timeout_seconds=CALL_SECONDS)
                except DeliveryError as error:
                    log.info("telegram_typing_not_shown", account=self.account, error=type(error).__name__)
                    if isinstance(error, RateLimited):
                        self.rest(error.retry_after_seconds)
                    elif not isinstance(error, Unreachable):
                        return
            await self.timing.sleep(AGAIN_SECONDS)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("telegram_typing_failed", exc_info=error)

"""That the bot is at work, as people see it: "typing…" in the chat while a turn runs that is not over at once.

Telegram shows an action for five seconds or until the next message, so it is sent again and again. The answer does not
need it: nobody waits for it, what fails is not repeated, and where Telegram asks to slow down nothing is sent until
then.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import structlog

from channels.channel import DeliveryError, Progress, RateLimited, Unreachable
from channels.telegram.api import TelegramApi
from channels.telegram.timing import SLOW_SECONDS, Timing

QUICK_SECONDS = 0.3
"""A reply that is there sooner needs no "typing…"."""
AGAIN_SECONDS = 4.5
CALL_SECONDS = 4.0
"""Later it would be about the past."""

Place: TypeAlias = tuple[str, str | None]
"""A chat, and the topic in it."""

log = structlog.get_logger()


@dataclass(kw_only=True, slots=True)
class Activity:
    """`migrated` has the new ids of groups that moved."""

    api: TelegramApi
    account: str
    migrated: Mapping[str, str]
    timing: Timing
    _turns: dict[Place, set[str]] = field(default_factory=dict)
    """What is being answered, by the message's id; two agents may be active in one group."""
    _tasks: dict[Place, asyncio.Task[None]] = field(default_factory=dict)
    _rests_until: float = float("-inf")

    def show(self, progress: Progress) -> None:
        """Takes no time, however often it is called."""
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
        """Send nothing for so long: Telegram has asked to slow down."""
        until = self.timing.clock() + (SLOW_SECONDS if seconds is None else seconds)
        self._rests_until = max(self._rests_until, until)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _type(self, place: Place) -> None:
        """Until it is cancelled, or Telegram refuses it in this turn."""
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

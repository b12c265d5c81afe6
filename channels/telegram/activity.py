"""That the bot is at work, as people see it: "typing…" in the chat for as long as a turn runs, and not longer.

Telegram shows an action for five seconds or until the next message, so it is said again and again. The answer does not
need it: nobody waits for it, what fails is not repeated, and where Telegram asks to slow down nothing is said until
then.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeAlias

import structlog

from channels.channel import DeliveryError, Progress, RateLimited, Unreachable
from channels.telegram.api import MethodError, TelegramApi
from channels.telegram.timing import SLOW_SECONDS, Timing, meaning

AGAIN_SECONDS = 4.5
CALL_SECONDS = 4.0
"""Later it would be about the past."""

Place: TypeAlias = tuple[str, str | None]
"""A chat, and the topic in it."""

log = structlog.get_logger()


class Activity:
    """`migrated` has the new ids of groups that moved."""

    def __init__(self, api: TelegramApi, *, account: str, migrated: Mapping[str, str], timing: Timing) -> None:
        self._api = api
        self._account = account
        self._migrated = migrated
        self._timing = timing
        self._turns: dict[Place, set[str]] = {}
        """What is being answered, by the message's id; two agents may be at work in one group."""
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._rests_until = float("-inf")

    def show(self, progress: Progress) -> None:
        """Takes no time, however often it is called."""
        context = progress.context
        place = (context.chat.id, context.chat.thread)
        if progress.outcome is None:
            self._turns.setdefault(place, set()).add(context.message_id)
            if place not in self._tasks:
                self._tasks[place] = asyncio.create_task(self._type(place))
                self._tasks[place].add_done_callback(_report)
            return
        turns = self._turns.get(place, set())
        turns.discard(context.message_id)
        if not turns:
            self._turns.pop(place, None)
            if (task := self._tasks.pop(place, None)) is not None:
                task.cancel()

    def rest(self, seconds: float | None) -> None:
        """Say nothing for so long: Telegram has asked to slow down."""
        until = self._timing.clock() + (SLOW_SECONDS if seconds is None else seconds)
        self._rests_until = max(self._rests_until, until)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _type(self, place: Place) -> None:
        """Until it is cancelled, or Telegram will not have it in this turn."""
        body = self._body(*place)
        while True:
            if self._timing.clock() >= self._rests_until:
                try:
                    await self._api.call("sendChatAction", body, timeout_seconds=CALL_SECONDS)
                except (MethodError, DeliveryError) as caught:
                    error = meaning(caught)
                    log.info("telegram_typing_not_shown", account=self._account, error=type(error).__name__)
                    if isinstance(error, RateLimited):
                        self.rest(error.retry_after_seconds)
                    elif not isinstance(error, Unreachable):
                        return
            await self._timing.sleep(AGAIN_SECONDS)

    def _body(self, chat: str, thread: str | None) -> dict[str, Any]:
        chat_id = self._migrated.get(chat, chat)
        body: dict[str, Any] = {"chat_id": int(chat_id), "action": "typing"}
        if thread is not None and chat_id == chat:  # topic ids are the old group's
            body["message_thread_id"] = int(thread)
        return body


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("telegram_typing_failed", exc_info=error)

"""Delivers like a platform: the same event, under the same message id, again and again until it has been taken.

Chats side by side; within a chat the next message is written when the one before it was acknowledged, so that the order
of the acknowledgements is the order to expect. Now and then an event comes once more after its 200, as it does when the
200 was lost on the way. Where the gateway fetches, all is there from the start, and taken is what a poll has confirmed.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tests.chaos.ledger import Message, Wish
from tests.chaos.platform import Platform

PATIENCE_SECONDS = 3.0
RETRY_SECONDS = (0.05, 0.2)
AGAIN_CHANCE = 0.2

serials = (f"S{number:06d}" for number in itertools.count(1))
"""One row of numbers for the whole run, so that campaigns may share a database."""


class Sender:
    """Use as `async with`; it has a task for each chat."""

    def __init__(self, platform: Platform, url: Callable[[], str], chance: random.Random, *, chats: int = 3) -> None:
        self.chats = [platform.chat.chat(chance) for _ in range(chats)]
        self.pushes = 0
        self._platform = platform
        self._url = url
        self._chance = chance
        self._queues: dict[str, asyncio.Queue[Message]] = {chat: asyncio.Queue() for chat in self.chats}
        self._events: dict[str, dict[str, Any]] = {}
        self._acked = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late = 0
        self._client = httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False)

    async def __aenter__(self) -> "Sender":
        for chat in self.chats:
            self._spawn(self._deliver(chat))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def write(self, wishes: Sequence[Wish]) -> list[Message]:
        """Somebody writes these, each in some chat."""
        return [self._write(wish, self._chance.choice(self.chats)) for wish in wishes]

    def _write(self, wish: Wish, chat: str) -> Message:
        serial = next(serials)
        written = self._platform.chat.write(f"{serial} {wish}", chat)
        message = Message(serial=serial, chat=chat, wish=wish, message_id=written.message_id)
        message.kills_before = self._platform.ledger.kills
        self._platform.wrote(serial, chat, written.message_id)
        self._platform.ledger.messages[serial] = message
        self._events[serial] = written.event
        self._queues[chat].put_nowait(message)
        return message

    async def _deliver(self, chat: str) -> None:
        while True:
            message = await self._queues[chat].get()
            if not self._platform.chat.fetched:
                message.kills_before = self._platform.ledger.kills
            while not await self._push(message):
                await asyncio.sleep(self._chance.uniform(*RETRY_SECONDS))
            message.acked = self._acked
            self._acked += 1
            if self._platform.chat.fetched:
                self._platform.springs("K3", 0)
            elif self._chance.random() < AGAIN_CHANCE:
                self._spawn(self._push_again(message))

    async def _push_again(self, message: Message) -> None:
        self._late += 1
        try:
            await asyncio.sleep(self._chance.uniform(0, 0.5))
            await self._push(message)
        finally:
            self._late -= 1

    async def quiet(self) -> None:
        """Wait until every late delivery has been made."""
        while self._late:
            await asyncio.sleep(RETRY_SECONDS[0])

    async def _push(self, message: Message) -> bool:
        return await self.deliver(self._events[message.serial])

    async def deliver(self, event: dict[str, Any]) -> bool:
        """Once; whether it was taken."""
        self.pushes += 1
        try:
            return await self._platform.chat.deliver(self._client, self._url(), event)
        except httpx.TransportError:
            return False

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

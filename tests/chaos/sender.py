"""Delivers like a platform: the same event, under the same message id, again and again until it has been taken.

Chats side by side; within a chat the next message is written when the one before it was acknowledged, so that the order
of the acknowledgements is the order to expect. Now and then an event comes once more after its 200, as it does when the
200 was lost on the way. Where the gateway fetches, all is there from the start, and taken is what a poll has confirmed.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import count

import httpx

from tests.chaos.ledger import Message, Wish
from tests.chaos.platform import Platform
from tests.chaos.replica import CHATS

PATIENCE_SECONDS = 3.0
RETRY_SECONDS = (0.05, 0.2)
AGAIN_CHANCE = 0.2
DENY_CHANCE = 0.2


class Sender:
    """Use as `async with`; it has a task for each chat."""

    def __init__(self, platform: Platform, url: Callable[[], str], chance: random.Random) -> None:
        self._platform = platform
        self._url = url
        self._chance = chance
        self._queues = {platform.chat.chat(chance): asyncio.Queue[Message]() for _ in range(CHATS)}
        self._places = count()
        self._delivering: list[asyncio.Task[None]] = []
        self._late: list[asyncio.Task[None]] = []
        self._client = httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False)

    async def __aenter__(self) -> "Sender":
        self._delivering = [asyncio.create_task(self._deliver(queue)) for queue in self._queues.values()]
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = [*self._delivering, *self._late]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def write(self, wishes: Sequence[Wish]) -> None:
        """Somebody writes these, in any order, each in some chat."""
        for wish in self._chance.sample(wishes, len(wishes)):
            chat = self._chance.choice(list(self._queues))
            self._queues[chat].put_nowait(self._platform.write(wish, chat))

    def decide(self) -> None:
        """Somebody answers every question that is open."""
        questions, self._platform.questions = self._platform.questions, {}
        for serial, (chat, id_) in questions.items():
            decision = "deny" if self._chance.random() < DENY_CHANCE else "allow-once"
            if self._platform.ledger.decisions is not None:
                self._platform.ledger.decisions[serial] = decision
            self._queues[chat].put_nowait(self._platform.write("/approve", chat, f" {id_} {decision}"))

    async def _deliver(self, queue: asyncio.Queue[Message]) -> None:
        fetched = self._platform.chat.fetched
        while True:
            message = await queue.get()
            if not fetched:
                message.kills_before = self._platform.ledger.kills
            while not await self.push(message):
                await asyncio.sleep(self._chance.uniform(*RETRY_SECONDS))
            message.acked = next(self._places)
            if fetched:
                self._platform.springs("K3", 0)
            elif self._chance.random() < AGAIN_CHANCE:
                self._late.append(asyncio.create_task(self._push_late(message)))

    async def _push_late(self, message: Message) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        await self.push(message)

    async def quiet(self) -> None:
        """Wait until every late delivery has been made."""
        await asyncio.gather(*self._late)

    async def push(self, message: Message) -> bool:
        """Once; whether it was taken."""
        try:
            return await self._platform.chat.deliver(self._client, self._url(), message.event)
        except httpx.TransportError:
            return False

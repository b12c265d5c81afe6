"""A bot that stays in touch: its gateway, its clock, and what people write to it, for the tests of the connection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from channels.channel import Arrived, Command, Receipt
from channels.telegram.channel import TelegramChannel
from channels.telegram.timing import Timing
from tests.channels.telegram_bot import Body, Telegram, connected

MENU = (Command(name="stop", description="Stop the running answer"), Command(name="not-one", description="left out"))


def update(number: int, text: str = "hi") -> Body:
    person = {"id": 500000011, "is_bot": False, "first_name": "Alice"}
    chat = {"id": 500000011, "type": "private"}
    message = {"message_id": number, "from": person, "chat": chat, "date": 1790000000, "text": text}
    return {"update_id": number, "message": message}


@dataclass(slots=True)
class Connected:
    """A bot, its Telegram and its gateway. Waiting takes no time here, and is written down."""

    telegram: Telegram
    channel: TelegramChannel
    slept: list[float]
    stored: list[str] = field(default_factory=list)
    failing: list[bool] = field(default_factory=list)
    """Whether the gateway fails to store the next receipts."""

    @property
    def polls(self) -> list[Body]:
        return self.telegram.of("getUpdates")

    async def calls(self, method: str, count: int) -> list[Body]:
        """Return when there are so many of a method."""
        await self.telegram.until(lambda: len(self.telegram.of(method)) >= count)
        return self.telegram.of(method)

    async def deliver(self, receipt: Receipt) -> None:
        if self.failing and self.failing.pop(0):
            raise OSError("the database is away")
        self.stored.append(receipt.context.text if isinstance(receipt, Arrived) else str(getattr(receipt, "kind", "")))


@asynccontextmanager
async def in_touch(
    *,
    margin: float = 10.0,
    url: str | None = None,
    commands: Sequence[Command] = MENU,
    answers: dict[str, list[Any]] | None = None,
    **settings: Any,
) -> AsyncIterator[Connected]:
    """By polling where no `url` is given and no mode. `answers` are those of Telegram, by method."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    timing = Timing(poll_seconds=0, margin_seconds=margin, sleep=sleep, random=lambda: 0.5, clock=lambda: 0.0)
    settings = {"mode": "polling" if url is None else "webhook"} | settings
    async with connected(timing=timing, **settings) as (telegram, channel):
        telegram.answers |= answers or {}
        made = Connected(telegram, channel, slept)
        task = asyncio.create_task(channel.connect(public_url=url, commands=commands, deliver=made.deliver))
        try:
            yield made
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

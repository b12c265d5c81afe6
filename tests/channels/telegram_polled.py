"""A bot that stays in touch: its gateway, its clock, and what people write to it, for the tests of the connection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from channels.channel import Arrived, Command, Receipt
from channels.telegram.channel import TelegramChannel
from channels.telegram.timing import Timing
from tests.channels.telegram_bot import Body, Telegram

MENU = (Command(name="stop", description="Stop the running answer"), Command(name="not-one", description="left out"))


def update(number: int, text: str = "hi") -> Body:
    person = {"id": 500000011, "is_bot": False, "first_name": "Alice"}
    chat = {"id": 500000011, "type": "private"}
    message = {"message_id": number, "from": person, "chat": chat, "date": 1790000000, "text": text}
    return {"update_id": number, "message": message}


@dataclass(slots=True)
class Gateway:
    """Stores receipts, or fails as often as it is told to."""

    stored: list[str] = field(default_factory=list)
    failures: int = 0
    attempts: int = 0

    async def deliver(self, receipt: Receipt) -> None:
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise OSError("the database is away")
        self.stored.append(receipt.context.text if isinstance(receipt, Arrived) else receipt_kind(receipt))


def receipt_kind(receipt: Receipt) -> str:
    return str(getattr(receipt, "kind", ""))


@dataclass(slots=True)
class Waits:
    """Waiting takes no time here, and is written down."""

    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def timing(self, *, margin: float = 10.0) -> Timing:
        return Timing(poll_seconds=0, margin_seconds=margin, sleep=self.sleep, random=lambda: 0.5, clock=lambda: 0.0)


@asynccontextmanager
async def running(
    channel: TelegramChannel, gateway: Gateway, *, url: str | None = None, commands: Sequence[Command] = MENU
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(channel.connect(public_url=url, commands=commands, deliver=gateway.deliver))
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def polls(telegram: Telegram) -> list[Body]:
    return telegram.of("getUpdates")

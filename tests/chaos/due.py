"""Rows that come due within seconds, put into the table of a gateway from outside: reminders and work, each in a chat of its
own and with a serial, as if somebody had written it."""

import time
from datetime import UTC, datetime

from sqlalchemy import NullPool, create_engine

from channels.message import Chat, MessageContext, Sender
from gateway.config.root import DatabaseConfig
from gateway.later.schedule import Schedule, row_of
from gateway.store.later import insert
from tests.chaos.emulated import OnFeishu
from tests.chaos.ledger import Message
from tests.chaos.platform import Platform, serials
from tests.chaos.scene import Scene
from tests.running import ALICE

ROWS = 6
SOON_SECONDS = (1, 2, 3)


def reminders(scene: Scene) -> list[tuple[str, float]]:
    """Puts them there; the serial and the due time of each."""
    found, now = [], int(time.time())
    url = DatabaseConfig(url=scene.database).url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for number in range(ROWS):
            due = float(now + scene.chance.choice(SOON_SECONDS))
            message = expected(scene.platform, scene.platform.chat.chat(scene.chance))
            say, task = (f"R {message.serial} n1 p1/1", "") if number % 2 else ("", f"{message.serial} plain")
            context = MessageContext(
                channel="feishu",
                account="default",
                chat=Chat(id=message.chat, kind="direct"),
                message_id="",
                sender=Sender(id=ALICE),
                text="",
                sent_at=datetime.fromtimestamp(now, UTC),
            )
            at = datetime.fromtimestamp(due, UTC).isoformat()
            schedule = Schedule(agent="helper", at=at, context=context, say=say, task=task)
            owner, place = f"feishu:default:{ALICE}", f"feishu:default:{message.chat}"
            row = row_of(schedule, f"R-{message.serial}", place=place, owner=owner, now=now, default=UTC)
            insert(connection, row, message.serial)
            found.append((message.serial, due))
    engine.dispose()
    return found


def expected(platform: Platform, chat: str) -> Message:
    """The chat is there, and the answer is waited for as if somebody had written there."""
    assert isinstance(platform.chat, OnFeishu)
    platform.chat.emulator.chats[chat] = "due"
    message = Message(serial=next(serials), chat=chat, wish="plain", acked=0, kills_before=platform.ledger.kills)
    platform.ledger.messages[message.serial] = platform.open[message.serial] = message
    return message

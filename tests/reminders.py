"""Rows that come due at a given moment, put into the table of a gateway from outside, as people would have made them."""

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import NullPool, create_engine

from channels.message import Chat, MessageContext, Sender
from gateway.config.root import DatabaseConfig
from gateway.later.schedule import Schedule, row_of
from gateway.store.later import Later, insert
from tests.running import ALICE


def reminder(
    name: str, chat: str, *, now: float, due: float, say: str = "", task: str = "", person: str = ALICE
) -> Later:
    """A person's, in a direct chat on Feishu: text that is sent as it is, or work for the agent."""
    context = MessageContext(
        channel="feishu",
        account="default",
        chat=Chat(id=chat, kind="direct"),
        message_id="",
        sender=Sender(id=person),
        text="",
        sent_at=datetime.fromtimestamp(now, UTC),
    )
    at = datetime.fromtimestamp(due, UTC).isoformat()
    schedule = Schedule(agent="helper", at=at, context=context, say=say, task=task)
    place, owner = f"feishu:default:{chat}", f"feishu:default:{person}"
    return row_of(schedule, f"R-{name}", place=place, owner=owner, now=now, default=UTC)


def put(url: str, rows: Iterable[Later]) -> None:
    """In one commit, beside whoever serves."""
    engine = create_engine(
        DatabaseConfig(url=url).url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool
    )
    with engine.begin() as connection:
        for row in rows:
            insert(connection, row, row.id)
    engine.dispose()

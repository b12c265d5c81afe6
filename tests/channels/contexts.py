"""One message of Alice's, as a channel hands it on, and a clock that a test sets."""

from datetime import UTC, datetime
from typing import Any

from channels.message import Chat, MessageContext, Sender


def context(channel: str, chat: Chat, **changes: Any) -> MessageContext:
    facts: dict[str, Any] = {"message_id": "1", "sender": Sender(id="user"), "text": "hi"}
    facts |= {"account": "default", "sent_at": datetime(2026, 1, 1, tzinfo=UTC)} | changes
    return MessageContext(channel=channel, chat=chat, **facts)


class Clock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

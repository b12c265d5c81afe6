"""One message of Alice's, as a channel hands it on, for the tests of what goes back to her."""

from datetime import UTC, datetime
from typing import Any

from channels.message import Chat, MessageContext, Sender


def context(channel: str, chat: Chat, **changes: Any) -> MessageContext:
    facts: dict[str, Any] = {"message_id": "1", "sender": Sender(id="user"), "text": "hi"}
    facts |= {"account": "default", "sent_at": datetime(2026, 1, 1, tzinfo=UTC)} | changes
    return MessageContext(channel=channel, chat=chat, **facts)

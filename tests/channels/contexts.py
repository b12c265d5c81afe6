"""One message of Alice's, as a channel hands it on, and a clock that a test sets."""

from datetime import UTC, datetime
from typing import Any

from channels.message import Chat, MessageContext, Sender, StoredFile


def context(channel: str, chat: Chat, **changes: Any) -> MessageContext:
    facts: dict[str, Any] = {
        "message_id": "1",
        "sender": Sender(id="local" if channel == "web" else "user"),
        "text": "hi",
    }
    facts |= {"account": "default", "sent_at": datetime(2026, 1, 1, tzinfo=UTC)} | changes
    return MessageContext(channel=channel, chat=chat, **facts)


class Clock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Kept(dict[str, tuple[StoredFile, bytes]]):
    """Files that wait to be sent, by id."""

    async def __call__(self, key: str) -> tuple[StoredFile, bytes] | None:
        return self.get(key)

    def add(self, name: str, kind: str, data: bytes) -> StoredFile:
        stored = StoredFile(id=f"id-{len(self)}", name=name, type=kind, size=len(data))
        self[stored.id] = stored, data
        return stored

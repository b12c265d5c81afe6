"""One message of Alice's, as a channel hands it on, and a clock that a test sets."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from channels.message import Chat, MessageContext, Sender, StoredFile
from channels.wire import DEPTH_MAX, KEYS_MAX, TEXT_CHARS_MAX


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


def oversized(event: Mapping[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The event with something more, which fits just so, or just not."""
    for beyond in (0, 1):
        nested: list[Any] = []
        for _ in range(DEPTH_MAX - 2 + beyond):
            nested = [nested]
        keys = {str(number): 0 for number in range(KEYS_MAX - _keys(event) - 1 + beyond)}
        for more in (nested, keys, "x" * (TEXT_CHARS_MAX + beyond)):
            yield not beyond, {**event, "more": more}


def _keys(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else ()
    return len(inner) + sum(map(_keys, inner))

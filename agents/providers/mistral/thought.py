"""One thinking chunk, put together from the pieces in which it is streamed.

Mistral wants it back whole and in place, so every member that came is kept, known or not; only texts that follow each
other are joined.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.providers.draft import Payload
from agents.providers.wellformed import well_formed_json


@dataclass(slots=True)
class Thought:
    """`items` is the chunk's `thinking`; `beside` are its other members, such as `signature`."""

    items: list[dict[str, Any]] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return self.beside.get("closed") is True

    @property
    def payload(self) -> Payload:
        """The chunk as one; None where nothing of it arrived."""
        if not self.items and not self.beside:
            return None
        return "thinking", well_formed_json({"type": "thinking", "thinking": self.items, **self.beside})

    def add(self, piece: dict[str, Any]) -> Iterator[str]:
        """Take one piece of the chunk; yields its texts."""
        members = {key: value for key, value in piece.items() if key not in ("type", "thinking") and value is not None}
        self.beside |= members
        thinking = piece.get("thinking")
        for item in _items(thinking):
            text = item.get("text") if item.get("type") == "text" else None
            if not isinstance(text, str):
                self.items.append(item)
            elif text:
                self._join(text, item)
                yield text

    def _join(self, text: str, item: dict[str, Any]) -> None:
        last = self.items[-1] if self.items else None
        if last is not None and _plain(last) and _plain(item):
            last["text"] += text
        else:
            self.items.append(dict(item))


def _plain(item: dict[str, Any]) -> bool:
    return item.keys() == {"type", "text"} and item["type"] == "text" and isinstance(item["text"], str)


def _items(thinking: object) -> list[dict[str, Any]]:
    if isinstance(thinking, str):  # not documented, but the reading is plain
        return [{"type": "text", "text": thinking}]
    return [item for item in thinking if isinstance(item, dict)] if isinstance(thinking, list) else []

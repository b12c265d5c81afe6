"""One thinking chunk, put together from the pieces in which it is streamed.

Mistral wants it back whole and in place, so every member that came is kept, known or not; only texts that follow each
other are joined.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.providers.growing import Growing
from agents.providers.wellformed import well_formed_json


@dataclass(slots=True)
class Thought:
    """`items` is the chunk's `thinking`; `beside` are its other members, such as `signature`."""

    items: list[dict[str, Any]] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)
    body: Growing = field(default_factory=Growing)

    @property
    def closed(self) -> bool:
        return self.beside.get("closed") is True

    @property
    def empty(self) -> bool:
        return not self.items and not self.beside

    @property
    def data(self) -> dict[str, Any]:
        """The chunk as one."""
        data: dict[str, Any] = well_formed_json({"type": "thinking", "thinking": self.items, **self.beside})
        return data

    def add(self, piece: dict[str, Any]) -> Iterator[str]:
        """Take one piece of the chunk; what of its text may be shown."""
        told = {key: value for key, value in piece.items() if key not in ("type", "thinking") and value is not None}
        self.beside |= told
        thinking = piece.get("thinking")
        for item in _items(thinking):
            text = item.get("text") if item.get("type") == "text" else None
            if not isinstance(text, str):
                self.items.append(item)
            elif text:
                self._join(text, item)
                yield self.body.add(text)

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

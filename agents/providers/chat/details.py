"""OpenRouter's `reasoning_details`: a list of entries, each streamed in pieces that bear the same number.

The list goes back as it came, entry by entry; pieces are put together again, and nothing in them is read but the text
for people.
"""

from collections.abc import Sequence
from typing import Any

_GROWING = ("text", "summary", "data")


def merge(entries: list[dict[str, Any]], pieces: Sequence[object]) -> str:
    """Add what one delta brings. Returns its text for people, which may be none."""
    shown = ""
    for piece in pieces:
        if not isinstance(piece, dict):
            continue
        shown += next((piece[name] for name in ("text", "summary") if isinstance(piece.get(name), str)), "")
        entry = next((entry for entry in reversed(entries) if _same(entry, piece)), None)
        if entry is None:
            entries.append(dict(piece))
        else:
            _extend(entry, piece)
    return shown


def _same(entry: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Entries without a number are whole."""
    return piece.get("index") is not None and all(entry.get(key) == piece.get(key) for key in ("index", "type"))


def _extend(entry: dict[str, Any], piece: dict[str, Any]) -> None:
    for key, value in piece.items():
        if key in _GROWING and isinstance(value, str) and isinstance(entry.get(key), str):
            entry[key] += value
        elif value is not None:
            entry[key] = value
        else:
            entry.setdefault(key, None)

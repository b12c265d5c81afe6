"""What one Telegram message carries: 4096 UTF-16 units of what the reader sees, and 32 KiB of HTML.

The Markdown is cut by its own length, which is nearly always more than what is seen of it; a part that grows instead,
as a table may, is cut again into smaller ones. How Markdown is cut is `channels.split`'s.
"""

from channels.split import Limit
from channels.split import split as cut
from channels.telegram.render import Rendered, clean, rendered

UNITS_MAX = 4_000
BYTES_MAX = 30_000
_UNITS_MIN = 100
"""Even a table whose every row repeats a long head fits, if it is that short."""
_ONE_MAX = 3 * UNITS_MAX
"""Longer Markdown than this is not tried whole."""


def split(markdown: str) -> list[str]:
    """The parts, in order; each of them shows something and fits a message, as HTML and as plain text."""
    text = clean(markdown).strip("\n")
    if not text.strip():
        return []
    if units(text) <= _ONE_MAX and _fits(rendered(text)):
        return [text]
    return _parts(text, UNITS_MAX) or [text[:UNITS_MAX]]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _parts(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in cut(text, (Limit(measure=units, most=most),), tidy=True):
        made = rendered(part)
        if not _fits(made) and most > _UNITS_MIN:
            found += _parts(part, most // 2)
        elif made.shows:
            found.append(part)
    return found


def _fits(made: Rendered) -> bool:
    return max(units(made.text), units(made.plain)) <= UNITS_MAX and len(made.html.encode()) <= BYTES_MAX

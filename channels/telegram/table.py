"""A table as lines of one width, for a font in which all characters are equally wide. Pure.

Width is what a terminal shows: a Chinese character and an emoji take two cells, an accent none. A table that is wider
than a phone is no grid, and is left to the caller.
"""

import unicodedata
from collections.abc import Sequence
from typing import Literal

Align = Literal["left", "right", "center"]
CELLS_MAX = 60
_BETWEEN, _CROSSING = " | ", "-+-"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[Align]) -> str | None:
    """The lines, or None where they would be too wide. Every row has a cell for each column."""
    widths = [max(width(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) > CELLS_MAX:
        return None
    lines = [_line(row, widths, aligns) for row in (head, *rows)]
    return "\n".join([lines[0], _CROSSING.join("-" * cells for cells in widths), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> str:
    padded = (_padded(cell, cells, align) for cell, cells, align in zip(row, widths, aligns, strict=True))
    return _BETWEEN.join(padded).rstrip()


def _padded(cell: str, cells: int, align: Align) -> str:
    free = cells - width(cell)
    left = {"left": 0, "right": free, "center": free // 2}[align]
    return " " * left + cell + " " * (free - left)


def width(text: str) -> int:
    """In cells. What is joined to an emoji, and its skin tone, is part of it."""
    if text.isascii():
        return len(text)
    cells, last, joins = 0, 0, False
    for char in text:
        if char == "\u200d":
            joins = True
            continue
        own = 0 if joins else _cells(char)
        if char == "\ufe0f" and last == 1:
            own = 1
        cells += own
        last, joins = own or last, False
    return cells


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf") or "\U0001f3fb" <= char <= "\U0001f3ff":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1

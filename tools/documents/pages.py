"""The pages of a document as its readers make them: those that are wanted are kept, all are counted.

Part of the child that reads documents (`tools.documents.child`). Some kinds have no pages: their text is
laid into pages of about one printed page, their rows into pages of fifty. The numbers stay the same from call to call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

PAGE_CHARS = 6_000
"""More than a printed page has, so that one is seldom cut in two."""
ROWS = 50
CELL_CHARS_MAX = 2_000
MARK_CHARS = 120
"""The room for what is beside a page: its number, and what it is if it is a scan."""


class UnreadableDocument(Exception):
    """A document that cannot be read; `code` names the sentence that the model reads."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(kw_only=True)
class Pages:
    """The pages from `first` to `last`, as many as `chars_max` holds, and at least one. `pictures` are those of pages that
    are scans, as JPEG; `sheets` names the parts of a workbook, of which `sheet` is shown."""

    first: int = 1
    last: int = 1
    chars_max: int = 1
    pictures_max: int = 0
    wanted_sheet: str = ""
    total: int = 0
    texts: list[str] = field(default_factory=list)
    pictures: dict[int, bytes] = field(default_factory=dict)
    scans: list[int] = field(default_factory=list)
    sheets: list[str] = field(default_factory=list)
    sheet: int = 0
    is_full: bool = False
    _chars: int = 0

    @property
    def wants_next(self) -> bool:
        return not self.is_full and self.first <= self.total + 1 <= self.last

    def add(self, text: str) -> None:
        """Counts the next page, and keeps it if it is wanted."""
        is_wanted = self.wants_next
        self.total += 1
        if not is_wanted:
            return
        self._chars += len(text) + MARK_CHARS
        if self.texts and self._chars > self.chars_max:
            self.is_full = True
        else:
            self.texts.append(text)


@dataclass
class Flow:
    """Lays text without pages out as pages."""

    pages: Pages
    _blocks: list[str] = field(default_factory=list)
    _chars: int = 0

    def add(self, block: str) -> None:
        for piece in _pieces(block.rstrip()):
            if self._chars + len(piece) > PAGE_CHARS:
                self.turn()
            self._blocks.append(piece)
            self._chars += len(piece) + 2

    def turn(self) -> None:
        """Begins a new page, unless this one is still empty."""
        if self._chars:
            self.pages.add(_joined(self._blocks))
            self._blocks, self._chars = [], 0


def _pieces(block: str) -> list[str]:
    """A block that is longer than a page falls apart at its line breaks."""
    if len(block) <= PAGE_CHARS:
        return [block] if block.strip() else []
    pieces, size = [""], 0
    for line in block.split("\n"):
        if size + len(line) > PAGE_CHARS and size:
            pieces.append("")
            size = 0
        pieces[-1] += ("\n" if size else "") + line
        size += len(line) + 1
    return pieces


_ITEM = re.compile(r"\s*(?:[-*]|\d+[.)])\s")


def _joined(blocks: Sequence[str]) -> str:
    """Items of one list are close together."""
    text = blocks[0]
    for before, block in pairwise(blocks):
        text += ("\n" if _ITEM.match(before) and _ITEM.match(block) else "\n\n") + block
    return text


@dataclass
class Rows:
    """Lays the rows of a sheet into pages of Markdown tables, each of which begins with the sheet's first row."""

    pages: Pages
    _head: list[str] | None = None
    _rows: list[Sequence[str]] = field(default_factory=list)
    _count: int = 0

    @property
    def keeps_next(self) -> bool:
        """True if the next row will be shown; otherwise it only counts."""
        return self._head is None or self.pages.wants_next

    def add(self, cells: Sequence[str]) -> None:
        if self._head is None:
            self._head = list(cells)
            return
        if self.pages.wants_next:
            self._rows.append(cells)
        self._count += 1
        if self._count == ROWS:
            self._turn()

    def end(self) -> None:
        if self._count or (self._head and not self.pages.total):
            self._turn()

    def _turn(self) -> None:
        self.pages.add(table([self._head or [], *self._rows]) if self.pages.wants_next else "")
        self._rows, self._count = [], 0


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; its first row is the head."""
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"

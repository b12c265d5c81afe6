"""A page of a text file: whole lines, as many as one result may hold, and a note that says how to go on.

Only the page is kept. To find where it begins, the file is read in blocks, from its beginning or from its end: a file of
any size, or one endless line, costs bounded memory. A line is cut only where it alone is longer than a page.
"""

import os
from dataclasses import dataclass
from typing import Literal

from tools.tool import ToolError

NOTE_CHARS = 200
"""Kept free in a page for its note and for the mark of a line that is cut."""
SEEK_BYTES_MAX = 256 * 1024 * 1024
"""How much of a file is read to find where a page begins."""
_BLOCK_BYTES = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Lines `first` to `last`, counted from the file's end where they are negative, and the bytes behind them."""

    text: str
    first: int
    last: int
    left_bytes: int

    def shown(self, size: int) -> str:
        """The text, and what a reader must know who sees no more than this of a file of `size` bytes."""
        if not self.text:
            return f"(the file ends before line {self.first})" if size else "(empty file)"
        if not self.left_bytes:
            return self.text
        lines = f"[lines {self.first} to {self.last} of a file of {size:,} bytes"
        return f"{self.text}\n{lines}; {self.left_bytes:,} bytes were cut; go on with offset={self.last + 1}]"


def read_page(fd: int, *, size: int, offset: int, limit: int | None, chars_max: int) -> Page:
    """The page from line `offset` on, of at most `limit` lines. Raises ToolError where it lies too far in."""
    first, start = _from_end(fd, size, -offset) if offset < 0 else (offset, _line_start(fd, size, offset))
    room = max(1, chars_max - NOTE_CHARS)
    window = os.pread(fd, min(4 * room + 1, size - start), start)
    lines: list[str] = []
    end = 0
    while end < len(window) and len(lines) != limit:
        stop = window.find(b"\n", end) + 1 or len(window)
        line = _text(window[end:stop])
        is_whole = window[stop - 1] == ord("\n") or start + stop == size
        if not is_whole or len(line) > room:
            break
        lines.append(line)
        room -= len(line)
        end = stop
    if window and not lines:
        end = _line_end(fd, size, start) - start
        lines = [_cut_line(fd, start, start + end, room, keep="end" if offset < 0 else "beginning")]
    return Page(text="".join(lines), first=first, last=first + len(lines) - 1, left_bytes=size - start - end)


def _line_start(fd: int, size: int, line: int) -> int:
    """Where the line begins; the file's end where it has fewer lines."""
    missing, position = line - 1, 0
    while missing and position < size:
        if position >= SEEK_BYTES_MAX:
            raise ToolError("TOO_LARGE", f"line {line} lies too far into the file; look for it another way")
        block = os.pread(fd, _BLOCK_BYTES, position)
        if (found := block.count(b"\n")) >= missing:
            at = -1
            for _ in range(missing):
                at = block.index(b"\n", at + 1)
            return position + at + 1
        missing -= found
        position += _BLOCK_BYTES
    return min(position, size)


def _from_end(fd: int, size: int, count: int) -> tuple[int, int]:
    """The number of the first of the last `count` lines, and where it begins.

    Numbered from the beginning, as a growing file keeps them; from the end only where counting would take too long.
    """
    start = _tail_start(fd, size, count)
    if start > SEEK_BYTES_MAX:
        return -count, start
    before = sum(os.pread(fd, min(_BLOCK_BYTES, start - at), at).count(b"\n") for at in range(0, start, _BLOCK_BYTES))
    return before + 1, start


def _tail_start(fd: int, size: int, count: int) -> int:
    """Where the last `count` lines begin."""
    missing = count
    position = max(0, size - 1)  # a line break at the very end ends the last line and begins no other
    while position > 0:
        if size - position > SEEK_BYTES_MAX:
            if count == 1:
                return size - SEEK_BYTES_MAX
            raise ToolError("TOO_LARGE", f"the last {count} lines are longer than {SEEK_BYTES_MAX} bytes; read fewer")
        begin = max(0, position - _BLOCK_BYTES)
        block = os.pread(fd, position - begin, begin)
        if (found := block.count(b"\n")) >= missing:
            at = len(block)
            for _ in range(missing):
                at = block.rindex(b"\n", 0, at)
            return begin + at + 1
        missing -= found
        position = begin
    return 0


def _line_end(fd: int, size: int, start: int) -> int:
    """Behind the line that begins at `start`, or as far as is looked for it."""
    position = start
    while position < size and position - start < SEEK_BYTES_MAX:
        block = os.pread(fd, _BLOCK_BYTES, position)
        if (at := block.find(b"\n")) >= 0:
            return position + at + 1
        position += _BLOCK_BYTES
    return min(position, size)


def _cut_line(fd: int, start: int, end: int, room: int, *, keep: Literal["beginning", "end"]) -> str:
    """As much of one line as a page holds; its beginning, or its end where the end of the file was wanted."""
    length = min(4 * room, end - start)
    raw = os.pread(fd, length, start if keep == "beginning" else end - length)
    chars = raw.decode("utf-8", errors="surrogateescape")
    kept = (chars[:room] if keep == "beginning" else chars[-room:]).encode("utf-8", errors="surrogateescape")
    mark = f"[… {end - start - len(kept):,} bytes of this line are not shown]"
    return f"{_text(kept)} {mark}\n" if keep == "beginning" else f"{mark} {_text(kept)}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")  # no database takes NUL for text

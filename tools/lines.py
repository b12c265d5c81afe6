"""A page of text lines: whole lines, as many as one result may hold, and a note that says how to go on.

Only the page is kept. To find where it begins, the file is read in blocks, from its beginning or from its end: a file of
any size, or one endless line, costs bounded memory. A line is cut only if it alone is longer than a page, and then a mark
says how to read on in it.
"""

import os
from dataclasses import dataclass
from typing import Literal

from tools.tool import ToolError, ToolResult

BLOCK_BYTES = 65_536
NOTE_CHARS = 260
"""Kept free in a page for its note and for the mark of a line that is cut."""
SEEK_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a file that are read to find where a page begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """The page from line `offset` on, of at most `limit` lines; from `byte` of that line if it was cut before."""

    offset: int
    byte: int | None = None
    limit: int | None
    chars_max: int

    def __post_init__(self) -> None:
        if self.offset == 0:
            raise ToolError("INVALID_ARGUMENT", "'offset' is 0; the first line is 1, the last is -1")

    def read(self, fd: int, size: int) -> ToolResult:
        """Raises ToolError if it lies too far in."""
        from_end = self.offset < 0
        first, line = (
            _from_end(fd, size, -self.offset) if from_end else (self.offset, _line_start(fd, size, self.offset))
        )
        start = min(size, line + (self.byte or 0))
        room = max(1, self.chars_max - NOTE_CHARS)
        lines, end = self._whole_lines(os.pread(fd, min(4 * room + 1, size - start), start), size - start, room)
        if start < size and not lines:
            end = _line_end(fd, size, start) - start
            keeps_end = from_end and self.byte is None
            lines = [
                _cut_line(fd, line, start, start + end, room, number=first, keep="end" if keeps_end else "beginning")
            ]
        text, last, left_bytes = "".join(lines), first + len(lines) - 1, size - start - end
        if not text:
            text = f"(the file ends before line {first})" if size else "(empty file)"
        elif left_bytes:
            note = f"[lines {first} to {last} of a file of {size:,} bytes; {left_bytes:,} bytes were cut"
            text += f"\n{note}; go on with offset={last + 1}]"
        return ToolResult(content=(text,), details={"bytes": size, "firstLine": first, "lastLine": last})

    def _whole_lines(self, window: bytes, left_bytes: int, room: int) -> tuple[list[str], int]:
        """The lines at the beginning of `window` that fit, and where they end."""
        lines: list[str] = []
        end = 0
        while end < len(window) and len(lines) != self.limit:
            stop = window.find(b"\n", end) + 1 or len(window)
            line = _text(window[end:stop])
            is_whole = window[stop - 1] == ord("\n") or stop == left_bytes
            if not is_whole or len(line) > room:
                break
            lines.append(line)
            room -= len(line)
            end = stop
        return lines, end


def text_page(text: str, offset: int, limit: int | None, chars_max: int, *, byte: int | None = None) -> ToolResult:
    """The result of a text that lies in no file. Blocking."""
    page = Lines(offset=offset, byte=byte, limit=limit, chars_max=chars_max)
    data = text.encode(errors="replace")
    with os.fdopen(os.memfd_create("page"), "wb+", buffering=0) as file:
        file.write(data)
        return page.read(file.fileno(), len(data))


def _line_start(fd: int, size: int, line: int) -> int:
    """The place where the line begins, or the file's end if it has fewer lines."""
    missing, position = line - 1, 0
    while missing and position < size:
        if position >= SEEK_BYTES_MAX:
            raise ToolError("TOO_LARGE", f"line {line} lies too far into the file; look for it another way")
        block = os.pread(fd, BLOCK_BYTES, position)
        if (breaks := block.count(b"\n")) >= missing:
            at = -1
            for _ in range(missing):
                at = block.index(b"\n", at + 1)
            return position + at + 1
        missing -= breaks
        position += BLOCK_BYTES
    return min(position, size)


def _from_end(fd: int, size: int, count: int) -> tuple[int, int]:
    """The number of the first of the last `count` lines, and where it begins. Numbered from the beginning, as a growing
    file keeps them; from the end only if counting would take too long."""
    start = _tail_start(fd, size, count)
    if start > SEEK_BYTES_MAX:
        return -count, start
    before = sum(os.pread(fd, min(BLOCK_BYTES, start - at), at).count(b"\n") for at in range(0, start, BLOCK_BYTES))
    return before + 1, start


def _tail_start(fd: int, size: int, count: int) -> int:
    missing = count
    position = max(0, size - 1)  # a line break at the very end ends the last line and begins no other
    while position > 0:
        if size - position > SEEK_BYTES_MAX:
            if count == 1:
                return size - SEEK_BYTES_MAX
            raise ToolError("TOO_LARGE", f"the last {count} lines are longer than {SEEK_BYTES_MAX} bytes; read fewer")
        begin = max(0, position - BLOCK_BYTES)
        block = os.pread(fd, position - begin, begin)
        if (breaks := block.count(b"\n")) >= missing:
            at = len(block)
            for _ in range(missing):
                at = block.rindex(b"\n", 0, at)
            return begin + at + 1
        missing -= breaks
        position = begin
    return 0


def _line_end(fd: int, size: int, start: int) -> int:
    """The place behind the line that begins at `start`, or the end of the search for it."""
    position = start
    while position < size and position - start < SEEK_BYTES_MAX:
        block = os.pread(fd, BLOCK_BYTES, position)
        if (at := block.find(b"\n")) >= 0:
            return position + at + 1
        position += BLOCK_BYTES
    return min(position, size)


def _cut_line(
    fd: int, line: int, start: int, end: int, room: int, *, number: int, keep: Literal["beginning", "end"]
) -> str:
    """Text of the line that begins at `line`: what fits from `start` on, or its end if the file's end was wanted."""
    length = min(4 * room, end - start)
    raw = os.pread(fd, length, start if keep == "beginning" else end - length)
    chars = raw.decode("utf-8", errors="surrogateescape")
    kept = (chars[:room] if keep == "beginning" else chars[-room:]).encode("utf-8", errors="surrogateescape")
    missing, at = end - start - len(kept), start - line + len(kept) if keep == "beginning" else 0
    mark = f"[… {missing:,} bytes of this line are not shown; read them with offset={number} and byte={at}]"
    return f"{_text(kept)} {mark}\n" if keep == "beginning" else f"{mark} {_text(kept)}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")  # no database takes NUL for text

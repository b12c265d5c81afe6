"""A page of text lines: as many whole lines as one result may hold, and a note that says how to continue.

Only the page is kept. To find where it begins, the file is read in blocks, from its beginning or its end, so a file of
any size, or one endless line, costs bounded memory. A line is cut only if it alone is longer than a page; a mark then
says how to read on in it. A file in another encoding than UTF-8 is decoded whole; a last line says so, and how many
bytes could not be read.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tools.encoding import UTF_8, Encoding, encoding_of, is_valid
from tools.tool import ToolError, ToolResult

BLOCK_BYTES = 65_536
NOTE_CHARS = 260
"""Reserved in a page for its note and for the mark of a cut line."""
SEEK_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a file that are read at most to find where a page begins."""
DECODED_BYTES_MAX = 32 * 1024 * 1024
"""Largest file that is read if it is not UTF-8: all of it is decoded, in memory."""
ENCODING_NOTE_CHARS = 120
"""Reserved for the line about an encoding."""
_BROKEN = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """A page from line `offset` on, of at most `limit` lines; from `byte` of that line if it was cut before."""

    offset: int
    byte: int | None = None
    limit: int | None
    chars_max: int

    def __post_init__(self) -> None:
        if self.offset == 0:
            raise ToolError("INVALID_ARGUMENT", "'offset' is 0; the first line is 1, the last is -1")

    def read(self, fd: int, size: int) -> ToolResult:
        """Read the page. Raises ToolError if it is too far into the file."""
        encoding = _encoding(fd, size)
        if encoding != UTF_8:
            return self._decoded(fd, size, encoding)
        text, broken, details = self._page(fd, size)
        if broken:
            text, broken, details = replace(self, chars_max=self.chars_max - ENCODING_NOTE_CHARS)._page(fd, size)
        return ToolResult(content=(_with_note(text, UTF_8, broken),), details=details)

    def _decoded(self, fd: int, size: int, encoding: Encoding) -> ToolResult:
        if size > DECODED_BYTES_MAX:
            raise ToolError(
                "TOO_LARGE",
                f"the file is in {encoding.title} and has {size:,} bytes; files that are not UTF-8 are read up to"
                f" {DECODED_BYTES_MAX:,}. Convert a copy to UTF-8, such as by iconv, and read that",
            )
        data = os.pread(fd, size, 0)
        whole = encoding.decode(data).encode(errors="replace")
        page = replace(self, chars_max=self.chars_max - ENCODING_NOTE_CHARS)
        with os.fdopen(os.memfd_create("page"), "wb+", buffering=0) as file:
            file.write(whole)
            text, _, details = page._page(file.fileno(), len(whole))
        broken = 0 if is_valid(data, encoding.codec) else text.count("\ufffd")
        return ToolResult(content=(_with_note(text, encoding, broken),), details={**details, "bytes": size})

    def _page(self, fd: int, size: int) -> tuple[str, int, Mapping[str, Any]]:
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
        shown = os.pread(fd, min(end, 4 * room), start)
        broken = 0 if is_valid(shown, is_whole=start + len(shown) >= size) else len(_BROKEN.findall(_escaped(shown)))
        return text, broken, {"bytes": size, "firstLine": first, "lastLine": last}

    def _whole_lines(self, window: bytes, left_bytes: int, room: int) -> tuple[list[str], int]:
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
    """Page a text that is not in a file. Blocking."""
    page = Lines(offset=offset, byte=byte, limit=limit, chars_max=chars_max)
    data = text.encode(errors="replace")
    with os.fdopen(os.memfd_create("page"), "wb+", buffering=0) as file:
        file.write(data)
        text, _, details = page._page(file.fileno(), len(data))
    return ToolResult(content=(text,), details=details)


def _with_note(text: str, encoding: Encoding, broken: int) -> str:
    guess = "" if encoding == UTF_8 else f"the file is not UTF-8; it was read as {encoding.title}"
    lost = (
        f"{broken:,} byte{'s' * (broken != 1)} that could not be read {'are' if broken != 1 else 'is'} shown as \ufffd"
    )
    notes = [it for it, is_said in ((guess, guess), (lost, broken)) if is_said]
    return f"{text.rstrip(chr(10))}\n[{'; '.join(notes)}]" if notes else text


def _encoding(fd: int, size: int) -> Encoding:
    head = os.pread(fd, BLOCK_BYTES, 0)
    encoding = encoding_of(head, is_whole=size <= len(head), nuls=True) or UTF_8
    if encoding != UTF_8 or size > DECODED_BYTES_MAX or not head.isascii():
        return encoding
    for position in range(0, size, BLOCK_BYTES):  # to the first bytes that are not ASCII
        if not (block := os.pread(fd, BLOCK_BYTES, position)).isascii():
            sample = block + os.pread(fd, BLOCK_BYTES, position + BLOCK_BYTES)
            return encoding_of(sample, is_whole=size <= position + len(sample), nuls=True) or UTF_8
    return UTF_8


def _line_start(fd: int, size: int, line: int) -> int:
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
    # A growing file keeps the line numbers from its beginning, but counting them may take too long.
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
    length = min(4 * room, end - start)
    raw = os.pread(fd, length, start if keep == "beginning" else end - length)
    chars = _escaped(raw)
    kept = (chars[:room] if keep == "beginning" else chars[-room:]).encode("utf-8", errors="surrogateescape")
    missing, at = end - start - len(kept), start - line + len(kept) if keep == "beginning" else 0
    mark = f"[… {missing:,} bytes of this line are not shown; read them with offset={number} and byte={at}]"
    return f"{_text(kept)} {mark}\n" if keep == "beginning" else f"{mark} {_text(kept)}"


def _escaped(raw: bytes) -> str:
    return raw.decode("utf-8", errors="surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")  # databases refuse NUL in text

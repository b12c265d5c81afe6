"""`read`: a page of a text file, or a picture.

Only the page is read: a file of any size, or one endless line, costs bounded memory.
"""

import asyncio
import base64
import os
from typing import ClassVar

from pydantic import Field

from tools.tool import Arguments, Call, Effect, Image, Text, ToolError, ToolResult
from tools.workspace import Workspace

PAGE_CHARS_MAX = 50_000
"""A page is full from here on; with its last line and the note it stays below the 64,000 of the largest windows."""
LINE_CHARS_MAX = 10_000
SKIP_BYTES_MAX = 256 * 1024 * 1024
"""How far into a file a page may lie: counting lines means reading them."""
IMAGE_BYTES_MAX = 5 * 1024 * 1024 * 3 // 4
"""5 MB of base64, which is the most a model provider takes."""
_BLOCK_BYTES = 65_536
_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class ReadArguments(Arguments):
    file_path: str = Field(description="The file, relative to the workspace, or the location of a skill.")
    offset: int | None = Field(default=None, ge=1, description="The first line to read, counted from 1.")
    limit: int | None = Field(default=None, ge=1, description="How many lines to read.")


class Read:
    name: ClassVar[str] = "read"
    summary: ClassVar[str] = "read a text file or look at a picture"
    description: ClassVar[str] = (
        "Read a text file of the workspace, or look at a picture (png, jpeg, gif, webp). A long file comes in pages: "
        "the end of a page says with which `offset` to go on."
    )
    effect: ClassVar[Effect] = "safe"
    arguments: ClassVar[type[Arguments]] = ReadArguments

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def run(self, arguments: ReadArguments, call: Call) -> ToolResult:
        """Raises ToolError."""
        return await asyncio.to_thread(self._read, arguments)

    def _read(self, arguments: ReadArguments) -> ToolResult:
        path = arguments.file_path
        with self._workspace.reading(path) as fd:
            size = os.fstat(fd).st_size
            head = os.pread(fd, _BLOCK_BYTES, 0)
            if media_type := image_type(head):
                return _image(fd, size, media_type, path)
            if b"\0" in head:
                raise ToolError("NOT_TEXT", f"{path!r} is a binary file of {size} bytes; it cannot be shown as text")
            page = Page(first=arguments.offset or 1, limit=arguments.limit)
            page.fill(fd)
        return page.result(path, size)


class Page:
    """The lines from `first` on, as many as `limit` and the caps allow."""

    def __init__(self, *, first: int, limit: int | None) -> None:
        self._first = first
        self._limit = limit
        self._chars = 0
        self._lines: list[str] = []
        self._more = False
        self._seen = 0
        """Lines that have gone by, whole or in part."""

    def fill(self, fd: int) -> None:
        """Raises ToolError where the page lies too far in."""
        position, rest, overlong = 0, b"", False
        while not self._full():
            block = os.pread(fd, _BLOCK_BYTES, position)
            position += len(block)
            if not block:
                if rest:
                    self._take(rest, ended=False)
                return
            if position > SKIP_BYTES_MAX and self._seen < self._first:
                raise ToolError("TOO_LARGE", f"line {self._first} lies too far into the file; look for it another way")
            *whole, rest = (rest + block).split(b"\n")
            if overlong and whole:  # the end of a line that was taken already
                del whole[0]
                overlong = False
            before = min(len(whole), max(0, self._first - 1 - self._seen))
            self._seen += before
            for number, line in enumerate(whole[before:], before + 1):
                self._take(line, ended=True)
                if self._full():
                    self._more = bool(rest) or number < len(whole) or bool(os.pread(fd, 1, position))
                    return
            if overlong:
                rest = b""
            elif len(rest) > 4 * LINE_CHARS_MAX:
                # An endless line: what there is of it is taken, the rest goes by.
                self._take(rest, ended=True)
                rest, overlong = b"", True
            if self._full() or position > SKIP_BYTES_MAX:
                self._more = bool(os.pread(fd, 1, position))
                return

    def _full(self) -> bool:
        return self._chars >= PAGE_CHARS_MAX or (self._limit is not None and len(self._lines) >= self._limit)

    def _take(self, raw: bytes, *, ended: bool) -> None:
        self._seen += 1
        if self._seen < self._first:
            return
        line = raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")  # no database takes NUL for text
        if len(line) > LINE_CHARS_MAX:
            line = line[:LINE_CHARS_MAX] + f" [… the line goes on; its first {LINE_CHARS_MAX} characters are shown]"
        self._lines.append(line + ("\n" if ended else ""))
        self._chars += len(line) + 1

    def result(self, path: str, size: int) -> ToolResult:
        """The page, and where to go on."""
        last = self._first + len(self._lines) - 1
        details = {"bytes": size, "firstLine": self._first, "lastLine": last}
        if not self._lines:
            note = "(empty file)" if size == 0 else f"(the file ends before line {self._first})"
            return ToolResult(content=(Text(text=note),), details=details)
        text = "".join(self._lines)
        if self._more:
            text += f"\n[lines {self._first}-{last} of a file of {size} bytes; go on with offset={last + 1}]"
        return ToolResult(content=(Text(text=text),), details=details)


def image_type(head: bytes) -> str | None:
    """What the bytes are, whatever the name says."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def _image(fd: int, size: int, media_type: str, path: str) -> ToolResult:
    if size > IMAGE_BYTES_MAX:
        note = f"[picture {path!r}, {media_type}, {size} bytes: larger than the {IMAGE_BYTES_MAX} bytes a model takes]"
        return ToolResult(content=(Text(text=note),), details={"bytes": size})
    data = b"".join(iter(lambda: os.read(fd, _BLOCK_BYTES), b""))
    image = Image(media_type=media_type, data=base64.b64encode(data).decode(), name=path)
    return ToolResult(content=(Text(text=f"[picture {path}]"), image), details={"bytes": size})

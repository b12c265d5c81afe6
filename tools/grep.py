"""`grep`: lines of the workspace's files that match an expression of RE2, in linear time; ripgrep is not needed."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import re2
from pydantic import Field

from tools.encoding import UTF_8, Encoding, encoding_of
from tools.find import LIMIT, LIMIT_MAX, PATTERN_CHARS_MAX, Glob, ResultLines, Search, expression
from tools.ls import shown
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.workspace import Workspace

FILE_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 512 * 1024 * 1024
HEAD_BYTES = 65_536
LINE_CHARS = 300


class GrepArguments(Arguments):
    pattern: str = Field(
        description="A regular expression as RE2 has it: no look-around, no back-references.",
        min_length=1,
        max_length=PATTERN_CHARS_MAX,
    )
    path: str = Field(default=".", description="A file or a folder, relative to the workspace; all of it if left out.")
    glob: str | None = Field(default=None, min_length=1, description="Only files that it matches, such as *.py.")
    ignore_case: bool = Field(default=False, description="Take capital and small letters for the same.")
    limit: int = Field(default=LIMIT, ge=1, le=LIMIT_MAX, description="How many lines to show, at most 1000.")


@dataclass
class Grep:
    spec = GrepArguments.spec(
        "grep",
        summary="find lines in files by a regular expression",
        description=(
            "Search the text files below a folder of the workspace, line by line: `path:line: text`, in order of their "
            "paths. Of a file its first 16 MiB are searched, in whatever encoding it is; binary files, what is in .git and "
            "links are left out."
        ),
        effect="safe",
    )
    parse = staticmethod(GrepArguments.parse)

    workspace: Workspace
    result_chars: int

    async def run(self, arguments: GrepArguments, call: Call) -> ToolResult:
        return await asyncio.to_thread(self._grep, arguments)

    def _grep(self, arguments: GrepArguments) -> ToolResult:
        pattern = expression(arguments.pattern, "pattern", ignore_case=arguments.ignore_case)
        search, page = Search(self.workspace), ResultLines(arguments.limit, self.result_chars)
        total, cut, read_as = 0, 0, Counter[str]()
        matches = Glob(arguments.glob) if arguments.glob else None
        for name, below, is_folder in search.below(arguments.path):
            if is_folder or (matches and not matches(below)):
                continue
            data, is_cut, encoding = self._text(name)
            total, cut = total + len(data), cut + is_cut
            before = page.found
            for line, begin, end, match in _lines(pattern, data):
                page.add(f"{shown(name)}:{line}: {_shown(data, begin, end, match)}")
                if search.is_late():
                    break
            if encoding != UTF_8 and page.found > before:
                read_as[encoding.title] += 1
            if total > TOTAL_BYTES_MAX:
                search.stopped = f"{TOTAL_BYTES_MAX:,} bytes"
        notes = [f"[of {cut} larger files only the first {FILE_BYTES_MAX:,} bytes]"] if cut else []
        notes += [
            f"[of these files {n} {'is' if n == 1 else 'are'} not UTF-8, read as {it}]" for it, n in read_as.items()
        ]
        return page.result("matching line", search.stopped, *notes)

    def _text(self, name: str) -> tuple[bytes, bool, Encoding]:
        """The beginning of a file in UTF-8, nothing of a binary one; whether there is more; its encoding."""
        with suppress(ToolError, OSError), self.workspace.found(name) as fd, open(fd, "rb", closefd=False) as file:
            head = file.read(HEAD_BYTES)
            if encoding_of(head, is_whole=len(head) < HEAD_BYTES) is not None:
                data, is_cut = head + file.read(FILE_BYTES_MAX - HEAD_BYTES), os.fstat(fd).st_size > FILE_BYTES_MAX
                encoding = encoding_of(data, is_whole=not is_cut, nuls=True) or UTF_8
                return data if encoding == UTF_8 else encoding.decode(data).encode(errors="replace"), is_cut, encoding
        return b"", False, UTF_8


def _lines(pattern: "re2._Regexp[bytes]", data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The number, the beginning and the end of each line that matches, and where in it."""
    line, start = 1, 0
    while start < len(data) and (match := pattern.search(data, start)):
        at = match.start()
        if at == len(data) and data[-1:] == b"\n":  # no line begins there
            return
        line += data.count(b"\n", start, at)
        begin, end = max(start, data.rfind(b"\n", start, at) + 1), data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield line, begin, end, at
        line, start = line + 1, end + 1


def _shown(data: bytes, begin: int, end: int, match: int) -> str:
    """The line; of a long one what is around the match."""
    left = begin if match - begin < LINE_CHARS // 2 else match - LINE_CHARS // 4
    text = data[left : min(end, left + 4 * LINE_CHARS)].decode(errors="replace").replace("\0", "\ufffd").rstrip("\r")
    cut = len(text) > LINE_CHARS or left + 4 * LINE_CHARS < end
    return f"{'…' if left > begin else ''}{text[:LINE_CHARS]}{'…' if cut else ''}"

"""`ls`, `find` and `grep`: list the workspace, find files by name, and search their text.

A glob becomes an expression of RE2, which takes linear time: backtracking matchers take minutes for a few `**`. Links
are not followed, and a search is limited in time and in number.
"""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import re2
from pydantic import Field

from tools.encoding import UTF_8, Encoding, encoding_of
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.workspace import Workspace

ENTRIES_MAX = 500


class LsArguments(Arguments):
    path: str = Field(default=".", description="The folder, relative to the workspace; the workspace if left out.")


@dataclass
class Ls:
    spec = LsArguments.spec(
        "ls",
        summary="list a folder of the workspace",
        description=(
            f"List a folder of the workspace: one name a line, sorted, folders with a trailing slash. "
            f"Shows at most {ENTRIES_MAX} names."
        ),
        effect="safe",
    )
    parse = staticmethod(LsArguments.parse)

    workspace: Workspace

    async def run(self, arguments: LsArguments, call: Call) -> ToolResult:
        entries = await asyncio.to_thread(self.workspace.entries, arguments.path)
        names = sorted(shown(name) + ("/" if is_folder else "") for name, is_folder in entries.items())
        listing = "\n".join(names[:ENTRIES_MAX]) or "(empty folder)"
        if len(names) > ENTRIES_MAX:
            listing += f"\n[… {len(names) - ENTRIES_MAX} more; list a subfolder]"
        return ToolResult(content=(listing,), details={"entries": len(names)})


def shown(name: str) -> str:
    """Escape a name so that it stays on one line."""
    clean = name.encode("utf-8", errors="replace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in clean)


WALKED_MAX = 200_000
SECONDS_MAX = 10.0
LIMIT = 100
LIMIT_MAX = 1_000
PATTERN_CHARS_MAX = 1_000
NOTES_CHARS = 300


class FindArguments(Arguments):
    glob: str = Field(
        description="Such as *.py, src/**/*.{ts,tsx}, **/test_*; without a slash it is a name at any depth.",
        min_length=1,
    )
    path: str = Field(default=".", description="Where to look, relative to the workspace; all of it if left out.")
    limit: int = Field(default=LIMIT, ge=1, le=LIMIT_MAX, description="How many to show, at most 1000.")


@dataclass
class Find:
    spec = FindArguments.spec(
        "find",
        summary="find files and folders by name",
        description=(
            "Find files and folders below a folder of the workspace by a glob: one path a line, sorted, folders with a "
            "trailing slash. What is in .git and behind links is left out."
        ),
        effect="safe",
    )
    parse = staticmethod(FindArguments.parse)

    workspace: Workspace
    result_chars: int

    async def run(self, arguments: FindArguments, call: Call) -> ToolResult:
        return await asyncio.to_thread(self._find, arguments)

    def _find(self, arguments: FindArguments) -> ToolResult:
        matches, search = Glob(arguments.glob), Search(self.workspace)
        page = ResultLines(arguments.limit, self.result_chars)
        for name, below, is_folder in search.below(arguments.path):
            if matches(below):
                page.add(shown(name) + ("/" if is_folder else ""))
        return page.result("path", search.stopped)


class Glob:
    """Matches paths: `*` and `?` within a name, `**` over folders, `[a-z]`, `[!a]`, `{one,two}`."""

    def __init__(self, glob: str) -> None:
        """Raises ToolError."""
        if len(glob) > PATTERN_CHARS_MAX:
            raise ToolError("INVALID_ARGUMENT", f"'glob' is longer than {PATTERN_CHARS_MAX} characters")
        glob = glob.removeprefix("./")
        self._expression = expression(f"^{_translated(glob if '/' in glob else f'**/{glob}')}$", "glob")

    def __call__(self, path: str) -> bool:
        return self._expression.search(path.encode(errors="replace")) is not None


_GLOB = re.compile(r"(?s)(?:(?<=/)|(?<![^{,]))\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\\.|.")


def _translated(glob: str) -> str:
    depth, pieces = 0, []
    for piece in _GLOB.findall(glob):
        match piece:
            case "**/":
                pieces.append("(?:[^/]+/)*")
            case "**":
                pieces.append(".*")
            case "*":
                pieces.append("[^/]*")
            case "?":
                pieces.append("[^/]")
            case "{":
                depth += 1
                pieces.append("(?:")
            case "," if depth:
                pieces.append("|")
            case "}" if depth:
                depth -= 1
                pieces.append(")")
            case _ if len(piece) > 2 and piece[0] == "[":
                inside = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
                negated = inside[0] in "!^"
                inside = inside[negated:].replace("]", "\\]")
                pieces.append(f"[^/{inside}]" if negated else f"[{inside}]")
            case _:
                pieces.append(re2.escape(piece[1:] if len(piece) == 2 else piece))
    if depth:
        raise ToolError("INVALID_ARGUMENT", "'glob': a { is not closed")
    return "".join(pieces)


def expression(pattern: str, argument: str, *, ignore_case: bool = False) -> "re2._Regexp[bytes]":
    """Compile a pattern that never matches across lines. Raises ToolError, naming the argument."""
    options = re2.Options()
    options.never_nl, options.log_errors, options.case_sensitive = True, False, not ignore_case
    try:
        return re2.compile(f"(?m){pattern}".encode(), options)
    except UnicodeEncodeError:
        raise ToolError("INVALID_ARGUMENT", f"{argument!r} holds half a character") from None
    except re2.error as error:
        reason = str(error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error)[:200]
        raise ToolError("INVALID_ARGUMENT", f"{argument!r} is no expression that RE2 takes: {reason}") from None


@dataclass
class Search:
    """A bounded walk; `stopped` says why it ended early."""

    workspace: Workspace
    stopped: str = ""
    _give_up: float = field(default_factory=lambda: time.monotonic() + SECONDS_MAX)

    def below(self, path: str) -> Iterator[tuple[str, str, bool]]:
        """Yield the name in the workspace and below `path`, and whether it is a folder. Raises ToolError."""
        for count, entry in enumerate(self.workspace.below(path)):
            if count >= WALKED_MAX:
                self.stopped = f"{WALKED_MAX:,} files and folders"
            if self.is_late() or self.stopped:
                return
            yield entry

    def is_late(self) -> bool:
        if time.monotonic() > self._give_up:
            self.stopped = f"{SECONDS_MAX:g} seconds"
        return bool(self.stopped)


class ResultLines:
    """Lines that fit into a result, and the number of those that do not."""

    def __init__(self, limit: int, result_chars: int) -> None:
        self._lines: list[str] = []
        self._limit = limit
        self._room = result_chars - NOTES_CHARS
        self._more = 0

    def add(self, line: str) -> None:
        if self._more or len(self._lines) == self._limit or len(line) >= self._room:
            self._more += 1
        else:
            self._lines.append(line)
            self._room -= len(line) + 1

    @property
    def found(self) -> int:
        return len(self._lines) + self._more

    def result(self, what: str, stopped: str, *notes: str) -> ToolResult:
        more = [f"[{self._more} more {what}{'s' * (self._more != 1)}; narrow it down]"] if self._more else []
        more += [f"[stopped after {stopped}: there may be more; look in a folder of it]"] if stopped else []
        lines = [*(self._lines or [f"(no {what})"]), *more, *notes]
        return ToolResult(content=("\n".join(lines),), details={"found": self.found, "complete": not stopped})


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
        with suppress(ToolError, OSError), self.workspace.found(name) as fd, open(fd, "rb", closefd=False) as file:
            head = file.read(HEAD_BYTES)
            if encoding_of(head, is_whole=len(head) < HEAD_BYTES) is not None:
                data, is_cut = head + file.read(FILE_BYTES_MAX - HEAD_BYTES), os.fstat(fd).st_size > FILE_BYTES_MAX
                encoding = encoding_of(data, is_whole=not is_cut, nuls=True) or UTF_8
                return data if encoding == UTF_8 else encoding.decode(data).encode(errors="replace"), is_cut, encoding
        return b"", False, UTF_8  # binary, or unreadable


def _lines(pattern: "re2._Regexp[bytes]", data: bytes) -> Iterator[tuple[int, int, int, int]]:
    line, start = 1, 0
    while start < len(data) and (match := pattern.search(data, start)):
        hit = match.start()
        if hit == len(data) and data[-1:] == b"\n":  # no line begins there
            return
        line += data.count(b"\n", start, hit)
        begin, end = max(start, data.rfind(b"\n", start, hit) + 1), data.find(b"\n", hit)
        end = len(data) if end < 0 else end
        yield line, begin, end, hit
        line, start = line + 1, end + 1


def _shown(data: bytes, begin: int, end: int, match: int) -> str:
    left = begin if match - begin < LINE_CHARS // 2 else match - LINE_CHARS // 4
    text = data[left : min(end, left + 4 * LINE_CHARS)].decode(errors="replace").replace("\0", "\ufffd").rstrip("\r")
    cut = len(text) > LINE_CHARS or left + 4 * LINE_CHARS < end
    return f"{'…' if left > begin else ''}{text[:LINE_CHARS]}{'…' if cut else ''}"

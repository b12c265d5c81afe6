"""`find`: files of the workspace by their names.

A glob becomes an expression of RE2, which always takes linear time: backtracking matchers take minutes for a few `**`.
No link is followed, and a search is limited in time and in number.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import re2
from pydantic import Field

from tools.ls import shown
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.workspace import Workspace

ENTRIES_MAX = 200_000
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
    """Tells if a path matches: `*` and `?` within a name, `**` over folders, `[a-z]`, `[!a]`, `{one,two}`."""

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
    """Compiles a pattern that never matches over the end of a line. Raises ToolError, naming the argument."""
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
    """A walk with an end; `stopped` says why it did not come to its own."""

    workspace: Workspace
    stopped: str = ""
    _give_up: float = field(default_factory=lambda: time.monotonic() + SECONDS_MAX)

    def below(self, path: str) -> Iterator[tuple[str, str, bool]]:
        """The name in the workspace and below `path`, and whether it is a folder. Raises ToolError."""
        for count, entry in enumerate(self.workspace.below(path)):
            if count >= ENTRIES_MAX:
                self.stopped = f"{ENTRIES_MAX:,} files and folders"
            if self.is_late() or self.stopped:
                return
            yield entry

    def is_late(self) -> bool:
        if time.monotonic() > self._give_up:
            self.stopped = f"{SECONDS_MAX:g} seconds"
        return bool(self.stopped)


class ResultLines:
    """The lines that fit into a result, and the number of those that do not."""

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

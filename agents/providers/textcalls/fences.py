"""Where in an answer code is quoted: fences by the line, spans within one. Fed with text, asked about its end.

What stands in code is shown as it is, so a model can explain how a call is written. The rules are Markdown's, shortened:
a fence that is closed on its own line was a span, and a span never goes past its line.
"""

import re

INDENT_MAX = 3
"""So many spaces may stand before a fence; more of them make indented code."""
FENCE_MIN = 3

_TOKENS = re.compile(r"\n|`+|~+|[^\n`~]+")


class CodeMarks:
    """The state of the line so far."""

    def __init__(self) -> None:
        self._fence = ""
        self._opened_here = False
        self._closing = False
        self._span = 0
        self._indent: int | None = 0
        self._run = ""
        """Backticks or tildes at the end of what was fed: how many there are is not known until something follows."""

    @property
    def in_fence(self) -> bool:
        """Whether what follows, if it is no mark itself, stands in a fence."""
        self._settle()
        return bool(self._fence)

    @property
    def span(self) -> int:
        """How many backticks have opened a span that is not closed yet; 0 for none."""
        self._settle()
        return 0 if self._fence else self._span

    def feed(self, text: str) -> None:
        for token in _TOKENS.findall(text):
            if token[0] in "`~":
                if self._run[:1] != token[0]:
                    self._settle()
                self._run += token
                continue
            self._settle()
            if token == "\n":
                self._end_line()
            elif token.isspace():
                self._indent = None if self._indent is None else self._indent + len(token)
            else:
                self._indent, self._closing = None, False

    def never_closed(self) -> None:
        """The span that seemed to be open has no end on its line: it is no span."""
        self._span = 0

    def _settle(self) -> None:
        run, self._run = self._run, ""
        if not run:
            return
        leads = self._indent is not None and self._indent <= INDENT_MAX
        closes = bool(self._fence) and run.startswith(self._fence)
        self._indent, self._closing = None, False
        if self._fence and self._opened_here:
            self._fence = "" if closes and run[0] == "`" else self._fence
        elif self._fence:
            self._closing = leads and closes
        elif leads and len(run) >= FENCE_MIN:
            self._fence, self._opened_here = run, True
        elif run[0] == "`":
            self._span = len(run) if self._span == 0 else 0 if self._span == len(run) else self._span

    def _end_line(self) -> None:
        if self._closing:
            self._fence = ""
        self._opened_here = self._closing = False
        self._span, self._indent = 0, 0

"""Where in a text code is quoted: Markdown's fences and spans, shortened. A span never goes past its line."""

import re

INDENT_MAX = 3
"""So many spaces may stand before a fence; more of them make indented code."""
FENCE_MIN = 3
SPAN_CHARS_MAX = 1_000
"""A span is closed so soon behind the call that it quotes, or the backtick before the call was a lone one."""

_BLANK_REST = re.compile(r"[ \t\r]*(?:\n|\Z)")


class Code:
    """The state at one place of `text`, whose newlines and runs of backticks and tildes are taken in order."""

    def __init__(self, text: str) -> None:
        self.in_fence = False
        self._text = text
        self._line = 0
        self._fence = ""
        self._span: re.Match[str] | None = None

    def take(self, mark: re.Match[str]) -> None:
        run = mark[0]
        if run == "\n":
            self._line, self._span = mark.end(), None
        elif self.in_fence:
            fits = run.startswith(self._fence) and self._leads(mark)
            self.in_fence = not (fits and _BLANK_REST.match(self._text, mark.end()))
        elif len(run) >= FENCE_MIN and self._leads(mark) and "`" not in self._rest(mark.end(), len(self._text)):
            self.in_fence, self._fence = True, run
        elif run[0] == "`":
            closes = self._span is not None and len(self._span[0]) == len(run)
            self._span = None if closes else self._span or mark

    def quotes(self, end: int) -> bool:
        """Whether a span holds the call that ends there."""
        return self._closing(end) is not None

    def stands_alone(self, start: int, end: int) -> bool:
        """Whether the span that holds the call has its line to itself."""
        closing = self._closing(end)
        if self._span is None or closing is None or len(self._span[0]) >= FENCE_MIN:
            return False
        around = (
            self._text[self._line : self._span.start()],
            self._text[self._span.end() : start],
            self._text[end : closing.start()],
            self._rest(closing.end(), len(self._text)),
        )
        return not any(part.strip() for part in around)

    def skip(self, start: int, end: int) -> None:
        """Pass over the call between these places, whatever marks it holds."""
        newline = self._text.rfind("\n", start, end)
        if newline >= 0:
            self._line, self._span = newline + 1, None

    def _leads(self, mark: re.Match[str]) -> bool:
        before = self._text[self._line : mark.start()]
        return len(before) <= INDENT_MAX and not before.strip()

    def _closing(self, end: int) -> re.Match[str] | None:
        if self._span is None:
            return None
        rest = self._rest(end, end + SPAN_CHARS_MAX)
        run = re.compile(rf"(?<!`)`{{{len(self._span[0])}}}(?!`)")
        return run.search(self._text, end, end + len(rest))

    def _rest(self, start: int, limit: int) -> str:
        """Of the line, from `start` on."""
        newline = self._text.find("\n", start, limit)
        return self._text[start : newline if newline >= 0 else limit]

"""Cut Markdown into parts that one message each can carry, so that each part still reads as Markdown. Pure.

The limits are characters and the bytes of the finished request, in which a Chinese character is three and a quote two.
A cut falls between paragraphs where it can, else between lines, words, and at last characters. A code fence that is cut
is closed and opened again, with its language; a table that is cut gets its head again.
"""

import re

import orjson

PART_CHARS_MAX = 4_000
PART_BYTES_MAX = 20_000
"""Of the text as JSON. It is encoded twice, and Feishu's 30 KB count the outer form."""
_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$")
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$")


def split(text: str, *, chars_max: int = PART_CHARS_MAX, bytes_max: int = PART_BYTES_MAX) -> list[str]:
    """The parts, in order; one empty text gives none. Without the fences and heads put in again, they are the text."""
    text = text.strip("\n")
    if not text.strip():
        return []
    if _fits(text, chars_max, bytes_max):
        return [text]
    parts: list[str] = []
    current = _Part(chars_max, bytes_max)
    for line in _lines(text, chars_max // 2, bytes_max // 2):
        if not current.takes(line):
            parts.append(current.finished())
            current = current.next()
        current.add(line)
    parts.append(current.finished())
    return [part for part in parts if part.strip()]


def _fits(text: str, chars_max: int, bytes_max: int) -> bool:
    return len(text) <= chars_max and _bytes(text) <= bytes_max


def _bytes(text: str) -> int:
    return len(orjson.dumps(text.encode("utf-8", errors="replace").decode()))


def _lines(text: str, chars_max: int, bytes_max: int) -> list[str]:
    """The lines, each short enough to fit a part together with a fence around it."""
    found: list[str] = []
    for line in text.split("\n"):
        while not _fits(line, chars_max, bytes_max):
            at = _cut(line, chars_max, bytes_max)
            found.append(line[:at])
            line = line[at:]
        found.append(line)
    return found


def _cut(line: str, chars_max: int, bytes_max: int) -> int:
    """The best place to cut a line that is too long: behind a blank or a full stop, else anywhere that is no joiner."""
    at = min(chars_max, len(line))
    while not _fits(line[:at], chars_max, bytes_max):
        at = max(1, at * 3 // 4)
    for mark in ("。", " ", ",", "、"):
        good = line.rfind(mark, at // 2, at)
        if good > 0:
            return good + 1
    while at > 1 and (line[at] in "\u200d\ufe0f" or line[at - 1] == "\u200d"):
        at -= 1
    return at


class _Part:
    """A part in the making. `fence` is what is open: indent, mark and language."""

    def __init__(self, chars_max: int, bytes_max: int, *, fence: tuple[str, str, str] | None = None, head: tuple[str, ...] = ()) -> None:  # fmt: skip  # noqa: E501
        self._chars_max = chars_max
        self._bytes_max = bytes_max
        self._fence = fence
        self._table: list[str] = list(head)
        self._lines: list[str] = ["".join(fence)] if fence else list(head)
        self._own = 0

    def takes(self, line: str) -> bool:
        return self._own == 0 or _fits(
            "\n".join([*self._lines, line, *self._closing()]), self._chars_max, self._bytes_max
        )

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._own += 1
        self._note_fence(line)
        self._note_table(line)

    def finished(self) -> str:
        return "\n".join([*self._lines, *self._closing()]).strip("\n")

    def next(self) -> "_Part":
        head = tuple(self._table[:2]) if len(self._table) > 2 and _TABLE_RULE.match(self._table[1]) else ()
        return _Part(self._chars_max, self._bytes_max, fence=self._fence, head=head)

    def _closing(self) -> list[str]:
        return [self._fence[0] + self._fence[1]] if self._fence else []

    def _note_fence(self, line: str) -> None:
        found = _FENCE.match(line)
        if found is None:
            return
        if self._fence is None:
            if not (found[2][0] == "`" and "`" in found[3]):
                self._fence = (found[1], found[2], found[3])
        elif found[2].startswith(self._fence[1]) and not found[3].strip():
            self._fence = None

    def _note_table(self, line: str) -> None:
        if self._fence is None and "|" in line:
            self._table.append(line)
        else:
            self._table.clear()

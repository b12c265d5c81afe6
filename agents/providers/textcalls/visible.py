"""What of an answer may be shown while it streams, and what is cut out of it.

Call text goes, and with it the blank space that would gape where it stood; all else stays, character for character.
The same cuts make the final message (`assemble`), so what people saw and what is kept are one text.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from agents.messages import AssistantPart, Text
from agents.providers.textcalls.grammar import FormKind
from agents.providers.textcalls.scanner import Marked, Plain, Scanner


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """Text for people. `start` is its place in the whole answer."""

    start: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A stretch of the answer that is not shown, and what in it matters."""

    start: int
    end: int
    kind: FormKind | Literal["space", "thoughts"]
    text: str = ""


PartsOf: TypeAlias = Callable[[Cut], tuple[AssistantPart, ...]]
"""What stands in the message where this was cut out."""


class Visible:
    """Fed with the answer from the place `start` on."""

    def __init__(self, scanner: Scanner, *, start: int = 0) -> None:
        self.cuts: list[Cut] = []
        self._scanner = scanner
        self._offset = self._end = start
        self._blank = ""
        """Blank space at the beginning or behind call text: what follows decides whether it is shown."""
        self._last = ""
        self._after_cut = False

    def feed(self, piece: str) -> Iterator[Shown]:
        for item in self._scanner.feed(piece):
            yield from self._take(item)

    def finish(self) -> Iterator[Shown]:
        for item in self._scanner.finish():
            yield from self._take(item)
        if self._after_cut:
            self._drop_blank(self._end)
        elif self._blank:
            yield Shown(start=self._end - len(self._blank), text=self._blank)

    def _take(self, item: Plain | Marked) -> Iterator[Shown]:
        start = item.start + self._offset
        self._end = start + len(item.text)
        if isinstance(item, Marked):
            self._drop_blank(start)
            self.cuts.append(Cut(start=start, end=self._end, kind=item.kind, text=item.text))
            self._after_cut = True
            return
        text = item.text
        if self._after_cut or not self._last:
            rest = text.lstrip()
            self._blank += text[: len(text) - len(rest)]
            if not rest:
                return
            if self._after_cut and (not self._last or self._last.isspace()):
                self._drop_blank(self._end - len(rest))
            text, self._blank = self._blank + rest, ""
        self._after_cut = False
        self._last = text[-1]
        yield Shown(start=self._end - len(text), text=text)

    def _drop_blank(self, end: int) -> None:
        if self._blank:
            self.cuts.append(Cut(start=end - len(self._blank), end=end, kind="space"))
            self._blank = ""


def assemble(content: Sequence[AssistantPart], cuts: Sequence[Cut], parts_of: PartsOf) -> tuple[AssistantPart, ...]:
    """The message's parts after the cuts, whose places count through all its texts. Untouched parts stay as they are.

    A text that lost something lost its `wire` too, for that belongs to the whole.
    """
    parts: list[AssistantPart] = []
    waiting = list(reversed(cuts))
    start = 0
    for part in content:
        if not isinstance(part, Text):
            parts.append(part)
            continue
        end = start + len(part.text)
        if not waiting or waiting[-1].start >= end:
            parts.append(part)
        else:
            parts.extend(_pieces(part, start, waiting, parts_of))
        start = end
    return tuple(parts)


def _pieces(part: Text, start: int, waiting: list[Cut], parts_of: PartsOf) -> Iterator[AssistantPart]:
    """One text cut up. What reaches into the next text stays waiting, with nothing left to put in its place."""
    end = start + len(part.text)
    kept: list[str] = []
    at = start
    while waiting and waiting[-1].start < end:
        cut = waiting.pop()
        kept.append(part.text[at - start : cut.start - start])
        instead = parts_of(cut)
        if instead and any(kept):
            yield replace(part, text="".join(kept), wire=None)
            kept = []
        yield from instead
        at = cut.end
        if cut.end > end:
            waiting.append(Cut(start=end, end=cut.end, kind="space"))
            at = end
    kept.append(part.text[at - start :])
    if any(kept):
        yield replace(part, text="".join(kept), wire=None)

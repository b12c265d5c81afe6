"""The gate before an answer that may be nothing but calls: shut while that is possible, then open for good.

While it is shut nothing is shown. Native tool calling cannot be told from here, so the last word, whether such an
answer may become real calls, is its owner's.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from agents.providers.textcalls.grammar import FormKind
from agents.providers.textcalls.scanner import Marked, Plain, Scanner
from agents.providers.textcalls.visible import Cut

PAYLOAD_BYTES_MAX = 256_000


class Gate:
    """Fed with the answer from the place `start` on. `qualifies` says whether a stretch is a call that may be made."""

    def __init__(self, scanner: Scanner, qualifies: Callable[[Marked], bool], *, start: int = 0) -> None:
        self.is_open = False
        self.cuts: list[Cut] = []
        """The whole answer, stretch by stretch, once it turned out to be calls."""
        self._scanner = scanner
        self._qualifies = qualifies
        self._offset = start
        self._held: list[str] = []
        self._items: list[Plain | Marked] = []

    def feed(self, piece: str) -> str:
        """What may pass now: all or nothing of what came so far."""
        self._held.append(piece)
        self._judge(self._scanner.feed(piece))
        if self._scanner.held_chars > PAYLOAD_BYTES_MAX:
            self.is_open = True
        return self._released() if self.is_open else ""

    def finish(self, *, may_call: bool) -> str:
        """The answer is over: what may pass after all. Nothing, and `cuts` are set, where it is calls."""
        self._judge(self._scanner.finish())
        calls = any(isinstance(item, Marked) for item in self._items)
        if self.is_open or not calls or not may_call:
            self.is_open = True
            return self._released()
        self.cuts = [self._cut(item) for item in self._items]
        return ""

    def _judge(self, items: Sequence[Plain | Marked]) -> None:
        for item in items:
            self._items.append(item)
            if not (self._qualifies(item) if isinstance(item, Marked) else item.text.isspace()):
                self.is_open = True

    def _released(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held

    def _cut(self, item: Plain | Marked) -> Cut:
        start = self._offset + item.start
        kind: FormKind | Literal["space"] = item.kind if isinstance(item, Marked) else "space"
        return Cut(start=start, end=start + len(item.text), kind=kind, text=item.text)

"""Split Markdown into parts that fit one message each and are valid Markdown. Pure.

The channel sets the limits. Cut between lines if possible, else after a sentence or a word, else between user-perceived
characters. A code fence that is cut is closed and reopened with its language; a table gets its head again.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from channels.plain import joined

_FENCE = re.compile(r"^((?: |>|(?:[-*+]|[0-9]{1,9}[.)]) )*)(`{3,}|~{3,})(.*)$")
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_ITEM = re.compile(r"^ *(?:[-*+]|[0-9]{1,9}[.)])(?: +|$)")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_LEADS_ON = re.compile(r"^ {0,3}#{1,6}(?:\s|$)|[:：]\**\s*$")
_MARKUP = re.compile(r"^(?=(?:[-*+>]|#{1,6})(?:\s|$)|`{3}|~{3})")
_PLACES = (("。",), (" ",), (",",), ("、",))
_TIDY_PLACES = (("。", "！", "？", ". ", "! ", "? "), (" ",), ("，", "、", ",", ";", "；"))
_CLUSTER_MAX = 64
"""Longest character in code points; more combining marks may be cut."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A size limit of a message. `measure` must be additive and at least one per character."""

    measure: Callable[[str], int]
    most: int


def split(text: str, limits: Sequence[Limit], *, tidy: bool = False) -> list[str]:
    """Return the parts in order; none for an empty text. Apart from repeated fences and table heads, they join to the text.

    By default, fill every part with as many lines as fit. With `tidy`, cut between paragraphs once a part is a third full,
    and after a sentence rather than a word."""
    text = text.strip("\n")
    if not text.strip():
        return []
    if _fits(text, limits):
        return [text]
    parts: list[str] = []
    lines = _lines(text, limits, tidy)
    part = _Part(limits, _State())
    at = 0
    while at < len(lines):
        if part.takes(lines[at]):
            part.add(lines[at], may_end=tidy)
            at += 1
        else:
            at -= part.step_back(lines[at])
            parts.append(part.finished())
            part = part.next(lines[at])
    parts.append(part.finished())
    return [part for part in parts if part.strip()]


def _fits(text: str, limits: Sequence[Limit], *, share: int = 1) -> bool:
    return all(limit.measure(text) * share <= limit.most for limit in limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    text: str
    goes_on: bool = False
    """True if it continues the previous line, which was too long."""


def _lines(text: str, limits: Sequence[Limit], tidy: bool) -> list[_Line]:
    lines: list[_Line] = []
    for line in text.split("\n"):
        goes_on = False
        while not _fits(line, limits, share=2):
            at = _cut(line, limits, _TIDY_PLACES if tidy else _PLACES)
            lines.append(_Line(text=line[:at], goes_on=goes_on))
            line, goes_on = line[at:], True
        lines.append(_Line(text=line, goes_on=goes_on))
    return lines


def _cut(line: str, limits: Sequence[Limit], places: tuple[tuple[str, ...], ...]) -> int:
    at = max(1, min(len(line), *(limit.most // 2 for limit in limits)))
    while at > 1 and not _fits(line[:at], limits, share=2):
        at = max(1, at * 3 // 4)
    for marks in places:
        good = max(found + len(mark) if (found := line.rfind(mark, at // 2, at)) > 0 else 0 for mark in marks)
        if good and not joined(line, good):
            return good
    apart = at
    while apart > max(1, at - _CLUSTER_MAX) and joined(line, apart):
        apart -= 1
    return at if joined(line, apart) else apart


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fence:
    prefix: str
    """Prefix of every line inside: a list item's indent, or quote marks."""
    mark: str
    info: str
    floor: int = 0
    """Column of the list item's text; a line that starts before it ends the item and the fence."""

    def holds(self, line: str) -> bool:
        if ">" in self.prefix:
            return line.lstrip(" ").startswith(">")
        return not line.strip() or _indent(line) >= self.floor

    def closed_by(self, match: re.Match[str]) -> bool:
        prefix, mark, rest = match.groups()
        inside = len(self.prefix) if ">" in self.prefix else self.floor
        near = prefix.strip(" >") == "" and len(prefix) <= inside + 3
        return near and mark.startswith(self.mark) and not rest.strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """The constructs that are open after a line."""

    fence: _Fence | None = None
    table: tuple[str, ...] = ()
    """The first lines of the current table, at most three: head, delimiter row, first row."""
    indent: int = 0
    """Column of the current list item's text."""

    def after(self, line: str) -> "_State":
        fence = self.fence if self.fence and self.fence.holds(line) else None
        indent = self.indent if fence else _item_indent(line, self.indent)
        if match := _FENCE.match(line):
            if fence is None:
                fence = _opened(match, indent)
            elif fence.closed_by(match):
                fence = None
        table = (*self.table, line)[:3] if fence is None and "|" in line else ()
        return _State(fence=fence, table=table, indent=indent)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _item_indent(line: str, indent: int) -> int:
    if item := _ITEM.match(line):
        return len(item[0])
    return min(indent, _indent(line)) if line.strip() else indent


def _opened(match: re.Match[str], indent: int) -> _Fence | None:
    prefix, mark, info = match.groups()
    if mark[0] == "`" and "`" in info:
        return None
    if ">" in prefix:
        return _Fence(prefix=re.sub(r"[^ >]", " ", prefix), mark=mark, info=info)
    if prefix.strip(" "):
        return _Fence(prefix=" " * len(prefix), mark=mark, info=info, floor=len(prefix))
    return _Fence(prefix=prefix, mark=mark, info=info, floor=indent) if len(prefix) <= indent + 3 else None


@dataclass(slots=True)
class _Part:
    """A part being built; it starts by reopening what its predecessor left open."""

    limits: Sequence[Limit]
    state: _State
    _shift: int | None = None
    """Indent to remove: deep list items would start the part with a code block. None before the first line."""
    _texts: list[str] = field(default_factory=list)
    _own: int = 0
    _sizes: list[int] = field(default_factory=list)
    _end: tuple[int, int, _State] | None = None
    """The last good cut: number of texts, number of own lines, and the state there."""

    def __post_init__(self) -> None:
        fence = self.state.fence
        self._sizes = [0] * len(self.limits)
        if fence:
            deep = fence.prefix.isspace() and len(fence.prefix) > 3
            self._shift = len(fence.prefix) if deep else self._shift or 0
            self.state = replace(
                self.state, fence=replace(fence, prefix="" if deep else fence.prefix, floor=0), indent=0
            )
        for text in self._put_in_again():
            self._append(text)

    def takes(self, line: _Line) -> bool:
        if not self._own:
            return True
        fence = self._after(line).fence
        text = self._written(line) + ("\n" + fence.prefix + fence.mark if fence else "")
        return all(
            size + limit.measure(text) <= limit.most for size, limit in zip(self._sizes, self.limits, strict=True)
        )

    def add(self, line: _Line, *, may_end: bool) -> None:
        if may_end and self._own and self._ends_well(line):
            self._end = (len(self._texts), self._own, self.state)
        if line.text.strip() and not line.goes_on:
            if self._shift is None:
                self._shift = _indent(line.text) if self.state.indent and _indent(line.text) > 3 else 0
            elif _indent(line.text) < self._shift:
                self._shift = 0
        self.state, text = self._after(line), self._written(line)
        self._append(text)
        self._own += 1

    def step_back(self, line: _Line) -> int:
        """End at the last good cut, if enough remains. Return how many of the last lines the next part takes over."""
        if (
            self._end is None
            or self._ends_well(line)
            or _fits("".join(self._texts[: self._end[0]]), self.limits, share=3)
        ):
            return 0
        texts, own, self.state = self._end
        back, self._own = self._own - own, own
        del self._texts[texts:]
        return back

    def finished(self) -> str:
        fence = self.state.fence
        closing = "\n" + fence.prefix + fence.mark if fence else ""
        return ("".join(self._texts) + closing).strip("\n")

    def next(self, line: _Line) -> "_Part":
        fence, table = self.state.fence, self.state.table
        fence = fence if fence and (line.goes_on or fence.holds(line.text)) else None
        table = table if "|" in line.text and len(table) > 2 else ()
        return _Part(self.limits, replace(self.state, fence=fence, table=table), self._shift if fence else None)

    def _put_in_again(self) -> list[str]:
        fence, table = self.state.fence, self.state.table
        if fence and not _fits(fence.prefix + fence.mark, self.limits, share=5):
            self.state = replace(self.state, fence=None)
        elif fence:
            again = fence.prefix + fence.mark + fence.info
            return [again if _fits(again, self.limits, share=5) else fence.prefix + fence.mark]
        if table and _TABLE_RULE.match(table[1]) and _fits("\n".join(table[:2]), self.limits, share=3):
            self.state = replace(self.state, table=table[:2])
            return [table[0], "\n" + table[1]]
        self.state = replace(self.state, table=())
        return []

    def _after(self, line: _Line) -> _State:
        return self.state if line.goes_on else self.state.after(line.text[self._cut_off(line) :])

    def _cut_off(self, line: _Line) -> int:
        return 0 if line.goes_on else min(self._shift or 0, _indent(line.text))

    def _written(self, line: _Line) -> str:
        text = line.text[self._cut_off(line) :]
        if not line.goes_on:
            return "\n" + text if self._texts else text
        if self._own or self.state.fence:
            return text if self._own else "\n" + text
        mended = _MARKUP.sub(r"\\", text.lstrip(" "))
        return "\n" + mended if self._texts else mended

    def _ends_well(self, line: _Line) -> bool:
        if self.state.fence or line.goes_on or not line.text.strip():
            return False
        before = next((text for text in reversed(self._texts) if text.strip()), "").strip("\n")
        blank = not self._texts[-1].strip()
        opens = bool(_HEADING.match(line.text)) or self._after(line).fence is not None
        return (blank or opens) and not _LEADS_ON.search(before)

    def _append(self, text: str) -> None:
        self._texts.append(text)
        for index, limit in enumerate(self.limits):
            self._sizes[index] += limit.measure(text)

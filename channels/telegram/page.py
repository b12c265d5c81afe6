"""The paper a document is written on: runs of text with their styles, nested only as Telegram lets them nest.

The writer owes line ends instead of writing them, so that nothing begins or ends with blanks. What begins every line of
a list item, and which styles fall away inside which others, is settled here; what is written is not.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

BULLET = "• "
Kind = Literal["bold", "italic", "strikethrough", "spoiler", "text_link", "code", "pre", "blockquote"]
"""Of an entity, in Telegram's words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextStyle:
    kind: Kind
    value: str = ""
    """The address of a link, the language of code."""
    number: int = 0
    """Two neighbours of one kind stay two."""

    def facts(self) -> dict[str, Any]:
        """What its entity has besides the kind and the place."""
        key = {"text_link": "url", "pre": "language"}.get(self.kind)
        return {key: self.value} if key and self.value else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRun:
    text: str
    styles: tuple[TextStyle, ...] = ()


@dataclass(slots=True)
class _Lead:
    """What the lines of a list item begin with: the marker first, blanks of its width after that."""

    marker: str
    used: bool = False

    def take(self) -> str:
        used, self.used = self.used, True
        return " " * len(self.marker) if used else self.marker


class Page:
    def __init__(self) -> None:
        self._runs: list[TextRun] = []
        self._styles: list[TextStyle] = []
        self._leads: list[_Lead] = []
        self._gap = 1
        """Line ends owed before the next text. At least one, at the top too: a first line may begin with a marker."""
        self._number = 0

    def runs(self) -> list[TextRun]:
        """Without blanks around; code keeps the indent of its first line."""
        runs = [
            TextRun(text="".join(run.text for run in together), styles=styles)
            for styles, together in groupby(self._runs, key=lambda run: run.styles)
        ]
        while runs and not runs[-1].text.strip():
            runs.pop()
        while runs and not runs[0].text.strip():
            runs.pop(0)
        if runs:
            runs[-1] = TextRun(text=runs[-1].text.rstrip(), styles=runs[-1].styles)
        if runs and not any(style.kind == "pre" for style in runs[0].styles):
            runs[0] = TextRun(text=runs[0].text.lstrip(), styles=runs[0].styles)
        return runs

    def break_lines(self, count: int) -> None:
        """At least so many line ends before the next text: 2 leave a blank line."""
        self._gap = max(self._gap, count)

    def new_line(self) -> None:
        self.write("")
        self._add("\n" + self._lead(), self._effective())

    def write(self, text: str, *more: TextStyle) -> None:
        if self._gap:
            self._begin_line()
        if text:
            self._add(text, self._effective(*more))

    def write_block(self, text: str, style: TextStyle) -> None:
        """A block of code: it stands on lines of its own and inside of nothing, also where a quote goes on around it."""
        self.flush_marker()
        self._add("\n" * max(self._gap, 1) if self._runs else "", ())
        self._add(text, (self._numbered(style),))
        self._gap = 1

    def open(self, kind: Kind, value: str = "") -> None:
        self._styles.append(self._numbered(TextStyle(kind=kind, value=value)))

    def close(self, kind: Kind) -> None:
        """The innermost of these; those inside of it stay open, as spoilers may overlap with the others."""
        for at in range(len(self._styles) - 1, -1, -1):
            if self._styles[at].kind == kind:
                del self._styles[at]
                return

    def is_open(self, kind: Kind) -> bool:
        return any(style.kind == kind for style in self._styles)

    def mark(self) -> int:
        return len(self._runs)

    def since(self, mark: int) -> str:
        return "".join(run.text for run in self._runs[mark:])

    @property
    def depth(self) -> int:
        return len(self._leads)

    def begin_item(self, marker: str) -> None:
        self.flush_marker()
        self.break_lines(1)
        self._leads.append(_Lead(marker=marker))

    def mark_task(self, box: str) -> bool:
        """The box in the bullet's place, or behind the number; False where no list item begins here."""
        if not self._leads or self._leads[-1].used:
            return False
        lead = self._leads[-1]
        lead.marker = box if lead.marker == BULLET else lead.marker + box
        return True

    def end_item(self) -> None:
        self.flush_marker()
        self._leads.pop()

    def flush_marker(self) -> None:
        """An item may be empty, and its number all that was said."""
        if self._leads and not self._leads[-1].used:
            self._leads[-1].marker = self._leads[-1].marker.rstrip()
            self.write("")

    def _begin_line(self) -> None:
        before = self._runs[-1].styles if self._runs else ()
        shared = tuple(style for style in self._styles if style.kind == "blockquote" and style in before)
        gap, self._gap = self._gap, 0
        if self._runs:
            self._add("\n" * gap, shared)
        self._add(self._lead(), tuple(style for style in self._styles if style.kind == "blockquote"))

    def _lead(self) -> str:
        return "".join(lead.take() for lead in self._leads)

    def _add(self, text: str, styles: tuple[TextStyle, ...]) -> None:
        if text:
            self._runs.append(TextRun(text=text, styles=styles))

    def _numbered(self, style: TextStyle) -> TextStyle:
        self._number += 1
        return TextStyle(kind=style.kind, value=style.value, number=self._number)

    def _effective(self, *more: TextStyle) -> tuple[TextStyle, ...]:
        """Each kind once. Code combines with nothing: it gives way to a link and a quote, and takes the place of the
        rest."""
        styles: dict[Kind, TextStyle] = {}
        for style in (*self._styles, *more):
            styles.setdefault(style.kind, style)
        code = styles.pop("code", None)
        if code and not styles.keys() & {"text_link", "blockquote"}:
            return (code,)
        return tuple(styles.values())

"""The answer cut into ordinary text and call text as it comes, nothing lost and nothing twice. Pure.

What may still become a call is held back, and no longer: with the next piece it is one or the other. The cuts do not
depend on how the text was chunked. What is done with them is decided in `visible` and `gate`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agents.providers.textcalls.fences import CodeMarks
from agents.providers.textcalls.forms import Form
from agents.providers.textcalls.grammar import FormKind
from agents.providers.textcalls.readers import Reader

CUT_CHARS_MIN = 6
"""At the very end so much of an opening is taken for a call that was cut; less may be a comparison or a quotation."""

SPAN_CHARS_MAX = 1_000
"""Quoted in a line, a call is not longer; a lone backtick must not hold back what follows it."""

Quoting: TypeAlias = Literal["fences", "fences and spans"]
"""In which code a call is only quoted. A model that must write calls may put one between single backticks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    """Ordinary text. `start` counts characters from the beginning of what was fed."""

    start: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Marked:
    """Text of a call, whole or as whole as it came."""

    start: int
    text: str
    kind: FormKind


class Scanner:
    def __init__(self, forms: Iterable[Form], *, quoting: Quoting) -> None:
        self._forms = sorted(forms, key=lambda form: len(form.opening), reverse=True)
        self._first = re.compile("[" + re.escape("".join({form.opening[0] for form in self._forms})) + "]")
        self._quoting = quoting
        self._code = CodeMarks()
        self._start = 0
        self._text = ""
        """What is not settled yet. It begins at `_start`, and all before `_at` is settled by now."""
        self._at = 0
        self._more: list[str] = []
        self._form: Form | None = None
        self._reader: Reader | None = None

    @property
    def held_chars(self) -> int:
        return len(self._text) + sum(map(len, self._more))

    def feed(self, piece: str) -> list[Plain | Marked]:
        if not self._text and not self._first.search(piece):
            plain = Plain(start=self._start, text=piece)
            self._start += len(piece)
            self._code.feed(piece)
            return [plain] if piece else []
        self._more.append(piece)
        if self._reader is not None and not self._reader.awake(piece):
            return []
        return self._cut(final=False)

    def finish(self) -> list[Plain | Marked]:
        return self._cut(final=True)

    def _cut(self, *, final: bool) -> list[Plain | Marked]:
        self._text += "".join(self._more)
        self._more.clear()
        cut: list[Plain | Marked] = []
        plain: list[str] = []
        for item in self._items(final=final):
            if isinstance(item, str):
                plain.append(item)
                continue
            if plain:
                cut.append(Plain(start=item.start - sum(map(len, plain)), text="".join(plain)))
                plain = []
            cut.append(item)
        self._settle()
        if plain:
            cut.append(Plain(start=self._start - sum(map(len, plain)), text="".join(plain)))
        return cut

    def _settle(self) -> None:
        self._start += self._at
        self._text, self._at = self._text[self._at :], 0

    def _items(self, *, final: bool) -> Iterator[str | Marked]:
        while self._at < len(self._text):
            if self._form is None or self._reader is None:
                first = self._first.search(self._text, self._at)
                if first is None or first.start() > self._at:
                    yield self._take_plain((first.start() if first else len(self._text)) - self._at)
                    continue
                match self._look(final=final):
                    case "hold":
                        return
                    case "cut":
                        yield self._take_marked(len(self._text) - self._at, "never")
                    case int() as chars:
                        yield self._take_plain(chars)
                    case form:
                        self._settle()
                        self._form, self._reader = form, form.reader()
                continue
            verdict = self._reader.end(self._text, final=final)
            if verdict == "more":
                return
            kind, self._form, self._reader = self._form.kind, None, None
            yield self._take_plain(1) if verdict == "none" else self._take_marked(verdict, kind)

    def _look(self, *, final: bool) -> Form | int | Literal["hold", "cut"]:
        """What stands here, where an opening may be: a form, so many ordinary characters, or it is not known yet."""
        if self._code.in_fence:
            return 1
        begun = next((form for form in self._forms if self._begins(form)), None)
        if begun is not None and not final:
            return "hold"
        form = next((form for form in self._forms if self._text.startswith(form.opening, self._at)), None)
        cut = begun is not None and not begun.bare and len(self._text) - self._at >= CUT_CHARS_MIN
        if form is None and not cut:
            return 1
        if self._quoting == "fences and spans" and self._code.span and (quoted := self._in_span(final=final)):
            return quoted
        return form or "cut"

    def _begins(self, form: Form) -> bool:
        left = len(self._text) - self._at
        return left < len(form.opening) and form.opening.startswith(self._text[self._at :])

    def _in_span(self, *, final: bool) -> int | Literal["hold"]:
        """As `_look`, within what may be a code span: it is one if it is closed on this line. 0: it is none."""
        limit = min(len(self._text), self._at + SPAN_CHARS_MAX)
        newline = self._text.find("\n", self._at, limit)
        end = newline if newline >= 0 else limit
        closing = re.compile(rf"(?<!`)`{{{self._code.span}}}(?!`)").search(self._text, self._at, end)
        known = final or newline >= 0 or limit < len(self._text)
        if closing is not None and (known or closing.end() < end):
            return closing.end() - self._at
        if not known:
            return "hold"
        self._code.never_closed()
        return 0

    def _take_plain(self, chars: int) -> str:
        text = self._text[self._at : self._at + chars]
        self._at += chars
        self._code.feed(text)
        return text

    def _take_marked(self, chars: int, kind: FormKind) -> Marked:
        marked = Marked(start=self._start + self._at, text=self._text[self._at : self._at + chars], kind=kind)
        self._at += chars
        return marked

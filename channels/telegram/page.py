"""The styled text of a document, and how its paragraphs are written into it. Pure.

A page is runs of text with styles, nested only as Telegram allows. The writer defers line ends, so nothing begins or
ends with blanks. A link that Telegram would drop, or that would ping a user, becomes its text followed by the address.
Raw HTML never gets here: to the parser it is text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlsplit

from markdown_it.common.normalize_url import normalizeLinkText
from markdown_it.token import Token

BULLET = "• "
StyleKind = Literal["bold", "italic", "strikethrough", "spoiler", "text_link", "code", "pre", "blockquote"]
"""An entity's kind, in Telegram's terms."""
_LETTERS: tuple[StyleKind, ...] = ("bold", "italic", "strikethrough", "spoiler")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextStyle:
    kind: StyleKind
    value: str = ""
    """The address of a link, the language of code."""
    number: int = 0
    """Two neighbours of one kind stay two, but for letters: Telegram makes one of them."""

    def facts(self) -> dict[str, Any]:
        """The members that its entity has besides the kind and the place."""
        key = {"text_link": "url", "pre": "language"}.get(self.kind)
        return {key: self.value} if key and self.value else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRun:
    text: str
    styles: tuple[TextStyle, ...] = ()


class StyledText:
    def __init__(self) -> None:
        self._runs: list[TextRun] = []
        self._styles: list[TextStyle] = []
        self._leads: list[str] = []
        """The beginnings of the lines of each list item: its marker first, blanks of the same width after that."""
        self._gap = 1
        """Line ends owed before the next text. At least one, at the top too: a first line may begin with a marker."""
        self._number = 0

    def runs(self) -> list[TextRun]:
        """The runs, without blanks around; code keeps the indent of its first line."""
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
        """Puts at least this number of line ends before the next text: 2 leave a blank line."""
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
        """Write a code block on separate lines, outside of all styles, even within a quote."""
        self.flush_marker()
        self._add("\n" * max(self._gap, 1) if self._runs else "", ())
        self._add(text, (self._numbered(style),))
        self._gap = 1

    def open(self, kind: StyleKind, value: str = "") -> None:
        self._styles.append(self._numbered(TextStyle(kind=kind, value=value)))

    def close(self, kind: StyleKind) -> None:
        """The innermost of these; those inside of it stay open, as spoilers may overlap with the others."""
        for at in range(len(self._styles) - 1, -1, -1):
            if self._styles[at].kind == kind:
                del self._styles[at]
                return

    def is_open(self, kind: StyleKind) -> bool:
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
        self._leads.append(marker)

    def mark_task(self, box: str) -> bool:
        """Put the task's checkbox in place of the bullet, or after the number. Return False if no list item begins
        here."""
        marker = self._marker()
        if marker:
            self._leads[-1] = box if marker == BULLET else marker + box
        return bool(marker)

    def end_item(self) -> None:
        self.flush_marker()
        self._leads.pop()

    def flush_marker(self) -> None:
        """An item may be empty, and its number all that was said."""
        if marker := self._marker():
            self._leads[-1] = marker.rstrip()
            self.write("")

    def _marker(self) -> str:
        return "" if not self._leads or self._leads[-1].isspace() else self._leads[-1]

    def _begin_line(self) -> None:
        before = self._runs[-1].styles if self._runs else ()
        shared = tuple(style for style in self._styles if style.kind == "blockquote" and style in before)
        gap, self._gap = self._gap, 0
        if self._runs:
            self._add("\n" * gap, shared)
        self._add(self._lead(), tuple(style for style in self._styles if style.kind == "blockquote"))

    def _lead(self) -> str:
        lead, self._leads = "".join(self._leads), [" " * len(marker) for marker in self._leads]
        return lead

    def _add(self, text: str, styles: tuple[TextStyle, ...]) -> None:
        if text:
            self._runs.append(TextRun(text=text, styles=styles))

    def _numbered(self, style: TextStyle) -> TextStyle:
        if style.kind in _LETTERS:
            return style
        self._number += 1
        return replace(style, number=self._number)

    def _effective(self, *more: TextStyle) -> tuple[TextStyle, ...]:
        """Each kind once. Code combines with nothing: it gives way to a link and a quote, and replaces the rest."""
        styles: dict[StyleKind, TextStyle] = {}
        for style in (*self._styles, *more):
            styles.setdefault(style.kind, style)
        code = styles.pop("code", None)
        if code and not styles.keys() & {"text_link", "blockquote"}:
            return (code,)
        return tuple(styles.values())


_FILE = re.compile(
    r"(?<![\w@.:/?#=&%~+-])((?:(?:[\w~+-]+|\.{1,2})/)*[\w.+-]*\w"
    r"\.(?:md|sh|py|pl|pm|rs|cc|ps|ml|mm|mk|tf|pub|zip|mov)|lib[\w+-]+\.(?:so|la)|(?:Makefile|configure)\.(?:am|in|ac))"
    r"(?![\w@/:?#-]|\.\w)",
    re.ASCII,
)
"""Kinds of files that are top-level domains as well; not those under which more sites are known than files."""
_TASK = re.compile(r"\[([ xX])\] ")
_STYLES: dict[str, StyleKind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}
"""The style for the tag of the token that opens or closes it."""


def write_inline(page: StyledText, tokens: Sequence[Token]) -> None:
    paragraph = _Paragraph(page, tokens)
    for index, token in enumerate(tokens):
        paragraph.add(index, token)


class _Paragraph:
    def __init__(self, page: StyledText, tokens: Sequence[Token]) -> None:
        self._page = page
        self._spoilers = _spoilers(tokens)
        self._links: list[tuple[str, int]] = []
        """Addresses of the links we are in, and where they begin."""

    def add(self, index: int, token: Token) -> None:
        page = self._page
        match token.type:
            case "text":
                text, box = token.content, None if index else _TASK.match(token.content)
                if box and page.mark_task("☐ " if box[1] == " " else "☑ "):
                    text = text[box.end() :]
                self._text(text, [at + len(text) - len(token.content) for at in self._spoilers.get(index, ())])
            case "softbreak" | "hardbreak":
                page.new_line()
            case "code_inline":
                page.write(token.content, TextStyle(kind="code", number=-index))
            case "link_open":
                self._begin_link(str(token.attrGet("href") or ""))
            case "link_close":
                self._end_link()
            case "image":
                self._image(token)
            case _ if style := _STYLES.get(token.tag):
                page.open(style) if token.nesting > 0 else page.close(style)
            case _:
                page.write(token.content)

    def _text(self, text: str, marks: Sequence[int]) -> None:
        begins = 0
        for mark in marks:
            self._words(text[begins:mark])
            if self._page.is_open("spoiler"):
                self._page.close("spoiler")
            else:
                self._page.open("spoiler")
            begins = mark + 2
        self._words(text[begins:])

    def _words(self, text: str) -> None:
        """Write text, with file names as code: clients take `backup.sh` for an address in a country's domain."""
        pieces = [text] if self._links or self._page.is_open("spoiler") else _FILE.split(text)
        for number, piece in enumerate(pieces):
            self._page.write(piece, *([TextStyle(kind="code")] if number % 2 else []))

    def _image(self, token: Token) -> None:
        words = token.children or []
        if self._links:
            write_inline(self._page, words)
        else:
            self._begin_link(str(token.attrGet("src") or ""))
            write_inline(self._page, words)
            self._end_link()

    def _begin_link(self, address: str) -> None:
        self._page.write("")
        self._links.append((address, self._page.mark()))
        if is_clickable(address):
            self._page.open("text_link", address)

    def _end_link(self) -> None:
        address, mark = self._links.pop()
        label, address_shown = self._page.since(mark).strip(), normalizeLinkText(address)
        if not label:
            self._page.write(address_shown)
        if is_clickable(address):
            self._page.close("text_link")
        elif label and address_shown and label != address_shown:
            self._page.write(f" ({address_shown})")


def is_clickable(address: str) -> bool:
    """Telegram drops links to dotless hosts, and with them the address; tg://user links ping the user."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    match parts.scheme:
        case "http" | "https":
            return "." in host
        case "tg":
            return not parts.path.lstrip("/").startswith("user") and host != "user"
        case "mailto":
            return True
        case _:
            return False


def _spoilers(tokens: Sequence[Token]) -> dict[int, list[int]]:
    """Return the `||` that open or close a spoiler, by token. One after a word or before a blank does not open a
    spoiler."""
    spans: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        text = token.content if token.type == "text" else ""
        for mark in re.finditer(r"\|\|", text):
            before, after = text[: mark.start()][-1:], text[mark.end() :][:1]
            opens = not before.isalnum() and not after.isspace()
            closes = not before.isspace() and not after.isalnum()
            if closes if len(spans) % 2 else opens:
                spans.append((index, mark.start()))
    marks: dict[int, list[int]] = {}
    for index, at in spans[: len(spans) // 2 * 2]:
        marks.setdefault(index, []).append(at)
    return marks

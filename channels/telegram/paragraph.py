"""What stands inside a paragraph, on a page: emphasis, code, links, images, spoilers, and the box of a task. Pure.

A link that Telegram would drop, or that would call a person, is its text with the address behind it. Raw HTML never gets
here: to the parser it is text.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from markdown_it.common.normalize_url import normalizeLinkText
from markdown_it.token import Token

from channels.telegram.page import Kind, Page, TextStyle

_TASK = re.compile(r"\[([ xX])\] ")
_STYLES: dict[str, Kind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}
"""By the tag of the token that opens or closes it."""


def write_inline(page: Page, tokens: Sequence[Token]) -> None:
    _Paragraph(page, tokens).write()


class _Paragraph:
    def __init__(self, page: Page, tokens: Sequence[Token]) -> None:
        self._page = page
        self._tokens = tokens
        self._spoilers = _spoilers(tokens)
        self._links: list[tuple[str, int]] = []
        """Addresses of the links we are in, and where they begin."""

    def write(self) -> None:
        for index, token in enumerate(self._tokens):
            self._token(index, token)

    def _token(self, index: int, token: Token) -> None:
        page = self._page
        match token.type:
            case "text":
                text = token.content if index else self._without_box(token.content)
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

    def _without_box(self, text: str) -> str:
        found = _TASK.match(text)
        if found and self._page.mark_task("☐ " if found[1] == " " else "☑ "):
            return text[found.end() :]
        return text

    def _text(self, text: str, marks: Sequence[int]) -> None:
        begins = 0
        for mark in marks:
            self._page.write(text[begins:mark])
            if self._page.is_open("spoiler"):
                self._page.close("spoiler")
            else:
                self._page.open("spoiler")
            begins = mark + 2
        self._page.write(text[begins:])

    def _image(self, token: Token) -> None:
        """A link with the words for it; inside of a link only the words."""
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
        label, shown = self._page.since(mark).strip(), normalizeLinkText(address)
        if not label:
            self._page.write(shown)
        if is_clickable(address):
            self._page.close("text_link")
        elif label and shown and label != shown:
            self._page.write(f" ({shown})")


def is_clickable(address: str) -> bool:
    """Telegram drops a link to a host without a dot, and with it the address; one to a user calls that person."""
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
    """Where `||` opens or closes a spoiler, by token. A word before it, or a blank behind it, and it opens none."""
    found: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        text = token.content if token.type == "text" else ""
        for mark in re.finditer(r"\|\|", text):
            before, after = text[: mark.start()][-1:], text[mark.end() :][:1]
            opens = not before.isalnum() and not after.isspace()
            closes = not before.isspace() and not after.isalnum()
            if closes if len(found) % 2 else opens:
                found.append((index, mark.start()))
    marks: dict[int, list[int]] = {}
    for index, at in found[: len(found) // 2 * 2]:
        marks.setdefault(index, []).append(at)
    return marks

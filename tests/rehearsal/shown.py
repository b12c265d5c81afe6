"""A chat as its people see it: plain records that the page draws, with every text as safe HTML.

The platforms fill them from what they were told, and from nothing else.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markdown_it import MarkdownIt

TAGS = {
    "bold": "b",
    "italic": "i",
    "underline": "u",
    "strikethrough": "s",
    "spoiler": "mark",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "expandable_blockquote": "blockquote",
}
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownButton:
    """`press` is what the page sends back; a button with a `link` opens it."""

    label: str
    press: str = ""
    link: str = ""
    style: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownFile:
    name: str
    address: str
    is_picture: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMessage:
    """One bubble. `author` is a person's id, `bot`, or empty for a line of the platform's own."""

    id: str
    author: str
    html: str
    folded: tuple[str, str] | None = None
    """A panel that opens: its title and what is in it."""
    rows: Sequence[Sequence[ShownButton]] = ()
    files: Sequence[ShownFile] = ()
    quoted: str = ""
    reaction: str = ""
    edited: bool = False
    growing: bool = False
    """It is being written: a draft, or a card that streams."""
    stop: str = ""
    """What the page sends to stop it; empty where the platform has no such button."""
    unheard: bool = False
    """The platform does not give it to the bot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownChat:
    id: str
    title: str
    is_group: bool
    has_bot: bool
    mention: str
    typing: bool
    messages: Sequence[ShownMessage]


@dataclass(frozen=True, kw_only=True, slots=True)
class Phone:
    """One person's."""

    id: str
    name: str
    platform: str
    chats: Sequence[ShownChat]


def markdown(text: str) -> str:
    """Markdown as HTML; tags in it are text."""
    return str(_MARKDOWN.render(text)).strip()


def plain(text: str) -> str:
    return escape(text, quote=False)


def preview(text: str) -> str:
    """The beginning of a text, for a quotation."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


def entities(text: str, marks: Iterable[Mapping[str, Any]]) -> str:
    """Telegram's text with entities as HTML. They nest, and their offsets count UTF-16 units."""
    raw, html, open_ = text.encode("utf-16-le"), "", list[Mapping[str, Any]]()
    given = [it for it in marks if it["type"] in TAGS or _link(it, text)]
    edges = {at for it in given for at in (it["offset"], it["offset"] + it["length"])}
    cuts = sorted({0, len(raw) // 2, *edges})
    for begin, end in zip(cuts, [*cuts[1:], cuts[-1]], strict=True):
        now = [it for it in given if it["offset"] <= begin < it["offset"] + it["length"]]
        kept = next((at for at, it in enumerate(open_) if it not in now), len(open_))
        html += "".join(f"</{_tag(it)}>" for it in reversed(open_[kept:]))
        new = [it for it in now if it not in open_[:kept]]
        html += "".join(f"<{_tag(it)}{_members(it, text)}>" for it in new)
        open_ = open_[:kept] + new
        html += escape(raw[2 * begin : 2 * end].decode("utf-16-le"), quote=False)
    return re.sub(r"(</(?:blockquote|pre)>)\n", r"\1", html)  # a block ends its line


def _tag(mark: Mapping[str, Any]) -> str:
    return TAGS.get(mark["type"], "a")


def _members(mark: Mapping[str, Any], text: str) -> str:
    if mark["type"] == "expandable_blockquote":
        return ' class="folded"'
    link = _link(mark, text)
    return f' href="{escape(link)}"' if link else ""


def _link(mark: Mapping[str, Any], text: str) -> str:
    begin = 2 * mark["offset"]
    covered = text.encode("utf-16-le")[begin : begin + 2 * mark["length"]].decode("utf-16-le")
    link = {"text_link": str(mark.get("url", "")), "url": covered}.get(mark["type"], "")
    return link if re.match(r"https?://", link) else ""

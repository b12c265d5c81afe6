"""A text as an interactive card, in its second generation, which refuses what it does not know. Pure.

With buttons a fenced block is a separate plain text: nothing in it is markup then, and a command is shown as it is. The
buttons are below the text, each with nothing but its token, and what is folded in a panel below them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt

from channels.message import Button, Folded
from channels.spelling import spelt

SUMMARY_CHARS = 60
SUMMARY_SOURCE_CHARS = 4_000
"""The beginning of an answer from which its summary is taken: its first words may be far behind their marks."""
TABLES_MAX = 5
_PREFIX = re.compile("[ >]*")
_PING = re.compile(r"<(?=/?at\b)", re.IGNORECASE)


def card(text: str, buttons: Sequence[Button], folded: Folded | None = None) -> dict[str, Any]:
    panel = [_panel(folded)] if folded else []
    return made([*_text(text), *map(_button, buttons), *panel], text, enable_forward=False)


def answer_card(text: str) -> dict[str, Any]:
    return made([{"tag": "markdown", "content": shown(text)}], text)


def made(elements: Sequence[Mapping[str, Any]], summary: str, **config: Any) -> dict[str, Any]:
    summary = without_pings(summarised(summary))
    config = {"update_multi": True, "summary": {"content": summary}} | config
    return {"schema": "2.0", "config": config, "body": {"elements": list(elements)}}


def summarised(text: str) -> str:
    """The beginning of a text as the chat list and a notification show it: its words without the marks of Markdown."""
    words: list[str] = []
    for token in _summary_markdown().parse(text[:SUMMARY_SOURCE_CHARS]):
        parts = token.children or ((token,) if token.type in ("fence", "code_block") else ())
        parts = [it for it in parts if it.type != "html_inline"]
        words += [" " if it.type in ("softbreak", "hardbreak") else it.content for it in parts]
        words.append(" ")
    return " ".join("".join(words).split())[:SUMMARY_CHARS]


def needs_card(text: str) -> bool:
    """True if it has what a post shows badly or not at all: a block of code, a table."""
    if not any(mark in text for mark in ("```", "~~~", "|")):
        return False
    return any(token.type in ("fence", "table_open") for token in _markdown().parse(text))


def shown(text: str) -> str:
    """The form that an element takes: no pings, no pictures by address, formulas as code, surplus tables as written."""
    text = spelt(text, boxes=True)
    if text.count("|") > TABLES_MAX:
        lines = _lines(text)
        tables = [it.map for it in _markdown().parse("\n".join(lines)) if it.type == "table_open" and it.map]
        for first, end in reversed(tables[TABLES_MAX:]):
            prefix = _PREFIX.match(lines[first])
            fence = (prefix[0] if prefix else "") + "```"
            lines[first:end] = [fence, *lines[first:end], fence]
        text = "\n".join(lines)
    return without_pings(text).replace("![", "!\u200b[")


def fenced(text: str) -> list[str]:
    """The text in pieces, each a fence of the top level or what is between two; joined by newlines they are the text."""
    lines, done = _lines(text), 0
    pieces: list[str] = []
    for token in _markdown().parse("\n".join(lines)) if "```" in text or "~~~" in text else ():
        if token.type == "fence" and token.level == 0 and token.map:
            pieces += ["\n".join(it) for it in (lines[done : token.map[0]], lines[slice(*token.map)]) if it]
            done = token.map[1]
    return [*pieces, "\n".join(lines[done:])] if lines[done:] or not pieces else pieces


def without_pings(text: str) -> str:
    """A model must not be able to call people, or everybody: `<at …>` is text here."""
    return _PING.sub("<\u200b", text)


def _text(text: str) -> Iterator[dict[str, Any]]:
    lines, done = _lines(text), 0
    for token in _markdown().parse("\n".join(lines)):
        if token.type == "fence" and token.level == 0 and token.map:
            yield from _markdown_element(lines[done : token.map[0]])
            if token.content.strip():
                yield {"tag": "div", "text": {"tag": "plain_text", "content": token.content.removesuffix("\n")}}
            done = token.map[1]
    yield from _markdown_element(lines[done:])


def _markdown_element(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    if text := "\n".join(lines).strip("\n"):
        yield {"tag": "markdown", "content": shown(text)}


def _lines(text: str) -> list[str]:
    """The lines as the parser counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _panel(folded: Folded) -> dict[str, Any]:
    """Feishu 7.9 and later fold it; earlier ones say that they are too old to show it."""
    title = {"tag": "plain_text", "content": folded.title}
    elements = [{"tag": "markdown", "content": shown(folded.text)}]
    return {"tag": "collapsible_panel", "expanded": False, "header": {"title": title}, "elements": elements}


def _button(button: Button) -> dict[str, Any]:
    return {
        "tag": "button",
        "type": button.style,
        "text": {"tag": "plain_text", "content": button.shown},
        "behaviors": [{"type": "callback", "value": {"token": button.token}}],
    }


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


@lru_cache(maxsize=1)
def _summary_markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])

"""A text with buttons as an interactive card, in its second generation, which refuses what it does not know. Pure.

A fenced block becomes a plain text of its own: nothing in it is markup then, and a command is shown as it is. The buttons
stand below the text, each with nothing but its token.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt

from channels.message import Button

SUMMARY_CHARS = 60


def card(text: str, buttons: Sequence[Button]) -> dict[str, Any]:
    summary = " ".join(text.split())[:SUMMARY_CHARS]
    return {
        "schema": "2.0",
        "config": {"update_multi": True, "enable_forward": False, "summary": {"content": without_pings(summary)}},
        "body": {"elements": [*_text(text), *map(_button, buttons)]},
    }


def without_pings(text: str) -> str:
    """A model must not be able to call people, or everybody: `<at …>` is text here."""
    return text.replace("<at", "<\u200bat")


def _text(text: str) -> Iterator[dict[str, Any]]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # the lines that the parser counts
    done = 0
    for token in _markdown().parse("\n".join(lines)):
        if token.type == "fence" and token.level == 0 and token.map:
            yield from _markdown_element(lines[done : token.map[0]])
            if token.content.strip():
                yield {"tag": "div", "text": {"tag": "plain_text", "content": token.content.removesuffix("\n")}}
            done = token.map[1]
    yield from _markdown_element(lines[done:])


def _markdown_element(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    if text := "\n".join(lines).strip("\n"):
        yield {"tag": "markdown", "content": without_pings(text).replace("![", "!\u200b[")}  # it takes no addresses


def _button(button: Button) -> dict[str, Any]:
    return {
        "tag": "button",
        "type": button.style,
        "text": {"tag": "plain_text", "content": button.shown},
        "behaviors": [{"type": "callback", "value": {"token": button.token}}],
    }


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark")

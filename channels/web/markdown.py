"""An answer's Markdown as blocks of HTML that a page may show as they are.

Raw HTML stays text, links go only where a person may be sent, and a picture becomes a link: a page that loads what a
model names tells others who reads it. Blocks are apart so that a growing answer is sent as what has changed.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

_ALIGN = re.compile(r"text-align:(left|center|right)")
_SAFE_LINK = re.compile(r"(?:https?://|mailto:|#)", re.IGNORECASE)


def blocks(text: str) -> list[str]:
    """One piece of HTML for each block at the top level. Joined, they are the answer."""
    markdown = _markdown()
    environment: dict[str, Any] = {}
    tokens = markdown.parse(text, environment)
    return [markdown.renderer.render(part, markdown.options, environment) for part in _parts(tokens)]


def html(text: str) -> str:
    return "".join(blocks(text))


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            parts.append([])
        parts[-1].append(token)
        depth += token.nesting
    return parts


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "linkify": True}, renderer_cls=_Renderer)
    markdown.enable(["table", "strikethrough", "linkify"])
    if markdown.linkify is not None:  # only what begins like an address: `main.py` is none of an island's
        markdown.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    markdown.validateLink = lambda url: bool(_SAFE_LINK.match(url.strip()))  # type: ignore[method-assign]
    return markdown


class _Renderer(RendererHTML):
    """Links open beside the chat, pictures are links, alignment is a class: the page's policy forbids styles."""

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        token.attrs.pop("title", None)
        token.attrSet("target", "_blank")
        token.attrSet("rel", "noopener noreferrer nofollow")
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        link = Token("link_open", "a", 1)
        link.attrs = {"href": str(token.attrs.get("src", ""))}
        name = Token("text", "", 0, content=token.content or str(token.attrs.get("src", "")))
        return self.render([Token("inline", "", 0, children=[link, name, Token("link_close", "a", -1)])], options, env)

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """The first word behind the fence names the language; control characters are no part of a name."""
        token = tokens[idx]
        token.info = "".join(char for char in token.info if char.isprintable())
        return super().fence(tokens, idx, options, env)

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        if aligned := _ALIGN.search(str(token.attrs.pop("style", ""))):
            token.attrSet("class", aligned[1])
        return self.renderToken(tokens, idx, options, env)

    td_open = th_open

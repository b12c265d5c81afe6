"""The page's data as JSON, in the shapes of docs/http.md: stream events, and messages that are rendered once for all pages.
Files, tools and conversations have the fields of their classes, in that order.

The stream is server-sent events (WHATWG HTML, section 9.2): a name, optionally a number to resume from, and a line of data.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import orjson
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline, linkify
from markdown_it.token import Token

from channels.web.archive import ChatHistory, Sized, WebConversation, WebMessage

PAGE_BYTES_MAX = 524_288
"""Bytes of text loaded at once; a larger message is loaded alone."""
RENDERED_BYTES_MAX = 4 * 1_048_576
LINE_CHARS = 300
"""Characters of one-line texts: a conversation's title, a tool's name and argument."""


def event(name: str, data: Mapping[str, Any]) -> bytes:
    return written(name, orjson.dumps(data))


def written(name: str, json: bytes, *, number: int | None = None) -> bytes:
    """Format an event with JSON data; a stream that breaks off after it resumes at `number`."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + json + b"\n\n"


ALIVE = event("alive", {})
"""Keep-alive event: pages cannot see comments, and a dead connection looks like silence."""


def _rendered(message: WebMessage) -> "Rendered":
    words, yours, folded = message.words, message.author == "you", message.words.folded
    aside = f"<details><summary>{escapeHtml(folded.title)}</summary>{html(folded.text)}</details>" if folded else ""
    view = {
        "id": message.number,
        "chat": message.chat,
        "author": message.author,
        "message": message.key if yours or words.buttons or words.form else None,
        "reply_to": words.reply_to,
        "agent": words.agent or None,
        "text": f"{words.text}\n\n{folded.text}" if folded else words.text,
        "html": None if yours else html(words.text) + aside,
        "files": words.files,
        "tools": [replace(it, name=beginning(it.name), about=beginning(it.about)) for it in words.tools],
        "dropped": words.dropped,
        "buttons": [{"label": it.shown, "token": it.token, "style": it.style} for it in words.buttons],
        "form": words.form,
        "place": words.place,
        "instead": words.instead,
        "turn": words.turn,
        "at": message.at,
    }
    # Copy: the bytes that orjson returns keep its whole buffer alive, 8 kB for a line.
    return Rendered(number=message.number, chat=message.chat, json=bytes(memoryview(orjson.dumps(view))))


def conversation_view(conversation: WebConversation, *, running: bool) -> dict[str, Any]:
    view = asdict(conversation) | {"title": beginning(conversation.title), "running": running}
    del view["owner"]
    return view


def beginning(text: str, chars: int = LINE_CHARS) -> str:
    """Truncate the text, with the count of missing characters."""
    return text if len(text) <= chars else f"{text[:chars]}… (+{len(text) - chars:,})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """`json` is the whole message, as in docs/http.md."""

    number: int
    chat: str
    json: bytes


class Renderings:
    def __init__(self, archive: ChatHistory) -> None:
        self._archive = archive
        self._kept: dict[int, Rendered] = {}
        self._bytes = 0
        self._lock = asyncio.Lock()

    async def of(self, numbers: Sequence[int]) -> list[Rendered]:
        """Return the messages that still exist, in the order of `numbers`."""
        async with self._lock:
            missing = [number for number in numbers if number not in self._kept]
            if missing:
                messages = await self._archive.messages(missing)
                fresh = await asyncio.to_thread(lambda: [_rendered(it) for it in messages])
                self._kept |= {it.number: it for it in fresh}
                self._bytes += sum(len(it.json) for it in fresh)
            views = [self._kept[number] for number in numbers if number in self._kept]
            while self._bytes > RENDERED_BYTES_MAX:
                self._bytes -= len(self._kept.pop(next(iter(self._kept))).json)
            return views


def fitting(sized: Sequence[Sized]) -> list[int]:
    """Return the numbers of the first messages that fit one page, at least one."""
    numbers: list[int] = []
    total = 0
    for it in sized:
        total += it.bytes
        if numbers and total > PAGE_BYTES_MAX:
            break
        numbers.append(it.number)
    return numbers


MATH_LINES_MAX = 50
LINK_BACK_CHARS = 1_000
_MATH = re.compile(
    r"\$\$(?:[^$\\]|\\.)+\$\$|\$(?![\s$])(?:[^$\\]|\\.)+(?<!\s)\$(?!\d)"
    r"|\\\((?:.|\n){1,1000}?\\\)|\\\[(?:.|\n){1,1000}?\\\]"
)
"""TeX's brackets, or dollars without another dollar in between, so that prices are no formulas."""
_ALIGN = re.compile(r"text-align:(left|center|right)")
_SAFE_LINK = re.compile(r"(?:https?://|mailto:|#)", re.IGNORECASE)


def blocks(text: str) -> list[str]:
    """Render each top-level block to HTML. Joined, they are the answer."""
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
    markdown.inline.ruler.before("escape", "math", _inline_math)
    markdown.block.ruler.before("fence", "math", _math_block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    markdown.inline.ruler.at("linkify", _linkify)
    if markdown.linkify is not None:  # only with a scheme: `main.py` is no host name
        markdown.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    markdown.validateLink = lambda url: bool(_SAFE_LINK.match(url.strip()))  # type: ignore[method-assign]
    return markdown


def _linkify(state: StateInline, silent: bool) -> bool:
    # The library's rule scans back over all pending words at every `:`; no URL scheme is that long.
    return len(state.pending) <= LINK_BACK_CHARS and linkify(state, silent)


def _inline_math(state: StateInline, silent: bool) -> bool:
    match = _MATH.match(state.src, state.pos, state.posMax) if state.src[state.pos] in "$\\" else None
    if match is None:
        return False
    if not silent:
        state.push("math_inline", "span", 0).content = match[0]
    state.pos = match.end()
    return True


def _math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]].rstrip()
    closing = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closing is None or state.is_code_block(start):
        return False
    for line in range(start, min(end, start + MATH_LINES_MAX)):
        text = state.src[state.bMarks[line] : state.eMarks[line]].rstrip()
        body = first[2:] if line == start else text
        if closing in body.removesuffix(closing) or (line > start and state.sCount[line] < state.blkIndent and text):
            return False
        if body.endswith(closing):
            if not silent:
                state.line = line + 1
                token = state.push("math_block", "div", 0)
                token.content = state.getLines(start, line + 1, state.blkIndent, False).strip()
                token.map = [start, line + 1]
            return True
    return False


class _Renderer(RendererHTML):
    """Open links in a new tab, show images as links, and express alignment as a class, since the page's policy forbids
    styles. Keep math as written, for the page to render."""

    def math_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<code class="language-math">{escapeHtml(tokens[idx].content)}</code>'

    def math_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<pre><code class="language-math">{escapeHtml(tokens[idx].content)}</code></pre>\n'

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        token.attrs.pop("title", None)
        token.attrSet("target", "_blank")
        token.attrSet("rel", "noopener noreferrer nofollow")
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        link = Token("link_open", "a", 1)
        link.attrs = {"href": str(token.attrs.get("src", "")), "class": "remote"}
        name = Token("text", "", 0, content=token.content or str(token.attrs.get("src", "")))
        return self.render([Token("inline", "", 0, children=[link, name, Token("link_close", "a", -1)])], options, env)

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        token.info = "".join(char for char in token.info if char.isprintable())
        return super().fence(tokens, idx, options, env)

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        if aligned := _ALIGN.search(str(token.attrs.pop("style", ""))):
            token.attrSet("class", aligned[1])
        return self.renderToken(tokens, idx, options, env)

    td_open = th_open

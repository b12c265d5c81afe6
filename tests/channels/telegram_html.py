"""A strict reader of Telegram's HTML, written from the description of the format and not from our renderer."""

import re
from dataclasses import dataclass

from channels.telegram.render import rendered

STYLES = {"b", "i", "u", "s", "tg-spoiler"}
_PIECE = re.compile(r'<(/?)([a-z-]+)((?: [a-z]+="[^"<>]*")*)>|&(?:lt|gt|amp|quot|#[0-9]+);|[^<>&]', re.S)
_CHARACTERS = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"'}


def render(markdown: str) -> str:
    return rendered(markdown).html


def plain(markdown: str) -> str:
    return rendered(markdown).plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    text: str
    entities: int


def read_html(html: str) -> Seen:
    """What a reader sees. Raises AssertionError where Telegram would refuse, or drop, a part of the markup."""
    text, entities, at = "", 0, 0
    stack: list[tuple[str, int]] = []
    while at < len(html):
        piece = _PIECE.match(html, at)
        assert piece, f"not HTML at {at}: {html[at : at + 30]!r}"
        at = piece.end()
        closing, tag, attributes = piece.groups()
        if tag is None:
            text += _CHARACTERS.get(piece[0], piece[0])
        elif closing:
            assert stack, f"unexpected </{tag}>"
            opened, begin = stack.pop()
            assert opened == tag, f"</{tag}> closes <{opened}>"
            assert begin < len(text), f"<{tag}> is empty"
        else:
            _check_opening(tag, attributes, [name for name, _ in stack], html[: piece.start()])
            entities += not (tag == "code" and stack and stack[-1][0] == "pre")
            stack.append((tag, len(text)))
    assert not stack, f"never closed: {stack}"
    return Seen(text=text, entities=entities)


def _check_opening(tag: str, attributes: str, inside: list[str], before: str) -> None:
    assert tag not in inside, f"<{tag}> inside of itself"
    assert "code" not in inside, f"<{tag}> inside of code"
    if tag == "code" and attributes:
        assert re.fullmatch(r' class="language-[\w+#.-]+"', attributes), attributes
        assert inside == ["pre"]
        assert before.endswith("<pre>")
        return
    if tag == "a":
        assert re.fullmatch(r' href="(?:https?:|tg:|mailto:)(?:[^"&]|&(?:amp|lt|gt|quot);)+"', attributes), attributes
    else:
        assert attributes == ""
        assert tag in STYLES | {"code", "pre", "blockquote"}, f"<{tag}> is no tag of Telegram's"
    assert "pre" not in inside
    if tag in ("code", "pre", "blockquote"):
        assert inside == [], f"<{tag}> inside of {inside}"

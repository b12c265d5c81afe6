"""Convert rich text to Markdown: the rows of nodes of a post, and of a card in its degraded form. Pure.

A node of unknown kind yields the text and the files inside it, or its kind in brackets; nothing is dropped silently. Files
and mentioned ids are collected in order.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from channels.message import Attachment, AttachmentKind
from channels.plain import marked
from channels.wire import mappings, scalar
from channels.wire import text as text_of

LOCALES = ("zh_cn", "en_us", "ja_jp", "zh_hk", "zh_tw")
NODE_DEPTH_MAX = 20
"""Maximum nesting of nodes."""
_STYLES = {
    "code": "`",
    "lineThrough": "~~",
    "strikethrough": "~~",
    "italic": "*",
    "bold": "**",
}
"""The style of a node and its mark, the innermost first; a post may call the same style by the SDK's name."""
_WORDS = (
    "title",
    "label",
    "text",
    "content",
    "name",
    "file_name",
    "summary",
    "placeholder",
    "alt",
    "desc",
    "description",
)
"""Text members of an unknown node, in reading order."""
_ADDRESSES = ("href", "url", "default_url")
_PLACEHOLDER = re.compile(r"(@_user_[0-9]+|@_all(?![A-Za-z0-9_]))( ?)")
_FENCED = re.compile(r"(^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\2[`~]*[ \t]*$|\Z))", re.MULTILINE | re.DOTALL)
_AT = re.compile(r"<at\s+(?:user_id|id|open_id)\s*=\s*[\"']?([^\"'\s>]*)[\"']?\s*(?:/>|>([^<]*)</at>|>)( ?)")
_IMAGE = re.compile(r"!\[([^\]\n]*)\]\((img_[A-Za-z0-9_-]+)[^)\n]*\)")

PeopleNames = Mapping[str, str]
"""Text for each placeholder, and for the bot's open id; "" for the bot itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    text: str
    attachments: tuple[Attachment, ...] = ()
    at: frozenset[str] = frozenset()
    """Mentioned ids."""

    def of(self, message_id: str) -> "Content":
        """Prefix the keys with the message id, since a key is valid only with its own message."""
        keyed = tuple(replace(it, key=f"{message_id}/{it.key}") for it in self.attachments)
        return replace(self, attachments=keyed)


def resolve(text: str, names: PeopleNames) -> str:
    """Replace placeholders as whole tokens: `@_user_1` is no prefix of `@_user_10`. The bot's own is removed with its
    space."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "@_all":
            return "@all" + match[2]
        name = names.get(match[1], match[1])
        return name + match[2] if name else ""

    return _PLACEHOLDER.sub(replaced, text)


def read_post(content: Mapping[str, Any], names: PeopleNames) -> Content:
    """Read a post as received: title and rows at the top level, or wrapped in a locale by some clients.

    Newer clients add `content_v2`, the original Markdown: take its text, and the files of both."""
    outer = content
    if not isinstance(content.get("content"), list) and not isinstance(content.get("content_v2"), list):
        wrapped = (content.get(locale) for locale in (*LOCALES, *content))
        content = next((it for it in wrapped if isinstance(it, dict)), {})
    nodes = Nodes(names)
    flattened = [nodes.row(row) for row in _rows(content, "content")]
    native = [nodes.row(row) for row in _rows(content, "content_v2")]
    lines = native if "".join(native).strip() else flattened
    title = scalar(content, "title").strip()
    lines = [*([f"**{title}**"] if title else []), *lines]
    for holder in (content, outer) if content is not outer else (outer,):
        lines += [nodes.file(it) for it in mappings(holder, "files")]
    return Content(text=resolve("\n".join(lines), names), attachments=nodes.attachments, at=frozenset(nodes.at))


def _rows(content: Mapping[str, Any], key: str) -> list[Any]:
    rows = content.get(key)
    return rows if isinstance(rows, list) else []


@dataclass
class Nodes:
    """Convert nodes in sequence; `attachments` and `at` accumulate."""

    names: PeopleNames
    at: set[str] = field(default_factory=set)
    _files: dict[str, Attachment] = field(default_factory=dict)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        return tuple(self._files.values())

    def row(self, row: object) -> str:
        """Join the nodes of a row; a row may also be a single node."""
        match row:
            case str():
                return row
            case dict():
                return self.node(row)
            case list():
                return "".join(self.row(it) for it in row if isinstance(it, str | dict))
            case _:
                return ""

    def node(self, node: Mapping[str, Any], depth: int = 0) -> str:
        text = scalar(node, "text")
        match node.get("tag"):
            case "text" | "plain_text":
                return self._styled(text or scalar(node, "content"), node)
            case "md" | "markdown" | "lark_md":
                return self._styled(self.markdown(text or scalar(node, "content")), node)
            case "a":
                return self._styled(link(text, text_of(node, "href")), node)
            case "at":
                return self._mention(scalar(node, "user_id"), scalar(node, "user_name") or text)
            case "img":
                return self._image(scalar(node, "image_key"))
            case "media" | "video":
                return self._attach("video", "video", node)
            case "audio":
                return self._attach("audio", "voice message", node)
            case "file":
                return self.file(node)
            case "folder":
                return self.file({**node, "is_folder": True})
            case "emotion":
                return f"[{scalar(node, 'emoji_type') or 'emotion'}]"
            case "hr":
                return "---"
            case "br":
                return "\n"
            case "standard_icon" | "custom_icon":
                return ""
            case "code_block":
                return code(text, scalar(node, "language").lower())
            case _:
                return self.unknown(node, depth)

    def file(self, node: Mapping[str, Any]) -> str:
        if node.get("is_folder") is True:
            return self._attach("other", "folder", node)
        return self._attach("file", "file", node)

    def markdown(self, text: str) -> str:
        """Convert the platform's Markdown: mentions as names and pictures as attachments, outside of code."""
        parts = _FENCED.split(text)  # text, fenced, its fence, text, …
        return "".join(part if at % 3 else self._prose(part) for at, part in enumerate(parts) if at % 3 != 2)

    def unknown(self, node: Mapping[str, Any], depth: int = 0) -> str:
        """Return the text and files inside a node of any kind; its kind if there are none."""
        words = " ".join(filter(None, (it.strip() for it in self._inside(node, depth)))).strip()
        if key := scalar(node, "image_key") or scalar(node, "img_key"):
            words = " ".join(filter(None, (words, self._image(key))))
        elif scalar(node, "file_key"):
            words = self.file(node)
        tag = scalar(node, "tag")
        kind = tag if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", tag) else "content"
        return words or f"[unsupported: {kind}]"

    def _inside(self, node: Mapping[str, Any], depth: int) -> Iterator[str]:
        if depth > NODE_DEPTH_MAX:
            yield "[…]"
            return
        address = next((it for key in _ADDRESSES if (it := text_of(node, key))), "")
        for key in (*_WORDS, *(it for it in node if it not in _WORDS)):
            value = node.get(key)
            if isinstance(value, str | int | float) and key in _WORDS and (word := scalar(node, key)):
                yield link(word, address) if address else word
                address = ""
            elif isinstance(value, dict):
                yield self.node(value, depth + 1) if "tag" in value else " ".join(self._inside(value, depth + 1))
            elif isinstance(value, list):
                yield from self._each(value, depth + 1)
        if address:
            yield address

    def _each(self, values: list[Any], depth: int) -> Iterator[str]:
        for it in values:
            if isinstance(it, list) and depth <= NODE_DEPTH_MAX:
                yield "".join(self._each(it, depth + 1))
            elif isinstance(it, dict):
                yield self.node(it, depth) if "tag" in it else " ".join(self._inside(it, depth))
            elif isinstance(it, str):
                yield it

    def _styled(self, text: str, node: Mapping[str, Any]) -> str:
        styles = node.get("style")
        for style, mark in _STYLES.items():
            if isinstance(styles, list) and style in styles:
                text = marked(text, mark)
        return text

    def _mention(self, id_: str, name: str) -> str:
        if id_ in ("@_all", "all"):
            return "@all"
        self.at.add(id_)
        return self.names[id_] if id_ in self.names else f"@{name or id_.lstrip('@')}"

    def _image(self, key: str, alt: str = "") -> str:
        if key:
            self._files.setdefault(key, Attachment(kind="image", key=key))
        return f"[image: {alt}]" if alt else "[image]"

    def _attach(self, kind: AttachmentKind, words: str, node: Mapping[str, Any]) -> str:
        name = scalar(node, "file_name") or scalar(node, "name")
        if key := scalar(node, "file_key"):
            self._files.setdefault(key, Attachment(kind=kind, key=key, name=name or None))
        return f"[{words}: {name}]" if name else f"[{words}]"

    def _prose(self, text: str) -> str:
        def mention(match: re.Match[str]) -> str:
            name = self._mention(match[1], (match[2] or "").strip().lstrip("@"))
            return name + (match[3] or "") if name else ""

        return _IMAGE.sub(lambda match: self._image(match[2], match[1].strip()), _AT.sub(mention, text))


def link(text: str, address: str) -> str:
    """Format a Markdown link; without an address, return the text."""
    if not address:
        return text
    return f"[{text or address}]({address})"


def code(text: str, language: str = "") -> str:
    """Format a code block with a fence that the code does not contain."""
    body = text.removesuffix("\n")
    fence = "```" if "```" not in body else "````"
    return f"{fence}{language}\n{body}\n{fence}"

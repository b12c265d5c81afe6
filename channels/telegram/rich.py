"""A rich message as Markdown with its files. It has blocks instead of a text, and nodes instead of entities. Pure.

The types are those of Bot API 10.3. One that is not known here gives the words inside it, or its name in brackets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from channels.message import Attachment
from channels.plain import marked
from channels.telegram import media
from channels.wire import mapping, mappings, number, scalar, text

DEPTH_MAX = 20
"""Telegram nests 16 deep."""
MARKS = {
    "bold": "**",
    "italic": "*",
    "underline": "__",
    "strikethrough": "~~",
    "spoiler": "||",
    "code": "`",
    "marked": "==",
}
"""The marks of a style, of entities as of nodes."""
_VALUES = (
    "url",
    "email_address",
    "phone_number",
    "bank_card_number",
    "hashtag",
    "cashtag",
    "reference_name",
    "anchor_name",
)
_MEDIA = ("photo", "video", "audio", "animation", "document", "voice_note")
_BUTTON = ("url", "callback_data", "switch_inline_query", "switch_inline_query_current_chat")


@dataclass
class RichReader:
    """Reads one rich message. `addressed` judges a mention or a command, given as its kind, its words and its node, and
    whether anything is before it: the text in its place, or None if it stays."""

    addressed: Callable[[str, str, Mapping[str, Any], bool], str | None]
    attachments: list[Attachment] = field(default_factory=list)
    _is_first: bool = True

    def read(self, message: Mapping[str, Any]) -> str:
        return "\n".join(self._blocks(mappings(message, "blocks"), 0)).strip()

    def _blocks(self, blocks: list[Mapping[str, Any]], depth: int) -> list[str]:
        if depth > DEPTH_MAX:
            return ["[…]"]
        return [line for block in blocks for line in self._block(block, depth + 1)]

    def _block(self, block: Mapping[str, Any], depth: int) -> list[str]:
        kind = text(block, "type")
        if kind in _MEDIA or kind == "map":
            return self._file(block, kind, depth)
        words, inside = self._text(block.get("text"), depth), self._blocks(mappings(block, "blocks"), depth)
        lines = [line for part in (words, *inside) if part for line in part.split("\n")]
        match kind:
            case "heading":
                return ["#" * min(max(number(block, "size") or 1, 1), 6) + " " + words]
            case "pre":
                fence = "```" if "```" not in words else "````"
                return [f"{fence}{text(block, 'language')}", words, fence]
            case "blockquote" | "expandable_blockquote" | "pullquote":
                credit = self._text(block.get("credit"), depth)
                return [f"> {line}" for line in (*lines, *([f"— {credit}"] if credit else []))]
            case "list":
                return [line for item in mappings(block, "items") for line in self._item(item, depth)]
            case "table":
                caption = self._text(block.get("caption"), depth)
                return [*([caption] if caption else []), *self._table(block.get("cells"), depth)]
            case "details":
                return list(filter(None, (self._text(block.get("summary"), depth), *lines)))
            case "divider":
                return ["---"]
            case "anchor":
                return []
            case "mathematical_expression":
                return [f"$${scalar(block, 'expression')}$$"]
            case "buttons":
                return [" ".join(self._button(it, depth) for it in mappings(block, "buttons"))]
            case _:
                lines = [*lines, *self._caption(block, depth)]
                known = kind in ("paragraph", "footer", "thinking", "collage", "slideshow")
                return lines if lines or known else [f"[unsupported: {kind or 'block'}]"]

    def _file(self, block: Mapping[str, Any], kind: str, depth: int) -> list[str]:
        if kind == "map":
            words = media.words({"location": block.get("location")})
        else:
            message = {"voice" if kind == "voice_note" else kind: block.get(kind)}
            self.attachments += media.attachments(message)
            words = media.words(message)
        return [words, *self._caption(block, depth)]

    def _caption(self, block: Mapping[str, Any], depth: int) -> list[str]:
        caption = mapping(block, "caption")
        words, credit = (self._text(caption.get(it), depth) for it in ("text", "credit"))
        return list(filter(None, (words, f"— {credit}" if credit else "")))

    def _item(self, item: Mapping[str, Any], depth: int) -> list[str]:
        marker = text(item, "label") or "-"
        if item.get("has_checkbox") is True:
            marker = "- [x]" if item.get("is_checked") is True else "- [ ]"
        lines = "\n".join(self._blocks(mappings(item, "blocks"), depth)).split("\n")
        return [f"{marker} {lines[0]}", *(f"  {line}" for line in lines[1:])]

    def _table(self, rows: object, depth: int) -> list[str]:
        lines = []
        for row in rows if isinstance(rows, list) else ():
            cells = [cell for cell in (row if isinstance(row, list) else ()) if isinstance(cell, dict)]
            lines.append("| " + " | ".join(self._text(cell.get("text"), depth) for cell in cells) + " |")
        return lines

    def _text(self, node: object, depth: int) -> str:
        """A string, several of them, or one with a style."""
        if depth > DEPTH_MAX:
            return "[…]"
        match node:
            case str():
                self._is_first = self._is_first and not node.strip()
                return node
            case list():
                return "".join(self._text(part, depth + 1) for part in node)
            case dict():
                return self._node(node, depth)
            case _:
                return ""

    def _node(self, node: Mapping[str, Any], depth: int) -> str:
        kind, is_first = text(node, "type"), self._is_first
        words = self._text(node.get("text"), depth + 1)
        match kind:
            case _ if kind in MARKS:
                return marked(words, MARKS[kind])
            case "mention" | "text_mention" | "bot_command":
                names = {"mention": "@" + text(node, "username"), "bot_command": text(node, "bot_command")}
                name = names.get(kind) or words
                instead = self.addressed(kind, name if len(name) > 1 else words, node, is_first)
                return _with_value(words, "" if name == "@" else name) if instead is None else instead
            case "url":
                address = text(node, "url")
                return f"[{words}]({address})" if address and words and address != words else words or address
            case "custom_emoji":
                return text(node, "alternative_text")
            case "mathematical_expression":
                return f"${scalar(node, 'expression')}$"
            case "subscript" | "superscript":
                return f"<{kind[:3]}>{words}</{kind[:3]}>"
            case "button":
                return self._button(mapping(node, "button"), depth)
            case _:
                value = next((it for key in _VALUES if (it := scalar(node, key))), "")
                return _with_value(words, value)

    def _button(self, button: Mapping[str, Any], depth: int) -> str:
        words = self._text(button.get("text"), depth)
        places = [button, *(mapping(button, key) for key in ("web_app", "login_url"))]
        if address := next((it for place in places if (it := text(place, "url"))), ""):
            return f"[{words}]({address})"
        value = next((it for key in _BUTTON if (it := text(button, key))), text(mapping(button, "copy_text"), "text"))
        return f"[button: {_with_value(words, value)}]"


def _with_value(words: str, value: str) -> str:
    """The words, and what they stand for if they do not say it."""
    bare = value.lower().removeprefix("@").removeprefix("mailto:").removeprefix("tel:")
    return words if not value or bare in words.lower() else f"{words} ({value})" if words else value

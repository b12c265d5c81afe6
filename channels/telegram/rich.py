"""A rich message as plain Markdown: such a message has blocks in place of a text. Pure.

Headings, lists, quotes and code keep their marks, as a model reads them anyway. What a block shows besides text is
named in a few words, and a kind that is not known gives its text.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from channels.telegram.wire import mappings, number, text

DEPTH_MAX = 20
"""Telegram nests 16 deep."""
Mentions: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Whether a node mentions the bot; it is left out then."""


def flatten(message: Mapping[str, Any], mentions: Mentions) -> str:
    return "\n".join(_blocks(mappings(message, "blocks"), mentions, 0)).strip()


def _blocks(blocks: list[Mapping[str, Any]], mentions: Mentions, depth: int) -> list[str]:
    if depth > DEPTH_MAX:
        return []
    return [line for block in blocks for line in _block(block, mentions, depth + 1)]


def _block(block: Mapping[str, Any], mentions: Mentions, depth: int) -> list[str]:
    words = _text(block.get("text"), mentions, depth)
    inside = _blocks(mappings(block, "blocks"), mentions, depth)
    match block.get("type"):
        case "heading":
            return ["#" * min(max(number(block, "size") or 1, 1), 6) + " " + words]
        case "pre":
            fence = "```" if "```" not in words else "````"
            return [f"{fence}{text(block, 'language')}", words, fence]
        case "blockquote" | "expandable_blockquote" | "pullquote":
            return [f"> {line}" for part in (words, *inside) if part for line in part.split("\n")]
        case "list":
            return [line for item in mappings(block, "items") for line in _item(item, mentions, depth)]
        case "table":
            return _table(block.get("cells"), mentions, depth)
        case "details":
            return [line for line in (_text(block.get("summary"), mentions, depth), *inside) if line]
        case "divider":
            return ["---"]
        case "photo" | "video" | "audio" | "animation" | "document" | "voice_note" | "map" as kind:
            return [f"[{kind.replace('_', ' ')}]"]
        case _:
            return [line for line in (words, *inside) if line]


def _item(item: Mapping[str, Any], mentions: Mentions, depth: int) -> list[str]:
    box = ("[x] " if item.get("is_checked") is True else "[ ] ") if item.get("has_checkbox") is True else ""
    marker = text(item, "label") or "-"
    lines = "\n".join(_blocks(mappings(item, "blocks"), mentions, depth)).split("\n")
    return [f"{marker} {box}{lines[0]}", *(f"  {line}" for line in lines[1:])]


def _table(rows: object, mentions: Mentions, depth: int) -> list[str]:
    found = []
    for row in rows if isinstance(rows, list) else ():
        cells = [cell for cell in (row if isinstance(row, list) else ()) if isinstance(cell, dict)]
        found.append("| " + " | ".join(_text(cell.get("text"), mentions, depth) for cell in cells) + " |")
    return found


def _text(node: object, mentions: Mentions, depth: int) -> str:
    """A string, several of them, or one with a style."""
    if depth > DEPTH_MAX:
        return ""
    match node:
        case str():
            return node
        case list():
            return "".join(_text(part, mentions, depth + 1) for part in node)
        case dict():
            return "" if mentions(node) else _text(node.get("text"), mentions, depth + 1)
        case _:
            return ""

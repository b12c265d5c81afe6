"""The blocks of a Feishu document as Markdown: headings, lists, code, quotes and tables. Pure.

A document is a flat list of blocks that name their children; each has one member with what it holds. Pictures, files
and widgets are placeholders that say what is there. A block of unknown kind is named, and its children are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from channels.wire import mapping, mappings, number, scalar, text
from tools.documents.pages import table

DEPTH_MAX = 20
KINDS: Mapping[int, str] = {
    1: "page", 2: "text", 12: "bullet", 13: "ordered", 14: "code", 15: "quote", 17: "todo", 18: "bitable", 19: "callout",
    22: "divider", 23: "file", 24: "grid", 25: "grid_column", 26: "iframe", 27: "image", 30: "sheet", 31: "table",
    32: "table_cell", 33: "view", 34: "quote_container", 43: "board", 49: "source_synced",
} | {number: f"heading{number - 2}" for number in range(3, 12)}  # fmt: skip
_MARKS = {"bullet": "- ", "quote": "> "} | {f"heading{level}": "#" * min(level + 1, 6) + " " for level in range(1, 10)}
_LISTS = ("bullet", "ordered", "todo")
_HOLDERS = ("grid", "grid_column", "table_cell", "view", "source_synced", "callout", "quote_container")
"""Kinds that show only what is in them."""


def markdown(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the Markdown of a document's blocks, one piece for each."""
    by_id = {text(it, "block_id"): it for it in blocks}
    root = by_id.pop(next(iter(by_id), ""), None)
    return _Blocks(by_id).read(root, 0) if root else iter(())


class _Blocks:
    def __init__(self, by_id: dict[str, Mapping[str, Any]]) -> None:
        self._by_id = by_id

    def read(self, block: Mapping[str, Any], depth: int, at: int = 1) -> Iterator[str]:
        """Yield the block and what is in it. `at` is its number in a list."""
        kind = KINDS.get(number(block, "block_type") or 0, "")
        inside = self._inside(block, depth)
        if kind == "table":
            yield self._table(block, depth)
            return
        if words := self._own(kind, block, at):
            yield words
        if kind in ("callout", "quote_container"):
            inside = (f"> {it}".replace("\n", "\n> ") for it in inside)
        elif kind in _LISTS:
            inside = (f"  {it}".replace("\n", "\n  ") for it in inside)
        yield from inside

    def _inside(self, block: Mapping[str, Any], depth: int) -> Iterator[str]:
        if depth >= DEPTH_MAX:
            return
        at = 0
        for child in filter(None, self._children(block)):
            at = at + 1 if number(child, "block_type") == 13 else 0
            yield from self.read(child, depth + 1, at)

    def _children(self, block: Mapping[str, Any], key: str = "children") -> list[Mapping[str, Any]]:
        """Return the children, each once in the whole document: a block that names itself must not be read again."""
        ids = block.get(key)
        return [self._by_id.pop(str(it), {}) for it in ids] if isinstance(ids, list) else []

    def _own(self, kind: str, block: Mapping[str, Any], at: int) -> str:
        data = mapping(block, kind)
        words = _line(data)
        match kind:
            case "page":
                return f"# {words}" if words else ""
            case "ordered":
                return f"{at}. {words}"
            case "todo":
                return f"- [{'x' if mapping(data, 'style').get('done') is True else ' '}] {words}"
            case "code":
                fence = "````" if "```" in words else "```"
                return f"{fence}\n{words}\n{fence}"
            case "divider":
                return "---"
            case "image":
                caption = text(mapping(data, "caption"), "content")
                return f"[image: {caption}]" if caption else "[image]"
            case "file":
                return f"[file: {text(data, 'name')}]"
            case "iframe":
                return f"[embedded page: {unquote(text(mapping(data, 'component'), 'url'))}]"
            case "bitable" | "sheet":
                token, _, part = text(data, "token").partition("_")
                return f"[embedded {kind}: read feishu:{kind}/{token} with sheet={part}]"
            case "board":
                return "[whiteboard]"
            case "":
                return f"[unsupported block: type {scalar(block, 'block_type')}]"
            case _ if kind in _HOLDERS:
                return ""
        return (_MARKS.get(kind, "") + words).rstrip()

    def _table(self, block: Mapping[str, Any], depth: int) -> str:
        data = mapping(block, "table")
        width = number(mapping(data, "property"), "column_size") or 1
        cells = ["; ".join(self._inside(it, depth + 1)) for it in self._children(data, "cells")]
        return table([cells[start : start + width] for start in range(0, len(cells), width)])


def _line(data: Mapping[str, Any]) -> str:
    return "".join(map(_element, mappings(data, "elements"))).strip("\n")


def _element(element: Mapping[str, Any]) -> str:
    run = mapping(element, "text_run")
    if run:
        words, style = text(run, "content"), mapping(run, "text_element_style")
        if style.get("inline_code") is True:
            return f"`{words}`"
        link = unquote(text(mapping(style, "link"), "url"))
        words = f"**{words}**" if style.get("bold") is True and words.strip() == words else words
        return f"[{words}]({link})" if link else words
    if person := text(mapping(element, "mention_user"), "user_id"):
        return f"@{person}"
    if document := mapping(element, "mention_doc"):
        return f"[{text(document, 'title') or 'document'}]({unquote(text(document, 'url'))})"
    if formula := text(mapping(element, "equation"), "content"):
        return f"${formula.strip()}$"
    return "[…]" if element else ""

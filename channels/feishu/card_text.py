"""A card that somebody sends, as text: what is written on it, where its links lead, and what a template is filled with.

It comes in its degraded form, rows of nodes as in a post; as it was made, of any generation; or as a template with its
variables. What is on it and is no text is named in brackets. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from channels.feishu.post import Content, Nodes, PeopleNames, link, resolve
from channels.wire import loads, mapping, mappings, scalar
from channels.wire import text as text_of

CARD_LINES_MAX = 200
CARD_DEPTH_MAX = 20
CARD = "[card]"
UNREADABLE_CARD = "[card whose content Feishu does not hand out]"
"""The text of a card of which the event has nothing but the excuse that an old client shows."""
_EXCUSE = re.compile(
    r"\s*(?:请(?:升级|更新)[^\n]{0,20}(?:客户端|版本)[^\n]{0,20}|Please (?:upgrade|update)\b[^\n]{0,80})\s*",
    re.IGNORECASE,
)
_TEXTS = ("markdown", "lark_md", "plain_text", "text")
_HOLDERS = (
    *("column_set", "column", "div", "form", "body", "header", "interactive_container", "collapsible_panel"),
    *("note", "action", "action_block", "actions", "card"),
)
"""Elements that show nothing by themselves."""
_FIRST = ("header", "title", "subtitle", "text")
_WRITTEN = (
    *("title", "subtitle", "text", "content", "label", "placeholder", "default_value"),
    *("initial_option", "initial_date", "initial_time", "initial_datetime"),
)
"""The members that are shown where they are strings."""
_UNSHOWN = (
    *("property", "config", "behaviors", "value", "confirm", "style", "icon"),
    *("multi_url", "url", "card_link"),  # read as the element's address
)


def read_card(content: Mapping[str, Any], names: PeopleNames) -> Content:
    """The text of a card; `UNREADABLE_CARD` without any, and in the place of the excuse."""
    rows = content.get("elements")
    if isinstance(rows, list) and rows and all(isinstance(row, list) for row in rows):
        lines = [scalar(content, "title"), *_degraded(rows, names)]
    else:
        made = content.get("json_card", content.get("user_dsl"))
        try:
            card = loads(made) if isinstance(made, str) else content
        except ValueError:
            card = content
        lines = [_read(line) for line in _MadeCard(names).lines(card, 0)]
    lines = [line for line in lines if line.strip()]
    lines = [line for at, line in enumerate(lines) if not at or line != lines[at - 1]]
    if not any(line for line in lines if line not in (UNREADABLE_CARD, f"[image] {UNREADABLE_CARD}")):
        return Content(text=UNREADABLE_CARD)
    if (more := len(lines) - CARD_LINES_MAX) > 0:
        lines = [*lines[:CARD_LINES_MAX], f"[{more:,} more lines]"]
    return Content(text=resolve("\n".join((CARD, *lines)), names))


def _degraded(rows: list[Any], names: PeopleNames) -> Iterator[str]:
    nodes = Nodes(names)
    for row in rows:
        yield " ".join(filter(None, (_read(nodes.row(node)) for node in row)))


def _read(line: str) -> str:
    return UNREADABLE_CARD if _EXCUSE.fullmatch(line) else line


class _MadeCard:
    """Reads a card as it was made."""

    def __init__(self, names: PeopleNames) -> None:
        self._names = names
        self._nodes = Nodes(names)

    def lines(self, node: object, depth: int) -> Iterator[str]:
        """The lines of an element and of what is inside it, in their order."""
        if depth > CARD_DEPTH_MAX:
            yield "[…]"
        elif isinstance(node, list):
            for inner in node:
                yield from self.lines(inner, depth + 1)
        elif isinstance(node, dict):
            yield from self._element({**mapping(node, "property"), **node}, depth)

    def _element(self, node: Mapping[str, Any], depth: int) -> Iterator[str]:
        tag = scalar(node, "tag")
        match tag:
            case _ if tag in _TEXTS and (words := _written(node)):
                yield self._nodes.markdown(words) if tag in ("markdown", "lark_md") else words
            case "a":
                yield link(_written(node), text_of(node, "href"))
            case "button":
                words, address = _plain(node.get("text")) or "button", _address(node)
                yield link(words, address) if address else f"[button: {words}]"
            case "table":
                yield from _table(node)
            case "img":
                alt = _plain(node.get("alt")) or _plain(node.get("title"))
                yield f"[image: {alt}]" if alt else "[image]"
            case "hr":
                yield "---"
            case "standard_icon" | "custom_icon":
                return
            case "at" | "person" | "person_list":
                ids = [scalar(it, "id") for it in mappings(node, "persons")]
                yield " ".join(self._names.get(it, f"@{it}") for it in (*ids, scalar(node, "user_id")) if it)
            case "chart":
                yield _unsupported(tag, _plain(mapping(node, "chart_spec").get("title")))
            case _ if variables := mapping(node, "template_variable"):
                yield from _variables(variables, "", 0)
            case _:
                yield from self._inside(node, tag, depth)

    def _inside(self, node: Mapping[str, Any], tag: str, depth: int) -> Iterator[str]:
        """The header and the title first, then the other members in their order; where a press leads is last."""
        is_empty = tag not in (*_HOLDERS, *_TEXTS, "")
        for key in (*(it for it in _FIRST if it in node), *(it for it in node if it not in _FIRST)):
            if key in _UNSHOWN:
                continue
            lines = self.lines(node[key], depth + 1)
            for line in filter(str.strip, [scalar(node, key)] if key in _WRITTEN and scalar(node, key) else lines):
                is_empty = False
                yield line
        if address := _address(node):
            yield address
        elif is_empty:
            yield _unsupported(tag)


def _table(node: Mapping[str, Any]) -> Iterator[str]:
    columns, rows = mappings(node, "columns"), mappings(node, "rows")
    keys = [scalar(it, "name") for it in columns] or list(dict.fromkeys(key for row in rows for key in row))
    yield _row([scalar(it, "display_name") or scalar(it, "name") for it in columns] or keys)
    yield _row(["---"] * len(keys))
    for row in rows:
        yield _row([_cell(row.get(key)) for key in keys])


def _written(node: Mapping[str, Any]) -> str:
    """The words of a text element, which may stand in its translations alone."""
    words = scalar(node, "content") or scalar(node, "text")
    translated = mapping(node, "i18n") or mapping(node, "i18n_content")
    return words or next((it for key in translated if (it := scalar(translated, key))), "")


def _plain(value: object) -> str:
    """The words of a member: a string, an element or several of them, as `text`, `label` and an option have them."""
    match value:
        case str():
            return value.strip()
        case dict():
            node = {**mapping(value, "property"), **value}
            words = _written(node).strip() or _plain(node.get("text")) or _plain(node.get("value"))
            return words or _plain(node.get("name"))
        case list():
            return ", ".join(filter(None, map(_plain, value)))
        case int() | float() if not isinstance(value, bool):
            return str(value)
        case _:
            return ""


def _cell(value: object) -> str:
    """The text of a table's cell: a scalar, or options, persons and links as an object or several."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return _plain(value) or " ".join(filter(None, (_cell(it) for it in value.values())))
        case list():
            return ", ".join(filter(None, map(_cell, value)))
        case _:
            return _plain(value)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(it.split()).replace("|", "\\|") for it in cells) + " |"


def _address(node: Mapping[str, Any]) -> str:
    """The address that a press of the element opens; empty if none."""
    places = [node, *(mapping(node, key) for key in ("multi_url", "card_link", "url"))]
    places += [it for it in mappings(node, "behaviors") if it.get("type") in (None, "open_url")]
    places += [mapping(it, "multi_url") for it in mappings(node, "behaviors")]
    keys = ("url", "default_url", "pc_url", "android_url", "ios_url", "href")
    return next((it for place in places for key in keys if (it := text_of(place, key))), "")


def _variables(variables: object, name: str, depth: int) -> Iterator[str]:
    """`name: value` for each variable of a template."""
    if depth > CARD_DEPTH_MAX:
        yield f"{name}: […]"
    elif isinstance(variables, dict):
        for key, value in variables.items():
            yield from _variables(value, f"{name}.{key}" if name else key, depth + 1)
    elif isinstance(variables, list):
        for at, value in enumerate(variables, 1):
            yield from _variables(value, f"{name} {at}", depth + 1)
    elif (words := _cell(variables)) and name:
        yield f"{name}: {words}"


def _unsupported(tag: str, words: str = "") -> str:
    kind = tag if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", tag) else "element"
    return f"[unsupported: {kind}{f': {words}' if words else ''}]"

"""Text as an interactive card (schema 2.0, which rejects unknown elements), and cards as text. Pure.

With buttons, a fenced block becomes a separate plain text without markup, so that a command is shown as it is. Buttons are
below the text and carry only their token; folded text is in a panel below them.

A received card becomes text: from its degraded form (rows of nodes as in a post), its source of any generation, or a
template with its variables. Non-text elements are named in brackets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt

from channels.feishu.post import Content, Nodes, PeopleNames, link, resolve
from channels.message import FORM_TEXT_CHARS_MAX, Button, ChoiceForm, Folded
from channels.spelling import spelt
from channels.wire import loads, mapping, mappings, scalar
from channels.wire import text as text_of

SUMMARY_CHARS = 60
SUMMARY_SOURCE_CHARS = 4_000
"""Characters of an answer that are searched for its summary: marks may precede the first words."""
TABLES_MAX = 5
_PREFIX = re.compile("[ >]*")
_PING = re.compile(r"<(?=/?at\b)", re.IGNORECASE)


TICK, FIELD = "option_", "text"
"""Names of a form's controls: `option_1`, `option_2`, …, and its text field."""


def card(
    text: str, buttons: Sequence[Button], folded: Folded | None = None, form: ChoiceForm | None = None
) -> dict[str, Any]:
    below = [*([_form(form)] if form else []), *([_panel(folded)] if folded else [])]
    return made([*_text(text), *map(_button, buttons), *below], text, enable_forward=False)


def answer_card(text: str) -> dict[str, Any]:
    return made([{"tag": "markdown", "content": shown(text)}], text)


def made(elements: Sequence[Mapping[str, Any]], summary: str, **config: Any) -> dict[str, Any]:
    summary = without_pings(summarised(summary))
    config = {"update_multi": True, "summary": {"content": summary}} | config
    return {"schema": "2.0", "config": config, "body": {"elements": list(elements)}}


def summarised(text: str) -> str:
    """Return the beginning of a text without Markdown marks, for the chat list and notifications."""
    words: list[str] = []
    for token in _summary_markdown().parse(text[:SUMMARY_SOURCE_CHARS]):
        parts = token.children or ((token,) if token.type in ("fence", "code_block") else ())
        parts = [it for it in parts if it.type != "html_inline"]
        words += [" " if it.type in ("softbreak", "hardbreak") else it.content for it in parts]
        words.append(" ")
    return " ".join("".join(words).split())[:SUMMARY_CHARS]


def needs_card(text: str) -> bool:
    """Return True if the text has what a post shows badly or not at all: a code block or a table."""
    if not any(mark in text for mark in ("```", "~~~", "|")):
        return False
    return any(token.type in ("fence", "table_open") for token in _markdown().parse(text))


def shown(text: str) -> str:
    """Adapt Markdown to a card element: no pings, no images by URL, formulas as code, surplus tables as code."""
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
    """Split the text into top-level fences and the text between them; joined by newlines they are the text."""
    lines, done = _lines(text), 0
    pieces: list[str] = []
    for token in _markdown().parse("\n".join(lines)) if "```" in text or "~~~" in text else ():
        if token.type == "fence" and token.level == 0 and token.map:
            pieces += ["\n".join(it) for it in (lines[done : token.map[0]], lines[slice(*token.map)]) if it]
            done = token.map[1]
    return [*pieces, "\n".join(lines[done:])] if lines[done:] or not pieces else pieces


def without_pings(text: str) -> str:
    """Neutralise `<at …>`: a model must not be able to mention users, or everyone."""
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
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _panel(folded: Folded) -> dict[str, Any]:
    # Needs Feishu 7.9; earlier clients show a notice that they are too old.
    title = {"tag": "plain_text", "content": folded.title}
    elements = [{"tag": "markdown", "content": shown(folded.text)}]
    return {"tag": "collapsible_panel", "expanded": False, "header": {"title": title}, "elements": elements}


def _button(button: Button) -> dict[str, Any]:
    opens = {"type": "open_url", "default_url": button.url}
    return {
        "tag": "button",
        "type": button.style,
        "text": {"tag": "plain_text", "content": button.shown},
        "behaviors": [opens if button.url else {"type": "callback", "value": {"token": button.token}}],
    }


def _form(form: ChoiceForm) -> dict[str, Any]:
    controls: list[dict[str, Any]] = [
        {"tag": "checker", "name": f"{TICK}{number}", "text": {"tag": "plain_text", "content": label}}
        for number, label in enumerate(form.options, 1)
    ]
    if form.field:
        placeholder = {"tag": "plain_text", "content": form.field}
        controls.append({"tag": "input", "name": FIELD, "placeholder": placeholder, "max_length": FORM_TEXT_CHARS_MAX})
    submit = _button(Button(label=form.submit, token=form.token, style="primary"))
    return {
        "tag": "form",
        "name": "form",
        "elements": [*controls, submit | {"name": "submit", "form_action_type": "submit"}],
    }


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


@lru_cache(maxsize=1)
def _summary_markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


CARD_LINES_MAX = 200
CARD_DEPTH_MAX = 20
CARD = "[card]"
UNREADABLE_CARD = "[card whose content Feishu does not hand out]"
"""The text of a card whose event has only the fallback for old clients."""
_EXCUSE = re.compile(
    r"\s*(?:请(?:升级|更新)[^\n]{0,20}(?:客户端|版本)[^\n]{0,20}|Please (?:upgrade|update)\b[^\n]{0,80})\s*",
    re.IGNORECASE,
)
_TEXTS = ("markdown", "lark_md", "plain_text", "text")
_HOLDERS = (
    *("column_set", "column", "div", "form", "body", "header", "interactive_container", "collapsible_panel"),
    *("note", "action", "action_block", "actions", "card"),
)
"""Container elements, which show nothing by themselves."""
_FIRST = ("header", "title", "subtitle", "text")
_WRITTEN = (
    *("title", "subtitle", "text", "content", "label", "placeholder", "default_value"),
    *("initial_option", "initial_date", "initial_time", "initial_datetime"),
)
"""Members that are shown if they are strings."""
_UNSHOWN = (
    *("property", "config", "behaviors", "value", "confirm", "style", "icon"),
    *("multi_url", "url", "card_link"),  # read as the element's address
)


def read_card(content: Mapping[str, Any], names: PeopleNames) -> Content:
    """Return the text of a card, or `UNREADABLE_CARD`."""
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
    def __init__(self, names: PeopleNames) -> None:
        self._names = names
        self._nodes = Nodes(names)

    def lines(self, node: object, depth: int) -> Iterator[str]:
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
    words = scalar(node, "content") or scalar(node, "text")
    translated = mapping(node, "i18n") or mapping(node, "i18n_content")
    return words or next((it for key in translated if (it := scalar(translated, key))), "")


def _plain(value: object) -> str:
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
    places = [node, *(mapping(node, key) for key in ("multi_url", "card_link", "url"))]
    places += [it for it in mappings(node, "behaviors") if it.get("type") in (None, "open_url")]
    places += [mapping(it, "multi_url") for it in mappings(node, "behaviors")]
    keys = ("url", "default_url", "pc_url", "android_url", "ios_url", "href")
    return next((it for place in places for key in keys if (it := text_of(place, key))), "")


def _variables(variables: object, name: str, depth: int) -> Iterator[str]:
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

"""Convert a message to plain Markdown, and find out whether it addresses the bot. Pure.

Entities mark up text, with offsets in UTF-16 units; only they distinguish a mention from similar text. The bot's own
mention is removed, also after a command; links keep their URL and code its fence.

A rich message has blocks instead of a text and nodes instead of entities, with the types of Bot API 10.3. An unknown one
yields its text, or its name in brackets.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from channels.marks import FORWARDED, VIA
from channels.message import Attachment
from channels.plain import marked
from channels.telegram import media
from channels.wire import clean, mapping, mappings, number, scalar, text

DEPTH_MAX = 20
"""Maximum nesting; Telegram allows 16."""
MARKS = {
    "bold": "**",
    "italic": "*",
    "underline": "__",
    "strikethrough": "~~",
    "spoiler": "||",
    "code": "`",
    "marked": "==",
}
"""Markdown marks of styles, for entities and nodes."""
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
    """Read one rich message. `addressed` gets the kind, text and node of a mention or command, and whether text precedes
    it; it returns the replacement, or None to keep it."""

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
    bare = value.lower().removeprefix("@").removeprefix("mailto:").removeprefix("tel:")
    return words if not value or bare in words.lower() else f"{words} ({value})" if words else value


MORE_UNITS_MIN = 4_000
"""Clients split pasted text at 4096 units, so a text of this size may continue."""
RAW = ("pre", "code", "mention", "text_mention", "bot_command")
"""Entities whose text is not parsed further."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Me:
    """The bot. `username` is None until Telegram has returned it. `commands` are those of its menu."""

    id: int
    username: str | None = None
    commands: frozenset[str] = frozenset()


NOBODY = Me(id=0)
"""No mention and no command is this bot's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TelegramContent:
    text: str
    mark: str = ""
    attachments: tuple[Attachment, ...] = ()
    mentioned: bool = False
    for_another: bool = False
    """True for a command that names another bot."""
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entity:
    kind: str
    start: int
    end: int
    text: str
    wire: Mapping[str, Any]


def read(message: Mapping[str, Any], me: Me) -> TelegramContent | None:
    """The content of a message; None if it says nothing, as a service message does."""
    written = _Marked(message)
    entities = list(written.entities())
    mentioned = any(_is_mine(entity, me) or _is_menu_command(entity, me) for entity in entities)
    words = written.rewritten(entities, me) or written.text
    attached, for_another = media.attachments(message), any(_is_for_another(entity, me) for entity in entities)
    if not words and (blocks := mapping(message, "rich_message")):
        rich = _Rich(me)
        reader = RichReader(rich.addressed)
        words = reader.read(blocks) or rich.named
        mentioned, for_another, attached = rich.mentioned, rich.for_another, (*attached, *reader.attachments)
    words = clean(words).strip() or media.words(message)
    if not words and not attached:
        return None
    mark = foreign_mark(message)
    return TelegramContent(
        text=mark + words,
        mark=mark,
        attachments=attached,
        mentioned=mentioned,
        for_another=for_another,
        more=bool(text(message, "media_group_id")) or written.units >= MORE_UNITS_MIN,
    )


def foreign_mark(message: Mapping[str, Any]) -> str:
    """Return the lines above text that the sender did not write (forwarded, or by an inline bot), so that it is no
    command."""
    author, bot = origin(message, "forward_origin"), mapping(message, "via_bot")
    via = f"{VIA}{' '.join(text(bot, 'username').split()) or number(bot, 'id') or 'a bot'}]\n" if bot else ""
    return f"{FORWARDED} {' '.join(author.split())}]\n{via}" if author else via


def quoted(message: Mapping[str, Any]) -> str | None:
    written = _Marked(message)
    words = written.rewritten([*written.entities()], NOBODY) or _unaddressed().read(mapping(message, "rich_message"))
    return clean(words).strip() or media.words(message) or None


def files(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    reader = _unaddressed()
    reader.read(mapping(message, "rich_message"))
    return (*media.attachments(message), *reader.attachments)


def _unaddressed() -> RichReader:
    return RichReader(lambda kind, words, node, is_first: None)


def origin(message: Mapping[str, Any], key: str) -> str | None:
    """Return the author of a forwarded message, or of a quoted one from another chat."""
    found = mapping(message, key)
    if not found:
        return None
    party = next((one for where in ("sender_user", "sender_chat", "chat") if (one := mapping(found, where))), {})
    known = name(party) or clean(text(found, "sender_user_name")).strip() or "somebody"
    signature = clean(text(found, "author_signature")).strip()
    return f"{known}, {signature}" if signature else known


def name(party: Mapping[str, Any]) -> str | None:
    full = " ".join(filter(None, (text(party, "first_name"), text(party, "last_name"))))
    return clean(full or text(party, "title") or text(party, "username")).strip() or None


class _Marked:
    """A text or a caption with its entities."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        text_key, entities_key = ("text", "entities") if "text" in message else ("caption", "caption_entities")
        self.text = text(message, text_key)
        self._wire = mappings(message, entities_key)
        self._raw = self.text.encode("utf-16-le", errors="surrogatepass")
        self.units = len(self._raw) // 2

    def entities(self) -> Iterator[_Entity]:
        for wire in sorted(self._wire, key=lambda wire: (number(wire, "offset") or 0, -(number(wire, "length") or 0))):
            start, length = number(wire, "offset"), number(wire, "length")
            if start is None or length is None or start < 0 or length <= 0 or start + length > self.units:
                continue
            end = start + length
            yield _Entity(kind=text(wire, "type"), start=start, end=end, text=self._cut(start, end), wire=wire)

    def rewritten(self, entities: list[_Entity], me: Me) -> str:
        return self._between(0, self.units, entities, me).strip()

    def _between(self, at: int, end: int, entities: list[_Entity], me: Me) -> str:
        rewritten = ""
        for number_, entity in enumerate(entities):
            if entity.start < at or entity.end > end:
                continue
            rewritten += self._cut(at, entity.start)
            at = entity.end
            inside = [it for it in entities[number_ + 1 :] if it.end <= entity.end]
            words = self._between(entity.start, entity.end, inside, me) if entity.kind not in RAW else entity.text
            is_command = any(it.kind == "bot_command" for it in inside)
            instead = words if is_command and entity.kind in MARKS else _instead(entity, words, me)
            if entity.kind == "pre":
                rewritten = rewritten + "\n" if rewritten and not rewritten.endswith("\n") else rewritten
                instead += "" if self._cut(at, at + 1) in ("", "\n") else "\n"
            if not instead:  # remove a blank together with the mention
                if self._cut(at, at + 1) == " ":
                    at += 1
                else:
                    rewritten = rewritten.removesuffix(" ")
            rewritten += instead
        return rewritten + self._cut(at, end)

    def _cut(self, start: int, end: int) -> str:
        return self._raw[2 * start : 2 * end].decode("utf-16-le", errors="surrogatepass")


def _instead(entity: _Entity, words: str, me: Me) -> str:
    match entity.kind:
        case "mention" | "text_mention" if _is_mine(entity, me):
            return ""
        case "bot_command" if _is_mine(entity, me):
            return entity.text.partition("@")[0]
        case "text_link" if (url := text(entity.wire, "url")) and url != entity.text:
            return f"[{words}]({url})"
        case "pre":
            fence = "```" if "```" not in entity.text else "````"
            body = entity.text.removesuffix("\n")
            return f"{fence}{text(entity.wire, 'language')}\n{body}\n{fence}"
        case "blockquote" | "expandable_blockquote":
            return "\n".join(f"> {line}" for line in words.splitlines())
        case _ if entity.kind in MARKS:
            return marked(words, MARKS[entity.kind])
        case _:
            return words


def _is_mine(entity: _Entity, me: Me) -> bool:
    match entity.kind:
        case "mention":
            return _is_my_name(entity.text.removeprefix("@"), me)
        case "text_mention":
            return number(mapping(entity.wire, "user"), "id") == me.id
        case "bot_command":
            return _is_my_name(entity.text.partition("@")[2], me)
        case _:
            return False


def _is_my_name(username: str, me: Me) -> bool:
    return me.username is not None and username.lower() == me.username.lower()


def _is_menu_command(entity: _Entity, me: Me) -> bool:
    return entity.kind == "bot_command" and entity.start == 0 and entity.text.lower().removeprefix("/") in me.commands


def _is_for_another(entity: _Entity, me: Me) -> bool:
    named = entity.kind == "bot_command" and entity.start == 0 and "@" in entity.text
    return named and me.username is not None and not _is_mine(entity, me)


@dataclass
class _Rich:
    """Judge mentions and commands of a rich message like those of a text."""

    me: Me
    mentioned: bool = False
    for_another: bool = False
    named: str = ""

    def addressed(self, kind: str, words: str, node: Mapping[str, Any], is_first: bool) -> str | None:
        start = 0 if is_first else 1
        entity = _Entity(kind=kind, start=start, end=start + 1, text=words, wire=node)
        self.for_another = self.for_another or _is_for_another(entity, self.me)
        is_mine = _is_mine(entity, self.me)
        self.mentioned = self.mentioned or is_mine or _is_menu_command(entity, self.me)
        if not is_mine:
            return None
        self.named = self.named or words
        return _instead(entity, words, self.me)

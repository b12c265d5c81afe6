"""A message becomes what a person said: text as plain Markdown, and whether it was said to the bot. Pure.

Telegram marks up text by entities, whose offsets count UTF-16 units. They alone tell a mention from a word that looks
like one. The bot's own mention goes, and so does its name behind a command; links keep their address and code its fence.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from channels.marks import FORWARDED, VIA
from channels.message import Attachment
from channels.telegram import media
from channels.wire import clean, mapping, mappings, number, text

MORE_UNITS_MIN = 4_000
"""A longer text than 4096 units is cut by the client that it is pasted into."""
DEPTH_MAX = 20
"""Telegram nests 16 deep."""
Mentions: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""True if a node mentions the bot; it is left out then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Me:
    """The bot: `username` is None until Telegram has said it. `commands` are those of its menu."""

    id: int
    username: str | None = None
    commands: frozenset[str] = frozenset()


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
    marked = _Marked(message)
    entities = list(marked.entities())
    mentioned = any(_is_mine(entity, me) or _is_menu_command(entity, me) for entity in entities)
    words = marked.rewritten(entities, me) or marked.text
    if not words and (blocks := mapping(message, "rich_message")):
        words, mentioned = _rich(blocks, me)
    attached = media.attachments(message)
    words = clean(words).strip() or media.words(message)
    if not words and not attached:
        return None
    mark = foreign_mark(message)
    return TelegramContent(
        text=mark + words,
        mark=mark,
        attachments=attached,
        mentioned=mentioned,
        for_another=any(_is_for_another(entity, me) for entity in entities),
        more=bool(text(message, "media_group_id")) or marked.units >= MORE_UNITS_MIN,
    )


def foreign_mark(message: Mapping[str, Any]) -> str:
    """The lines above words that are not the sender's own, forwarded or written by an inline bot: so they are no command."""
    author, bot = origin(message, "forward_origin"), mapping(message, "via_bot")
    via = f"{VIA}{' '.join(text(bot, 'username').split()) or number(bot, 'id') or 'a bot'}]\n" if bot else ""
    return f"{FORWARDED} {' '.join(author.split())}]\n{via}" if author else via


def quoted(message: Mapping[str, Any]) -> str | None:
    """The words of a message that another one answers."""
    words = _Marked(message).text or _flatten(mapping(message, "rich_message"), lambda node: False)
    return clean(words).strip() or media.words(message) or None


def origin(message: Mapping[str, Any], key: str) -> str | None:
    """The author of what was forwarded, or what is answered from another chat."""
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
        """The entities, in their order, without those outside of the text."""
        for wire in sorted(self._wire, key=lambda wire: number(wire, "offset") or 0):
            start, length = number(wire, "offset"), number(wire, "length")
            if start is None or length is None or start < 0 or length <= 0 or start + length > self.units:
                continue
            end = start + length
            yield _Entity(kind=text(wire, "type"), start=start, end=end, text=self._cut(start, end), wire=wire)

    def rewritten(self, entities: list[_Entity], me: Me) -> str:
        rewritten, at = "", 0
        for entity in entities:
            if entity.start < at or (instead := _instead(entity, me)) is None:
                continue
            rewritten += self._cut(at, entity.start)
            at = entity.end
            if entity.kind == "pre":
                rewritten = rewritten + "\n" if rewritten and not rewritten.endswith("\n") else rewritten
                instead += "" if self._cut(at, at + 1) in ("", "\n") else "\n"
            if not instead:  # a mention takes a blank with it
                if self._cut(at, at + 1) == " ":
                    at += 1
                else:
                    rewritten = rewritten.removesuffix(" ")
            rewritten += instead
        return (rewritten + self._cut(at, self.units)).strip()

    def _cut(self, start: int, end: int) -> str:
        return self._raw[2 * start : 2 * end].decode("utf-16-le", errors="surrogatepass")


def _instead(entity: _Entity, me: Me) -> str | None:
    """The text in an entity's place; None if it stays as it is."""
    match entity.kind:
        case "mention" | "text_mention" if _is_mine(entity, me):
            return ""
        case "bot_command" if _is_mine(entity, me):
            return entity.text.partition("@")[0]
        case "text_link" if (url := text(entity.wire, "url")) and url != entity.text:
            return f"[{entity.text}]({url})"
        case "pre":
            fence = "```" if "```" not in entity.text else "````"
            body = entity.text.removesuffix("\n")
            return f"{fence}{text(entity.wire, 'language')}\n{body}\n{fence}"
        case "blockquote" | "expandable_blockquote":
            return "\n".join(f"> {line}" for line in entity.text.splitlines())
        case _:
            return None


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
    """Clients leave the bot's name out if it is the only bot. Any other bare command may be for another bot."""
    return entity.kind == "bot_command" and entity.start == 0 and entity.text.lower().removeprefix("/") in me.commands


def _is_for_another(entity: _Entity, me: Me) -> bool:
    named = entity.kind == "bot_command" and entity.start == 0 and "@" in entity.text
    return named and me.username is not None and not _is_mine(entity, me)


def _rich(blocks: Mapping[str, Any], me: Me) -> tuple[str, bool]:
    mentioned = False

    def mine(node: Mapping[str, Any]) -> bool:
        nonlocal mentioned
        entity = _Entity(kind=text(node, "type"), start=1, end=1, text=text(node, "text"), wire=node)
        found = entity.kind != "bot_command" and _is_mine(entity, me)
        mentioned = mentioned or found
        return found

    return _flatten(blocks, mine), mentioned


def _flatten(message: Mapping[str, Any], mentions: Mentions) -> str:
    """A rich message, which has blocks instead of a text, as Markdown. An unknown block gives its text."""
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
    lines = []
    for row in rows if isinstance(rows, list) else ():
        cells = [cell for cell in (row if isinstance(row, list) else ()) if isinstance(cell, dict)]
        lines.append("| " + " | ".join(_text(cell.get("text"), mentions, depth) for cell in cells) + " |")
    return lines


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

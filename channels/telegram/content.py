"""From a message to what a person said: text as plain Markdown, and whether it was said to the bot. Pure.

Telegram marks up text by entities, whose offsets count UTF-16 units. They alone tell a mention from a word that looks
like one. The bot's own mention goes, and so does its name behind a command; links keep their address and code its fence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from channels.message import Attachment
from channels.telegram import media, rich
from channels.telegram.wire import clean, mapping, mappings, name, number, text

MORE_UNITS_MIN = 4_000
"""A longer text than 4096 units is cut by the client that it is pasted into."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Me:
    """The bot: `username` is None until Telegram has said it. `commands` are those of its menu."""

    id: int
    username: str | None = None
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    text: str
    attachments: tuple[Attachment, ...] = ()
    mentioned: bool = False
    for_another: bool = False
    """It is a command that names another bot."""
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entity:
    kind: str
    start: int
    end: int
    said: str
    wire: Mapping[str, Any]


def read(message: Mapping[str, Any], me: Me) -> Content | None:
    """What it says; None where it says nothing, as a service message does."""
    marked = _Marked(message)
    entities = list(marked.entities())
    mentioned = any(_is_mine(entity, me) or _is_menu_command(entity, me) for entity in entities)
    said = marked.rewritten(entities, me) or marked.text
    if not said and (blocks := mapping(message, "rich_message")):
        said, mentioned = _rich(blocks, me)
    attached = media.attachments(message)
    said = clean(said).strip() or media.words(message)
    if not said and not attached:
        return None
    author = origin(message, "forward_origin")
    return Content(
        text=f"[forwarded from {author}]\n{said}" if author else said,
        attachments=attached,
        mentioned=mentioned,
        for_another=any(_is_for_another(entity, me) for entity in entities),
        more=bool(text(message, "media_group_id")) or marked.units >= MORE_UNITS_MIN,
    )


def quoted(message: Mapping[str, Any]) -> str | None:
    """The words of a message that another one answers."""
    said = _Marked(message).text or rich.flatten(mapping(message, "rich_message"), lambda node: False)
    return clean(said).strip() or media.words(message) or None


def origin(message: Mapping[str, Any], key: str) -> str | None:
    """Who wrote what was forwarded, or what is answered from another chat."""
    found = mapping(message, key)
    if not found:
        return None
    party = next((one for where in ("sender_user", "sender_chat", "chat") if (one := mapping(found, where))), {})
    known = name(party) or clean(text(found, "sender_user_name")).strip() or "somebody"
    signature = clean(text(found, "author_signature")).strip()
    return f"{known}, {signature}" if signature else known


class _Marked:
    """A text or a caption with its entities."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        text_key, entities_key = ("text", "entities") if "text" in message else ("caption", "caption_entities")
        self.text = text(message, text_key)
        self._wire = mappings(message, entities_key)
        self._raw = self.text.encode("utf-16-le", errors="surrogatepass")
        self.units = len(self._raw) // 2

    def entities(self) -> Iterator[_Entity]:
        """In their order; those that lie outside of the text are none."""
        for wire in sorted(self._wire, key=lambda wire: number(wire, "offset") or 0):
            start, length = number(wire, "offset"), number(wire, "length")
            if start is None or length is None or start < 0 or length <= 0 or start + length > self.units:
                continue
            end = start + length
            yield _Entity(kind=text(wire, "type"), start=start, end=end, said=self._cut(start, end), wire=wire)

    def rewritten(self, entities: list[_Entity], me: Me) -> str:
        said, at = "", 0
        for entity in entities:
            if entity.start < at or (instead := _instead(entity, me)) is None:
                continue
            said += self._cut(at, entity.start)
            at = entity.end
            if entity.kind == "pre":
                said = said + "\n" if said and not said.endswith("\n") else said
                instead += "" if self._cut(at, at + 1) in ("", "\n") else "\n"
            if not instead:  # a mention takes a blank with it
                if self._cut(at, at + 1) == " ":
                    at += 1
                else:
                    said = said.removesuffix(" ")
            said += instead
        return (said + self._cut(at, self.units)).strip()

    def _cut(self, start: int, end: int) -> str:
        return self._raw[2 * start : 2 * end].decode("utf-16-le", errors="surrogatepass")


def _instead(entity: _Entity, me: Me) -> str | None:
    """What stands in an entity's place; None where it stays as it is."""
    match entity.kind:
        case "mention" | "text_mention" if _is_mine(entity, me):
            return ""
        case "bot_command" if _is_mine(entity, me):
            return entity.said.partition("@")[0]
        case "text_link" if (url := text(entity.wire, "url")) and url != entity.said:
            return f"[{entity.said}]({url})"
        case "pre":
            fence = "```" if "```" not in entity.said else "````"
            body = entity.said.removesuffix("\n")
            return f"{fence}{text(entity.wire, 'language')}\n{body}\n{fence}"
        case _:
            return None


def _is_mine(entity: _Entity, me: Me) -> bool:
    match entity.kind:
        case "mention":
            return _is_my_name(entity.said.removeprefix("@"), me)
        case "text_mention":
            return number(mapping(entity.wire, "user"), "id") == me.id
        case "bot_command":
            return _is_my_name(entity.said.partition("@")[2], me)
        case _:
            return False


def _is_my_name(said: str, me: Me) -> bool:
    return me.username is not None and said.lower() == me.username.lower()


def _is_menu_command(entity: _Entity, me: Me) -> bool:
    """Clients leave the bot's name out where it is the only bot. Any other bare command may be for another bot."""
    return entity.kind == "bot_command" and entity.start == 0 and entity.said.lower().removeprefix("/") in me.commands


def _is_for_another(entity: _Entity, me: Me) -> bool:
    named = entity.kind == "bot_command" and entity.start == 0 and "@" in entity.said
    return named and me.username is not None and not _is_mine(entity, me)


def _rich(blocks: Mapping[str, Any], me: Me) -> tuple[str, bool]:
    mentioned = False

    def mine(node: Mapping[str, Any]) -> bool:
        nonlocal mentioned
        entity = _Entity(kind=text(node, "type"), start=1, end=1, said=text(node, "text"), wire=node)
        found = entity.kind != "bot_command" and _is_mine(entity, me)
        mentioned = mentioned or found
        return found

    return rich.flatten(blocks, mine), mentioned

"""Text with entities: what people see, and which part of it is bold, a link or a mention.

Offsets and lengths count UTF-16 units, as everywhere in Telegram. What may overlap what is settled here. Texts with tags
(`parse_mode`) are not here: our bot sends entities.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

STYLES = ("bold", "italic", "underline", "strikethrough", "spoiler")
QUOTES = ("blockquote", "expandable_blockquote")
FIXED = {"code", "pre", "text_link", "text_mention", "custom_emoji", "date_time"}
"""Entities that do not overlap one another."""
ENTITIES_MAX = 100

_FOUND = re.compile(
    r"""(?P<url>https?://[^\s<>"]*[^\s<>".,;:!?)'])"""
    r"|(?P<mention>(?<![\w@/.])@[A-Za-z][A-Za-z0-9_]{3,31}(?!\w))"
    r"|(?P<bot_command>(?<![\w/@<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z][A-Za-z0-9_]{3,31})?(?![\w/]))"
)


class Unparsable(Exception):
    """The text cannot be read; the message is what comes after `can't parse entities: `."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Formatted:
    """What people see, and how."""

    text: str
    entities: tuple[Mapping[str, Any], ...] = ()

    @property
    def length(self) -> int:
        return utf16_length(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A stretch of text in the making."""

    kind: str
    begin: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def covered_by(text: str, entity: Mapping[str, Any]) -> str:
    """The part of the text that an entity is about. Raises UnicodeDecodeError where that is half a character."""
    begin = 2 * int(entity["offset"])
    return text.encode("utf-16-le")[begin : begin + 2 * int(entity["length"])].decode("utf-16-le")


def given_entities(text: str, given: Sequence[Mapping[str, Any]]) -> Formatted:
    """The text with the entities that came with it, as far as Telegram keeps them. Raises Unparsable."""
    spans = []
    for entity in given:
        begin, end = entity["offset"], entity["offset"] + entity["length"]
        if end > utf16_length(text):
            raise Unparsable(f"Entity beginning at UTF-16 offset {begin} ends after the end of the text")
        try:
            covered_by(text, {"offset": 0, "length": begin}), covered_by(text, entity)
        except UnicodeDecodeError:
            raise Unparsable(f"Entity beginning at UTF-16 offset {begin} cuts a UTF-16 symbol in two") from None
        kind, facts = entity["type"], {name: fact for name, fact in entity.items() if name not in _PLACE}
        if kind == "text_link":
            kind, facts = _link(facts.get("url", ""))
        if kind and begin < end:
            spans.append(Span(kind=kind, begin=begin, end=end, facts=facts))
    return Formatted(text=text, entities=_settled(spans))


_PLACE = ("type", "offset", "length")


def _link(address: str) -> tuple[str | None, dict[str, Any]]:
    """An address that is none is dropped without a word, and its text stays."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
    except ValueError:
        return None, {}
    user = parse_qs(parts.query).get("id", [""])[0]
    if parts.scheme == "tg" and parts.netloc == "user" and user.isdigit():
        return "text_mention", {"user": {"id": int(user)}}
    if parts.scheme not in ("http", "https", "tg", "ton") or (parts.scheme != "tg" and "." not in parts.netloc):
        return None, {}
    if "@" in parts.netloc or any(character.isspace() for character in address):
        return None, {}
    return "text_link", {"url": parts._replace(path=parts.path or "/").geturl()}


def trimmed(formatted: Formatted) -> Formatted:
    """Without the space around it; entities move and shrink along."""
    text = formatted.text.strip()
    skipped = utf16_length(formatted.text[: len(formatted.text) - len(formatted.text.lstrip())])
    kept = []
    for entity in formatted.entities:
        begin = max(entity["offset"] - skipped, 0)
        end = min(entity["offset"] + entity["length"] - skipped, utf16_length(text))
        if end > begin:
            kept.append({**entity, "offset": begin, "length": end - begin})
    return Formatted(text=text, entities=tuple(kept))


def with_found(formatted: Formatted) -> Formatted:
    """With the entities that Telegram finds by itself: addresses, mentions and commands, outside code and links."""
    taken = [entity for entity in formatted.entities if entity["type"] in FIXED]
    found = []
    for match in _FOUND.finditer(formatted.text):
        begin = utf16_length(formatted.text[: match.start()])
        length = utf16_length(match.group())
        if not any(begin < other["offset"] + other["length"] and other["offset"] < begin + length for other in taken):
            found.append({"offset": begin, "length": length, "type": str(match.lastgroup)})
    everything = sorted([*formatted.entities, *found], key=lambda entity: (entity["offset"], -entity["length"]))
    return replace(formatted, entities=tuple(everything[:ENTITIES_MAX]))


def _settled(spans: list[Span]) -> tuple[Mapping[str, Any], ...]:
    """Nothing inside code and links but styles, no style in code, no quote in a quote, and a style once."""
    outer_first = sorted(spans, key=lambda span: (span.begin, -span.end))
    fixed = _apart([span for span in outer_first if span.kind in FIXED])
    quotes = _apart([span for span in outer_first if span.kind in QUOTES])
    code = [span for span in fixed if span.kind in ("code", "pre")]
    styles = []
    for kind in STYLES:
        styles += _united([part for span in outer_first if span.kind == kind for part in _without(span, code)])
    everything = sorted([*quotes, *fixed, *styles], key=lambda span: (span.begin, -span.end))
    listed = ({"offset": s.begin, "length": s.end - s.begin, "type": s.kind, **s.facts} for s in everything)
    return tuple(listed)[:ENTITIES_MAX]


def _apart(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in spans:
        if not kept or span.begin >= kept[-1].end:
            kept.append(span)
    return kept


def _without(span: Span, holes: list[Span]) -> Iterable[Span]:
    begin = span.begin
    for hole in holes:
        if begin < hole.begin < span.end:
            yield replace(span, begin=begin, end=hole.begin)
        if hole.begin < span.end:
            begin = max(begin, hole.end)
    if begin < span.end:
        yield replace(span, begin=begin)


def _united(spans: list[Span]) -> list[Span]:
    united: list[Span] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if united and span.begin <= united[-1].end:
            united[-1] = replace(united[-1], end=max(united[-1].end, span.end))
        else:
            united.append(span)
    return united

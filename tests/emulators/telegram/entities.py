"""Telegram's HTML: text with tags in, plain text and entities out, or the refusal that Telegram would give.

Offsets and lengths of entities count UTF-16 units; offsets in refusals count bytes of the source. Only the emulator
reads this grammar: a channel that writes HTML must not be judged by its own code. Markdown modes are not here, and
which entities may overlap is `formatted`'s matter.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.emulators.telegram.formatted import QUOTES, Formatted, Span, Unparsable, settled, utf16_length

STYLES = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "span": "spoiler",
    "tg-spoiler": "spoiler",
}
OTHERS = {"a", "code", "pre", "blockquote", "tg-emoji", "tg-time"}
_SPACE = " \t\r\n\v"
_REFERENCE = re.compile(r"&(?:#x(?P<hex>[0-9a-fA-F]*)|#(?P<decimal>[0-9]*)|(?P<name>[a-zA-Z]+));?")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_ATTRIBUTE = re.compile(r"""[^ \t\r\n\v=>/"']*""")
_TOKEN = re.compile(r"[A-Za-z0-9.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Open:
    tag: str
    attributes: Mapping[str, str]
    begin: int
    text_begin: int


def parse_html(source: str) -> Formatted:
    """The text without its tags. Raises Unparsable."""
    text: list[str] = []
    stack: list[_Open] = []
    spans: list[Span] = []
    units = position = 0
    while position < len(source):
        if source[position] != "<":
            end = source.find("<", position)
            run = _decoded(source[position : end if end >= 0 else len(source)])
            text.append(run)
            units += utf16_length(run)
            position = end if end >= 0 else len(source)
        elif source.startswith("</", position):
            opened, position = _end_tag(source, position, stack)
            inside = "".join(text)[opened.text_begin :]
            spans.extend(_spans(opened, inside, units, depth=len(stack), inner=spans))
        else:
            tag, attributes, position = _start_tag(source, position)
            begin = sum(map(len, text))
            stack.append(_Open(tag=tag, attributes=attributes, begin=units, text_begin=begin))
    if stack:
        raise Unparsable(f'Can\'t find end tag corresponding to start tag "{stack[-1].tag}"')
    return Formatted(text="".join(text), entities=settled(spans))


def _start_tag(source: str, begin: int) -> tuple[str, dict[str, str], int]:
    position = begin + 1
    while position < len(source) and source[position] not in _SPACE + ">":
        position += 1
    if position == len(source):
        raise Unparsable(f"Unclosed start tag at byte offset {_bytes(source, begin)}")
    tag = source[begin + 1 : position].lower()
    if tag not in STYLES and tag not in OTHERS:
        raise Unparsable(f'Unsupported start tag "{tag}" at byte offset {_bytes(source, begin)}')
    attributes: dict[str, str] = {}
    position = _after_space(source, position)
    while source[position : position + 1] != ">":
        name, value, position = _attribute(source, position, tag=tag, begin=begin)
        attributes[name] = value
        position = _after_space(source, position)
    if tag == "span" and attributes.get("class") != "tg-spoiler":
        raise Unparsable(f'Tag "span" must have class "tg-spoiler" at byte offset {_bytes(source, begin)}')
    return tag, attributes, position + 1


def _attribute(source: str, position: int, *, tag: str, begin: int) -> tuple[str, str, int]:
    unclosed = Unparsable(f"Unclosed start tag at byte offset {_bytes(source, begin)}")
    if position >= len(source):
        raise unclosed
    name = source[position : _end_of(_ATTRIBUTE, source, position)]
    if not name:
        raise Unparsable(f'Empty attribute name in the tag "{tag}" at byte offset {_bytes(source, begin)}')
    position = _after_space(source, position + len(name))
    if source[position : position + 1] != "=":
        return name, "", position
    position = _after_space(source, position + 1)
    quote = source[position : position + 1]
    if quote and quote in "\"'":
        end = source.find(quote, position + 1)
        if end < 0:
            raise unclosed
        return name, _decoded(source[position + 1 : end]), end + 1
    end = _end_of(_TOKEN, source, position)
    if end == len(source):
        raise unclosed
    if source[end] not in _SPACE + ">":
        raise Unparsable(f"Unexpected end of name token at byte offset {_bytes(source, position)}")
    return name, source[position:end].lower(), end


def _end_tag(source: str, begin: int, stack: list[_Open]) -> tuple[_Open, int]:
    if not stack:
        raise Unparsable(f"Unexpected end tag at byte offset {_bytes(source, begin)}")
    position = begin + 2
    while position < len(source) and source[position] not in _SPACE + ">":
        position += 1
    name = source[begin + 2 : position].lower()
    position = _after_space(source, position)
    if source[position : position + 1] != ">":
        raise Unparsable(f"Unclosed end tag at byte offset {_bytes(source, begin)}")
    opened = stack.pop()
    if name not in ("", opened.tag):
        where = f"at byte offset {_bytes(source, begin)}"
        raise Unparsable(f'Unmatched end tag {where}, expected "</{opened.tag}>", found "</{name}>"')
    return opened, position + 1


def _spans(opened: _Open, inside: str, units: int, *, depth: int, inner: list[Span]) -> Iterable[Span]:
    """What a tag that has just been closed makes of what is inside it."""
    if units == opened.begin:
        return
    kind, facts = _meaning(opened, inside)
    if kind == "pre" and inner:
        last = inner[-1]
        if last.kind == "code" and (last.begin, last.end) == (opened.begin, units) and last.facts:
            facts = dict(last.facts)
    if kind:
        yield Span(kind=kind, begin=opened.begin, end=units, depth=depth, facts=facts)


def _meaning(opened: _Open, inside: str) -> tuple[str | None, dict[str, Any]]:
    attributes = opened.attributes
    match opened.tag:
        case "a":
            return _link(attributes.get("href") or inside)
        case "code":
            language = attributes.get("class", "")
            known = language.startswith("language-") and len(language) > len("language-")
            return "code", {"language": language.removeprefix("language-")} if known else {}
        case "pre":
            return "pre", {}
        case "blockquote":
            return QUOTES["expandable" in attributes], {}
        case "tg-emoji":
            if not attributes.get("emoji-id", "").isdigit():
                raise Unparsable("Invalid custom emoji identifier specified")
            return "custom_emoji", {"custom_emoji_id": attributes["emoji-id"]}
        case "tg-time":
            if not attributes.get("unix", "").isdigit():
                raise Unparsable("Invalid unix time specified")  # our wording
            shown = {"date_time_format": attributes["format"]} if attributes.get("format") else {}
            return "date_time", {"unix_time": int(attributes["unix"]), **shown}
        case tag:
            return STYLES[tag], {}


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


def _decoded(source: str) -> str:
    return _REFERENCE.sub(_character, source)


def _character(match: re.Match[str]) -> str:
    """Four names and numbers; anything else stays as it was written, as on the real server."""
    if name := match["name"]:
        return _NAMED.get(name, match.group())
    digits, base = (match["hex"], 16) if match["hex"] is not None else (match["decimal"], 10)
    code = int(digits or "0", base)
    if not 0 < code < 0x10FFFF or 0xD800 <= code < 0xE000 or len(match.group().rstrip(";")) >= 10:
        return match.group()
    return chr(code)


def _bytes(source: str, position: int) -> int:
    return len(source[:position].encode())


def _after_space(source: str, position: int) -> int:
    while position < len(source) and source[position] in _SPACE:
        position += 1
    return position


def _end_of(pattern: re.Pattern[str], source: str, position: int) -> int:
    match = pattern.match(source, position)
    return match.end() if match else position

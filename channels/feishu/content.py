"""A message's `content` becomes text and attachments: what a person wrote, as plain Markdown. Pure.

`content` is JSON inside a string. Mentions are placeholders (`@_user_1`), resolved as whole tokens: the bot's own goes,
another becomes `@name`. What is no text becomes a few words in brackets, so that no kind of message is met by silence.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import Any

from channels.marks import BUNDLE
from channels.message import Attachment, AttachmentKind
from channels.moment import timestamp
from channels.wire import clean, loads, mappings
from channels.wire import text as text_of

_PLACEHOLDER = re.compile(r"(@_user_[0-9]+|@_all)( ?)")
OPTIONS_MAX = 20
CARD_LINES_MAX = 200
CARD_DEPTH_MAX = 20
_CARD_TEXTS = ("markdown", "lark_md", "plain_text", "text", "a")
_STYLES = (("bold", "**"), ("italic", "*"), ("lineThrough", "~~"))
LOCALES = ("zh_cn", "en_us", "ja_jp", "zh_hk", "zh_tw")


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    text: str
    attachments: tuple[Attachment, ...] = ()

    def of(self, message_id: str) -> "Content":
        """Puts the message into the keys: a key is good with its own message only."""
        keyed = tuple(replace(it, key=f"{message_id}/{it.key}") for it in self.attachments)
        return Content(text=self.text, attachments=keyed)


PeopleNames = Mapping[str, str]
"""The text for each placeholder; empty for the bot's own."""


def read(kind: str, raw: object, names: PeopleNames, zone: tzinfo = UTC) -> Content | None:
    """The content of a message of this type, its times in `zone`; None if it says nothing, or no person says it."""
    if not isinstance(raw, str) or not raw.strip() or kind == "system":
        return None
    try:
        content = loads(raw)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return Content(text=f"[unreadable {_word(kind)} message]")
    reader = _READERS.get(kind)
    found = reader(content, names, zone) if reader else Content(text=f"[unsupported message: {_word(kind)}]")
    text = clean(found.text).strip()
    attachments = tuple(replace(it, key=clean(it.key), name=it.name and clean(it.name)) for it in found.attachments)
    return Content(text=text, attachments=attachments) if text or attachments else None


BUNDLES = "merge_forward"
"""The type of a message whose text is `BUNDLE` until `People` has read it."""


def resolve(text: str, names: PeopleNames) -> str:
    """Placeholders are whole tokens: `@_user_1` does not begin `@_user_10`. The bot's own takes its space with it."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] == "@_all":
            return "@all" + match[2]
        name = names.get(match[1], match[1])
        return name + match[2] if name else ""

    return _PLACEHOLDER.sub(replaced, text)


def _post(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    """The form as received: title and paragraphs at the top; wrapped in a locale by some clients."""
    if not isinstance(content.get("content"), list):
        wrapped = (content.get(locale) for locale in (*LOCALES, *content))
        content = next((found for found in wrapped if isinstance(found, dict)), {})
    paragraphs, attachments = [], []
    title = text_of(content, "title").strip()
    if title:
        paragraphs.append(f"**{title}**")
    rows = content.get("content")
    for row in rows if isinstance(rows, list) else ():
        texts = []
        for node in row if isinstance(row, list) else ():
            if isinstance(node, dict):
                texts.append(_node(node, names))
                attachments += _node_attachments(node)
        paragraphs.append("".join(texts))
    for file in mappings(content, "files"):
        kind: AttachmentKind = "other" if file.get("is_folder") is True else "file"
        attached = _attached(kind, "file_key", _file)(file, names, zone)
        paragraphs.append(attached.text)
        attachments += attached.attachments
    return Content(text=resolve("\n".join(paragraphs), names), attachments=tuple(attachments))


def _node(node: Mapping[str, Any], names: PeopleNames) -> str:
    text = text_of(node, "text")
    match node.get("tag"):
        case "text" | "md":
            styles = node.get("style")
            for style, mark in _STYLES:
                if isinstance(styles, list) and style in styles and text.strip():
                    text = f"{mark}{text}{mark}"
            return text
        case "a":
            return f"[{text or text_of(node, 'href')}]({text_of(node, 'href')})"
        case "at":
            key = text_of(node, "user_id")
            if key in ("@_all", "all"):
                return "@all"
            return names[key] if key in names else f"@{text_of(node, 'user_name') or key}"
        case "img":
            return "[image]"
        case "media":
            return "[video]"
        case "emotion":
            return f"[{text_of(node, 'emoji_type')}]"
        case "hr":
            return "---"
        case "code_block":
            body = text.removesuffix("\n")
            fence = "```" if "```" not in body else "````"
            return f"{fence}{text_of(node, 'language').lower()}\n{body}\n{fence}"
        case _:
            return text


def _node_attachments(node: Mapping[str, Any]) -> list[Attachment]:
    match node.get("tag"):
        case "img" if text_of(node, "image_key"):
            return [Attachment(kind="image", key=text_of(node, "image_key"))]
        case "media" if text_of(node, "file_key"):
            return [Attachment(kind="video", key=text_of(node, "file_key"), name=text_of(node, "file_name") or None)]
        case _:
            return []


def _attached(kind: AttachmentKind, key: str, words: Callable[[Mapping[str, Any]], str]) -> "_ContentReader":
    def read_attached(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
        handle, name = text_of(content, key), text_of(content, "file_name") or None
        attachments = (Attachment(kind=kind, key=handle, name=name),) if handle else ()
        return Content(text=f"[{words(content)}]", attachments=attachments)

    return read_attached


def _card(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    """A card: in its degraded form, rows of nodes as in a post; or as it was made, of any generation."""
    rows = content.get("elements")
    if isinstance(rows, list) and all(isinstance(row, list) for row in rows):
        lines = [text_of(content, "title")]
        lines += [" ".join(filter(None, (_node(it, names) for it in row if isinstance(it, dict)))) for row in rows]
    else:
        made = content.get("json_card", content.get("user_dsl"))
        try:
            lines = list(_card_texts(loads(made) if isinstance(made, str) else content, 0))
        except ValueError:
            lines = []
    return Content(text="[card]\n" + resolve("\n".join(filter(None, lines[:CARD_LINES_MAX])), names))


def _card_texts(node: object, depth: int) -> Iterator[str]:
    """The text that is written on it, in the order of its elements."""
    if depth > CARD_DEPTH_MAX:
        return
    if isinstance(node, dict):
        if node.get("tag") in _CARD_TEXTS and (text := text_of(node, "content") or text_of(node, "text")):
            yield text
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        yield from _card_texts(inner, depth + 1)


def _words(template: str, *keys: str) -> "_ContentReader":
    def words(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
        found = template.format(*(text_of(content, key) for key in keys)).rstrip(": ")
        return Content(text=f"[{found}{_when(content, zone)}]")

    return words


def _when(content: Mapping[str, Any], zone: tzinfo) -> str:
    """Beginning, end and due date, as far as it has them: milliseconds as text."""
    times = []
    for word, key in (("from", "start_time"), ("to", "end_time"), ("due", "due_time")):
        if re.fullmatch(r"[0-9]{10,14}", value := text_of(content, key)):
            times.append(f", {word} {timestamp(int(value) / (1 if len(value) == 10 else 1000), zone)}")
    return "".join(times)


def _file(content: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, ("file", text_of(content, "file_name"))))


def _vote(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    options = content.get("options")
    lines = [it for it in (options if isinstance(options, list) else ()) if isinstance(it, str)]
    return Content(text="\n- ".join((f"[vote: {text_of(content, 'topic')}]", *lines[:OPTIONS_MAX])))


def _todo(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    summary = content.get("summary")
    task = f"[task{_when(content, zone)}]"
    return Content(text=f"{task}\n{_post(summary, names, zone).text}" if isinstance(summary, dict) else task)


def _length(content: Mapping[str, Any]) -> str:
    duration = content.get("duration")
    return f", {duration / 1000:.0f} s" if isinstance(duration, int | float) and 0 < duration < 1e9 else ""


def _word(kind: str) -> str:
    """A type's name, if it looks like one."""
    return kind if re.fullmatch(r"[a-z0-9_]{1,40}", kind) else "unknown"


_ContentReader = Callable[[Mapping[str, Any], PeopleNames, tzinfo], Content]
_READERS: dict[str, _ContentReader] = {
    "text": lambda content, names, zone: Content(text=resolve(text_of(content, "text"), names)),
    "post": _post,
    "image": _attached("image", "image_key", lambda content: "image"),
    "file": _attached("file", "file_key", _file),
    "folder": _attached("other", "file_key", lambda content: f"folder: {text_of(content, 'file_name')}"),
    "audio": _attached("audio", "file_key", lambda content: "voice message" + _length(content)),
    "media": _attached("video", "file_key", lambda content: "video" + _length(content)),
    "sticker": _attached("sticker", "file_key", lambda content: "sticker"),
    "interactive": _card,
    "share_chat": _words("shared group: {}", "chat_id"),
    "share_user": _words("shared contact: {}", "user_id"),
    BUNDLES: lambda content, names, zone: Content(text=BUNDLE),
    "location": _words("location: {} ({}, {})", "name", "latitude", "longitude"),
    "share_calendar_event": _words("calendar event: {}", "summary"),
    "calendar": _words("calendar event: {}", "summary"),
    "general_calendar": _words("calendar event: {}", "summary"),
    "video_chat": _words("video meeting: {}", "topic"),
    "vote": _vote,
    "hongbao": _words("red packet"),
    "todo": _todo,
}

"""A message's `content` becomes text and attachments: what a person wrote, as plain Markdown. Pure.

`content` is JSON inside a string. Mentions are placeholders (`@_user_1`), resolved as whole tokens: the bot's own goes,
another becomes `@name`. What is no text becomes a few words in brackets, so that no kind of message is met by silence.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

from channels.feishu.card_text import UNREADABLE_CARD, read_card
from channels.feishu.post import Content, Nodes, PeopleNames, read_post, resolve
from channels.marks import BUNDLE
from channels.message import Attachment, AttachmentKind
from channels.moment import timestamp
from channels.wire import clean, loads, scalar
from channels.wire import text as text_of

OPTIONS_MAX = 20
BUNDLES = "merge_forward"
"""The type of a message whose text is `BUNDLE` until `People` has read it."""
UNREAD = "[message whose content has not come with it]"
"""The text of a message without content, until `People` has fetched it."""


def read(kind: str, raw: object, names: PeopleNames, zone: tzinfo = UTC) -> Content | None:
    """The content of a message of this type, its times in `zone`; with an empty text if nothing is written there, and
    None if no person says it."""
    if kind == "system":
        return None
    if kind == BUNDLES:
        return Content(text=BUNDLE)
    if not isinstance(raw, str) or not raw.strip():
        return Content(text="")
    try:
        content = loads(raw)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return Content(text=f"[unreadable {_word(kind)} message]")
    reader = _READERS.get(kind)
    found = reader(content, names, zone) if reader else _unsupported(kind, content, names)
    attachments = tuple(replace(it, key=clean(it.key), name=it.name and clean(it.name)) for it in found.attachments)
    return replace(found, text=clean(found.text).strip(), attachments=attachments)


def is_incomplete(text: str) -> bool:
    """True for the text of a message that Feishu may hand out in full if it is asked by id."""
    return text == UNREAD or UNREADABLE_CARD in text


def _unsupported(kind: str, content: Mapping[str, Any], names: PeopleNames) -> Content:
    """A message of a type that is not known here: its name, and the words and files that it holds."""
    nodes = Nodes(names)
    words = resolve(nodes.unknown(content), names)
    lines = [f"[unsupported message: {_word(kind)}]", *([words] if words and not words.startswith("[uns") else [])]
    return Content(text="\n".join(lines), attachments=nodes.attachments)


def _attached(kind: AttachmentKind, key: str, words: Callable[[Mapping[str, Any]], str]) -> "_ContentReader":
    def read_attached(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
        handle, name = text_of(content, key), _file_name(content) or None
        attachments = (Attachment(kind=kind, key=handle, name=name),) if handle else ()
        return Content(text=f"[{words(content)}]", attachments=attachments)

    return read_attached


def _file_name(content: Mapping[str, Any]) -> str:
    return scalar(content, "file_name") or scalar(content, "name")


def _named(kind: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda content: ": ".join(filter(None, (kind, _file_name(content)))) + _length(content)


def _words(kind: str, *keys: str) -> "_ContentReader":
    """The first of these members that there is, after the kind of message, and its times."""

    def words(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
        found = next((it for key in keys if (it := scalar(content, key).strip())), "")
        return Content(text=f"[{': '.join(filter(None, (kind, found)))}{_when(content, zone)}]")

    return words


def _location(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    place = ", ".join(filter(None, (scalar(content, "name"), scalar(content, "address"))))
    where = ", ".join(filter(None, (scalar(content, "latitude"), scalar(content, "longitude"))))
    return Content(
        text=f"[{' '.join(filter(None, (f'location: {place}' if place else 'location', where and f'({where})')))}]"
    )


def _when(content: Mapping[str, Any], zone: tzinfo) -> str:
    """Beginning, end and due date, as far as it has them: seconds or milliseconds, mostly as text."""
    times = []
    for word, key in (("from", "start_time"), ("to", "end_time"), ("due", "due_time")):
        if re.fullmatch(r"[0-9]{10,14}", value := scalar(content, key)):
            times.append(f", {word} {timestamp(int(value) / (1 if len(value) == 10 else 1000), zone)}")
    return "".join(times)


def _vote(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    options, nodes = content.get("options"), Nodes(names)
    lines = [nodes.unknown(it) if isinstance(it, dict) else it for it in (options if isinstance(options, list) else ())]
    lines = [str(it) for it in lines if isinstance(it, str | int | float) and str(it).strip()]
    more = [f"[{len(lines) - OPTIONS_MAX} more]"] if len(lines) > OPTIONS_MAX else []
    topic = ": ".join(filter(None, ("vote", scalar(content, "topic"))))
    return Content(text="\n- ".join((f"[{topic}]", *lines[:OPTIONS_MAX], *more)))


def _todo(content: Mapping[str, Any], names: PeopleNames, zone: tzinfo) -> Content:
    summary = content.get("summary")
    task = f"[task{_when(content, zone)}]"
    if isinstance(summary, dict):
        post = read_post(summary, names)
        return replace(post, text="\n".join(filter(None, (task, post.text))))
    return Content(text="\n".join(filter(None, (task, resolve(scalar(content, "summary"), names)))))


def _length(content: Mapping[str, Any]) -> str:
    """The duration of a recording: milliseconds."""
    try:
        duration = float(scalar(content, "duration") or 0)
    except ValueError:
        return ""
    return f", {duration / 1000:.0f} s" if 0 < duration < 1e9 else ""


def _word(kind: str) -> str:
    """A type's name, if it looks like one."""
    return kind if re.fullmatch(r"[a-z0-9_]{1,40}", kind) else "unknown"


_ContentReader = Callable[[Mapping[str, Any], PeopleNames, tzinfo], Content]
_READERS: dict[str, _ContentReader] = {
    "text": lambda content, names, zone: Content(text=resolve(scalar(content, "text"), names)),
    "post": lambda content, names, zone: read_post(content, names),
    "image": _attached("image", "image_key", lambda content: "image"),
    "file": _attached("file", "file_key", _named("file")),
    "folder": _attached("other", "file_key", _named("folder")),
    "audio": _attached("audio", "file_key", _named("voice message")),
    "media": _attached("video", "file_key", _named("video")),
    "video": _attached("video", "file_key", _named("video")),
    "sticker": _attached("sticker", "file_key", lambda content: "sticker"),
    "interactive": lambda content, names, zone: read_card(content, names),
    "share_chat": _words("shared group", "chat_id", "chat_name"),
    "share_user": _words("shared contact", "user_id", "user_name"),
    "location": _location,
    "share_calendar_event": _words("calendar event", "summary", "title"),
    "calendar": _words("calendar event", "summary", "title"),
    "general_calendar": _words("calendar event", "summary", "title"),
    "video_chat": _words("video meeting", "topic", "title"),
    "vote": _vote,
    "hongbao": lambda content, names, zone: Content(text=_red_packet(content)),
    "todo": _todo,
}


def _red_packet(content: Mapping[str, Any]) -> str:
    words = (scalar(content, "text") or scalar(content, "title")).strip().strip("[]")
    return f"[red packet: {words}]" if words and words != "红包" else "[red packet]"

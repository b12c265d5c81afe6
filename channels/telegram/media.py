"""Attachments of a message, and a short description of each. Pure.

The description stands in for the text of a message without one, so that every kind of message is answered.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from channels.message import MEDIA_TYPE, Attachment, AttachmentKind
from channels.wire import clean, mapping, mappings, number, text


def attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    files = []
    for key, kind in _ATTACHED.items():
        if key == "document" and "animation" in message:  # an animation also has a document
            continue
        media = _media(message, key)
        if handle := text(media, "file_id"):
            name = clean(text(media, "file_name") or text(media, "title")).strip() or None
            mime_type = text(media, "mime_type")
            media_type = mime_type if MEDIA_TYPE.fullmatch(mime_type) else None
            files.append(Attachment(kind=kind, key=clean(handle), name=name, type=media_type))
    return tuple(files)


def words(message: Mapping[str, Any]) -> str:
    """Return `[file: report.pdf]`, or "" for a message without attachments."""
    for key, read in _WORDS.items():
        if key in message:
            return f"[{clean(read(_media(message, key))).strip()}]"
    return ""


def _media(message: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    sizes = mappings(message, key)  # of a photo, the largest last
    return sizes[-1] if sizes else mapping(message, key)


def _named(kind: str) -> "_MediaWords":
    return lambda media: ": ".join(filter(None, (kind, text(media, "file_name") or text(media, "title"))))


def _lasting(kind: str) -> "_MediaWords":
    return lambda media: f"{kind}, {seconds} s" if (seconds := number(media, "duration")) else kind


def _audio(media: Mapping[str, Any]) -> str:
    title = " – ".join(filter(None, (text(media, "performer"), text(media, "title")))) or text(media, "file_name")
    return _lasting(f"audio: {title}" if title else "audio")(media)


def _venue(venue: Mapping[str, Any]) -> str:
    place = mapping(venue, "location")
    where = f"({_coordinate(place, 'latitude')}, {_coordinate(place, 'longitude')})"
    return "location: " + ", ".join(filter(None, (text(venue, "title"), text(venue, "address")))) + f" {where}"


def _coordinate(place: Mapping[str, Any], key: str) -> str:
    value = place.get(key)
    return f"{value:.6f}" if isinstance(value, int | float) and abs(value) <= 180 else "?"


def _contact(contact: Mapping[str, Any]) -> str:
    name = " ".join(filter(None, (text(contact, "first_name"), text(contact, "last_name"))))
    return "contact: " + ", ".join(filter(None, (name, text(contact, "phone_number"))))


def _poll(poll: Mapping[str, Any]) -> str:
    options = [
        text(it, "text") + (f" ({votes})" if (votes := number(it, "voter_count")) is not None else "")
        for it in mappings(poll, "options")
    ]
    kind = "poll, closed" if poll.get("is_closed") is True else "poll"
    more = "".join(f"; {it}" for key in ("description", "explanation") if (it := text(poll, key)))
    return f"{kind}: {text(poll, 'question')} — {' / '.join(options)}{more}"


def _checklist(checklist: Mapping[str, Any]) -> str:
    tasks = [f"[{'x' if _is_done(it) else ' '}] {text(it, 'text')}" for it in mappings(checklist, "tasks")]
    return f"checklist: {text(checklist, 'title')} — {' / '.join(tasks)}"


def _is_done(task: Mapping[str, Any]) -> bool:
    return bool(number(task, "completion_date")) or "completed_by_user" in task or "completed_by_chat" in task


def chosen(message: Mapping[str, Any], answered: Mapping[str, Any]) -> str:
    """Return the task or option of the quoted message that this one refers to."""
    task, option = number(message, "reply_to_checklist_task_id"), text(message, "reply_to_poll_option_id")
    for it in mappings(mapping(answered, "checklist"), "tasks"):
        if task is not None and number(it, "id") == task:
            return f"[this task: {clean(text(it, 'text'))}]"
    for it in mappings(mapping(answered, "poll"), "options"):
        if option and text(it, "persistent_id") == option:
            return f"[this option: {clean(text(it, 'text'))}]"
    return ""


_MediaWords: TypeAlias = Callable[[Mapping[str, Any]], str]
_ATTACHED: dict[str, AttachmentKind] = {
    "photo": "image",
    "document": "file",
    "animation": "other",
    "video": "video",
    "video_note": "video",
    "voice": "audio",
    "audio": "audio",
    "sticker": "sticker",
}
_WORDS: dict[str, _MediaWords] = {
    "animation": lambda media: "animation",
    "live_photo": lambda media: "image",
    "photo": lambda media: "image",
    "document": _named("file"),
    "video": _lasting("video"),
    "video_note": _lasting("video message"),
    "voice": _lasting("voice message"),
    "audio": _audio,
    "sticker": lambda media: f"sticker {text(media, 'emoji')}",
    "venue": _venue,
    "location": lambda place: f"location: {_coordinate(place, 'latitude')}, {_coordinate(place, 'longitude')}",
    "contact": _contact,
    "poll": _poll,
    "checklist": _checklist,
    "dice": lambda media: f"dice {text(media, 'emoji')}: {number(media, 'value')}",
    "game": _named("game"),
    "invoice": _named("invoice"),
    "story": lambda media: "story",
    "paid_media": lambda media: "paid media",
    "giveaway": lambda media: "giveaway",
}

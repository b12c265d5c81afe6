"""Convert a message's `content` to plain Markdown and attachments. Pure.

`content` is JSON inside a string. Mentions are placeholders (`@_user_1`), resolved as whole tokens: the bot's own is
removed, another becomes `@name`. Non-text content becomes a few words in brackets, so that every kind of message is
answered.

A verified, decrypted event becomes a receipt. Only `header.event_type` and `event.*` are reliable; every type is checked.
An event without a required id is `Ignored`, because Feishu would redeliver what is refused.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from channels.channel import Arrived, Ignored, Membership, NotReady, Reacted, Recalled, Receipt, Rejected
from channels.feishu.card import FIELD, TICK, UNREADABLE_CARD, read_card
from channels.feishu.post import Content, Nodes, PeopleNames, read_post, resolve
from channels.marks import BUNDLE
from channels.message import (
    BUTTON_TOKEN,
    FORM_OPTIONS_MAX,
    FORM_TEXT_CHARS_MAX,
    Attachment,
    AttachmentKind,
    Chat,
    DocumentLink,
    LinkKind,
    MessageContext,
    Press,
    Quote,
    Sender,
)
from channels.moment import timestamp
from channels.wire import clean, loads, mapping, scalar, text
from channels.wire import text as text_of

OPTIONS_MAX = 20
LINKS_MAX = 50
BUNDLES = "merge_forward"
"""Message type whose text is `BUNDLE` until `People` has fetched it."""
UNREAD = "[message whose content has not come with it]"
"""The text of a message without content, until `People` has fetched it."""


def read(kind: str, raw: object, names: PeopleNames, zone: tzinfo = UTC) -> Content | None:
    """Return the content of a message of this type, with times in `zone`. Its text is empty if nothing is written; None for
    a message that no person sent."""
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
    """Return True if Feishu may return the full message by its id."""
    return text == UNREAD or UNREADABLE_CARD in text


BRANDS = ("feishu.cn", "larksuite.com")
_KINDS: Mapping[str, LinkKind] = {
    "docx": "docx", "wiki": "wiki", "sheets": "sheet", "base": "bitable",
}  # fmt: skip
_PATH = r"/(docx|wiki|sheets|base)/([A-Za-z0-9]{3,64})(?![\w/-])(?:\?([\w=&-]*))?"


def links_in(text: str, base_url: str) -> tuple[DocumentLink, ...]:
    """Return the links in a text to documents of the brand whose open platform is at `base_url`, or of all brands if
    that is another address, such as a proxy's."""
    host = urlsplit(base_url).hostname or ""
    domains = (host.removeprefix("open."),) if host.startswith("open.") else BRANDS
    found: dict[DocumentLink, None] = {}
    for domain in domains:
        if f"{domain}/" not in text:
            continue
        for match in islice(
            re.finditer(rf"https://(?:[\w-]+\.)*{re.escape(domain)}{_PATH}", text, re.ASCII), LINKS_MAX
        ):
            query = dict(parse_qsl(match[3] or ""))
            part = query.get("sheet") or query.get("table") or ""
            found[DocumentLink(kind=_KINDS[match[1]], token=match[2], part=part[:ID_CHARS_MAX])] = None
    return tuple(found)


def _unsupported(kind: str, content: Mapping[str, Any], names: PeopleNames) -> Content:
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
    try:
        duration = float(scalar(content, "duration") or 0)
    except ValueError:
        return ""
    return f", {duration / 1000:.0f} s" if 0 < duration < 1e9 else ""


def _word(kind: str) -> str:
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


MESSAGE = "im.message.receive_v1"
CARD_ACTION = "card.action.trigger"
RECALLED = "im.message.recalled_v1"
ADDED, REMOVED = "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1"
MENU, REACTION = "application.bot.menu_v6", "im.message.reaction.created_v1"
REACTION_WITHDRAWN = "im.message.reaction.deleted_v1"
_RATINGS = {"THUMBSUP": "👍", "ThumbsDown": "👎"}
_KNOWN = """im.message.message_read_v1 im.message.reaction.created_v1 im.message.reaction.deleted_v1
im.chat.access_event.bot_p2p_chat_entered_v1 im.chat.updated_v1 im.chat.disbanded_v1 im.chat.member.user.added_v1
im.chat.member.user.deleted_v1 im.chat.member.user.withdrawn_v1 p2p_chat_create"""
KNOWN = frozenset(_KNOWN.split())
"""Known events that start no turn."""
RECEIVED = '{"toast":{"type":"info","content":"Received","i18n":{"zh_cn":"已收到","en_us":"Received"}}}'.encode()
"""The immediate response to a button press; the card shows the outcome."""
ID_CHARS_MAX = 128
_MILLISECONDS_MAX = 253_402_300_799_000


def receipt(event: Mapping[str, Any], *, account: str, bot: str | None, now: datetime, zone: tzinfo) -> Receipt:
    """Turn a verified event into a receipt. `bot` is the bot's open id, if known. Raises Rejected for a malformed event, or
    NotReady for a group message while `bot` is unknown."""
    try:
        return _receipt(event, account=account, bot=bot, now=now, zone=zone)
    except _Missing as missing:
        return Ignored(kind=_kind(event), reason=str(missing))


class _Missing(Exception):
    """A required id is missing or malformed."""


def _receipt(event: Mapping[str, Any], *, account: str, bot: str | None, now: datetime, zone: tzinfo) -> Receipt:
    kind, body = _kind(event), event.get("event")
    if kind in (MESSAGE, CARD_ACTION, RECALLED, ADDED, REMOVED, MENU, REACTION, REACTION_WITHDRAWN):
        if not isinstance(body, dict):
            raise _Missing("event without a body")
        if kind == CARD_ACTION:
            return _press(body, mapping(event, "header"), account=account, now=now)
        if kind == MENU:
            return _chosen(body, mapping(event, "header"), account=account, now=now)
        if kind in (REACTION, REACTION_WITHDRAWN):
            emoji = _RATINGS.get(text(mapping(body, "reaction_type"), "emoji_type"))
            if emoji is None or body.get("operator_type") != "user":
                return Ignored(kind=kind, reason="not handled")
            sender_id = _id(mapping(body, "user_id"), "open_id")
            withdrawn = kind == REACTION_WITHDRAWN
            return Reacted(message_id=_id(body, "message_id"), sender=sender_id, emoji=emoji, withdrawn=withdrawn)
        if kind in (ADDED, REMOVED):
            sender = Sender(id=_id(mapping(body, "operator_id"), "open_id"))
            chat = Chat(id=_id(body, "chat_id"), kind="group", title=clean(text(body, "name")) or None)
            context = MessageContext(
                channel="feishu", account=account, chat=chat, message_id="", sender=sender, text="", sent_at=now
            )
            event_id = _id(mapping(event, "header"), "event_id")
            return Membership(context=context, joined=kind == ADDED, dedupe=f"event:{event_id}")
        if kind == RECALLED:
            message_id = _id(body, "message_id")
            return Recalled(chat=_id(body, "chat_id"), message_id=message_id, dedupe=f"message:{message_id}")
        return _message(body, mapping(event, "header"), account=account, bot=bot, now=now, zone=zone)
    return Ignored(kind=kind, reason="not handled" if kind in KNOWN else "unknown event")


def _kind(event: Mapping[str, Any]) -> str:
    kind = mapping(event, "header").get("event_type") or mapping(event, "event").get("type")
    if not isinstance(kind, str) or not re.fullmatch(r"[A-Za-z0-9_.]{1,100}", kind):
        raise Rejected("event without a type", status=400)
    return kind


def _message(
    body: Mapping[str, Any], header: Mapping[str, Any], *, account: str, bot: str | None, now: datetime, zone: tzinfo
) -> Receipt:
    message, sender = mapping(body, "message"), mapping(body, "sender")
    message_id, chat_id = _id(message, "message_id"), _id(message, "chat_id")
    sender_id = _id(mapping(sender, "sender_id"), "open_id")
    direct = message.get("chat_type") == "p2p"
    if bot is None and not direct:
        raise NotReady("the bot's own id is not known yet, so a mention cannot be told from another")
    if sender_id == bot:
        return Ignored(kind=MESSAGE, reason="own message")
    names, mentioned = mentions(message.get("mentions"), bot)
    kind, raw = text(message, "message_type"), message.get("content")
    parsed = read(kind, raw, names, zone)
    if parsed is None:
        return Ignored(kind=MESSAGE, reason="no person's message")
    if not parsed.text and not parsed.attachments:  # the message is only a mention of the bot
        parsed = read(kind, raw, mentions(message.get("mentions"), None)[0], zone) or parsed
    thread, parent = _optional_id(message, "thread_id"), _optional_id(message, "parent_id")
    opens = thread is not None and parent == _optional_id(message, "root_id")
    context = MessageContext(
        channel="feishu",
        account=account,
        chat=Chat(id=chat_id, kind="direct" if direct else "group", thread=thread),
        message_id=message_id,
        sender=Sender(id=sender_id, is_bot=sender.get("sender_type", "user") != "user"),
        text=parsed.text or ("" if parsed.attachments else UNREAD),
        mark=BUNDLE if kind == BUNDLES else "",
        attachments=parsed.of(message_id).attachments,
        sent_at=_moment(message.get("create_time")) or _moment(header.get("create_time")) or now,
        mentioned=mentioned or bot in parsed.at,
        reply_to=Quote(message_id=parent, opens_thread=opens) if parent else None,
    )
    return Arrived(context=context, dedupe=_dedupe(message, message_id, chat_id, sender_id))


def _press(body: Mapping[str, Any], header: Mapping[str, Any], *, account: str, now: datetime) -> Receipt:
    action, place, event_id = mapping(body, "action"), mapping(body, "context"), _id(header, "event_id")
    token = mapping(action, "value").get("token")
    if action.get("tag") != "button" or not isinstance(token, str) or not BUTTON_TOKEN.fullmatch(token):
        return Ignored(kind=CARD_ACTION, reason="not our button")
    context = MessageContext(
        channel="feishu",
        account=account,
        chat=Chat(id=_id(place, "open_chat_id"), kind="group"),
        message_id=event_id,
        sender=Sender(id=_id(mapping(body, "operator"), "open_id")),
        text="",
        sent_at=now,
        mentioned=True,
        press=Press(
            token=token,
            message_id=_id(place, "open_message_id"),
            placed=False,
            picked=_picked(values := mapping(action, "form_value")),
            typed=text_of(values, FIELD)[:FORM_TEXT_CHARS_MAX],
        ),
    )
    return Arrived(context=context, dedupe=(f"press:{event_id}",), answer=RECEIVED)


def _picked(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of the ticked boxes of a submitted form."""
    return tuple(number for number in range(1, FORM_OPTIONS_MAX + 1) if values.get(f"{TICK}{number}") is True)


def _chosen(body: Mapping[str, Any], header: Mapping[str, Any], *, account: str, now: datetime) -> Receipt:
    sender = Sender(id=_id(mapping(mapping(body, "operator"), "operator_id"), "open_id"))
    context = MessageContext(
        channel="feishu",
        account=account,
        chat=Chat(id=sender.id, kind="direct"),
        message_id="",
        sender=sender,
        text=f"/{clean(text(body, 'event_key')).removeprefix('/')}",
        sent_at=now,
        mentioned=True,
    )
    return Arrived(context=context, dedupe=(f"menu:{_id(header, 'event_id')}",), is_menu=True)


def _dedupe(message: Mapping[str, Any], message_id: str, chat_id: str, sender_id: str) -> tuple[str, ...]:
    key, created, raw = f"message:{message_id}", message.get("create_time"), message.get("content")
    if message.get("message_type") != "text" or not isinstance(created, str) or not isinstance(raw, str):
        return (key,)
    # A redelivery of a text may carry another message id.
    made_of = "\x1f".join((sender_id, chat_id, created, raw)).encode(errors="surrogatepass")
    return (key, f"text:{hashlib.sha256(made_of).hexdigest()}")


def mentions(mentions: object, bot: str | None) -> tuple[dict[str, str], bool]:
    """Return the text for each placeholder and for the bot's open id, and whether the bot is mentioned.

    Compare open ids, never names or positions; fetched messages have the open id as the id itself."""
    names: dict[str, str] = {} if bot is None else {bot: ""}
    mentioned = False
    for mention in mentions if isinstance(mentions, list) else ():
        if not isinstance(mention, dict) or not isinstance(key := mention.get("key"), str):
            continue
        own = bot is not None and bot in (mapping(mention, "id").get("open_id"), mention.get("id"))
        mentioned = mentioned or own
        name = clean(text(mention, "name")).strip() or key.lstrip("@")
        names[key] = "" if own else f"@{name}"
    return names, mentioned


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,15}", value) or int(value) > _MILLISECONDS_MAX:
        return None
    return datetime.fromtimestamp(int(value) / 1000, tz=UTC)


def _id(holder: Mapping[str, Any], key: str) -> str:
    if (found := _optional_id(holder, key)) is None:
        raise _Missing(f"event without {key}")
    return found


def _optional_id(holder: Mapping[str, Any], key: str) -> str | None:
    value = holder.get(key)
    usable = isinstance(value, str) and re.fullmatch(rf"[\x21-\x7e]{{1,{ID_CHARS_MAX}}}", value)
    return value if usable else None

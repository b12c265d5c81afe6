"""Convert an update to a receipt. Pure.

The sender was authenticated before; the shape is checked here. A malformed update is `Ignored`, because Telegram redelivers
a refused one for a day and holds back the chat's later messages.
"""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from channels.channel import Arrived, Edited, Ignored, Membership, Moved, NotReady, Reacted, Receipt, Voted
from channels.message import BUTTON_TOKEN, Chat, MessageContext, Press, Quote, Sender
from channels.telegram import content, media
from channels.telegram.content import Me, name
from channels.wire import clean, mapping, mappings, number, text

ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "my_chat_member", "message_reaction", "poll_answer")
"""Requested kinds of updates; if omitted, Telegram would keep its previous list."""
_OTHERS = """channel_post edited_channel_post business_connection business_message edited_business_message
deleted_business_messages guest_message stopped_message_generation message_reaction_count inline_query
chosen_inline_result shipping_query pre_checkout_query purchased_paid_media poll chat_member
chat_join_request chat_boost removed_chat_boost managed_bot subscription"""
KNOWN = frozenset((*ALLOWED_UPDATES, *_OTHERS.split()))
"""Known kinds of updates."""
_MESSAGE, _EDITED, _MEMBERSHIP = "message", "edited_message", "my_chat_member"
_REACTION = "message_reaction"
_VOTE = "poll_answer"
_OUT = ("left", "kicked")
PRESS = "callback_query"
QUERY_CHARS_MAX = 64
POLL_CHARS_MAX = 64
LANGUAGE_CHARS_MAX = 35
_SECONDS_MAX = 253_402_300_799
_MIGRATED = ("migrate_to_chat_id", "migrate_from_chat_id")


def receipt(update: Mapping[str, Any], *, account: str, me: Me, now: datetime) -> Receipt:
    """Turn an update into a receipt. Raises NotReady for a group message while the bot's own name is unknown."""
    kind = _kind(update)
    if kind == PRESS:
        return _press(update, account=account, now=now)
    if kind == _EDITED:
        edited = receipt(
            {"update_id": update.get("update_id"), _MESSAGE: update[_EDITED]}, account=account, me=me, now=now
        )
        edits = number(update, "update_id") or 0
        return Edited(arrived=edited, number=edits) if isinstance(edited, Arrived) else edited
    if kind == _REACTION:
        return _reacted(mapping(update, _REACTION))
    if kind == _VOTE:
        return _voted(update, account=account, now=now)
    if kind == _MEMBERSHIP:
        return _membership(update, account=account, now=now)
    if (moved := migration(update)) is not None:
        return Moved(before=moved[0], after=moved[1])
    if kind != _MESSAGE:
        return Ignored(kind=kind, reason="not handled" if kind in KNOWN else "unknown event")
    message, update_id = mapping(update, _MESSAGE), number(update, "update_id")
    chat, message_id = mapping(message, "chat"), number(message, "message_id")
    sender = _sender(message)
    if update_id is None or message_id is None or not number(chat, "id") or sender is None:
        return Ignored(kind=_MESSAGE, reason="malformed")
    if (reason := _unanswered(message, message_id, me)) is not None:
        return Ignored(kind=_MESSAGE, reason=reason)
    place = _chat(chat, message)
    if place.kind == "group" and me.username is None:
        raise NotReady("the bot's own name is not known yet, so a mention cannot be told from another")
    parsed = content.read(message, me)
    if parsed is None or parsed.for_another:
        return Ignored(kind=_MESSAGE, reason="nothing said" if parsed is None else "for another bot")
    sent = number(message, "date") or 0
    context = MessageContext(
        channel="telegram",
        account=account,
        chat=place,
        message_id=str(message_id),
        sender=sender,
        text=parsed.text,
        mark=parsed.mark,
        attachments=parsed.attachments,
        sent_at=datetime.fromtimestamp(sent, tz=UTC) if 0 < sent <= _SECONDS_MAX else now,
        mentioned=parsed.mentioned or number(mapping(_answered(message), "from"), "id") == me.id,
        reply_to=_quote(message, own=(sender.id, str(me.id))),
        more=parsed.more,
    )
    return Arrived(context=context, dedupe=(f"update:{update_id}", f"message:{place.id}:{message_id}"))


def _press(update: Mapping[str, Any], *, account: str, now: datetime) -> Receipt:
    query, update_id = mapping(update, PRESS), number(update, "update_id")
    message, query_id, token = mapping(query, _MESSAGE), clean(text(query, "id")), clean(text(query, "data"))
    chat, message_id = mapping(message, "chat"), number(message, "message_id")
    sender = _sender({"from": query.get("from")})
    known = bool(query_id) and len(query_id) <= QUERY_CHARS_MAX and update_id is not None and sender is not None
    if not known or sender is None or not number(chat, "id") or not message_id or message_id < 0:
        return Ignored(kind=PRESS, reason="malformed")
    if not BUTTON_TOKEN.fullmatch(token):
        return Ignored(kind=PRESS, reason="not our button")
    context = MessageContext(
        channel="telegram",
        account=account,
        chat=_chat(chat, message),
        message_id=query_id,
        sender=sender,
        text="",
        sent_at=now,
        mentioned=True,
        press=Press(token=token, message_id=str(message_id)),
    )
    return Arrived(context=context, dedupe=(f"update:{update_id}", f"press:{query_id}"))


def _reacted(reaction: Mapping[str, Any]) -> Receipt:
    chat, message_id = number(mapping(reaction, "chat"), "id"), number(reaction, "message_id")
    sender = number(mapping(reaction, "user"), "id")
    now, before = _rating(reaction, "new_reaction"), _rating(reaction, "old_reaction")
    emoji = now or before
    if not (chat and message_id and sender and emoji):
        return Ignored(kind=_REACTION, reason="not handled")
    return Reacted(message_id=str(message_id), sender=str(sender), emoji=emoji, chat=str(chat), withdrawn=not now)


def _rating(reaction: Mapping[str, Any], key: str) -> str:
    return next((it for it in (text(one, "emoji") for one in mappings(reaction, key)) if it in ("👍", "👎")), "")


def _voted(update: Mapping[str, Any], *, account: str, now: datetime) -> Receipt:
    """A vote in a poll that the bot sent, or the end of one. Source: the Bot API's PollAnswer, which names no chat; an
    anonymous administrator votes as `voter_chat`."""
    answer, update_id = mapping(update, _VOTE), number(update, "update_id")
    poll, options = text(answer, "poll_id"), answer.get("option_ids")
    sender = _sender({"sender_chat": answer.get("voter_chat"), "from": answer.get("user")})
    if not clean(poll) or len(poll) > POLL_CHARS_MAX or update_id is None or sender is None:
        return Ignored(kind=_VOTE, reason="malformed")
    if not isinstance(options, list) or any(type(it) is not int or it < 0 for it in options):
        return Ignored(kind=_VOTE, reason="malformed")
    context = MessageContext(
        channel="telegram",
        account=account,
        chat=Chat(id="", kind="group"),
        message_id=f"vote:{update_id}",
        sender=sender,
        text="",
        sent_at=now,
        mentioned=True,
    )
    arrived = Arrived(context=context, dedupe=(f"update:{update_id}",))
    return Voted(arrived=arrived, poll=poll, options=tuple(sorted(set(options))))


def _membership(update: Mapping[str, Any], *, account: str, now: datetime) -> Receipt:
    changed, update_id = mapping(update, _MEMBERSHIP), number(update, "update_id")
    chat, sender = mapping(changed, "chat"), _sender(changed)
    before, after = (text(mapping(changed, f"{it}_chat_member"), "status") in _OUT for it in ("old", "new"))
    is_group = chat.get("type") in ("group", "supergroup") and number(chat, "id")
    if before == after or not is_group or sender is None or update_id is None:
        return Ignored(kind=_MEMBERSHIP, reason="not handled")
    place = _chat(chat, {})
    context = MessageContext(
        channel="telegram", account=account, chat=place, message_id="", sender=sender, text="", sent_at=now
    )
    return Membership(context=context, joined=before, dedupe=f"update:{update_id}")


def migration(update: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a group's old id and its supergroup's. Two updates report this, in any order."""
    message = mapping(update, _MESSAGE)
    here = number(mapping(message, "chat"), "id")
    after, before = (number(message, key) for key in _MIGRATED)
    if here and after:
        return str(here), str(after)
    return (str(before), str(here)) if here and before else None


def _kind(update: Mapping[str, Any]) -> str:
    kind = next((key for key in update if key != "update_id"), "")
    return kind if re.fullmatch(r"[a-z0-9_]{1,64}", kind) else "unknown"


def _unanswered(message: Mapping[str, Any], message_id: int, me: Me) -> str | None:
    if message_id <= 0:
        return "ephemeral"  # it has no id to reply to, and everybody would see the answer
    if message.get("is_automatic_forward") is True:
        return "automatic forward"
    if number(mapping(message, "from"), "id") == me.id:
        return "own message"
    return None


def _sender(message: Mapping[str, Any]) -> Sender | None:
    # For messages in the name of a chat, `from` is a placeholder bot.
    party = mapping(message, "sender_chat") or mapping(message, "from")
    party_id = number(party, "id")
    if party_id is None:
        return None
    language = clean(text(party, "language_code"))[:LANGUAGE_CHARS_MAX] or None
    return Sender(id=str(party_id), name=name(party), is_bot=party.get("is_bot") is True, language=language)


def _chat(chat: Mapping[str, Any], message: Mapping[str, Any]) -> Chat:
    direct = chat.get("type") == "private"
    # Without `is_topic_message`, the thread is a chain of replies, to which nothing can be sent.
    thread = number(message, "message_thread_id") if message.get("is_topic_message") is True else None
    return Chat(
        id=str(number(chat, "id")),
        kind="direct" if direct else "group",
        title=None if direct else clean(text(chat, "title")).strip() or None,
        thread=None if thread is None else str(thread),
    )


def _quote(message: Mapping[str, Any], *, own: Collection[str]) -> Quote | None:
    part = clean(text(mapping(message, "quote"), "text")).strip() or None
    answered = _answered(message)  # `own` are the ids of the sender and the bot; other authors are foreign
    if (answered_id := number(answered, "message_id")) is not None:
        sender = _sender(answered)
        lines = (part or content.quoted(answered), media.chosen(message, answered))
        quoted = "\n".join(filter(None, lines)) or None
        by = sender.name or sender.id if sender else None
        foreign = sender is None or sender.id not in own or content.foreign_mark(answered) != ""
        files = content.files(answered)
        return Quote(message_id=str(answered_id), text=quoted, sender=by, attachments=files, foreign=foreign)
    elsewhere = mapping(message, "external_reply")
    if story := mapping(message, "reply_to_story"):
        return Quote(message_id="", text="[story]", sender=name(mapping(story, "chat")), foreign=True)
    if not elsewhere:
        return None
    chat_id, message_id = number(mapping(elsewhere, "chat"), "id"), number(elsewhere, "message_id")
    where = f"{chat_id}:{message_id}" if chat_id and message_id else ""
    quoted, by = part or content.quoted(elsewhere), content.origin(elsewhere, "origin")
    return Quote(message_id=where, text=quoted, sender=by, attachments=content.files(elsewhere), foreign=True)


def _answered(message: Mapping[str, Any]) -> Mapping[str, Any]:
    answered = mapping(message, "reply_to_message")
    # Every message of a topic names the topic's first message.
    begins = message.get("is_topic_message") is True and answered.get("message_id") == message.get("message_thread_id")
    return {} if begins or "forum_topic_created" in answered else answered

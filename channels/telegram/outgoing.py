"""Sending, editing, deleting and reacting for one Telegram bot.

Telegram does not deduplicate sends, so only a definite refusal is retried in another form: as plain text if the entities
were refused, without a reply or topic that is gone, and to the supergroup that a group became.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from channels.channel import DeliveryError, Fetch, Gone, Refused
from channels.message import Button, File, Outbound, StoredFile, not_sent
from channels.telegram.api import MethodError, TelegramApi, refusal_of
from channels.telegram.render import RenderedText, folding, rendered, units
from channels.telegram.timing import is_group
from channels.wire import mapping, number, text

CAPTION_UNITS_MAX = 1_024
CAPTION_CHARS = 800
"""Maximum size as Markdown; a text that renders longer is sent separately."""
ALBUM_MAX = 10
PHOTO_BYTES_MAX = 10 * 1024 * 1024
UPLOAD_BYTES_MAX = 50 * 1024 * 1024
_PHOTOS = ("image/png", "image/jpeg", "image/webp")
_VOICE = ("audio/ogg", "audio/opus", "audio/mpeg", "audio/mp4", "audio/x-m4a")
_AS_DOCUMENT = ("photo_", "image_process_failed", "voice_messages_forbidden", "wrong file", "file is too big")
MEMBERS = ("creator", "administrator", "member")
"""Statuses of people in a chat; a restricted one may be in it or not."""
OTHER_WAYS_MAX = 4
"""One fallback for each part of a message that Telegram may refuse."""
DRAFT_NUMBERS = 2**31 - 1
PICTURE_FORM = "\ufe0f"
"""Variation selector, which Telegram's reactions omit."""
_GENERAL = "1"
"""The id of the topic General, which sends must omit."""

log = structlog.get_logger()


class TelegramOutgoing:
    """Send for one bot. A `chat` next to a part is the current id of the part's chat."""

    def __init__(self, *, api: TelegramApi, account: str, stored: Fetch, link_previews: bool) -> None:
        self._api = api
        self._account = account
        self._stored = stored
        self._link_previews = link_previews
        self.migrated: dict[str, str] = {}
        """Supergroups by the old id of their group, learnt from updates and refused sends."""

    def follow(self, before: str, after: str) -> None:
        """Send everything for the old group to the new one. Access there is up to the operator."""
        if self.migrated.get(before) == after:
            return
        self.migrated[before] = after
        fix = "put the new id in the place of the old in groupAllowFrom"
        log.warning("telegram_group_migrated", account=self._account, before=before, after=after, fix=fix)

    async def send(self, part: Outbound, chat: str) -> str:
        """Send a part and return the message id. Raises DeliveryError."""
        made, place = _rendered(part), self._place(part, chat)
        if not part.files:
            method = "sendMessage" if part.replaces is None else "editMessageText"
            return await self._called(part, self._worded(made) | place, partial(self._api.call, method))
        loaded = [it for file in part.files if (it := await self._stored(file.id))]
        sent = SentFiles(api=self._api, files=loaded, voice=part.voice)
        caption = made if units(made.text) <= CAPTION_UNITS_MAX else rendered("")
        if caption is not made:
            await self._called(part, self._worded(made) | place, partial(self._api.call, "sendMessage"))
        words = {"caption": caption.text, "caption_entities": caption.entities} if caption.text else {}
        try:
            return await self._called(part, words | place, sent.attempt)
        except Refused:
            lines = "\n\n".join(filter(None, (caption.plain, not_sent(*part.files))))
            return await self._called(part, {"text": lines} | place, partial(self._api.call, "sendMessage"))

    async def send_poll(self, part: Outbound, chat: str) -> tuple[str, str]:
        """Send a poll, and return the ids of message and poll. It is not anonymous, or votes would not be reported. Raises
        DeliveryError."""
        poll = {"question": part.text, "options": [{"text": it} for it in part.options], "is_anonymous": False}
        ids: list[str] = []

        async def attempt(body: dict[str, Any]) -> Any:
            message = await self._api.call("sendPoll", body)
            ids.append(text(mapping(message, "poll"), "id") if isinstance(message, dict) else "")
            return message

        return await self._called(part, poll | self._place(part, chat), attempt), ids[-1]

    async def finish_draft(self, draft: Outbound, chat: str) -> str:
        """Replace the draft with the answer, or send the answer if the draft is gone. An empty answer deletes it."""
        anew = replace(draft, replaces=None)
        known = (draft.replaces or "").isdecimal()  # else the message id is unknown
        if chat != draft.target.chat or not known:  # the draft stayed in the migrated group
            return await self.send(anew, chat) if draft.text.strip() else ""
        try:
            if draft.text.strip():
                return await self.send(draft, chat)
            await self._api.call("deleteMessage", self._place(draft, chat))
        except (Refused, Gone) as error:
            refusal = refusal_of(error)
            if refusal is None or refusal.status != 400:
                raise
            if draft.text.strip():
                return await self.send(anew, chat)
        return ""

    async def preview(self, part: Outbound, key: str) -> None:
        """Show a draft, which disappears after half a minute or when the answer arrives."""
        made, target = rendered(part.text), replace(part.target, reply_to=None)
        place = self._place(Outbound(target=target, text=""), target.chat)
        number = UUID(key).int % DRAFT_NUMBERS + 1
        body = place | {"draft_id": number, "text": made.text, "entities": made.entities}
        await self._api.call("sendMessageDraft", body)

    async def delete(self, chat: str, message_id: str) -> None:
        try:
            await self._api.call("deleteMessage", self._at(chat, message_id))
        except Refused as error:
            if not ((refusal := refusal_of(error)) and refusal.not_there):
                raise

    async def leave(self, chat: str) -> None:
        await self._api.call("leaveChat", {"chat_id": _chat_id(chat)})

    async def is_member(self, chat: str, person: str) -> bool:
        """Telegram answers for certain only if the bot is an administrator of the group."""
        if not person.isdecimal():
            return False
        found = await self._api.call("getChatMember", {"chat_id": _chat_id(chat), "user_id": int(person)})
        status = text(found, "status")
        return status in MEMBERS or (status == "restricted" and found.get("is_member") is True)

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        reaction = [{"type": "emoji", "emoji": emoji.strip().replace(PICTURE_FORM, "")}]
        await self._api.call("setMessageReaction", self._at(chat, message_id) | {"reaction": reaction})

    def _at(self, chat: str, message_id: str) -> dict[str, Any]:
        if chat in self.migrated or not message_id.isdecimal():
            raise Gone("the message is not there")
        return {"chat_id": _chat_id(chat), "message_id": int(message_id)}

    async def _called(
        self, part: Outbound, body: dict[str, Any], call: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> str:
        ways_left = OTHER_WAYS_MAX
        while True:
            try:
                message = await call(body)
            except DeliveryError as error:
                refusal = refusal_of(error)
                if part.replaces is not None and refusal and refusal.not_modified:
                    return part.replaces
                other = self._otherwise(part, body, refusal) if refusal and ways_left else None
                if other is None:
                    raise
                body, ways_left = other, ways_left - 1
            else:
                message_id = number(message, "message_id") if isinstance(message, dict) else None
                return part.replaces or ("" if message_id is None else str(message_id))

    def _worded(self, made: RenderedText) -> dict[str, Any]:
        preview = {"is_disabled": not self._link_previews}
        return {"text": made.text, "entities": made.entities, "link_preview_options": preview}

    def _place(self, part: Outbound, chat: str) -> dict[str, Any]:
        target = part.target
        body: dict[str, Any] = {"chat_id": _chat_id(chat)}
        if part.buttons:
            body["reply_markup"] = {"inline_keyboard": [[_key(button)] for button in part.buttons]}
        if part.replaces is not None:
            return body | {"message_id": int(part.replaces)}
        moved = chat != target.chat  # then message and topic ids are of the old group
        if target.thread and target.thread.isdecimal() and target.thread != _GENERAL and not moved:
            body["message_thread_id"] = int(target.thread)
        if target.reply_to and target.reply_to.isdecimal() and int(target.reply_to) and not moved:
            body["reply_parameters"] = {"message_id": int(target.reply_to), "allow_sending_without_reply": True}
        return body

    def _otherwise(self, part: Outbound, body: dict[str, Any], error: MethodError) -> dict[str, Any] | None:
        """Return another form of the message to try, or None. A reply in a deleted group topic is not sent: without
        the topic it would appear in General for everyone."""
        if error.bad_entities and "entities" in body:
            return _without(body, "entities") | {"text": _rendered(part).plain}
        if error.bad_entities and "caption_entities" in body:
            return _without(body, "caption_entities") | {"caption": rendered(part.text).plain}
        if error.no_reply and "reply_parameters" in body:
            return _without(body, "reply_parameters")
        if error.no_thread and "message_thread_id" in body and not is_group(str(body["chat_id"])):
            return _without(body, "message_thread_id")
        if error.migrated_to is not None and str(error.migrated_to) != str(body["chat_id"]):
            self.follow(part.target.chat, str(error.migrated_to))
            if part.replaces is not None:
                return None
            return _without(body, "reply_parameters", "message_thread_id") | {"chat_id": error.migrated_to}
        return None


def _chat_id(chat: str) -> int | str:
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def _key(button: Button) -> dict[str, Any]:
    style = {} if button.style == "default" else {"style": button.style}
    does = {"url": button.url} if button.url else {"callback_data": button.token}
    return {"text": button.shown} | does | style


def _rendered(part: Outbound) -> RenderedText:
    return folding(part.text, part.folded) if part.folded else rendered(part.text)


def _without(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}


class SentFiles:
    """The files of one message, on their way. Several are one call, an album, so that they are sent together or not
    at all. What Telegram refuses as a picture or a voice message goes as a document. `attempt` may be made again with
    another body. Sizes: the Bot API's page on sending files."""

    def __init__(self, *, api: TelegramApi, files: Sequence[tuple[StoredFile, bytes]], voice: bool) -> None:
        self._api = api
        self._files = [File(name=stored.name, type=stored.type, data=data) for stored, data in files]
        self._kind = _kind(self._files, voice=voice)

    async def attempt(self, body: Mapping[str, Any]) -> Any:
        """The message, of an album the first. Raises DeliveryError."""
        if not self._files or any(not 0 < len(file.data) <= UPLOAD_BYTES_MAX for file in self._files):
            raise Refused("a file that Telegram does not take: it is gone, empty or too large")
        try:
            return await self._call(body)
        except DeliveryError as error:
            refusal = refusal_of(error)
            spoilt = refusal is not None and any(it in refusal.description.lower() for it in _AS_DOCUMENT)
            if self._kind == "document" or not spoilt:
                raise
            log.info("telegram_sent_as_document", kind=self._kind)
            self._kind = "document"
            return await self._call(body)

    async def _call(self, body: Mapping[str, Any]) -> Any:
        if len(self._files) == 1:
            method = f"send{self._kind.capitalize()}"
            return await self._api.upload(method, body, {self._kind: self._files[0]})
        files = {f"file{number}": file for number, file in enumerate(self._files)}
        words = {key: body[key] for key in ("caption", "caption_entities") if key in body}
        rest = {key: value for key, value in body.items() if key not in words}
        media = [{"type": self._kind, "media": f"attach://{name}"} for name in files]
        first, *_ = await self._api.upload("sendMediaGroup", rest | {"media": [media[0] | words, *media[1:]]}, files)
        return first


def _kind(files: Sequence[File], *, voice: bool) -> str:
    if files and all(file.type in _PHOTOS and len(file.data) <= PHOTO_BYTES_MAX for file in files):
        return "photo"
    return "voice" if voice and len(files) == 1 and files[0].type in _VOICE else "document"

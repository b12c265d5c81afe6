"""What a bot says in an emulated Telegram: messages, pictures, files, edits, drafts, and what it takes back.

Each call leaves a line in a ledger, and a message that everybody sees and that later calls can name.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram import models
from tests.emulators.telegram.chats import KnownChat
from tests.emulators.telegram.files import Uploads
from tests.emulators.telegram.formatted import Formatted
from tests.emulators.telegram.rules import bad_request, check_caption, check_text
from tests.emulators.telegram.subscription import Subscription
from tests.emulators.telegram.updates import Draft

DELETE_SECONDS = 48 * 3_600


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A message of the bot as it was sent. `text` is what people read, of a picture or a file its caption.

    `thread` is the topic that it is in, also where only the message that it replies to says so.
    """

    message_id: int
    chat_id: int
    thread: int | None
    reply_to: int | None
    kind: str
    text: str
    entities: tuple[Mapping[str, Any], ...]
    marked_up: bool
    """The call named entities, and were it none."""
    reply_markup: Mapping[str, Any] | None
    silent: bool
    file_id: str | None
    """Its content is in `files.stored`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """A change to a message; what an edit of the buttons leaves alone is as it was."""

    message_id: int
    chat_id: int
    text: str
    reply_markup: Mapping[str, Any] | None


@dataclass(kw_only=True)
class Sending(Subscription):
    """The bot's side of its chats."""

    messages: list[Sent] = field(default_factory=list)
    edits: list[Edited] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)

    async def sent(self, count: int, *, timeout_seconds: float = 30.0) -> list[Sent]:
        """Wait until so many messages have been sent. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.messages) >= count)
        return self.messages

    def shown(self, chat_id: int) -> list[str]:
        """What people can read of the bot in a chat now, after all edits."""
        own = (m for (chat, _), m in self.known.items() if chat == chat_id and self._is_own(m))
        return [message.get("text", message.get("caption", "")) for message in own]

    async def _send_message(self, call: models.SendMessage) -> dict[str, Any]:
        formatted, body = self._worded(call)
        return await self._place(call, "text", formatted, body)

    async def _send_poll(self, call: models.SendPoll) -> dict[str, Any]:
        options = [
            {"persistent_id": str(number), "text": it.text, "voter_count": 0} for number, it in enumerate(call.options)
        ]
        poll = {
            "id": str(secrets.randbelow(10**18) + 10**18),
            "question": call.question,
            "options": options,
            "total_voter_count": 0,
            "is_closed": False,
            "is_anonymous": call.is_anonymous,
            "type": "regular",
            "allows_multiple_answers": call.allows_multiple_answers,
            "allows_revoting": True,
            "members_only": False,
        }
        return await self._place(call, "poll", Formatted(text=call.question, entities=()), {"poll": poll})

    async def _send_photo(self, call: models.SendFile, files: Uploads) -> dict[str, Any]:
        return await self._send_file("photo", call, files)

    async def _send_document(self, call: models.SendFile, files: Uploads) -> dict[str, Any]:
        return await self._send_file("document", call, files)

    async def _send_voice(self, call: models.SendFile, files: Uploads) -> dict[str, Any]:
        return await self._send_file("voice", call, files)

    async def _send_group(self, call: models.SendMediaGroup, files: Uploads) -> list[dict[str, Any]]:
        if len({item.type for item in call.media}) > 1 or len({item.media for item in call.media}) < len(call.media):
            raise bad_request("media of different types, or one file twice")
        sent = []
        for item in call.media:
            body = self.files.of_message(item.type, item.media, files)
            formatted = self._with_people(check_caption(item.caption, _rows(item.caption_entities)))
            words = _body(formatted, "caption", "caption_entities")
            sent.append(await self._place(call, item.type, formatted, body | words | {"media_group_id": "1"}))
        return sent

    async def _send_file(self, kind: str, call: models.SendFile, files: Uploads) -> dict[str, Any]:
        formatted = self._with_people(check_caption(call.caption, _rows(call.caption_entities)))
        body = self.files.of_message(kind, getattr(call, kind), files) | _body(formatted, "caption", "caption_entities")
        return await self._place(call, kind, formatted, body)

    async def _place(
        self,
        call: models.SendMessage | models.SendFile | models.SendMediaGroup | models.SendPoll,
        kind: str,
        formatted: Formatted,
        body: Mapping[str, Any],
    ) -> dict[str, Any]:
        chat = self.chat_named(call.chat_id)
        reply_to = self._replied(call.reply_parameters, chat)
        thread = call.message_thread_id
        if thread is None and reply_to is not None:
            thread = self.topic_of(chat, reply_to)
        thread = self.thread_named(chat, thread)
        self._check_rate(chat)
        markup = _buttons(call.reply_markup)
        content = dict(body) | ({"reply_markup": markup} if markup else {})
        message = self.compose(chat, content, sender=self.bot, thread=thread, reply_to=reply_to)
        files: list[Mapping[str, Any]] = message.get("photo", []) or [
            message.get("document") or message.get("voice", {})
        ]
        sent = Sent(
            message_id=message["message_id"],
            chat_id=chat.id,
            thread=thread,
            reply_to=reply_to,
            kind=kind,
            text=formatted.text,
            entities=formatted.entities,
            marked_up=bool(call.model_fields_set & {"entities", "caption_entities"}),
            reply_markup=markup,
            silent=call.disable_notification,
            file_id=files[-1].get("file_id"),
        )
        self.end_drafts(chat.id)
        self.messages.append(sent)
        await self._notify()
        return message

    def _replied(self, reply: models.ReplyParameters | None, chat: KnownChat) -> int | None:
        """The message to reply to; None also where it is gone and the reply may go without."""
        if reply is None:
            return None
        if reply.chat_id is not None and self.chat_named(reply.chat_id) is not chat:
            raise bad_request("replies to other chats are not here")
        if (chat.id, reply.message_id) in self.known:
            return reply.message_id
        if reply.allow_sending_without_reply:
            return None
        raise bad_request("message to be replied not found")

    async def _edit_text(self, call: models.EditMessageText) -> dict[str, Any]:
        _, body = self._worded(call)
        chat, message = self._own_message(call)
        if "text" not in message:
            raise bad_request("there is no text in the message to edit")
        kept = _without(message, "text", "entities", "link_preview_options", "reply_markup")
        return await self._change(call, chat, message, kept | body)

    async def _edit_markup(self, call: models.EditMessageReplyMarkup) -> dict[str, Any]:
        chat, message = self._own_message(call)
        return await self._change(call, chat, message, _without(message, "reply_markup"))

    async def _change(
        self,
        call: models.EditMessageText | models.EditMessageReplyMarkup,
        chat: KnownChat,
        before: Mapping[str, Any],
        after: dict[str, Any],
    ) -> dict[str, Any]:
        """Buttons that an edit does not name again are gone."""
        markup = _buttons(call.reply_markup)
        after |= {"reply_markup": markup} if markup else {}
        if after == before:
            raise bad_request("message is not modified")
        self._check_rate(chat)
        after["edit_date"] = int(self.now())
        self.known[chat.id, after["message_id"]] = after
        text = after.get("text", after.get("caption", ""))
        self.edits.append(Edited(message_id=call.message_id, chat_id=chat.id, text=text, reply_markup=markup))
        await self._notify()
        return after

    def _own_message(self, call: models.AtMessage) -> tuple[KnownChat, dict[str, Any]]:
        chat = self.chat_named(call.chat_id)
        message = self.known.get((chat.id, call.message_id))
        if message is None or not self._is_own(message):
            raise bad_request("message to edit not found")
        return chat, message

    async def _delete_message(self, call: models.AtMessage) -> bool:
        """Younger than two days, and the bot's own, or in a direct chat, or where it is an administrator."""
        chat = self.chat_named(call.chat_id)
        message = self.known.get((chat.id, call.message_id))
        if message is None:
            raise bad_request("message to delete not found")
        may = self._is_own(message) or chat.kind == "private" or chat.bot_is_admin
        if not may or self.now() - message["date"] >= DELETE_SECONDS:
            raise bad_request("message can't be deleted")
        self.forget(chat.id, call.message_id)
        self.deleted.append(call.message_id)
        return True

    async def _send_draft(self, call: models.SendMessageDraft) -> bool:
        formatted = check_text(call.text, _rows(call.entities), may_be_empty=True)
        chat = self.chat_named(call.chat_id)
        if chat.kind != "private":
            raise bad_request("TEXTDRAFT_PEER_INVALID")
        draft = Draft(
            chat_id=chat.id,
            draft_id=call.draft_id,
            thread=self.thread_named(chat, call.message_thread_id),
            text=formatted.text,
            can_stop=call.can_stop,
            shown_at=self.now(),
        )
        self.drafts.append(draft)
        return True

    def _worded(self, call: models.SendMessage | models.EditMessageText) -> tuple[Formatted, dict[str, Any]]:
        formatted = self._with_people(check_text(call.text, _rows(call.entities)))
        preview = call.link_preview_options
        shown = {"link_preview_options": preview.model_dump(exclude_unset=True)} if preview else {}
        return formatted, _body(formatted, "text", "entities") | shown

    def _check_rate(self, chat: KnownChat) -> None:
        if self.limit_rates:
            self.rates.check_message(chat.id, group=chat.kind != "private")

    def _is_own(self, message: Mapping[str, Any]) -> bool:
        return "forum_topic_created" not in message and message.get("from", {}).get("id") == self.bot["id"]

    def _with_people(self, formatted: Formatted) -> Formatted:
        """A mention by id becomes one of a person whom the bot can know, or nothing."""
        kept = []
        for entity in formatted.entities:
            if entity["type"] != "text_mention":
                kept.append(entity)
            elif (user := entity["user"]["id"]) in self.people:
                kept.append({**entity, "user": self.people[user]})
        return Formatted(text=formatted.text, entities=tuple(kept))


def _rows(entities: Sequence[models.Entity]) -> list[dict[str, Any]]:
    return [entity.model_dump(exclude_unset=True) for entity in entities]


def _buttons(markup: models.InlineKeyboard | models.OtherKeyboard | None) -> dict[str, Any] | None:
    """The buttons under a message; other keyboards are no part of it."""
    if not isinstance(markup, models.InlineKeyboard) or not any(markup.inline_keyboard):
        return None
    return markup.model_dump(exclude_unset=True)


def _body(formatted: Formatted, text: str, entities: str) -> dict[str, Any]:
    words = {text: formatted.text} if formatted.text else {}
    return words | ({entities: [dict(entity) for entity in formatted.entities]} if formatted.entities else {})


def _without(message: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fact for name, fact in message.items() if name not in names}

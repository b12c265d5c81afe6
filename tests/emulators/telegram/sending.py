"""What a bot says in an emulated Telegram: messages, pictures, files, edits, drafts, and what it takes back.

Each call leaves a line in a ledger, and a message that everybody sees and that later calls can name. The rules of texts
and buttons are in `emulator_rules`, those of chats and topics in `emulator_chats`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.chats import KnownChat
from tests.emulators.telegram.formatted import Formatted
from tests.emulators.telegram.requests import Asked
from tests.emulators.telegram.rules import (
    PREVIEW,
    REPLY,
    bad_request,
    check_caption,
    check_markup,
    check_text,
)
from tests.emulators.telegram.subscription import Subscription
from tests.emulators.telegram.updates import Draft

DELETE_SECONDS = 48 * 3_600
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current "
    "content and reply markup of the message"
)


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
    parse_mode: str | None
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
    entities: tuple[Mapping[str, Any], ...]
    parse_mode: str | None
    reply_markup: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Deleted:
    message_id: int
    chat_id: int


@dataclass(kw_only=True)
class Sending(Subscription):
    """The bot's side of its chats."""

    messages: list[Sent] = field(default_factory=list)
    edits: list[Edited] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)

    async def sent(self, count: int, *, timeout_seconds: float = 30.0) -> list[Sent]:
        """Wait until so many messages have been sent. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.messages) >= count)
        return self.messages

    def shown(self, chat_id: int) -> list[str]:
        """What people can read of the bot in a chat now, after all edits."""
        own = (m for (chat, _), m in self.known.items() if chat == chat_id and self._is_own(m))
        return [message.get("text", message.get("caption", "")) for message in own]

    async def _send_message(self, asked: Asked) -> dict[str, Any]:
        formatted = self._with_people(check_text(*_text_of(asked)))
        preview = asked.object("link_preview_options", PREVIEW)
        body = _body(formatted, "text", "entities") | ({"link_preview_options": preview} if preview else {})
        return await self._place(asked, "text", formatted, body)

    async def _send_photo(self, asked: Asked) -> dict[str, Any]:
        return await self._send_file("photo", asked)

    async def _send_document(self, asked: Asked) -> dict[str, Any]:
        asked.flag("disable_content_type_detection")
        return await self._send_file("document", asked)

    async def _send_file(self, kind: str, asked: Asked) -> dict[str, Any]:
        raw, parse_mode, entities = asked.text("caption"), asked.text("parse_mode"), asked.rows("caption_entities")
        formatted = self._with_people(check_caption(raw, parse_mode, entities))
        body = self.files.of_message(kind, asked) | _body(formatted, "caption", "caption_entities")
        return await self._place(asked, kind, formatted, body)

    async def _place(self, asked: Asked, kind: str, formatted: Formatted, body: Mapping[str, Any]) -> dict[str, Any]:
        markup = check_markup(asked.structure("reply_markup"))
        silent, _ = asked.flag("disable_notification"), asked.flag("protect_content")
        chat = self.chat_named(asked.parameters.get("chat_id"))
        reply_to = self._replied(asked, chat)
        thread = asked.number("message_thread_id")
        if thread is None and reply_to is not None:
            thread = self.topic_of(chat, reply_to)
        thread = self.thread_named(chat, thread)
        self._check_rate(chat)
        content = dict(body) | ({"reply_markup": markup} if markup else {})
        message = self.compose(chat, content, sender=self.bot, thread=thread, reply_to=reply_to)
        files: list[Mapping[str, Any]] = message.get("photo", []) or [message.get("document", {})]
        sent = Sent(
            message_id=message["message_id"],
            chat_id=chat.id,
            thread=thread,
            reply_to=reply_to,
            kind=kind,
            text=formatted.text,
            entities=formatted.entities,
            parse_mode=asked.text("parse_mode"),
            reply_markup=markup,
            silent=silent,
            file_id=files[-1].get("file_id"),
        )
        self.end_drafts(chat.id)
        self.messages.append(sent)
        await self._tell()
        return message

    def _replied(self, asked: Asked, chat: KnownChat) -> int | None:
        """The message to reply to; None also where it is gone and the reply may go without."""
        reply = asked.object("reply_parameters", REPLY)
        if reply is None:
            return None
        to = Asked(method=asked.method, parameters=reply)
        if "chat_id" in reply and self.chat_named(reply["chat_id"]) is not chat:
            raise bad_request("replies to other chats are not here")  # our wording, and our bot needs none
        message_id, without = to.needed_number("message_id"), to.flag("allow_sending_without_reply")
        if (chat.id, message_id) in self.known:
            return message_id
        if without:
            return None
        raise bad_request("message to be replied not found")

    async def _edit_text(self, asked: Asked) -> dict[str, Any]:
        formatted = self._with_people(check_text(*_text_of(asked)))
        preview = asked.object("link_preview_options", PREVIEW)
        body = _body(formatted, "text", "entities") | ({"link_preview_options": preview} if preview else {})
        chat, message = self._own_message(asked)
        if "text" not in message:
            raise bad_request("there is no text in the message to edit")
        kept = _without(message, "text", "entities", "link_preview_options", "reply_markup")
        return await self._change(asked, chat, message, kept | body)

    async def _edit_markup(self, asked: Asked) -> dict[str, Any]:
        chat, message = self._own_message(asked)
        return await self._change(asked, chat, message, _without(message, "reply_markup"))

    async def _change(
        self, asked: Asked, chat: KnownChat, before: Mapping[str, Any], after: dict[str, Any]
    ) -> dict[str, Any]:
        """Buttons that an edit does not name again are gone."""
        markup = check_markup(asked.structure("reply_markup"))
        after |= {"reply_markup": markup} if markup else {}
        if after == before:
            raise bad_request(NOT_MODIFIED)
        self._check_rate(chat)
        after["edit_date"] = int(self.now())
        self.known[chat.id, after["message_id"]] = after
        edited = Edited(
            message_id=after["message_id"],
            chat_id=chat.id,
            text=after.get("text", after.get("caption", "")),
            entities=tuple(after.get("entities", after.get("caption_entities", ()))),
            parse_mode=asked.text("parse_mode"),
            reply_markup=markup,
        )
        self.edits.append(edited)
        await self._tell()
        return after

    def _own_message(self, asked: Asked) -> tuple[KnownChat, dict[str, Any]]:
        chat = self.chat_named(asked.parameters.get("chat_id"))
        message = self.known.get((chat.id, asked.needed_number("message_id")))
        if message is None:
            raise bad_request("message to edit not found")
        if not self._is_own(message):
            raise bad_request("message can't be edited")
        return chat, message

    async def _delete_message(self, asked: Asked) -> bool:
        """Younger than two days, and the bot's own, or in a direct chat, or where it is an administrator."""
        chat = self.chat_named(asked.parameters.get("chat_id"))
        message_id = asked.needed_number("message_id")
        message = self.known.get((chat.id, message_id))
        if message is None:
            raise bad_request("message to delete not found")
        may = self._is_own(message) or chat.kind == "private" or chat.bot_is_admin
        if not may or self.now() - message["date"] >= DELETE_SECONDS:
            raise bad_request("message can't be deleted")
        self.forget(chat.id, message_id)
        self.deleted.append(Deleted(message_id=message_id, chat_id=chat.id))
        return True

    async def _send_draft(self, asked: Asked) -> bool:
        formatted = check_text(*_text_of(asked), may_be_empty=True)
        chat = self.chat_named(asked.parameters.get("chat_id"))
        if chat.kind != "private" or str(asked.parameters["chat_id"]).startswith("@"):
            raise bad_request("TEXTDRAFT_PEER_INVALID")
        draft_id = asked.number("draft_id")
        if not draft_id:
            raise bad_request("wrong parameter draft_id in request")  # our wording
        asked.flag("keep_on_stop")
        draft = Draft(
            chat_id=chat.id,
            draft_id=draft_id,
            thread=self.thread_named(chat, asked.number("message_thread_id")),
            text=formatted.text,
            can_stop=asked.flag("can_stop"),
            shown_at=self.now(),
        )
        self.drafts.append(draft)
        return True

    def _check_rate(self, chat: KnownChat) -> None:
        if self.limit_rates:
            self.rates.check_message(chat.id, group=chat.kind != "private")

    def _is_own(self, message: Mapping[str, Any]) -> bool:
        is_said = "forum_topic_created" not in message
        return is_said and message.get("from", {}).get("id") == self.bot["id"]

    def _with_people(self, formatted: Formatted) -> Formatted:
        """A mention by id becomes one of a person whom the bot can know, or nothing."""
        kept = []
        for entity in formatted.entities:
            if entity["type"] != "text_mention":
                kept.append(entity)
            elif (user := entity["user"]["id"]) in self.people:
                kept.append({**entity, "user": self.people[user]})
        return Formatted(text=formatted.text, entities=tuple(kept))


def _text_of(asked: Asked) -> tuple[str | None, str | None, Sequence[Any] | None]:
    return asked.text("text"), asked.text("parse_mode"), asked.rows("entities")


def _body(formatted: Formatted, text: str, entities: str) -> dict[str, Any]:
    said = {text: formatted.text} if formatted.text else {}
    return said | ({entities: [dict(entity) for entity in formatted.entities]} if formatted.entities else {})


def _without(message: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fact for name, fact in message.items() if name not in names}

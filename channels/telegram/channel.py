"""One Telegram bot as a channel: what comes in is checked and read, what goes out is sent once.

Nothing signs an update: the secret header is all there is, so without it nothing else is looked at. Telegram does not
recognise a repeated send, so only what it has definitely refused is tried in another way: as plain text where it did not
take the entities, without the reply or the topic where those are gone, and to the supergroup that a group has become.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from channels.abilities import MenuEntry, Progress
from channels.access import AccessConfig
from channels.channel import (
    Capabilities,
    Deliver,
    DeliveryError,
    Fetch,
    FileMessages,
    Gone,
    Ignored,
    Moved,
    RateLimited,
    Receipt,
    Refused,
    Rejected,
    Unreachable,
    WebhookRequest,
)
from channels.download import twice
from channels.message import Attachment, Button, File, MessageContext, Outbound, not_sent
from channels.pace import SingleFlight
from channels.telegram import updates
from channels.telegram.api import MethodError, TelegramApi, fetch_file, refusal_of
from channels.telegram.config import TelegramAccount, bot_of
from channels.telegram.connection import Callbacks, Polling, Registration, offer_menu
from channels.telegram.content import Me
from channels.telegram.files import ALBUM_MAX, CAPTION_CHARS, CAPTION_UNITS_MAX, SentFiles
from channels.telegram.render import RenderedText, rendered, split, units
from channels.telegram.timing import Activity, TelegramPace, Timing, is_group
from channels.wire import fits, loads, mapping, number, text

SECRET_HEADER = "x-telegram-bot-api-secret-token"
OTHER_WAYS_MAX = 4
"""One for each thing that Telegram may refuse of a message."""
DRAFT = "draft:"
"""What the handle of an unfinished answer begins with; the message's id follows."""
EDIT_SECONDS, GROUP_EDIT_SECONDS = 1.0, 3.0
DRAFT_NUMBERS = 2**31 - 1
PICTURE_FORM = "\ufe0f"
"""Telegram names reactions without it."""
_GENERAL = "1"
"""The topic General has this id and cannot be sent to by it."""

log = structlog.get_logger()


class TelegramChannel:
    """`channels.channel.Channel`, and of its abilities `Listens`, `DownloadsFiles`, `ShowsProgress`, `ShowsDrafts`,
    `ActsOnMessages` and `AnswersPresses`, for one account."""

    name = "telegram"
    capabilities = Capabilities(
        names=("markdown", "threads"),
        directives=("media", "voice", "reply"),
        actions=("send", "reply", "edit", "delete", "react", "buttons", "poll"),
        file_messages=FileMessages(caption_chars=CAPTION_CHARS, album=ALBUM_MAX),
        buttons=True,
        shows_new_drafts=True,
    )

    def __init__(self, config: TelegramAccount, account: str, stored: Fetch, *, timing: Timing | None = None) -> None:
        self.account = account
        self.access: AccessConfig = config
        self.queue = config.queue
        self.capabilities = replace(self.capabilities, quotes=config.quotes)
        self.resend_ambiguous = config.resend_ambiguous
        self._config = config
        self._timing = timing or Timing()
        self._api = TelegramApi(config)
        self._pace = TelegramPace(per_second=config.sends_per_second)
        self._callbacks = Callbacks(api=self._api, account=account)
        self._stored = stored
        self._me = Me(id=int(bot_of(config)) if bot_of(config).isdecimal() else 0)
        self._learning = SingleFlight(self._learn, late="Telegram has not said yet who the bot is")
        self._draftless: set[str] = set()
        """Direct chats that take no drafts."""
        self._migrated: dict[str, str] = {}
        """Groups that have become supergroups, as far as an update has said or a send has found out."""
        self._activity = Activity(api=self._api, account=account, migrated=self._migrated, timing=self._timing)

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        if self._config.mode == "polling":
            raise Rejected("this account polls", status=404)
        expected, given = self._config.webhook_secret.get_secret_value(), request.header(SECRET_HEADER)
        if not expected.strip():
            raise Rejected("nothing to verify with")
        if given is None or not hmac.compare_digest(given.encode(errors="surrogatepass"), expected.encode()):
            raise Rejected("secret wrong or missing", guess=True)
        try:
            update = loads(request.body)
        except ValueError:
            update = None
        if not isinstance(update, dict) or not fits(request.body, update):
            return Ignored(kind="unknown", reason="malformed")
        return self._read(update, now)

    async def connect(self, *, public_url: str | None, commands: Sequence[MenuEntry], deliver: Deliver) -> None:
        self._me = replace(self._me, commands=frozenset(command.name for command in commands))
        account, timing = self.account, self._timing
        api = TelegramApi(self._config)  # of its own: a poll that hangs must not hold a send back
        shared: dict[str, Any] = {"api": api, "account": account, "timing": timing}
        kept: Polling | Registration
        if self._config.mode == "polling":
            kept = Polling(read=lambda update: self._read(update, datetime.now(UTC)), deliver=deliver, **shared)
        else:
            url = None if public_url is None else f"{public_url.rstrip('/')}/webhooks/telegram/{account}"
            kept = Registration(url=url, secret=self._config.webhook_secret.get_secret_value(), **shared)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._callbacks.run())
                learn = partial(self.learn_identity, self._config.timeout_seconds)
                await timing.until_done("telegram_identity_unknown", learn, account=account)
                tasks.create_task(offer_menu(api, commands, account=account, timing=timing))
                tasks.create_task(kept.run())
        finally:
            await api.close()

    async def learn_identity(self, timeout_seconds: float) -> None:
        if self._me.username is None:
            await self._learning.get(timeout_seconds)

    async def enrich(self, context: MessageContext) -> MessageContext:
        """An update has all the names there are."""
        return replace(context, sender=replace(context.sender, name=context.sender.name or context.sender.id))

    def split(self, text: str) -> list[str]:
        return split(text)

    def draft_seconds(self, context: MessageContext) -> float | None:
        if self._config.streaming_in(context.chat.id) == "off":
            return None
        return EDIT_SECONDS if context.chat.kind == "direct" else GROUP_EDIT_SECONDS

    def draft_is_whole(self, context: MessageContext) -> bool:
        return self._config.streaming_in(context.chat.id) == "progress"

    async def open_draft(self, part: Outbound, key: str) -> str:
        chat = part.target.chat
        if self._config.drafts and not is_group(chat) and chat not in self._draftless:
            try:
                await self._preview(part, key)
            except Refused as error:
                if (refusal := refusal_of(error)) is None or not refusal.no_draft:
                    raise
                self._draftless.add(chat)
            else:
                return ""
        return f"{DRAFT}{await self.send(part, key)}"

    async def update_draft(self, part: Outbound, key: str) -> None:
        if not part.replaces:
            await self._preview(part, key)
            return
        await self.send(replace(part, replaces=(part.replaces or "").removeprefix(DRAFT)), key)

    async def send(self, part: Outbound, key: str) -> str:
        """Send one part; the message id. Telegram knows no `key`. Raises DeliveryError."""
        chat = self._migrated.get(part.target.chat, part.target.chat)
        is_draft = part.replaces is not None and part.replaces.startswith(DRAFT)
        if part.replaces is not None and not is_draft and (chat != part.target.chat or not part.replaces.isdecimal()):
            raise Gone("the message is not there: its group has become a supergroup")
        async with self._paced(chat):
            return await (self._finish_draft(part, chat) if is_draft else self._send(part, chat))

    async def delete(self, chat: str, message_id: str) -> None:
        async with self._paced(chat):
            try:
                await self._api.call("deleteMessage", self._at(chat, message_id))
            except Refused as error:
                if not ((refusal := refusal_of(error)) and refusal.not_there):
                    raise

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        async with self._paced(chat):
            reaction = [{"type": "emoji", "emoji": emoji.strip().replace(PICTURE_FORM, "")}]
            await self._api.call("setMessageReaction", self._at(chat, message_id) | {"reaction": reaction})

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await twice(lambda: fetch_file(self._api, attachment, bytes_max))

    def show(self, progress: Progress) -> None:
        """Telegram shows that something is being written, and nothing of what."""
        self._activity.show(progress)

    def answer_press(self, context: MessageContext) -> None:
        self._callbacks.note(context.message_id)

    async def close(self) -> None:
        await self._activity.close()
        self._learning.cancel()
        await self._api.close()

    def _read(self, update: Mapping[str, Any], now: datetime) -> Receipt:
        """What is to be done besides is noted for later: nothing here takes time or touches the network."""
        receipt = updates.receipt(update, account=self.account, me=self._me, now=now)
        if isinstance(receipt, Moved):
            self._follow(receipt.before, receipt.after)
        if isinstance(receipt, Ignored) and receipt.kind == updates.PRESS:
            self._callbacks.note(text(mapping(update, updates.PRESS), "id"))
        return receipt

    def _follow(self, before: str, after: str) -> None:
        """What is still to be sent to the old group goes to the new one. Who may write there is the operator's word."""
        if self._migrated.get(before) == after:
            return
        self._migrated[before] = after
        fix = "put the new id in the place of the old in groupAllowFrom"
        log.warning("telegram_group_migrated", account=self.account, before=before, after=after, fix=fix)

    async def _learn(self) -> None:
        me = await self._api.call("getMe")
        bot_id, username = (number(me, "id"), text(me, "username")) if isinstance(me, dict) else (None, "")
        if bot_id is None or not username:
            raise Unreachable("Telegram's answer does not name the bot")
        self._me = replace(self._me, id=bot_id, username=username)
        sees_all = me.get("can_read_all_group_messages") is True
        log.info("telegram_bot", account=self.account, username=username, privacy_mode=not sees_all)

    async def _finish_draft(self, part: Outbound, chat: str) -> str:
        """The answer in the place of its draft; where that is gone, it comes anew."""
        draft = replace(part, replaces=(part.replaces or "").removeprefix(DRAFT))
        if chat != part.target.chat:  # the group has become another, and the draft stayed in the old one
            return await self._send(replace(part, replaces=None), chat) if part.text.strip() else ""
        try:
            if part.text.strip():
                return await self._send(draft, chat)
            await self._api.call("deleteMessage", self._place(draft, chat))
        except (Refused, Gone) as error:
            refusal = refusal_of(error)
            if refusal is None or refusal.status != 400:
                raise
            if part.text.strip():
                return await self._send(replace(part, replaces=None), chat)
        return ""

    async def _preview(self, part: Outbound, key: str) -> None:
        """It is gone half a minute later, or when the answer comes."""
        made, target = rendered(part.text), replace(part.target, reply_to=None)
        number = UUID(key).int % DRAFT_NUMBERS + 1
        async with self._paced(target.chat):
            place = self._place(Outbound(target=target, text=""), target.chat)
            body = place | {"draft_id": number, "text": made.text, "entities": made.entities}
            await self._api.call("sendMessageDraft", body)

    @asynccontextmanager
    async def _paced(self, chat: str) -> AsyncIterator[None]:
        await self._pace.wait(chat)
        try:
            yield
        except RateLimited as error:
            self._pace.refused(chat, error.retry_after_seconds)
            self._activity.rest(error.retry_after_seconds)
            raise

    def _at(self, chat: str, message_id: str) -> dict[str, Any]:
        """Raises Gone for a message of a group that has become another."""
        if chat in self._migrated or not message_id.isdecimal():
            raise Gone("the message is not there")
        return {"chat_id": _chat_id(chat), "message_id": int(message_id)}

    async def _send(self, part: Outbound, chat: str) -> str:
        made, place = rendered(part.text), self._place(part, chat)
        if part.options:
            poll = {"question": part.text, "options": [{"text": it} for it in part.options], "is_anonymous": False}
            return await self._called(part, poll | place, partial(self._api.call, "sendPoll"))
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
        preview = {"is_disabled": not self._config.link_previews}
        return {"text": made.text, "entities": made.entities, "link_preview_options": preview}

    def _place(self, part: Outbound, chat: str) -> dict[str, Any]:
        target = part.target
        body: dict[str, Any] = {"chat_id": _chat_id(chat)}
        if part.buttons:
            body["reply_markup"] = {"inline_keyboard": [[_key(button)] for button in part.buttons]}
        if part.replaces is not None:
            return body | {"message_id": int(part.replaces)}
        moved = chat != target.chat  # message and topic ids are the old group's then
        if target.thread and target.thread.isdecimal() and target.thread != _GENERAL and not moved:
            body["message_thread_id"] = int(target.thread)
        if target.reply_to and target.reply_to.isdecimal() and int(target.reply_to) and not moved:
            body["reply_parameters"] = {"message_id": int(target.reply_to), "allow_sending_without_reply": True}
        return body

    def _otherwise(self, part: Outbound, body: dict[str, Any], error: MethodError) -> dict[str, Any] | None:
        """Another way to say it; None where there is none.

        A group's topic that is gone takes the reply with it: without the topic everybody would see it in General.
        """
        if error.bad_entities and "entities" in body:
            return _without(body, "entities") | {"text": rendered(part.text).plain}
        if error.bad_entities and "caption_entities" in body:
            return _without(body, "caption_entities") | {"caption": rendered(part.text).plain}
        if error.no_reply and "reply_parameters" in body:
            return _without(body, "reply_parameters")
        if error.no_thread and "message_thread_id" in body and not is_group(str(body["chat_id"])):
            return _without(body, "message_thread_id")
        if error.migrated_to is not None and str(error.migrated_to) != str(body["chat_id"]):
            self._follow(part.target.chat, str(error.migrated_to))
            if part.replaces is not None:
                return None
            return _without(body, "reply_parameters", "message_thread_id") | {"chat_id": error.migrated_to}
        return None


def _chat_id(chat: str) -> int | str:
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def _key(button: Button) -> dict[str, Any]:
    style = {} if button.style == "default" else {"style": button.style}
    return {"text": button.shown, "callback_data": button.token} | style


def _without(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}

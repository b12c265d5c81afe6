"""One Telegram bot as a channel: verify and read updates, send replies once, at Telegram's pace.

Updates are unsigned: the secret header is the only proof, so nothing else is read without it.
"""

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from channels.abilities import MenuEntry, Progress
from channels.access import AccessConfig
from channels.channel import (
    Capabilities,
    Deliver,
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
    with_event,
)
from channels.condition import Condition
from channels.download import twice
from channels.message import Attachment, File, MessageContext, Outbound
from channels.pace import SingleFlight
from channels.telegram import updates
from channels.telegram.api import TelegramApi, fetch_file, refusal_of
from channels.telegram.config import TelegramAccount, bot_of
from channels.telegram.connection import Callbacks, Polling, Registration, offer_menus
from channels.telegram.content import Me
from channels.telegram.doctor import CAUSES, cause_of
from channels.telegram.outgoing import ALBUM_MAX, CAPTION_CHARS, TelegramOutgoing
from channels.telegram.render import split
from channels.telegram.timing import Activity, TelegramPace, Timing, is_group
from channels.wire import fits, loads, mapping, number, text

SECRET_HEADER = "x-telegram-bot-api-secret-token"
_BOT_NAME = re.compile(r"@[a-z]\w{1,28}bot\b", re.IGNORECASE)
DRAFT = "draft:"
"""Prefix of a draft's handle, before the message's id."""
EDIT_SECONDS, GROUP_EDIT_SECONDS = 1.0, 3.0

log = structlog.get_logger()


class TelegramChannel:
    """`channels.channel.Channel`, and of its abilities `HasCondition`, `Listens`, `DownloadsFiles`, `ShowsProgress`,
    `ShowsDrafts`, `ActsOnMessages`, `SendsPolls`, `AnswersPresses` and `ChecksHeaders`, for one account."""

    name = "telegram"
    capabilities = Capabilities(
        names=("markdown", "threads"),
        directives=("media", "voice", "reply"),
        actions=("send", "reply", "edit", "delete", "react", "buttons", "poll"),
        file_messages=FileMessages(caption_chars=CAPTION_CHARS, album=ALBUM_MAX),
        buttons=True,
        shows_new_drafts=True,
    )

    def __init__(
        self,
        config: TelegramAccount,
        account: str,
        stored: Fetch,
        *,
        timing: Timing | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = account
        self.access: AccessConfig = config
        self.queue = config.queue
        self.capabilities = replace(self.capabilities, quotes=config.quotes)
        self.resend_ambiguous = config.resend_ambiguous
        self._config = config
        self.condition = Condition(self.name, account, causes=CAUSES, cause_of=cause_of, now=now)
        self._timing = timing or Timing()
        self._api = TelegramApi(config)
        self._pace = TelegramPace(per_second=config.sends_per_second)
        self._callbacks = Callbacks(api=self._api, account=account)
        self._me = Me(id=int(bot_of(config)) if bot_of(config).isdecimal() else 0)
        self._learning = SingleFlight(self._learn, late="Telegram has not said yet who the bot is")
        self._draftless: set[str] = set()
        """Direct chats that refuse drafts."""
        self._outgoing = TelegramOutgoing(
            api=self._api, account=account, stored=stored, link_previews=config.link_previews
        )
        self._activity = Activity(api=self._api, account=account, migrated=self._outgoing.migrated, timing=self._timing)

    def check_headers(self, request: WebhookRequest, now: datetime) -> None:
        if self._config.mode == "polling":
            raise Rejected("this account polls", status=404)
        expected, secret = self._config.webhook_secret.get_secret_value(), request.header(SECRET_HEADER)
        if not expected.strip():
            raise Rejected("nothing to verify with")
        if secret is None or not hmac.compare_digest(secret.encode(errors="surrogatepass"), expected.encode()):
            raise Rejected("secret wrong or missing", guess=True, cause="webhookSecret")

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        self.check_headers(request, now)
        try:
            update = loads(request.body)
        except ValueError:
            update = None
        if not isinstance(update, dict) or not fits(request.body, update):
            return Ignored(kind="unknown", reason="malformed")
        return self._read(update, now)

    async def connect(
        self, *, public_url: str | None, commands: Sequence[MenuEntry], owners: Sequence[str], deliver: Deliver
    ) -> None:
        self._me = replace(self._me, commands=frozenset(command.name for command in commands))
        account, timing = self.account, self._timing
        api = TelegramApi(self._config)  # separate client: a poll that hangs must not delay sends
        shared: dict[str, Any] = {"api": api, "account": account, "timing": timing, "condition": self.condition}
        self.condition.starting("events")
        self.condition.awaits_deliveries = self._config.mode == "webhook"
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
                tasks.create_task(offer_menus(api, commands, owners, account=account, timing=timing))
                tasks.create_task(kept.run())
        finally:
            await api.close()

    async def learn_identity(self, timeout_seconds: float) -> None:
        if self._me.username is None:
            await self._learning.get(timeout_seconds)

    async def enrich(self, context: MessageContext) -> MessageContext:
        """Use the id as a missing name: an update already has all names."""
        return replace(context, sender=replace(context.sender, name=context.sender.name or context.sender.id))

    def split(self, text: str) -> list[str]:
        return split(text)

    def draft_seconds(self, context: MessageContext) -> float | None:
        if self._config.streaming_in(context.chat.id) == "off" or context.sender.is_bot:
            return None  # the other bot would answer the first words
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
        return f"{DRAFT}{await self.send(_uncalled(part), key)}"

    async def update_draft(self, part: Outbound, key: str) -> str:
        if not part.replaces:
            await self._preview(part, key)
            return ""
        await self.send(replace(_uncalled(part), replaces=part.replaces.removeprefix(DRAFT)), key)
        return part.replaces

    async def _preview(self, part: Outbound, key: str) -> None:
        async with self._paced(part.target.chat):
            await self._outgoing.preview(part, key)

    async def send(self, part: Outbound, key: str) -> str:
        """Send one part and return the message id. Telegram has no idempotency `key`. Raises DeliveryError."""
        chat = self._outgoing.migrated.get(part.target.chat, part.target.chat)
        if part.replaces is not None and part.replaces.startswith(DRAFT):
            draft = replace(part, replaces=part.replaces.removeprefix(DRAFT))
            async with self._paced(chat):
                return await self._outgoing.finish_draft(draft, chat)
        if part.replaces is not None and (chat != part.target.chat or not part.replaces.isdecimal()):
            raise Gone("the message is not there: its group has become a supergroup")
        async with self._paced(chat):
            return await self._outgoing.send(part, chat)

    async def send_poll(self, part: Outbound, key: str) -> tuple[str, str]:
        chat = self._outgoing.migrated.get(part.target.chat, part.target.chat)
        async with self._paced(chat):
            return await self._outgoing.send_poll(part, chat)

    async def delete(self, chat: str, message_id: str) -> None:
        async with self._paced(chat):
            await self._outgoing.delete(chat, message_id)

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        async with self._paced(chat):
            await self._outgoing.react(chat, message_id, emoji)

    async def leave(self, chat: str) -> None:
        async with self._paced(chat):
            await self._outgoing.leave(chat)

    async def is_member(self, chat: str, person: str) -> bool:
        return await self._outgoing.is_member(chat, person)

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await twice(lambda: fetch_file(self._api, attachment, bytes_max))

    def show(self, progress: Progress) -> None:
        """Show only that something is being written."""
        self._activity.show(progress)

    def answer_press(self, context: MessageContext) -> None:
        self._callbacks.note(context.message_id)

    async def close(self) -> None:
        await self._activity.close()
        self._learning.cancel()
        await self._api.close()

    def _read(self, update: Mapping[str, Any], now: datetime) -> Receipt:
        receipt = with_event(updates.receipt(update, account=self.account, me=self._me, now=now), update)
        if isinstance(receipt, Moved):
            self._outgoing.follow(receipt.before, receipt.after)
        if isinstance(receipt, Ignored) and receipt.kind == updates.PRESS:
            self._callbacks.note(text(mapping(update, updates.PRESS), "id"))
        return receipt

    async def _learn(self) -> None:
        with self.condition.watching("identity"):
            me = await self._api.call("getMe")
            bot_id, username = (number(me, "id"), text(me, "username")) if isinstance(me, dict) else (None, "")
            if bot_id is None or not username:
                raise Unreachable("Telegram's answer does not name the bot")
        self._me = replace(self._me, id=bot_id, username=username)
        sees_all = me.get("can_read_all_group_messages") is True
        log.info("telegram_bot", account=self.account, username=username, privacy_mode=not sees_all)

    @asynccontextmanager
    async def _paced(self, chat: str) -> AsyncIterator[None]:
        await self._pace.wait(chat)
        try:
            yield
        except RateLimited as error:
            self._pace.refused(chat, error.retry_after_seconds)
            self._activity.rest(error.retry_after_seconds)
            raise


def _uncalled(part: Outbound) -> Outbound:
    """Cut a growing answer in a group before the first mention of a bot, which is to answer only the whole of it."""
    called = _BOT_NAME.search(part.text) if is_group(part.target.chat) else None
    return replace(part, text=part.text[: called.start()].rstrip() or "…") if called else part

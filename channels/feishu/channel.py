"""One Feishu app as a channel: verify and read deliveries, send replies once.

`receive` checks in order of trust: signature over the raw bytes, strict decryption, token, app id, and only then the event.
The URL check is the only unsigned delivery; its token must be right.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

import orjson
import structlog

from channels.abilities import MenuEntry, Progress
from channels.access import AccessConfig
from channels.channel import (
    AnsweredAtOnce,
    Capabilities,
    Deliver,
    DeliveryError,
    Fetch,
    FileMessages,
    RateLimited,
    Receipt,
    Rejected,
    Unreachable,
    WebhookRequest,
    with_event,
)
from channels.condition import Condition
from channels.feishu import signature
from channels.feishu.api import FeishuApi
from channels.feishu.config import FeishuAccount, listens
from channels.feishu.connection import LongConnection
from channels.feishu.content import is_incomplete as is_incomplete_text
from channels.feishu.content import links_in, receipt
from channels.feishu.doctor import CAUSES, cause_of
from channels.feishu.login import FeishuLogin
from channels.feishu.outgoing import FeishuOutgoing, is_closed, split
from channels.feishu.people import People, Reactions, fetch_file, react
from channels.marks import BUNDLE
from channels.message import Attachment, DocumentLink, File, MessageContext, Outbound
from channels.pace import Pace, SingleFlight
from channels.wire import mapping
from channels.wire import text as text_of

REPEAT_SECONDS = 3_300.0
"""Feishu deduplicates by `uuid` for an hour; leave a margin for clock differences."""
CHAT_RATE_CODES = ("230020",)
ACCOUNT_RATE, CHAT_RATE = 50.0, 5.0
"""Documented sends per second, of one app and to one chat."""
SLOW_SECONDS = 1.0
CARD_SECONDS = 0.3
"""Seconds between two updates of a growing answer; Feishu allows ten a second per card."""
log = structlog.get_logger()


class FeishuChannel:
    """`channels.channel.Channel`, `HasCondition`, `Listens`, `DownloadsFiles`, `ShowsProgress`, `ShowsDrafts`,
    `ActsOnMessages`, `MarksMessages`, `ReadsBots`, `ChecksHeaders` and `LogsIn` for one account."""

    name = "feishu"
    capabilities = Capabilities(
        names=("markdown", "threads"),
        directives=("media", "voice", "reply"),
        actions=("send", "reply", "edit", "delete", "react", "buttons"),
        file_messages=FileMessages(),
        topics_by_reply=True,
        buttons=True,
        forms=True,
        repeat_seconds=REPEAT_SECONDS,
    )

    def __init__(
        self,
        config: FeishuAccount,
        account: str,
        stored: Fetch,
        zone: tzinfo = UTC,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = account
        self.access: AccessConfig = config
        self.queue = config.queue
        self.capabilities = replace(self.capabilities, quotes=config.quotes)
        self.resend_ambiguous = config.resend_ambiguous
        self._config = config
        self._key = config.encrypt_key.get_secret_value().strip()
        self._token = config.verification_token.get_secret_value().strip()
        self.condition = Condition(self.name, account, causes=CAUSES, cause_of=cause_of, now=now)
        self._api = FeishuApi(config, self.condition)
        self.login = FeishuLogin(config)
        self.address = config.base_url
        self._people = People(self._api, zone)
        self._pace = Pace(
            per_second=config.sends_per_second, account_rate=ACCOUNT_RATE, chat_rate=lambda chat: CHAT_RATE
        )
        self._outgoing = FeishuOutgoing(api=self._api, account=account, stored=stored, rendering=config.rendering)
        self._reactions = Reactions(api=self._api, account=account, app_id=config.app_id, emoji=config.reaction)
        self._bot: str | None = None
        self._zone = zone
        self._learning = SingleFlight(self._learn, late="Feishu has not said yet who the bot is")

    def check_headers(self, request: WebhookRequest, now: datetime) -> int | None:
        """Limit unsigned deliveries to the size of a URL check."""
        if not self._key:
            return None
        if signature.is_signed(request):
            signature.check_fields(request, now=now, window_seconds=self._config.timestamp_window_seconds)
            return None
        declared = request.header("content-length") or ""
        if declared.isdecimal() and int(declared[:20]) > signature.CHALLENGE_BYTES_MAX:
            raise Rejected("signature missing", cause="unsigned")
        return signature.CHALLENGE_BYTES_MAX

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        window = self._config.timestamp_window_seconds
        event = signature.opened(request, key=self._key, now=now, window_seconds=window)
        if (challenge := signature.challenge(event)) is not None:
            self._check_token(event)
            return AnsweredAtOnce(body=orjson.dumps({"challenge": challenge}))
        if not event.get("encrypt") and "schema" not in event and "open_message_id" in event and "action" in event:
            raise Rejected("legacy card callback: choose the new version in the console", status=400)
        self._check_token(event)
        return self._receipt(event, now)

    async def connect(
        self, *, public_url: str | None, commands: Sequence[MenuEntry], owners: Sequence[str], deliver: Deliver
    ) -> None:
        self.condition.awaits_deliveries = not listens(self._config, public_url)
        if self.condition.awaits_deliveries:
            await asyncio.Event().wait()  # events arrive at the webhook
        api = FeishuApi(self._config, self.condition)  # separate client: a call that hangs must not delay sends
        connection = LongConnection(
            api=api,
            account=self.account,
            condition=self.condition,
            read=lambda body: self._receipt(
                signature.parse(body), datetime.now(UTC)
            ),  # authenticated by the connection
            deliver=deliver,
        )
        try:
            await connection.run()
        finally:
            await api.close()

    async def learn_identity(self, timeout_seconds: float) -> None:
        if self._bot is None:
            await self._learning.get(timeout_seconds)

    async def enrich(self, context: MessageContext) -> MessageContext:
        grouped, answers = context.chat.kind == "group", context.reply_to
        is_incomplete = context.mark == BUNDLE or is_incomplete_text(context.text)
        name, title, quoted, whole = await asyncio.gather(
            self._people.name(context.sender.id) if context.sender.id else _nothing(),
            self._people.title(context.chat.id) if grouped else _nothing(),
            self._people.quoted(answers) if answers and answers.text is None else _nothing(),
            self._people.whole(context.message_id, self._bot) if is_incomplete else _nothing(),
        )
        if quoted:
            forwarded = (quoted.text or "").startswith(BUNDLE)
            own = quoted.sender in (context.sender.id, self._config.app_id) and not forwarded
            quoted = replace(quoted, foreign=not own)
        quote, text = quoted or answers, context.text if whole is None else whole.text
        links = self.links(text)
        if quote and quote.text:
            links += tuple(replace(it, quoted=True) for it in self.links(quote.text) if it not in links)
        return replace(
            context,
            sender=replace(context.sender, name=name or context.sender.id),
            chat=replace(context.chat, title=title),
            reply_to=quote,
            links=links,
            text=text,
            mark="" if whole and not whole.text else context.mark,
            attachments=whole.attachments if whole else context.attachments,
        )

    async def read_bot(self, context: MessageContext) -> tuple[str, bool]:
        return await self._people.bot(context.message_id, self._bot)

    async def is_member(self, chat: str, person: str) -> bool:
        return await self._people.is_member(chat, person)

    def split(self, text: str) -> list[str]:
        return split(text)

    def draft_seconds(self, context: MessageContext) -> float | None:
        is_whole = self._config.streaming_in(context.chat.id) == "off" or context.sender.is_bot
        return None if is_whole else CARD_SECONDS

    def draft_is_whole(self, context: MessageContext) -> bool:
        return self._config.streaming_in(context.chat.id) == "progress"

    def show(self, progress: Progress) -> None:
        self._reactions.show(progress)

    async def unmark(self, context: MessageContext) -> None:
        await self._reactions.remove(context)

    async def open_draft(self, part: Outbound, key: str) -> str:
        return await self._outgoing.cards.open(part)

    async def update_draft(self, part: Outbound, key: str) -> str:
        try:
            return await self._outgoing.cards.update(part)
        except DeliveryError as error:
            if not is_closed(error):
                raise
            log.info("feishu_card_closed", account=self.account)
            return part.replaces or ""

    async def send(self, part: Outbound, key: str) -> str:
        async with self._paced(part.target.chat):
            return await self._outgoing.send(part, key)

    async def delete(self, chat: str, message_id: str) -> None:
        async with self._paced(chat):
            await self._outgoing.delete(message_id)

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        async with self._paced(chat):
            await react(self._api, message_id, emoji)

    async def leave(self, chat: str) -> None:
        async with self._paced(chat):
            await self._outgoing.leave(chat, self._config.app_id)

    @asynccontextmanager
    async def _paced(self, chat: str) -> AsyncIterator[None]:
        await self._pace.wait(chat)
        try:
            yield
        except RateLimited as error:
            slowed = chat if error.code in CHAT_RATE_CODES else None
            self._pace.slow(slowed, error.retry_after_seconds or SLOW_SECONDS)
            raise

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await fetch_file(self._api, attachment, bytes_max=bytes_max)

    def links(self, text: str) -> tuple[DocumentLink, ...]:
        return links_in(text, self._config.base_url)

    async def app_token(self, refused: str = "") -> str:
        return await self._api.app_token(refused)

    async def close(self) -> None:
        await self._reactions.close()
        self._learning.cancel()
        await self.login.close()
        await self._api.close()

    def _check_token(self, event: dict[str, Any]) -> None:
        header = event.get("header")
        given = header.get("token") if isinstance(header, dict) else event.get("token")
        if self._token and not signature.same(given, self._token):
            raise Rejected("verification token wrong or missing", guess=True, cause="verificationToken")
        if not self._key and (not self._token or self._config.verification == "signature"):
            raise Rejected("nothing to verify with")

    def _receipt(self, event: dict[str, Any], now: datetime) -> Receipt:
        holder = "header" if isinstance(event.get("header"), dict) else "event"
        given = mapping(event, holder).get("app_id")
        if given is not None and not signature.same(given, self._config.app_id):
            raise Rejected("meant for another app", cause="appId")
        return with_event(receipt(event, account=self.account, bot=self._bot, now=now, zone=self._zone), event)

    async def _learn(self) -> None:
        with self.condition.watching("identity"):
            answer = await self._api.call("/open-apis/bot/v3/info")
            open_id = text_of(mapping(answer, "bot"), "open_id")  # under `bot`, not under `data`
            if not open_id:
                raise Unreachable("Feishu's answer does not name the bot")
        self._bot = open_id


async def _nothing() -> None:
    return None

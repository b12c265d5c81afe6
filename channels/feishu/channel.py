"""One Feishu app as a channel: what comes in is verified and read, what goes out is sent once.

The order of `receive` is the order of trust: signature over the raw bytes, strict decryption, token, app id, and only
then the event. The URL check is the one delivery that carries no signature; its token must be right and nothing of it is
kept. A reply that cannot be one (the message was withdrawn) becomes a plain message in the chat, except inside a topic,
where that would open a new one.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson
import structlog

from channels import split as markdown
from channels.abilities import MenuEntry, Progress
from channels.access import AccessConfig
from channels.channel import (
    AnsweredAtOnce,
    Capabilities,
    Deliver,
    DeliveryError,
    Fetch,
    FileMessages,
    Gone,
    RateLimited,
    Receipt,
    Refused,
    Rejected,
    Unreachable,
    WebhookRequest,
)
from channels.feishu import signature
from channels.feishu.api import (
    AUDIT_CODES,
    BAD_CONTENT_CODES,
    NO_CARD_CODES,
    NO_THREAD_CODES,
    WITHDRAWN_CODES,
    FeishuApi,
    People,
    fetch_file,
)
from channels.feishu.card import answer_card, card, needs_card, without_pings
from channels.feishu.config import FeishuAccount, Rendering, listens
from channels.feishu.connection import LongConnection
from channels.feishu.content import FORWARDED
from channels.feishu.events import receipt
from channels.feishu.files import uploaded
from channels.feishu.live import HANDLE, LiveCards, is_closed
from channels.feishu.reactions import Reactions, react
from channels.formulas import shielded
from channels.message import Attachment, File, MessageContext, Outbound
from channels.pace import Pace, SingleFlight
from channels.split import Limit
from channels.wire import mapping
from channels.wire import text as text_of

CHALLENGE_BYTES_MAX = 1_024
UUID_CHARS_MAX = 50
REPEAT_SECONDS = 3_300.0
"""Feishu recognises a `uuid` for an hour; some minutes of it are left for clocks that differ."""
CHAT_RATE_CODES = ("230020",)
ACCOUNT_RATE, CHAT_RATE = 50.0, 5.0
"""Sends a second for one app and to one chat, as documented."""
SLOW_SECONDS = 1.0
CARD_SECONDS = 0.3
"""Between two states of a growing answer; Feishu takes ten a second of one card."""
NOT_PASSED = "这条回复未通过平台的内容审核，未能发送。 / This reply did not pass the platform's content audit."
log = structlog.get_logger()

_MESSAGES = "/open-apis/im/v1/messages"
PART_CHARS_MAX = 4_000
PART_BYTES_MAX = 20_000
"""Of the text as JSON. It is encoded twice, and Feishu's 30 KB count the outer form."""
_QUOTES = 2


class FeishuChannel:
    """`channels.channel.Channel`, `Listens`, `DownloadsFiles`, `ShowsProgress`, `ShowsDrafts`, `ActsOnMessages`
    and `MarksMessages` for one account."""

    name = "feishu"
    capabilities = Capabilities(
        names=("markdown", "threads"),
        directives=("media", "voice", "reply"),
        actions=("send", "reply", "edit", "delete", "react", "buttons"),
        file_messages=FileMessages(),
        topics_by_reply=True,
        buttons=True,
        repeat_seconds=REPEAT_SECONDS,
    )

    def __init__(self, config: FeishuAccount, account: str, stored: Fetch) -> None:
        self._stored = stored
        self.account = account
        self.access: AccessConfig = config
        self.queue = config.queue
        self.capabilities = replace(self.capabilities, quotes=config.quotes)
        self.resend_ambiguous = config.resend_ambiguous
        self._config = config
        self._key = config.encrypt_key.get_secret_value().strip()
        self._token = config.verification_token.get_secret_value().strip()
        self._api = FeishuApi(config)
        self._people = People(self._api)
        self._pace = Pace(
            per_second=config.sends_per_second, account_rate=ACCOUNT_RATE, chat_rate=lambda chat: CHAT_RATE
        )
        self._cards = LiveCards(self._api, self._place)
        self._reactions = Reactions(api=self._api, account=account, app_id=config.app_id, emoji=config.reaction)
        self._bot: str | None = None
        self._learning = SingleFlight(self._learn, late="Feishu has not said yet who the bot is")

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        event = self._opened(request, now)
        if (challenge := _challenge(event)) is not None:
            self._check_token(event)
            return AnsweredAtOnce(body=orjson.dumps({"challenge": challenge}))
        if not event.get("encrypt") and "schema" not in event and "open_message_id" in event and "action" in event:
            raise Rejected("legacy card callback: choose the new version in the console", status=400)
        self._check_token(event)
        return self._receipt(event, now)

    async def connect(self, *, public_url: str | None, commands: Sequence[MenuEntry], deliver: Deliver) -> None:
        if not listens(self._config, public_url):
            await asyncio.Event().wait()  # the door brings everything
        api = FeishuApi(self._config)  # of its own, as a call that hangs must not hold a send back
        connection = LongConnection(api=api, account=self.account, read=self._read, deliver=deliver)
        try:
            await connection.run()
        finally:
            await api.close()

    async def learn_identity(self, timeout_seconds: float) -> None:
        if self._bot is None:
            await self._learning.get(timeout_seconds)

    async def enrich(self, context: MessageContext) -> MessageContext:
        grouped, answers = context.chat.kind == "group", context.reply_to
        name, title, quoted, bundle = await asyncio.gather(
            self._people.name(context.sender.id),
            self._people.title(context.chat.id) if grouped else _nothing(),
            self._people.quoted(answers) if answers and answers.text is None else _nothing(),
            self._people.forwarded(context.message_id) if context.text == FORWARDED else _nothing(),
        )
        return replace(
            context,
            sender=replace(context.sender, name=name or context.sender.id),
            chat=replace(context.chat, title=title),
            reply_to=quoted or answers,
            text=(bundle and bundle.text) or context.text,
            attachments=bundle.attachments if bundle else context.attachments,
        )

    def split(self, text: str) -> list[str]:
        return split(text)

    def draft_seconds(self, context: MessageContext) -> float | None:
        return None if self._config.streaming_in(context.chat.id) == "off" else CARD_SECONDS

    def draft_is_whole(self, context: MessageContext) -> bool:
        return self._config.streaming_in(context.chat.id) == "progress"

    def show(self, progress: Progress) -> None:
        self._reactions.show(progress)

    async def unmark(self, context: MessageContext) -> None:
        await self._reactions.remove(context)

    async def open_draft(self, part: Outbound, key: str) -> str:
        return await self._cards.open(part)

    async def update_draft(self, part: Outbound, key: str) -> None:
        try:
            await self._cards.update(part)
        except DeliveryError as error:
            if not is_closed(error):
                raise
            log.info("feishu_card_closed", account=self.account)

    async def send(self, part: Outbound, key: str) -> str:
        """Send one part, as rich text or as a card; the message id. Raises DeliveryError.

        What is not taken as that goes as plain text, and what does not pass an audit as a note that says so.
        """
        async with self._paced(part.target.chat):
            return await self._send(part, key)

    async def delete(self, chat: str, message_id: str) -> None:
        async with self._paced(chat):
            with suppress(Gone):
                await self._api.call(f"{_MESSAGES}/{quote(message_id, safe='')}", method="DELETE")

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        async with self._paced(chat):
            await react(self._api, message_id, emoji)

    @asynccontextmanager
    async def _paced(self, chat: str) -> AsyncIterator[None]:
        await self._pace.wait(chat)
        try:
            yield
        except RateLimited as error:
            slowed = chat if error.code in CHAT_RATE_CODES else None
            self._pace.slow(slowed, error.retry_after_seconds or SLOW_SECONDS)
            raise

    async def _send(self, part: Outbound, key: str) -> str:
        if part.replaces is not None and part.replaces.startswith(HANDLE):
            try:
                return await self._cards.finish(part, key)
            except (Refused, Gone) as error:
                log.warning("feishu_card_not_finished", account=self.account, code=error.code)
            with suppress(Refused, Gone):
                await self._cards.take_away(part)
            part = replace(part, replaces=None)
        for file in part.files:
            kind, content = await uploaded(self._api, self._stored, file, voice=part.voice)
            return await self._place(part, key, kind, content)
        for kind, content, tolerated in _forms(part, self._config.rendering):
            try:
                return await self._place(part, key, kind, content)
            except DeliveryError as error:
                if error.code not in tolerated:
                    raise
        raise AssertionError("the last form tolerates nothing")

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await fetch_file(self._api, attachment, bytes_max=bytes_max)

    async def close(self) -> None:
        await self._reactions.close()
        self._learning.cancel()
        await self._api.close()

    def _opened(self, request: WebhookRequest, now: datetime) -> dict[str, Any]:
        """The event of a delivery that is genuine as far as the envelope can tell. Raises Rejected."""
        if not self._key:
            return signature.parse(request.body)
        if signature.is_signed(request):
            window = self._config.timestamp_window_seconds
            signature.verify(request, key=self._key, now=now, window_seconds=window)
            return signature.decrypt(signature.encrypted_part(request.body), self._key)
        if len(request.body) > CHALLENGE_BYTES_MAX:
            raise Rejected("signature missing")
        event = signature.decrypt(signature.encrypted_part(request.body), self._key)
        if _challenge(event) is None:
            raise Rejected("signature missing")
        return event

    def _check_token(self, event: dict[str, Any]) -> None:
        header = event.get("header")
        given = header.get("token") if isinstance(header, dict) else event.get("token")
        if self._token and not signature.same(given, self._token):
            raise Rejected("verification token wrong or missing", guess=True)
        if not self._key and (not self._token or self._config.verification == "signature"):
            raise Rejected("nothing to verify with")

    def _check_app(self, event: dict[str, Any]) -> None:
        holder = "header" if isinstance(event.get("header"), dict) else "event"
        given = mapping(event, holder).get("app_id")
        if given is not None and not signature.same(given, self._config.app_id):
            raise Rejected("meant for another app")

    def _read(self, body: bytes) -> Receipt:
        """An event of the long connection, which needs no proof of its own. Raises Rejected."""
        return self._receipt(signature.parse(body), datetime.now(UTC))

    def _receipt(self, event: dict[str, Any], now: datetime) -> Receipt:
        self._check_app(event)
        return receipt(event, account=self.account, bot=self._bot, now=now)

    async def _learn(self) -> None:
        answer = await self._api.call("/open-apis/bot/v3/info")
        open_id = text_of(mapping(answer, "bot"), "open_id")  # under `bot`, not under `data`
        if not open_id:
            raise Unreachable("Feishu's answer does not name the bot")
        self._bot = open_id

    async def _place(self, part: Outbound, key: str, kind: str, content: dict[str, Any]) -> str:
        """In the place of an earlier message, as a reply, or in the chat. Raises DeliveryError."""
        target, written = part.target, orjson.dumps(content).decode()
        if part.replaces is not None:
            path = f"{_MESSAGES}/{quote(part.replaces, safe='')}"
            if kind == "interactive":
                await self._api.call(path, body={"content": written}, method="PATCH")
            else:
                await self._api.call(path, body={"msg_type": kind, "content": written}, method="PUT")
            return part.replaces
        body: dict[str, Any] = {"msg_type": kind, "content": written, "uuid": key[:UUID_CHARS_MAX]}
        if target.reply_to is not None:
            path = f"{_MESSAGES}/{quote(target.reply_to, safe='')}/reply"
            try:
                return await self._post(path, body | {"reply_in_thread": True} if target.thread else body)
            except DeliveryError as error:
                if error.code in NO_THREAD_CODES and target.thread:
                    return await self._post(path, body)
                if error.code not in WITHDRAWN_CODES:
                    raise
                if target.thread:
                    raise Gone("the message was withdrawn, and its topic with it", code=error.code) from error
        kind_of_id = "open_id" if target.chat.startswith("ou_") else "chat_id"
        return await self._post(_MESSAGES, body | {"receive_id": target.chat}, {"receive_id_type": kind_of_id})

    async def _post(self, path: str, body: dict[str, Any], params: dict[str, str] | None = None) -> str:
        return text_of(mapping(await self._api.call(path, params, body), "data"), "message_id")


def _challenge(event: dict[str, Any]) -> str | None:
    """The challenge of a URL check: in the old form, and in the shape of a 2.0 event."""
    header = event.get("header")
    kind = header.get("event_type") if isinstance(header, dict) else event.get("type")
    if kind != "url_verification":
        return None
    found = event.get("challenge", mapping(event, "event").get("challenge"))
    if not isinstance(found, str):
        raise Rejected("challenge missing", status=400)
    return found


_Form: TypeAlias = tuple[str, dict[str, Any], frozenset[str]]


def _forms(part: Outbound, rendering: Rendering) -> Iterator[_Form]:
    """The ways to say a part, the next one for whoever was refused the last: type, content, and the codes that mean so. What
    replaces a card is a card, and only where it replaces none a text."""
    text = without_pings(shielded(part.text))
    if part.replaces is not None:
        no_card = frozenset[str]() if part.buttons else NO_CARD_CODES
        yield "interactive", card(part.text, part.buttons), AUDIT_CODES | no_card
        yield "interactive", card(NOT_PASSED, ()), no_card
    elif part.buttons:
        yield "interactive", card(part.text, part.buttons), BAD_CONTENT_CODES | AUDIT_CODES
    elif rendering == "card" or (rendering == "auto" and needs_card(part.text)):
        yield "interactive", answer_card(part.text), BAD_CONTENT_CODES | AUDIT_CODES
    yield "post", {"zh_cn": {"content": [[{"tag": "md", "text": text}]]}}, BAD_CONTENT_CODES | AUDIT_CODES
    yield "text", {"text": text}, AUDIT_CODES
    yield "text", {"text": NOT_PASSED}, frozenset()


async def _nothing() -> None:
    return None


def split(text: str, *, chars_max: int = PART_CHARS_MAX, bytes_max: int = PART_BYTES_MAX) -> list[str]:
    """The parts, in order; one empty text gives none. Without the fences and heads put in again, they are the text."""
    limits = (Limit(measure=len, most=chars_max), Limit(measure=_bytes, most=bytes_max - _QUOTES))
    return markdown.split(shielded(text), limits)


def _bytes(text: str) -> int:
    return len(orjson.dumps(text.encode("utf-8", errors="replace").decode())) - _QUOTES

"""The smallest whole channel: a pad of notes that signs what it posts, and takes an answer as one request.

It is here to be counted: its lines are what a channel costs at least, without a platform's own oddities.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import ClassVar

import httpx
from pydantic import BaseModel, SecretStr, ValidationError

from channels.access import AccessConfig
from channels.bilingual import NO_WORDS, Bilingual
from channels.channel import (
    Arrived,
    Capabilities,
    DeliveryError,
    Gone,
    RateLimited,
    Refused,
    Rejected,
    Unreachable,
    WebhookRequest,
)
from channels.message import Chat, MessageContext, Outbound, Sender
from channels.section import QueueConfig
from gateway.config.channels import CHANNEL_TYPES, ChannelsConfig, ChannelType
from gateway.config.root import Config

NOTE_CHARS = 500


class NotesConfig(AccessConfig):
    """One pad."""

    enabled: bool = True
    api_url: str = "https://notes.example.com"
    secret: SecretStr = SecretStr("")
    queue: QueueConfig = QueueConfig()


class _Note(BaseModel, strict=True):
    id: str
    writer: str
    text: str


class NotesChannel:
    """`channels.channel.Channel` for one pad."""

    name = "notes"
    account = "default"
    capabilities = Capabilities(names=("text",), repeat_seconds=3600.0)
    resend_ambiguous = True

    def __init__(self, config: NotesConfig) -> None:
        self.access: AccessConfig = config
        self.queue = config.queue
        self._secret = config.secret.get_secret_value()
        self._http = httpx.AsyncClient(base_url=config.api_url, timeout=10.0, trust_env=False)

    def receive(self, request: WebhookRequest, now: datetime) -> Arrived:
        if not hmac.compare_digest((request.header("x-notes-signature") or "").encode(), self._sign(request.body)):
            raise Rejected("signature wrong or missing", guess=True)
        try:
            note = _Note.model_validate_json(request.body)
        except ValidationError:
            raise Rejected("malformed", status=400) from None
        context = MessageContext(
            channel=self.name,
            account=self.account,
            chat=Chat(id=note.writer, kind="direct"),
            message_id=note.id,
            sender=Sender(id=note.writer),
            text=note.text,
            sent_at=now.astimezone(UTC),
            mentioned=True,
        )
        return Arrived(context=context, dedupe=(note.id,))

    async def learn_identity(self, timeout_seconds: float) -> None:
        """A pad has none."""

    async def enrich(self, context: MessageContext) -> MessageContext:
        return context

    def split(self, text: str) -> list[str]:
        return [text[at : at + NOTE_CHARS] for at in range(0, len(text), NOTE_CHARS)]

    async def send(self, part: Outbound, key: str) -> str:
        body = {"to": part.target.chat, "answers": part.target.reply_to, "text": part.text, "key": key}
        try:
            answer = await self._http.post("/notes", json=body, headers={"x-notes-token": self._secret})
        except httpx.HTTPError as error:
            raise Unreachable(type(error).__name__) from error
        if answer.status_code != 200:
            raise _error(answer.status_code)
        return str(answer.json()["id"])

    async def close(self) -> None:
        await self._http.aclose()

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._secret.encode(), body, hashlib.sha256).hex().encode()


def _error(status: int) -> DeliveryError:
    errors: dict[int, type[DeliveryError]] = {404: Gone, 429: RateLimited}
    return errors.get(status, Unreachable if status >= 500 else Refused)(f"the pad answered {status}", code=str(status))


NOTES = ChannelType(
    name="notes",
    accounts=lambda section: {"default": section} if section.enabled and section.secret.get_secret_value() else {},
    channel=lambda account, name, _: NotesChannel(account),
    keys=("secret",),
    bot=lambda account: str(account.api_url),
    bot_key="apiUrl",
    bot_word="pad",
    arrives=lambda account, name, exposure: (
        Bilingual(f"webhook {exposure.server.public_url or '<publicUrl>'}/webhooks/notes/{name}"),
        NO_WORDS,
    ),
)


class NotesToo(ChannelsConfig):
    """What an addition writes into `gateway/config/channels.py`: a record and a field."""

    kinds: ClassVar = {**CHANNEL_TYPES, "notes": NOTES}
    notes: NotesConfig | None = None


class Root(Config):
    """A config with one channel more."""

    channels: NotesToo = NotesToo()

"""One emulated chat platform as the harness needs it, in a record for each way of being connected to it.

Everything that differs between platforms stands here: how people write, how the gateway hears of it, what they see, and
what becomes of a send that may have arrived. Who is killed, and how it is judged, is the same everywhere.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, Protocol

import httpx
import orjson
from starlette.types import ASGIApp, Scope

from channels.channel import Receipt
from channels.feishu import events
from channels.telegram import updates
from channels.telegram.content import Me
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE, FEISHU, feishu_emulator

FIRST_PERSON = 500_000_011
TELEGRAM_SECRET = "a-long-random-word_0123456789"
LOOK_SECONDS = 0.004
LOOKS = 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What somebody wrote: its id, which may be unique in its chat only, and the event that tells the gateway."""

    message_id: str
    event: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What people see of the bot, and what it says that it answers."""

    chat: str
    reply_to: str | None
    text: str


class Emulated(Protocol):
    name: str
    channel: str
    repeats: bool
    """Whether the gateway sends again what may have arrived; else it gives it up."""
    recognises: bool
    """Whether the platform shows a repeated send once."""

    @property
    def fetched(self) -> bool:
        """The gateway fetches its messages: the platform delivers none by itself, and none again after it was taken."""

    @property
    def app(self) -> ASGIApp: ...

    def config(self, url: str) -> str:
        """The channel's block of the config, indented by two."""

    def chat(self, chance: random.Random) -> str:
        """A new direct chat."""

    def write(self, text: str, chat: str) -> Written: ...

    async def deliver(self, client: httpx.AsyncClient, gateway_url: str, event: Mapping[str, Any]) -> bool:
        """One attempt; whether it was taken. Raises httpx.TransportError."""

    def receipt(self, event: Mapping[str, Any]) -> Receipt:
        """What the channel makes of it."""

    def is_send(self, scope: Scope) -> bool: ...

    def seen(self) -> Iterator[Seen]:
        """What is new since this was last asked."""


@dataclass(kw_only=True, slots=True)
class OnFeishu:
    name: str = "feishu"
    channel: str = "feishu"
    repeats: bool = True
    recognises: bool = True
    emulator: FeishuEmulator = field(default_factory=feishu_emulator)
    _read: int = 0

    @property
    def fetched(self) -> bool:
        return False

    @property
    def app(self) -> ASGIApp:
        app: ASGIApp = self.emulator.app
        return app

    def config(self, url: str) -> str:
        return f'  feishu:\n    baseUrl: "{url}"\n{FEISHU}'

    def chat(self, chance: random.Random) -> str:
        return f"oc_{chance.getrandbits(128):032x}"

    def write(self, text: str, chat: str) -> Written:
        event = self.emulator.text_event(text, sender=ALICE, chat=chat)
        return Written(message_id=event["event"]["message"]["message_id"], event=event)

    async def deliver(self, client: httpx.AsyncClient, gateway_url: str, event: Mapping[str, Any]) -> bool:
        headers, body = self.emulator.encode(event)
        answer = await client.post(f"{gateway_url}/webhooks/feishu/default", content=body, headers=headers)
        return answer.status_code == 200

    def receipt(self, event: Mapping[str, Any]) -> Receipt:
        return events.receipt(event, account="default", bot=None, now=datetime.now(UTC))

    def is_send(self, scope: Scope) -> bool:
        return scope["method"] == "POST" and "/im/v1/messages" in scope["path"]

    def seen(self) -> Iterator[Seen]:
        new, self._read = self.emulator.messages[self._read :], len(self.emulator.messages)
        return (Seen(chat=sent.chat_id, reply_to=sent.reply_to, text=sent.text) for sent in new)


@dataclass(kw_only=True, slots=True)
class OnTelegram:
    name: str
    mode: Literal["polling", "webhook"]
    channel: str = "telegram"
    repeats: bool = False
    recognises: bool = False
    emulator: TelegramEmulator = field(default_factory=TelegramEmulator)
    _people: Iterator[int] = field(default_factory=lambda: count(FIRST_PERSON))
    _read: int = 0
    _pushing: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def fetched(self) -> bool:
        return self.mode == "polling"

    @property
    def app(self) -> ASGIApp:
        return self.emulator.app

    def config(self, url: str) -> str:
        return f"""\
  telegram:
    botToken: "{self.emulator.token}"
    apiRoot: "{url}"
    mode: {self.mode}
    webhookSecret: {TELEGRAM_SECRET}
    dmPolicy: open
    resendAmbiguous: {str(self.repeats).lower()}
"""

    def chat(self, chance: random.Random) -> str:
        return str(self.emulator.private(next(self._people)))

    def write(self, text: str, chat: str) -> Written:
        """What is fetched waits at the platform from now on, whoever is dead."""
        update = self.emulator.text_update(text, chat=int(chat))
        if self.fetched:
            pushing = asyncio.create_task(self.emulator.push(update))
            self._pushing.add(pushing)
            pushing.add_done_callback(self._pushing.discard)
        return Written(message_id=str(update["message"]["message_id"]), event=update)

    async def deliver(self, client: httpx.AsyncClient, gateway_url: str, event: Mapping[str, Any]) -> bool:
        if not self.fetched:
            headers = {"content-type": "application/json", "x-telegram-bot-api-secret-token": TELEGRAM_SECRET}
            url = f"{gateway_url}/webhooks/telegram/default"
            return (await client.post(url, content=orjson.dumps(event), headers=headers)).is_success
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            if all(pending.update["update_id"] != event["update_id"] for pending in self.emulator.pending):
                return True
        return False

    def receipt(self, event: Mapping[str, Any]) -> Receipt:
        me = Me(id=self.emulator.bot["id"], username=self.emulator.bot["username"])
        return updates.receipt(event, account="default", me=me, now=datetime.now(UTC))

    def is_send(self, scope: Scope) -> bool:
        return str(scope["path"]).endswith("/sendMessage")

    def seen(self) -> Iterator[Seen]:
        new, self._read = self.emulator.messages[self._read :], len(self.emulator.messages)
        for sent in new:
            reply_to = None if sent.reply_to is None else str(sent.reply_to)
            yield Seen(chat=str(sent.chat_id), reply_to=reply_to, text=sent.text)


EMULATED: Mapping[str, Callable[[], Emulated]] = {
    "feishu": OnFeishu,
    "telegram-polling": lambda: OnTelegram(name="telegram-polling", mode="polling"),
    "telegram-webhook": lambda: OnTelegram(name="telegram-webhook", mode="webhook"),
    "telegram-resend": lambda: OnTelegram(name="telegram-resend", mode="polling", repeats=True),
}
"""By the name that `--channel` takes; a name stands for all that begin with it."""

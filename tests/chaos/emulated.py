"""One emulated chat platform as the harness needs it, in a record for each way of being connected to it.

Everything that differs between platforms stands here: how people write, how the gateway hears of it, what they see, and
what becomes of a send that may have arrived. Who is killed, and how it is judged, is the same everywhere.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias

import httpx
import orjson
from starlette.types import ASGIApp, Scope

from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE, FEISHU, feishu_emulator

FIRST_PERSON = 500_000_011
TELEGRAM_SECRET = "a-long-random-word_0123456789"
LOOK_SECONDS = 0.004
LOOKS = 25

Seen: TypeAlias = tuple[str, str, str]
"""A message that people see of the bot: its chat, the message it replies to, its text."""


class OnFeishu:
    name = channel = "feishu"
    repeats = True
    """Whether the gateway sends again what may have arrived; else it gives it up."""
    recognises = True
    """Whether the platform shows a repeated send once."""
    fetched = False
    """Whether the gateway fetches its messages: then none comes by itself, and none again after it was taken."""

    def __init__(self) -> None:
        self.emulator = feishu_emulator()
        self.app: ASGIApp = self.emulator.app
        self._read = 0

    def config(self, url: str) -> str:
        """The channel's block of the config, indented by two."""
        return f'  feishu:\n    baseUrl: "{url}"\n{FEISHU}'

    def chat(self, chance: random.Random) -> str:
        """A new direct chat."""
        return f"oc_{chance.getrandbits(128):032x}"

    def write(self, text: str, chat: str) -> tuple[str, dict[str, Any]]:
        """The id of the message, which may be unique in its chat only, and the event that tells the gateway."""
        event = self.emulator.text_event(text, sender=ALICE, chat=chat)
        return event["event"]["message"]["message_id"], event

    async def deliver(self, client: httpx.AsyncClient, gateway_url: str, event: Mapping[str, Any]) -> bool:
        """One attempt; whether it was taken. Raises httpx.TransportError."""
        headers, body = self.emulator.encode(event)
        answer = await client.post(f"{gateway_url}/webhooks/feishu/default", content=body, headers=headers)
        return answer.status_code == 200

    def is_send(self, scope: Scope) -> bool:
        return scope["method"] == "POST" and "/im/v1/messages" in scope["path"]

    def seen(self) -> Iterator[Seen]:
        """What is new since this was last read."""
        new, self._read = self.emulator.messages[self._read :], len(self.emulator.messages)
        return ((sent.chat_id, sent.reply_to or "", sent.text) for sent in new)


class OnTelegram:
    channel = "telegram"
    recognises = False

    def __init__(self, mode: Literal["polling", "webhook"], *, repeats: bool = False) -> None:
        self.name = "telegram-resend" if repeats else f"telegram-{mode}"
        self.repeats = repeats
        self.fetched = mode == "polling"
        self.emulator = TelegramEmulator()
        self.app: ASGIApp = self.emulator.app
        self._mode = mode
        self._people = count(FIRST_PERSON)
        self._read = 0
        self._pushing: set[asyncio.Task[Any]] = set()

    def config(self, url: str) -> str:
        return f"""\
  telegram:
    botToken: "{self.emulator.token}"
    apiRoot: "{url}"
    streaming: off
    mode: {self._mode}
    webhookSecret: {TELEGRAM_SECRET}
    dmPolicy: open
    resendAmbiguous: {str(self.repeats).lower()}
"""

    def chat(self, chance: random.Random) -> str:
        return str(self.emulator.private(next(self._people)))

    def write(self, text: str, chat: str) -> tuple[str, dict[str, Any]]:
        """What is fetched waits at the platform from now on, whoever is dead."""
        update = self.emulator.text_update(text, chat=int(chat))
        if self.fetched:
            pushing = asyncio.create_task(self.emulator.push(update))
            self._pushing.add(pushing)
            pushing.add_done_callback(self._pushing.discard)
        return str(update["message"]["message_id"]), update

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

    def is_send(self, scope: Scope) -> bool:
        return str(scope["path"]).endswith("/sendMessage")

    def seen(self) -> Iterator[Seen]:
        new, self._read = self.emulator.messages[self._read :], len(self.emulator.messages)
        return ((str(sent.chat_id), str(sent.reply_to or ""), sent.text) for sent in new)


Emulated: TypeAlias = OnFeishu | OnTelegram

EMULATED: Mapping[str, Callable[[], Emulated]] = {
    "feishu": OnFeishu,
    "telegram-polling": lambda: OnTelegram("polling"),
    "telegram-webhook": lambda: OnTelegram("webhook"),
    "telegram-resend": lambda: OnTelegram("polling", repeats=True),
}
"""By the name that `--channel` takes; a name stands for all that begin with it."""

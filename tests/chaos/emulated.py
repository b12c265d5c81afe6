"""One emulated chat platform as the harness needs it, in a record for each way of being connected to it.

Everything that differs between platforms stands here: how people write, how the gateway hears of it, what they see, and
what becomes of a send that may have arrived. Who is killed, and how it is judged, is the same everywhere.
"""

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias

import httpx
import orjson
from starlette.types import ASGIApp, Scope

from tests.chaos.ledger import ANSWER
from tests.emulators.feishu.emulator import Sent
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE, FEISHU, feishu_emulator

FIRST_PERSON = 500_000_011
TELEGRAM_SECRET = "a-long-random-word_0123456789"
LOOK_SECONDS = 0.004
LOOKS = 25
FILE = re.compile(r"file-(S\d{6})\.txt")

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

    live = False
    """Whether answers grow in cards, and messages that are being answered have a reaction."""

    def __init__(self) -> None:
        self.emulator = feishu_emulator()
        self.app: ASGIApp = self.emulator.app
        self._read = 0
        self._growing: list[Sent] = []
        self._takes: dict[str, str] = {}

    def config(self, url: str) -> str:
        """The channel's block of the config, indented by two."""
        shows = "    streaming: partial\n    reaction: Typing\n" if self.live else ""
        plain = FEISHU.replace("    streaming: off\n", "").replace('    reaction: ""\n', "") if self.live else FEISHU
        return f'  feishu:\n    baseUrl: "{url}"\n{plain}{shows}'

    def chat(self, chance: random.Random) -> str:
        """A new chat."""
        chat = f"oc_{chance.getrandbits(128):032x}"
        self.emulator.chats[chat] = ""
        return chat

    def write(self, text: str, chat: str) -> tuple[str, dict[str, Any]]:
        """The id of the message, which may be unique in its chat only, and the event that tells the gateway."""
        event = self.emulator.text_event(text, sender=ALICE, chat=chat)
        return event["event"]["message"]["message_id"], event

    async def deliver(self, client: httpx.AsyncClient, gateway_url: str, event: Mapping[str, Any]) -> bool:
        """One attempt; whether it was taken. Raises httpx.TransportError."""
        headers, body = self.emulator.encode(event)
        answer = await client.post(f"{gateway_url}/webhooks/feishu/default", content=body, headers=headers)
        return answer.status_code == 200

    def points(self, scope: Scope, body: bytes) -> tuple[str, str] | None:
        """The points at which a request is there, and is done and not answered yet."""
        path = scope["path"]
        if "/reactions" in path:
            return "K25", "K25"
        if "/cardkit/" in path or b'\\"card_id\\"' in body:
            return "K23", "K23"
        if path.endswith(("/im/v1/images", "/im/v1/files")):
            return "K24", "K24"
        return ("K13", "K14") if scope["method"] == "POST" and "/im/v1/messages" in path else None

    def seen(self) -> Iterator[Seen]:
        """What is new since this was last read; a card once it is whole."""
        new, self._read = self._growing + self.emulator.messages[self._read :], len(self.emulator.messages)
        self._growing = [sent for sent in new if self._grows(sent)]
        for sent in (it for it in new if not self._grows(it)):
            text = self.emulator.cardkit.cards[sent.text].states[-1] if sent.card else sent.text
            if found := FILE.search(self.emulator.resources[text].name if sent.msg_type == "file" else ""):
                text = f"R {found[1]} n{self._takes.get(found[1], '1')} p2/2"
            elif found := ANSWER.search(text):
                self._takes[found[1]] = found[2]
            if not (sent.card and self.emulator.known[sent.message_id].recalled):
                yield sent.chat_id, sent.reply_to or "", text

    def _grows(self, sent: Sent) -> bool:
        recalled = self.emulator.known[sent.message_id].recalled
        return sent.card and self.emulator.cardkit.cards[sent.text].streams and not recalled

    def unfinished(self) -> list[str]:
        """What people see of a turn that is over."""
        cards = [f"a card in {it.chat_id} still grows" for it in self.emulator.messages if self._grows(it)]
        return cards + [f"a reaction stands at {it['message_id']}" for it in self.emulator.reactions.values()]


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

    def points(self, scope: Scope, body: bytes) -> tuple[str, str] | None:
        return ("K13", "K14") if str(scope["path"]).endswith("/sendMessage") else None

    def unfinished(self) -> list[str]:
        return []

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

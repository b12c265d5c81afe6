"""From where people write to a bot: each side as the config that a bot has of it, and as messages ready to be sent.

Every message is written out as HTTP before a clock starts, encrypted and signed where the platform does so. A reply is
known by its key: the message that it answers, or on Telegram the chat, in which one message waits at a time.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import orjson

from tests.emulators.feishu.events import EventSource
from tests.emulators.telegram.chats import TOKEN
from tests.running import ALICE, APP_ID, BOT, FEISHU, SECRETS

WEBHOOK_SECRET = "a-long-random-word_0123456789"


@dataclass(frozen=True, slots=True)
class Prepared:
    """One message of a chat, ready to be sent. `fact` is what its platform knows of it."""

    key: str
    request: bytes
    fact: Any


class Side(Protocol):
    name: ClassVar[str]

    def channels(self, platform: str) -> str:
        """The section `channels` of a config, where the platform answers at this address."""

    def chat(self) -> str:
        """A new one, with an id that no earlier run used."""

    def message(self, chat: str, text: str) -> Prepared: ...


class Feishu:
    name: ClassVar[str] = "feishu"

    def __init__(self) -> None:
        self._source = EventSource(
            app_id=APP_ID,
            bot_open_id=BOT,
            encrypt_key=SECRETS["FEISHU_ENCRYPT_KEY"],
            verification_token=SECRETS["FEISHU_VERIFICATION_TOKEN"],
        )

    def channels(self, platform: str) -> str:
        return f'  feishu:\n    baseUrl: "{platform}"\n{FEISHU}'

    def chat(self) -> str:
        return f"oc_{secrets.token_hex(16)}"

    def message(self, chat: str, text: str) -> Prepared:
        message_id = f"om_{secrets.token_hex(16)}"
        event = self._source.text_event(text, sender=ALICE, chat=chat, message_id=message_id)
        headers, body = self._source.encode(event)
        return Prepared(message_id, _request(self.name, body, headers), (message_id, chat))


class Telegram:
    name: ClassVar[str] = "telegram"

    def __init__(self) -> None:
        self._last = secrets.randbelow(10**8) * 1_000

    def channels(self, platform: str) -> str:
        token, secret = f'botToken: "{TOKEN}"', f"mode: webhook, webhookSecret: {WEBHOOK_SECRET}"
        return f'  telegram: {{ {token}, {secret}, apiRoot: "{platform}", dmPolicy: open, groupPolicy: open }}\n'

    def chat(self) -> str:
        return str(500_000_000 + secrets.randbelow(10**9))

    def message(self, chat: str, text: str) -> Prepared:
        self._last += 1
        person = {"id": int(chat), "first_name": "Alice"}
        body = {"message_id": self._last, "date": int(time.time()), "text": text}
        body |= {"from": person | {"is_bot": False}, "chat": person | {"type": "private"}}
        update = {"update_id": self._last, "message": body}
        headers = {"content-type": "application/json", "x-telegram-bot-api-secret-token": WEBHOOK_SECRET}
        return Prepared(chat, _request(self.name, orjson.dumps(update), headers), update)


class Web:
    name: ClassVar[str] = "web"

    def channels(self, platform: str) -> str:
        return "  web: {}\n"

    def chat(self) -> str:
        return f"c_{secrets.token_hex(8)}"

    def message(self, chat: str, text: str) -> Prepared:
        key = f"m_{secrets.token_hex(16)}"
        body = orjson.dumps({"id": key, "chat": chat, "agent": "helper", "text": text, "files": []})
        return Prepared(key, _request(self.name, body, {"content-type": "application/json", "x-clawgate": "1"}), None)


SIDES: dict[str, type[Side]] = {"feishu": Feishu, "telegram": Telegram, "web": Web}


def _request(side: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"POST /webhooks/{side}/default HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

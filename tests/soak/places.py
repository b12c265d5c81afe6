"""Where people write in a soak, each platform by the same few acts, and what is shown there of the bot."""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE
from tests.web_page import Page, new_id

ALWAYS = frozenset({"plain", "long", "tools", "file", "buttons", "upload", "command"})


class Place(Protocol):
    name: str
    can: frozenset[str]

    async def write(self, text: str, chat: str, *, to_bot: bool = True) -> str:
        """The id of the message."""

    async def upload(self, chat: str, data: bytes) -> None: ...

    async def edit(self, message: str, text: str, chat: str) -> None: ...

    async def recall(self, message: str) -> None: ...

    async def press(self, chat: str, label: str) -> bool:
        """Whether there is such a button."""

    def shown(self, recent: int | None) -> Iterator[tuple[str, str]]:
        """What people see now of so many messages of the bot, the last ones: a key of each, and its text."""

    def count(self, chat: str) -> int:
        """Messages of the bot in a chat so far."""


class OnFeishu:
    can = ALWAYS | {"recall"}

    def __init__(
        self, name: str, emulator: FeishuEmulator, push: Callable[[Mapping[str, Any]], Awaitable[object]]
    ) -> None:
        self.name = name
        self.emulator = emulator
        self._push = push

    def chats(self, direct: int) -> list[str]:
        group = f"oc_{secrets.token_hex(16)}"
        self.emulator.chats[group] = "Team"
        return [*(f"oc_{secrets.token_hex(16)}" for _ in range(direct)), group, group]

    def _where(self, chat: str) -> dict[str, Any]:
        group = self.emulator.chats.get(chat) == "Team"
        return {"sender": ALICE, "chat": chat, "chat_type": "group" if group else "p2p"}

    async def write(self, text: str, chat: str, *, to_bot: bool = True) -> str:
        where = self._where(chat)
        if where["chat_type"] == "p2p" and not to_bot:
            return ""
        mention = to_bot and where["chat_type"] == "group" and not text.startswith("/")
        event = self.emulator.text_event(text, mention_bot=to_bot and where["chat_type"] == "group", **where)
        await self._push(event)
        if mention:  # the platform repeats itself
            await self._push(event)
        return str(event["event"]["message"]["message_id"])

    async def upload(self, chat: str, data: bytes) -> None:
        if self._where(chat)["chat_type"] == "p2p":
            await self._push(self.emulator.file_event(data, name="notes.txt", **self._where(chat)))

    async def edit(self, message: str, text: str, chat: str) -> None:
        raise NotImplementedError

    async def recall(self, message: str) -> None:
        await self._push(self.emulator.recalled_event(message))

    async def press(self, chat: str, label: str) -> bool:
        for sent in reversed(self.emulator.messages):
            offers = sent.chat_id == chat and sent.msg_type == "interactive" and not sent.card
            if offers and label in self.emulator.card(sent.message_id).buttons:
                await self._push(self.emulator.press_event(sent.message_id, label, sender=ALICE))
                return True
        return False

    def shown(self, recent: int | None) -> Iterator[tuple[str, str]]:
        for sent in self.emulator.messages[-recent:] if recent else self.emulator.messages:
            if not self.emulator.known[sent.message_id].recalled:
                yield sent.message_id, self.emulator.reads(sent)

    def count(self, chat: str) -> int:
        return sum(sent.chat_id == chat for sent in self.emulator.messages)


class OnTelegram:
    name = "telegram"
    can = ALWAYS | {"edit"}

    def __init__(self, emulator: TelegramEmulator) -> None:
        self.emulator = emulator

    def chats(self, direct: int) -> list[str]:
        people = [self.emulator.private(500_000_100 + number) for number in range(direct)]
        group = self.emulator.supergroup()
        return [str(it) for it in (*people, group, group)]

    def _where(self, chat: str) -> dict[str, Any]:
        return {"chat": int(chat), "sender": int(chat) if int(chat) > 0 else 500_000_100}

    async def write(self, text: str, chat: str, *, to_bot: bool = True) -> str:
        if int(chat) > 0 and not to_bot:
            return ""
        if int(chat) < 0 and to_bot:
            bot = self.emulator.bot["username"]
            text = f"{text}@{bot}" if text.startswith("/") else f"@{bot} {text}"
        update = self.emulator.text_update(text, **self._where(chat))
        await self.emulator.push(update)
        return str(update["message"]["message_id"])

    async def upload(self, chat: str, data: bytes) -> None:
        if int(chat) > 0:
            await self.emulator.push(self.emulator.document_update(data, name="notes.txt", **self._where(chat)))

    async def edit(self, message: str, text: str, chat: str) -> None:
        text = f"@{self.emulator.bot['username']} {text}" if int(chat) < 0 else text
        await self.emulator.push(self.emulator.edit_update(int(message), text, chat=int(chat)))

    async def recall(self, message: str) -> None:
        raise NotImplementedError

    async def press(self, chat: str, label: str) -> bool:
        for sent in reversed(self.emulator.messages):
            rows = (sent.reply_markup or {}).get("inline_keyboard", [])
            for button in (it for row in rows for it in row if it["text"] == label):
                press = self.emulator.press_update(sent.message_id, button["callback_data"], **self._where(chat))
                await self.emulator.push(press)
                return True
        return False

    def shown(self, recent: int | None) -> Iterator[tuple[str, str]]:
        for sent in self.emulator.messages[-recent:] if recent else self.emulator.messages:
            if message := self.emulator.known.get((sent.chat_id, sent.message_id)):
                yield f"{sent.chat_id} {sent.message_id}", message.get("text", message.get("caption", ""))

    def count(self, chat: str) -> int:
        return sum(sent.chat_id == int(chat) for sent in self.emulator.messages)


class OnWeb:
    name = "web"
    can = ALWAYS

    def __init__(self, page: Page) -> None:
        self.page = page

    def chats(self, direct: int) -> list[str]:
        return [new_id("c") for _ in range(direct)]

    async def write(self, text: str, chat: str, *, to_bot: bool = True) -> str:
        message = new_id()
        if to_bot:
            (await self.page.say(text, chat=chat, message=message)).raise_for_status()
        return message

    async def upload(self, chat: str, data: bytes) -> None:
        stored = (await self.page.upload(data, "notes.txt", "text/plain")).raise_for_status().json()
        (await self.page.say("", chat=chat, files=[stored["id"]])).raise_for_status()

    async def edit(self, message: str, text: str, chat: str) -> None:
        raise NotImplementedError

    async def recall(self, message: str) -> None:
        raise NotImplementedError

    async def press(self, chat: str, label: str) -> bool:
        for written in reversed(self.page.written(chat=chat)):
            for button in (it for it in written["buttons"] or () if it["label"] == label):
                press = {"token": button["token"], "message": written["message"]}
                posted = {"id": new_id("p"), "chat": chat, "agent": "helper", "press": press}
                (await self.page.http.post("/webhooks/web/default", json=posted)).raise_for_status()
                return True
        return False

    def shown(self, recent: int | None) -> Iterator[tuple[str, str]]:
        written = self.page.written()
        for message in written[-recent:] if recent else written:
            yield str(message["id"]), message["text"]

    def count(self, chat: str) -> int:
        return len(self.page.written(chat=chat))

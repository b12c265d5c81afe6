"""Ann and Ben on an emulated Telegram, and their group: what they do, and what their phones show of it."""

import mimetypes
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.rules import Refusal
from tests.rehearsal.shown import (
    Phone,
    ShownButton,
    ShownChat,
    ShownFile,
    ShownMessage,
    entities,
    markdown,
    plain,
    preview,
)

BOT = {"id": 7000000001, "is_bot": True, "first_name": "Clawgate", "username": "clawgate_bot"}
PEOPLE = {"ann": (500000011, "Ann"), "ben": (500000012, "Ben")}
GROUP, GROUP_TITLE = -1002000000041, "Tea team"
TYPING_SECONDS = 5.0


class OnTelegramPhones:
    """`emulator` is the platform itself; this is its people."""

    name = "telegram"

    def __init__(self) -> None:
        self.emulator = TelegramEmulator(bot=dict(BOT))
        for number, name in PEOPLE.values():
            self.emulator.private(number, name, started=False, language_code="en")
        self.emulator.supergroup(GROUP, GROUP_TITLE)
        self._shut_out()
        self._unheard: set[tuple[int, int]] = set()
        self._typed: dict[int, float] = {}
        self._actions_read = 0

    def _shut_out(self) -> None:
        self.emulator.refuse(GROUP, Refusal(403, "Forbidden: bot is not a member of the supergroup chat"))

    @property
    def _in_group(self) -> bool:
        return self.emulator.chats[GROUP].refusal is None and GROUP not in self.emulator.left

    # what people do

    async def write(self, person: str, chat: str, text: str) -> None:
        where = int(chat)
        update = self.emulator.text_update(text, chat=where, sender=PEOPLE[person][0])
        if where == GROUP and not self._hears(update["message"]):
            self._unheard.add((where, update["message"]["message_id"]))
            return
        await self.emulator.push(update)

    def _hears(self, message: Mapping[str, Any]) -> bool:
        """A bot in its privacy mode gets commands and what names it. Source: Telegram's page on bot features."""
        return message["text"].startswith("/") or f"@{BOT['username']}" in message["text"]

    async def send_file(self, person: str, chat: str, name: str, data: bytes) -> None:
        where: dict[str, Any] = {"chat": int(chat), "sender": PEOPLE[person][0]}
        kind = mimetypes.guess_type(name)[0]
        if kind in ("image/png", "image/jpeg"):
            update = self.emulator.photo_update(data, **where)
        else:
            update = self.emulator.document_update(data, name=name, mime_type=kind, **where)
        if int(chat) == GROUP:
            self._unheard.add((GROUP, update["message"]["message_id"]))
            return
        await self.emulator.push(update)

    async def press(self, person: str, chat: str, message: str, data: str) -> None:
        shown = self.emulator.known[int(chat), int(message)].get("reply_markup", {}).get("inline_keyboard", [])
        if data not in [button.get("callback_data") for row in shown for button in row]:
            raise LookupError("this button is gone")
        press = self.emulator.press_update(int(message), data, chat=int(chat), sender=PEOPLE[person][0])
        await self.emulator.push(press)

    async def stop(self, person: str, chat: str, draft: str) -> None:
        await self.emulator.push(self.emulator.stop_update(int(draft), chat=int(chat)))

    async def add_bot(self, person: str, chat: str) -> None:
        self.emulator.left[:] = [it for it in self.emulator.left if it != GROUP]
        await self.emulator.push(self.emulator.membership_update(GROUP, "member", before="left", by=PEOPLE[person][0]))

    def file(self, key: str) -> tuple[str, bytes] | None:
        found = self.emulator.files.stored.get(key)
        if found is None or found.content is None:
            return None
        kind = "image/png" if found.content.startswith(b"\x89PNG") else "image/jpeg"
        return (kind if found.folder == "photos" else "application/octet-stream"), found.content

    # what they see

    def phones(self) -> list[Phone]:
        self._look_who_types()
        return [
            Phone(id=id_, name=name, platform=self.name, chats=[self._chat(number), self._chat(GROUP)])
            for id_, (number, name) in PEOPLE.items()
        ]

    def _look_who_types(self) -> None:
        """The ledger of actions has no clock."""
        for action in self.emulator.actions[self._actions_read :]:
            self._typed[action.chat_id] = time.monotonic()
        self._actions_read = len(self.emulator.actions)
        for sent in self.emulator.messages[-20:]:
            if sent.message_id == self.emulator.chats[sent.chat_id].last_message_id:
                self._typed.pop(sent.chat_id, None)

    def _chat(self, chat: int) -> ShownChat:
        known = sorted((id_, message) for (where, id_), message in self.emulator.known.items() if where == chat)
        typing = time.monotonic() - self._typed.get(chat, -TYPING_SECONDS) < TYPING_SECONDS
        return ShownChat(
            id=str(chat),
            title=GROUP_TITLE if chat == GROUP else str(BOT["first_name"]),
            is_group=chat == GROUP,
            has_bot=chat != GROUP or self._in_group,
            mention=f"@{BOT['username']} ",
            typing=typing,
            messages=[*(self._message(chat, id_, it) for id_, it in known), *self._drafts(chat)],
        )

    def _drafts(self, chat: int) -> Iterator[ShownMessage]:
        for draft in self.emulator.live_drafts(chat) if chat != GROUP else ():
            yield ShownMessage(
                id=f"draft-{draft.draft_id}",
                author="bot",
                html=plain(draft.text),
                growing=True,
                stop=str(draft.draft_id) if draft.can_stop else "",
            )

    def _message(self, chat: int, id_: int, message: Mapping[str, Any]) -> ShownMessage:
        text = message.get("text", message.get("caption", ""))
        marks = message.get("entities", message.get("caption_entities", ()))
        replied = message.get("reply_to_message", {})
        author = next((key for key, (number, _) in PEOPLE.items() if number == message["from"]["id"]), "bot")
        reactions = [it.emoji for it in self.emulator.reactions if (it.chat_id, it.message_id) == (chat, id_)]
        poll = message.get("poll")
        return ShownMessage(
            id=str(id_),
            author=author,
            html=entities(text, marks) if poll is None else markdown(_poll(poll)),
            rows=[
                [
                    ShownButton(
                        label=button["text"],
                        press=button.get("callback_data", ""),
                        link=button.get("url", ""),
                        style=button.get("style", ""),
                    )
                    for button in row
                ]
                for row in message.get("reply_markup", {}).get("inline_keyboard", ())
            ],
            files=list(_files(message)),
            quoted=preview(replied.get("text", replied.get("caption", ""))) if author == "bot" else "",
            reaction=(reactions[-1] or "") if reactions else "",
            edited="edit_date" in message,
            unheard=(chat, id_) in self._unheard,
        )


def _poll(poll: Mapping[str, Any]) -> str:
    return "\n".join([f"**{poll['question']}**", "", *(f"- {it['text']}" for it in poll["options"])])


def _files(message: Mapping[str, Any]) -> Iterator[ShownFile]:
    if sizes := message.get("photo"):
        yield ShownFile(name="photo", address=f"/file/telegram/{sizes[-1]['file_id']}", is_picture=True)
    for kind in ("document", "voice"):
        if file := message.get(kind):
            address = f"/file/telegram/{file['file_id']}"
            yield ShownFile(name=file.get("file_name", kind), address=address, is_picture=False)

"""王磊 and 李娜 on an emulated Feishu, and their group: what they do, and what their phones show of it."""

import asyncio
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.events import Known
from tests.emulators.feishu.rules import Card, CardButton, CardForm, CardMarkdown, Div, Panel, card_of, check_content
from tests.rehearsal.shown import Phone, ShownButton, ShownChat, ShownFile, ShownMessage, markdown, plain, preview

APP_ID, APP_SECRET = "cli_rehearsal00000001", "rehearsal-secret-of-no-value"
BOT, BOT_NAME = "ou_b07a11000000000000000000000000b0", "Clawgate"
PEOPLE = {
    "wanglei": ("ou_3f1e0a77c2d94b58a6e1d0c4b7f20911", "王磊", "oc_5b0c94e1a7d34f0e92c81f6a3d7e1041"),
    "lina": ("ou_9c47d2b80e6f4a13b5a0e7d1f8c36422", "李娜", "oc_e28f1b6c40974d5fa3b7c0d9a5f61042"),
}
GROUP, GROUP_TITLE = "oc_71d5e3f09a2b4c86b0e4f7a8c9d21043", "产品组"
EMOJI = {
    "Typing": "✍️",
    "OnIt": "🫡",
    "OneSecond": "☝️",
    "Get": "👌",
    "OK": "👌",
    "DONE": "✅",
    "THINKING": "🤔",
    "GLANCE": "👀",
    "SMILE": "🙂",
    "THUMBSUP": "👍",
    "HEART": "❤️",
}


class OnFeishuPhones:
    """`emulator` is the platform itself; this is its people. `run` pushes their events through the long connection."""

    name = "feishu"

    def __init__(self) -> None:
        self.emulator = FeishuEmulator(app_id=APP_ID, app_secret=APP_SECRET, bot_open_id=BOT, bot_name=BOT_NAME)
        for open_id, name, chat in PEOPLE.values():
            self.emulator.users[open_id] = name
            self.emulator.direct[open_id] = chat
            self.emulator.chats[chat] = ""
        self._events: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._unheard: set[str] = set()

    async def run(self) -> None:
        while True:
            await self.emulator.socket.deliver(await self._events.get())

    # what people do

    async def write(self, person: str, chat: str, text: str) -> None:
        mention = f"@{BOT_NAME}"
        named = chat == GROUP and mention in text
        event = self.emulator.text_event(
            " ".join(text.replace(mention, " ").split()) if named else text,
            mention_bot=named,
            **self._where(person, chat),
        )
        self._happens(event, chat, heard=named)

    async def send_file(self, person: str, chat: str, name: str, data: bytes) -> None:
        kind, where = mimetypes.guess_type(name)[0] or "application/octet-stream", self._where(person, chat)
        if kind in ("image/png", "image/jpeg"):
            event = self.emulator.image_event(data, media_type=kind, **where)
        else:
            event = self.emulator.file_event(data, name=name, media_type=kind, **where)
        self._happens(event, chat, heard=False)

    def _where(self, person: str, chat: str) -> dict[str, Any]:
        return {"sender": PEOPLE[person][0], "chat": chat, "chat_type": "group" if chat == GROUP else "p2p"}

    def _happens(self, event: Mapping[str, Any], chat: str, *, heard: bool) -> None:
        """With the scopes of its README the bot gets what names it, from groups. Source: `im:message.group_at_msg`."""
        if chat == GROUP and not heard:
            self._unheard.add(event["event"]["message"]["message_id"])
            return
        self._events.put_nowait(event)

    async def press(self, person: str, chat: str, message: str, data: str) -> None:
        buttons = _buttons(card_of(self.emulator.known[message].content))
        if data not in buttons:
            raise LookupError("this button is gone")
        value = buttons[data].behaviors[0].value
        self._events.put_nowait(self.emulator.press_event(message, sender=PEOPLE[person][0], value=value))

    async def stop(self, person: str, chat: str, draft: str) -> None:
        raise LookupError("Feishu has no such button")

    async def add_bot(self, person: str, chat: str) -> None:
        self.emulator.chats[GROUP] = GROUP_TITLE
        body = {"chat_id": GROUP, "operator_id": {"open_id": PEOPLE[person][0]}, "external": False, "name": GROUP_TITLE}
        self._events.put_nowait(self.emulator.event("im.chat.member.bot.added_v1", body))

    def file(self, key: str) -> tuple[str, bytes] | None:
        found = self.emulator.resources.get(key)
        if found is None:
            return None
        picture = found.media_type if found.media_type in ("image/png", "image/jpeg") else "image/png"
        return (picture if key.startswith("img_") else "application/octet-stream"), found.data

    # what they see

    def phones(self) -> list[Phone]:
        return [
            Phone(id=id_, name=name, platform=self.name, chats=[self._chat(chat), self._chat(GROUP)])
            for id_, (_, name, chat) in PEOPLE.items()
        ]

    def _chat(self, chat: str) -> ShownChat:
        is_group = chat == GROUP
        known = [(id_, it) for id_, it in self.emulator.known.items() if it.chat_id == chat and it.upper is None]
        return ShownChat(
            id=chat,
            title=GROUP_TITLE if is_group else BOT_NAME,
            is_group=is_group,
            has_bot=chat in self.emulator.chats,
            mention=f"@{BOT_NAME} ",
            typing=False,
            messages=[self._message(id_, it) for id_, it in known if not it.recalled],
        )

    def _message(self, id_: str, known: Known) -> ShownMessage:
        author = next((key for key, (open_id, *_) in PEOPLE.items() if open_id == known.sender), "bot")
        sent = next((it for it in self.emulator.messages if it.message_id == id_), None)
        reactions = [
            it["reaction_type"]["emoji_type"] for it in self.emulator.reactions.values() if it["message_id"] == id_
        ]
        common: dict[str, Any] = {
            "id": id_,
            "author": author,
            "quoted": preview(self._text(sent.reply_to)) if sent and sent.reply_to else "",
            "reaction": EMOJI.get(reactions[-1], "•") if reactions else "",
            "unheard": id_ in self._unheard,
        }
        if sent is not None and sent.card:
            card = self.emulator.cardkit.cards[sent.text]
            return ShownMessage(html=markdown(card.states[-1]), growing=card.streams, **common)
        if known.msg_type == "interactive":
            return _card(card_of(known.content), common)
        if known.msg_type in ("image", "file", "audio"):
            return ShownMessage(html="", files=list(self._files(known)), **common)
        edited = id_ in self.emulator.updates
        if known.msg_type == "post":
            return ShownMessage(html=markdown(check_content("post", known.content)), edited=edited, **common)
        return ShownMessage(html=plain(self._text(id_)), edited=edited, **common)

    def _text(self, id_: str) -> str:
        """A text as people read it, with names in place of keys."""
        known = self.emulator.known.get(id_)
        if known is None or known.msg_type != "text":
            return ""
        text = str(orjson.loads(known.content)["text"])
        for mention in known.mentions:
            text = text.replace(mention["key"], f"@{mention['name']}")
        return text

    def _files(self, known: Known) -> Iterator[ShownFile]:
        key = next(iter(orjson.loads(known.content).values()))
        name = self.emulator.resources[key].name
        yield ShownFile(name=name, address=f"/file/feishu/{key}", is_picture=known.msg_type == "image")


def _card(card: Card, common: dict[str, Any]) -> ShownMessage:
    """A card: its texts, its buttons in one row, and what is folded."""
    panels = [it for it in card.body.elements if isinstance(it, Panel)]
    buttons = [ShownButton(label=it.text.content, press=place, style=it.type) for place, it in _buttons(card).items()]
    return ShownMessage(
        html="".join(map(_element, card.body.elements)),
        folded=(panels[0].header.title.content, "".join(map(_element, panels[0].elements))) if panels else None,
        rows=[[it] for it in buttons] if len(buttons) > 3 else [buttons],
        **common,
    )


def _buttons(card: Card) -> dict[str, CardButton]:
    """By place."""
    return {str(place): it for place, it in enumerate(card.body.elements) if isinstance(it, CardButton)}


def _element(element: CardMarkdown | Div | CardButton | Panel | CardForm) -> str:
    match element:
        case CardMarkdown():
            return markdown(element.content)
        case Div():
            return f"<pre>{plain(element.text.content)}</pre>"
        case _:
            return ""

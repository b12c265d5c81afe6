"""The chats of an emulated Telegram: who is in them, which topics they have, what was said, and whether a bot may write.

Tests declare chats; whatever an update names is learnt as well. What a bot calls and what people do are elsewhere.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.files import Files, files_in
from tests.emulators.telegram.rules import Refusal, bad_request

TOKEN = "7000000001:EMULATED-telegram_token-of-no-value"
BOT = {"id": 7000000001, "is_bot": True, "first_name": "Helper Bot", "username": "fixture_helper_bot"}
GENERAL = 1
FIRST_MESSAGE_ID = 1_000


@dataclass(kw_only=True, slots=True)
class KnownChat:
    """One chat. `public` is what every message in it says of it; `refusal` is why the bot may not write."""

    public: dict[str, Any]
    topics: dict[int, bool] = field(default_factory=dict)
    """Whether a topic is open, by its thread id."""
    last_message_id: int = FIRST_MESSAGE_ID
    refusal: Refusal | None = None
    bot_is_admin: bool = False

    @property
    def id(self) -> int:
        return int(self.public["id"])

    @property
    def kind(self) -> str:
        return str(self.public["type"])

    @property
    def is_forum(self) -> bool:
        return bool(self.public.get("is_forum"))


@dataclass(kw_only=True)
class ChatBook:
    """What Telegram knows, apart from the bot's own settings."""

    token: str = TOKEN
    bot: dict[str, Any] = field(default_factory=lambda: dict(BOT))
    now: Callable[[], float] = time.time
    people: dict[int, dict[str, Any]] = field(default_factory=dict)
    chats: dict[int, KnownChat] = field(default_factory=dict)
    known: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Messages that exist, by chat and message id."""

    def __post_init__(self) -> None:
        self.files = Files(now=lambda: self.now())

    # what a test declares

    def user(self, user_id: int, first_name: str, **more: Any) -> int:
        self.people[user_id] = {"id": user_id, "is_bot": False, "first_name": first_name, **more}
        return user_id

    def private(self, user_id: int = 500000011, first_name: str = "Alice", *, started: bool = True, **more: Any) -> int:
        """A person and the direct chat with them, which has the same id; a bot cannot write first."""
        self.user(user_id, first_name, **more)
        public = {"id": user_id, "type": "private", "first_name": first_name}
        public |= {name: more[name] for name in ("last_name", "username") if name in more}
        self.chats[user_id] = KnownChat(public=public)
        if not started:
            self.refuse(user_id, Refusal(403, "Forbidden: bot can't initiate conversation with a user"))
        return user_id

    def group(self, chat_id: int = -4000000031, title: str = "Small group") -> int:
        self.chats[chat_id] = KnownChat(public={"id": chat_id, "type": "group", "title": title})
        return chat_id

    def supergroup(
        self,
        chat_id: int = -1002000000041,
        title: str = "Team chat",
        *,
        forum: bool = False,
        username: str | None = None,
    ) -> int:
        public: dict[str, Any] = {"id": chat_id, "type": "supergroup", "title": title}
        public |= ({"username": username} if username else {}) | ({"is_forum": True} if forum else {})
        self.chats[chat_id] = KnownChat(public=public)
        return chat_id

    def topic(self, chat_id: int, name: str, *, by: int | None = None) -> int:
        """A topic of a forum, or of a direct chat; its thread id is the message that created it."""
        chat = self.chats[chat_id]
        thread = chat.last_message_id + 1
        chat.topics[thread] = True
        creator = self.people[by] if by else self.bot
        self.compose(
            chat, {"forum_topic_created": {"name": name, "icon_color": 7322096}}, sender=creator, thread=thread
        )
        return thread

    def close_topic(self, chat_id: int, thread: int) -> None:
        self.chats[chat_id].topics[thread] = False

    def delete_topic(self, chat_id: int, thread: int) -> None:
        del self.chats[chat_id].topics[thread]
        for key in [key for key, message in self.known.items() if _is_in(message, chat_id, thread)]:
            del self.known[key]

    def promote(self, chat_id: int) -> None:
        """The bot becomes an administrator."""
        self.chats[chat_id].bot_is_admin = True

    def refuse(self, chat_id: int, refusal: Refusal | None) -> None:
        """From now on every call for this chat is answered so."""
        self.chats[chat_id].refusal = refusal

    def restrict(self, chat_id: int) -> None:
        self.refuse(chat_id, bad_request("not enough rights to send text messages to the chat"))

    def forget(self, chat_id: int, message_id: int) -> None:
        """Somebody deletes a message."""
        del self.known[chat_id, message_id]

    # what a call needs

    def chat_named(self, chat_id: object) -> KnownChat:
        """By number, or by the name of a public chat. Raises Refusal, also where the bot may not write."""
        chat: KnownChat | None = None
        match chat_id:
            case None | "":
                raise bad_request("chat_id is empty")
            case bool():
                pass
            case int():
                chat = self.chats.get(chat_id)
            case str() if chat_id.startswith("@"):
                public = (known for known in self.chats.values() if known.kind != "private")
                named = (known for known in public if known.public.get("username", "").lower() == chat_id[1:].lower())
                chat = next(named, None)
            case str() if chat_id.removeprefix("-").isdecimal():
                chat = self.chats.get(int(chat_id))
        if chat is None:
            raise bad_request("chat not found")
        if chat.refusal is not None:
            raise chat.refusal
        return chat

    def thread_named(self, chat: KnownChat, thread: int | None, *, general: bool = False) -> int | None:
        """The topic to write to; None for General and where there are no topics. Raises Refusal."""
        has_topics = chat.is_forum or (chat.kind == "private" and bool(self.bot.get("has_topics_enabled")))
        if thread is None or not has_topics or (general and thread == GENERAL and chat.is_forum):
            return None
        if thread not in chat.topics:
            raise bad_request("message thread not found")
        if not chat.topics[thread]:
            raise bad_request("TOPIC_CLOSED")
        return thread

    # messages

    def compose(
        self,
        chat: KnownChat,
        body: Mapping[str, Any],
        *,
        sender: Mapping[str, Any] | None,
        thread: int | None = None,
        reply_to: int | None = None,
    ) -> dict[str, Any]:
        """A new message of a chat, as everybody sees it; from here on it exists."""
        chat.last_message_id += 1
        message: dict[str, Any] = {"message_id": chat.last_message_id}
        message |= {"from": dict(sender)} if sender else {}
        message |= {"chat": dict(chat.public), "date": int(self.now())}
        message |= self._placed(chat, thread, reply_to) | dict(body)
        self.known[chat.id, chat.last_message_id] = message
        return message

    def topic_of(self, chat: KnownChat, message_id: int) -> int | None:
        message = self.known[chat.id, message_id]
        return message["message_thread_id"] if message.get("is_topic_message") else None

    def _placed(self, chat: KnownChat, thread: int | None, reply_to: int | None) -> dict[str, Any]:
        """The members that say where in the chat a message is, and under which other one."""
        replied = self.known.get((chat.id, reply_to or 0))
        if replied is not None and thread is None:
            thread = self.topic_of(chat, replied["message_id"])
        placed: dict[str, Any] = {}
        if thread is not None:
            placed = {"message_thread_id": thread, "is_topic_message": True}
            if chat.is_forum:  # a message that replies to nothing replies to the message that created the topic
                replied = replied or self.known.get((chat.id, thread))
        elif replied is not None and chat.kind == "supergroup":
            placed = {"message_thread_id": replied.get("message_thread_id", replied["message_id"])}
        if replied is not None:
            inner = {name: fact for name, fact in replied.items() if name not in ("reply_to_message", "reply_markup")}
            placed["reply_to_message"] = inner
        return placed

    def learn_message(self, message: Mapping[str, Any]) -> KnownChat:
        """A message that an update brings: it, its chat, its author, its topic and its files exist."""
        chat = self.chats.setdefault(message["chat"]["id"], KnownChat(public=dict(message["chat"])))
        chat.last_message_id = max(chat.last_message_id, message["message_id"])
        self.known[chat.id, message["message_id"]] = dict(message)
        if "from" in message:
            self.people.setdefault(message["from"]["id"], dict(message["from"]))
        if message.get("is_topic_message"):
            chat.topics.setdefault(message["message_thread_id"], True)
        for facts in files_in(message):
            self.files.learn(facts)
        replied = message.get("reply_to_message")
        if replied is not None and (chat.id, replied["message_id"]) not in self.known:
            self.learn_message(replied)
        return chat


def _is_in(message: Mapping[str, Any], chat_id: int, thread: int) -> bool:
    in_topic = bool(message.get("is_topic_message")) and message.get("message_thread_id") == thread
    return in_topic and message["chat"]["id"] == chat_id

"""What people do in an emulated Telegram, as the updates that a bot gets of it.

Building an update makes it so: the message exists, the bot is blocked. Getting it to the bot is `emulator_delivery`'s
matter, and a test may leave that out, or deliver an update twice, or late.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.telegram.chats import ChatBook, KnownChat
from tests.emulators.telegram.formatted import Formatted, with_found
from tests.emulators.telegram.rules import Refusal

FIRST_UPDATE_ID = 920_000_000
ANONYMOUS_ADMIN = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
DRAFT_SECONDS = 30

_RIGHTS = """can_be_edited is_anonymous can_manage_chat can_delete_messages can_manage_video_chats
can_restrict_members can_promote_members can_change_info can_invite_users can_post_stories can_edit_stories
can_delete_stories can_send_welcome_messages"""
_MESSAGES = ("message", "edited_message", "channel_post", "edited_channel_post")
_GONE = ("kicked", "left")


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A text that a bot shows while it is still writing it."""

    chat_id: int
    draft_id: int
    thread: int | None
    text: str
    can_stop: bool
    shown_at: float


@dataclass(kw_only=True)
class UpdateSource(ChatBook):
    """The people of the chats. The methods return the update, which is not delivered yet."""

    queries: dict[str, str] = field(default_factory=dict)
    """Button presses that wait for an answer: the data, by callback query id."""
    drafts: list[Draft] = field(default_factory=list)
    _drafts_over: dict[int, int] = field(default_factory=dict)
    _last_update_id: int = FIRST_UPDATE_ID
    _built: set[int] = field(default_factory=set)

    def update(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Any update, with the next id."""
        self._last_update_id += 1
        update = {"update_id": self._last_update_id, kind: dict(body)}
        self.learn(update)
        return update

    def learn(self, update: Mapping[str, Any]) -> None:
        """What an update says of the world is so. One that was built here has been learnt, and may be out of date."""
        if update["update_id"] in self._built:
            return
        self._built.add(update["update_id"])
        for kind in _MESSAGES:
            if kind in update:
                self._learn_said(update[kind])
        if "callback_query" in update:
            query = update["callback_query"]
            self.queries[query["id"]] = query.get("data", "")
            if query.get("message", {}).get("date"):
                self.learn_message(query["message"])
        if "my_chat_member" in update:
            changed = update["my_chat_member"]
            chat = self.chats.setdefault(changed["chat"]["id"], KnownChat(public=dict(changed["chat"])))
            status = changed["new_chat_member"]["status"]
            chat.refusal = _shut_out(chat) if status in _GONE else None
            chat.bot_is_admin = status == "administrator"

    # messages

    def text_update(
        self,
        text: str,
        *,
        chat: int,
        sender: int | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
        entities: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> dict[str, Any]:
        """Somebody writes; mentions, commands and addresses are found as Telegram finds them."""
        body = self._text(text, entities) | more
        return self.message_update(body, chat=chat, sender=sender, thread=thread, reply_to=reply_to)

    def document_update(
        self, content: bytes, *, name: str, chat: int, caption: str = "", mime_type: str | None = None, **where: Any
    ) -> dict[str, Any]:
        """Somebody sends a file; `where` is sender, thread and reply_to."""
        document = self.files.add_document(content, name=name, mime_type=mime_type)
        return self.message_update({"document": document} | self._caption(caption), chat=chat, **where)

    def photo_update(self, content: bytes, *, chat: int, caption: str = "", **where: Any) -> dict[str, Any]:
        photo = {"photo": self.files.add_photo(content)}
        return self.message_update(photo | self._caption(caption), chat=chat, **where)

    def album_updates(
        self, pictures: Sequence[bytes], *, chat: int, caption: str = "", **where: Any
    ) -> list[dict[str, Any]]:
        """Several pictures at once: one update for each, the caption on the first, and nothing that says how many."""
        group = {"media_group_id": str(secrets.randbelow(10**17))}
        bodies = [group | {"photo": self.files.add_photo(picture)} for picture in pictures]
        bodies[0] |= self._caption(caption)
        return [self.message_update(body, chat=chat, **where) for body in bodies]

    def message_update(
        self,
        body: Mapping[str, Any],
        *,
        chat: int,
        sender: int | None = None,
        thread: int | None = None,
        reply_to: int | None = None,
    ) -> dict[str, Any]:
        """A message of any kind. In a direct chat the sender is the other person."""
        if reply_to is not None and (chat, reply_to) not in self.known:
            raise ValueError(f"there is no message {reply_to} in this chat")
        known = self.chats[chat]
        by = self.people[chat if sender is None else sender]
        return self.update("message", self.compose(known, body, sender=by, thread=thread, reply_to=reply_to))

    def anonymous_update(self, text: str, *, chat: int) -> dict[str, Any]:
        """An administrator writes as the group itself."""
        known = self.chats[chat]
        body = {"sender_chat": dict(known.public)} | self._text(text)
        return self.update("message", self.compose(known, body, sender=ANONYMOUS_ADMIN))

    def edit_update(self, message_id: int, text: str, *, chat: int) -> dict[str, Any]:
        """Somebody changes a message of theirs; it keeps its id."""
        before = {name: fact for name, fact in self.known[chat, message_id].items() if name != "entities"}
        return self.update("edited_message", before | self._text(text) | {"edit_date": int(self.now())})

    # other doings

    def press_update(
        self, message_id: int, data: str, *, chat: int, sender: int | None = None, accessible: bool = True
    ) -> dict[str, Any]:
        """Somebody presses a button. Old messages keep old buttons, so the data need not be that of the last edit."""
        message = self.known.get((chat, message_id))
        if message is None or not accessible:
            message = {"chat": dict(self.chats[chat].public), "message_id": message_id, "date": 0}
        by = self.people[chat if sender is None else sender]
        query = {"id": str(secrets.randbelow(10**18) + 10**18), "from": by, "message": dict(message)}
        return self.update("callback_query", query | {"chat_instance": str(chat * 7), "data": data})

    def reaction_update(self, message_id: int, emoji: str, *, chat: int, sender: int) -> dict[str, Any]:
        body = {"chat": dict(self.chats[chat].public), "message_id": message_id, "user": self.people[sender]}
        reactions = {"old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": emoji}]}
        return self.update("message_reaction", body | {"date": int(self.now())} | reactions)

    def vote_update(self, message_id: int, *options: int, chat: int, sender: int) -> dict[str, Any]:
        """Somebody votes in the poll of a message, or revokes the vote: then there are no options. An anonymous poll
        reports no votes. A group as `sender` is its anonymous administrator. Source: the Bot API's PollAnswer."""
        poll = self.known[chat, message_id]["poll"]
        if poll["is_anonymous"] or poll["is_closed"]:
            raise ValueError("the votes in this poll are not reported")
        if len(set(options)) > 1 and not poll["allows_multiple_answers"]:
            raise ValueError("this poll takes one answer")
        chosen = [poll["options"][it]["persistent_id"] for it in options]
        voter = (
            {"user": self.people[sender]} if sender in self.people else {"voter_chat": dict(self.chats[sender].public)}
        )
        body = {"poll_id": poll["id"], **voter, "option_ids": list(options), "option_persistent_ids": chosen}
        return self.update("poll_answer", body)

    def membership_update(
        self, chat: int, status: str, *, before: str = "member", by: int | None = None
    ) -> dict[str, Any]:
        """What the bot is in a chat changes: it is added, made an administrator, thrown out."""
        known = self.chats[chat]
        person = self.people.get(by or chat, ANONYMOUS_ADMIN)
        old, new = ({"status": name, "user": self.bot} | _details(name) for name in (before, status))
        body = {"chat": dict(known.public), "from": person, "date": int(self.now())}
        return self.update("my_chat_member", body | {"old_chat_member": old, "new_chat_member": new})

    def block(self, chat: int) -> dict[str, Any]:
        """The person of a direct chat blocks the bot."""
        return self.membership_update(chat, "kicked")

    def kick(self, chat: int, *, by: int | None = None) -> dict[str, Any]:
        """The bot is thrown out of a group."""
        return self.membership_update(chat, "kicked", by=by)

    def migrate(self, old: int, new: int) -> list[dict[str, Any]]:
        """A group becomes a supergroup with another id, in which messages are counted anew."""
        self.supergroup(new, self.chats[old].public["title"])
        chats = [(old, {"migrate_to_chat_id": new}), (new, {"migrate_from_chat_id": old})]
        return [
            self.update("message", self.compose(self.chats[chat], body, sender=ANONYMOUS_ADMIN)) for chat, body in chats
        ]

    def live_drafts(self, chat: int) -> list[Draft]:
        """What the person sees being written now: a draft is gone half a minute after its last change, or with a message."""
        drafts = self.drafts[self._drafts_over.get(chat, 0) :]
        latest = {draft.thread: draft for draft in drafts if draft.chat_id == chat}
        return [draft for draft in latest.values() if self.now() - draft.shown_at < DRAFT_SECONDS]

    def end_drafts(self, chat: int) -> None:
        """A message takes the place of what was being written."""
        self._drafts_over[chat] = len(self.drafts)

    def stop_update(self, draft_id: int, *, chat: int) -> dict[str, Any]:
        """The person presses the Stop button of a draft; it must still be there, and have one."""
        (draft,) = [draft for draft in self.live_drafts(chat) if draft.draft_id == draft_id and draft.can_stop]
        topic = {"message_thread_id": draft.thread} if draft.thread is not None else {}
        body = {"chat": dict(self.chats[chat].public), **topic, "draft_id": draft_id}
        return self.update("stopped_message_generation", body)

    def _learn_said(self, message: Mapping[str, Any]) -> None:
        chat = self.learn_message(message)
        if "migrate_to_chat_id" in message:
            new = {"migrate_to_chat_id": message["migrate_to_chat_id"]}
            upgraded = "Bad Request: group chat was upgraded to a supergroup chat"
            chat.refusal = Refusal(400, upgraded, parameters=new)
        elif chat.kind == "private" and message.get("from", {}).get("id") == chat.id:
            chat.refusal = None  # who writes to a bot lets it answer

    def _text(self, text: str, entities: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        found = with_found(Formatted(text=text, entities=tuple(entities))).entities
        return {"text": text} | ({"entities": list(found)} if found else {})

    def _caption(self, caption: str) -> dict[str, Any]:
        members = self._text(caption) if caption else {}
        return {
            name.replace("text", "caption").replace("entities", "caption_entities"): fact
            for name, fact in members.items()
        }


def _details(status: str) -> dict[str, Any]:
    """What the model of a member needs besides the status, by status."""
    match status:
        case "kicked":
            return {"until_date": 0}
        case "administrator":
            return dict.fromkeys(_RIGHTS.split(), False)
        case _:
            return {}


def _shut_out(chat: KnownChat) -> Refusal:
    if chat.kind == "private":
        return Refusal(403, "Forbidden: bot was blocked by the user")
    return Refusal(403, f"Forbidden: bot was kicked from the {chat.kind} chat")

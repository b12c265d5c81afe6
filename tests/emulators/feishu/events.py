"""The half of an emulated Feishu that speaks first: it builds events, encrypts and signs them, and pushes them.

Exactly as the platform does, so that what a gateway accepts here it accepts there; the official SDK judges both in the
tests.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from channels.feishu.signature import sign
from tests.emulators.feishu.rules import Checker, Input, SubmitButton, card_of


@dataclass(kw_only=True, slots=True)
class Known:
    """A message that exists on the platform."""

    chat_id: str
    sender: str
    msg_type: str
    content: str
    recalled: bool = False
    upper: str | None = None
    """The bundle of forwarded messages that it is part of."""
    thread_id: str | None = None
    created: str = ""
    """Milliseconds."""
    mentions: list[dict[str, Any]] = field(default_factory=list)
    """As the API says them: the id as text."""
    app: str = ""
    """The app that sent it, if a person did not."""


@dataclass(kw_only=True)
class EventSource:
    """One app, as the platform knows it: its keys, its chats and the messages in them."""

    app_id: str
    bot_open_id: str
    bot_name: str = "Helper Bot"
    encrypt_key: str = ""
    verification_token: str = ""
    now: Callable[[], float] = time.time
    chats: dict[str, str] = field(default_factory=dict)
    """Titles by chat id, of the chats the bot is in."""
    direct: dict[str, str] = field(default_factory=dict)
    """Direct chats by the open id of the person."""
    members: dict[str, list[str]] = field(default_factory=dict)
    """The people in a group, by its id."""
    known: dict[str, Known] = field(default_factory=dict)

    def text_event(
        self,
        text: str,
        *,
        sender: str,
        chat: str,
        chat_type: str = "p2p",
        message_id: str | None = None,
        mention_bot: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """A text message, as the platform would push it; `more` are members of `message`, such as `thread_id`."""
        if mention_bot:
            mention = {
                "key": "@_user_1",
                "id": {"open_id": self.bot_open_id, "union_id": "on_bot", "user_id": ""},
                "mentioned_type": "bot",
                "name": self.bot_name,
                "tenant_key": "tenant0001",
            }
            text, more = f"@_user_1 {text}", {"mentions": [mention], **more}
        content = orjson.dumps({"text": text}).decode()
        return self.message_event("text", content, sender=sender, chat=chat, chat_type=chat_type, message_id=message_id, **more)  # fmt: skip  # noqa: E501

    def message_event(
        self,
        message_type: str,
        content: str,
        *,
        sender: str,
        chat: str,
        chat_type: str = "p2p",
        message_id: str | None = None,
        sender_type: str = "user",
        app: str = "",
        **more: Any,
    ) -> dict[str, Any]:
        """A message of any type; from here on it exists on the platform and can be replied to. `app` sent it, which only
        the API says: the event has an open id that is the receiving app's alone."""
        message_id = message_id or f"om_{secrets.token_hex(16)}"
        self.chats.setdefault(chat, "")
        if chat_type == "p2p":
            self.direct[sender] = chat
        milliseconds = str(int(self.now() * 1000))
        self.known[message_id] = Known(
            chat_id=chat,
            sender=sender,
            msg_type=message_type,
            content=content,
            thread_id=more.get("thread_id"),
            created=milliseconds,
            app=app,
            mentions=[{**it, "id": it["id"]["open_id"], "id_type": "open_id"} for it in more.get("mentions") or ()],
        )
        message = {"message_id": message_id, "create_time": milliseconds, "update_time": milliseconds, "chat_id": chat}
        message |= {"chat_type": chat_type, "message_type": message_type, "content": content, **more}
        ids = {"open_id": sender, "union_id": "on_" + sender[3:], "user_id": None}
        author = {"sender_id": ids, "sender_type": "app" if app else sender_type, "tenant_key": "tenant0001"}
        return self.event("im.message.receive_v1", {"sender": author, "message": message})

    def press_event(
        self, message_id: str, label: str = "", *, sender: str, value: Any = None, tag: str = "button"
    ) -> dict[str, Any]:
        """Somebody presses a button of a card, by its label, or one that an older state of the card had, by its `value`. The
        event does not say in what kind of chat."""
        known = self.known[message_id]
        if label:
            value = card_of(known.content).buttons[label]
        ids = {"open_id": sender, "union_id": "on_" + sender[3:], "user_id": "u" + sender[3:8]}
        body = {
            "operator": {"tenant_key": "tenant0001", **ids},
            "token": f"c-{secrets.token_hex(16)}",
            "action": {"value": value, "tag": tag, "timezone": "Asia/Shanghai"},
            "host": "im_message",
            "context": {"open_message_id": message_id, "open_chat_id": known.chat_id},
        }
        event = self.event("card.action.trigger", body)
        event["header"]["create_time"] += "000"  # in microseconds
        return event

    def submit_event(self, message_id: str, *ticked: str, sender: str, text: str = "") -> dict[str, Any]:
        """Somebody ticks boxes of a card's form by their labels, fills in its text field, and submits it. Boxes that are not
        ticked are false, and a field without text is left out. Source: the open platform's page on the callback."""
        form = card_of(self.known[message_id].content).form
        if form is None:
            raise ValueError("the card has no form")
        boxes = {it.text.content: it.name for it in form.elements if isinstance(it, Checker)}
        if unknown := set(ticked) - boxes.keys():
            raise ValueError(f"the form has no {unknown}")
        values: dict[str, Any] = {name: label in ticked for label, name in boxes.items()}
        fields = [it for it in form.elements if isinstance(it, Input)]
        if text:
            (field,) = fields
            if len(text) > field.max_length:
                raise ValueError("the client lets nobody type more")
            values[field.name] = text
        submit = next(it for it in form.elements if isinstance(it, SubmitButton))
        event = self.press_event(message_id, sender=sender, value=submit.behaviors[0].value)
        event["event"]["action"] |= {"name": submit.name, "form_value": values}
        return event

    def bundle_event(self, *lines: tuple[str, str], sender: str, chat: str) -> dict[str, Any]:
        """Somebody forwards messages together, each a sender and a text."""
        event = self.message_event(
            "merge_forward", '{"content":"Merged and Forwarded Message"}', sender=sender, chat=chat
        )
        upper = event["event"]["message"]["message_id"]
        for by, text in lines:
            content = orjson.dumps({"text": text}).decode()
            known = Known(chat_id=chat, sender=by, msg_type="text", content=content, upper=upper)
            self.known[f"om_{secrets.token_hex(16)}"] = known
        return event

    def recalled_event(self, message_id: str, *, by: str = "message_owner") -> dict[str, Any]:
        """Somebody takes a message back, of which nothing but its ids is said."""
        known = self.known[message_id]
        known.recalled = True
        body = {"message_id": message_id, "chat_id": known.chat_id, "recall_time": str(int(self.now() * 1000))}
        return self.event("im.message.recalled_v1", body | {"recall_type": by})

    def event(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """An event of schema 2.0 with a fresh id."""
        header = {
            "event_id": secrets.token_hex(16),
            "event_type": kind,
            "create_time": str(int(self.now() * 1000)),
            "token": self.verification_token,
            "app_id": self.app_id,
            "tenant_key": "tenant0001",
        }
        return {"schema": "2.0", "header": header, "event": dict(body)}

    def encode(self, event: Mapping[str, Any], *, signed: bool = True) -> tuple[dict[str, str], bytes]:
        """Headers and body of the delivery: encrypted and signed where the app has an Encrypt Key."""
        headers = {"content-type": "application/json; charset=utf-8", "x-request-id": secrets.token_hex(16)}
        body = orjson.dumps(event)
        if self.encrypt_key:
            body = orjson.dumps({"encrypt": encrypt(body, self.encrypt_key)})
            if signed:
                timestamp, nonce = str(int(self.now())), str(secrets.randbelow(10**9))
                headers["X-Lark-Request-Timestamp"] = timestamp
                headers["X-Lark-Request-Nonce"] = nonce
                headers["X-Lark-Signature"] = sign(timestamp, nonce, self.encrypt_key, body)
        return headers, body

    async def push(self, url: str, event: Mapping[str, Any], *, signed: bool = True) -> httpx.Response:
        """Deliver an event once, as Feishu does: redirects not followed. Feishu waits three seconds; a busy machine gets
        more."""
        headers, body = self.encode(event, signed=signed)
        return await self.deliver(url, headers, body)

    async def deliver(self, url: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        """Deliver these very bytes."""
        async with httpx.AsyncClient(timeout=60.0, trust_env=False) as client:
            return await client.post(url, content=body, headers=dict(headers))


def encrypt(plain: bytes, key: str, *, iv: bytes | None = None) -> str:
    """AES-256-CBC, padded, the initialisation vector in front: as the platform's page on event subscription has it."""
    iv = iv or secrets.token_bytes(16)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES256(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
    padded = padder.update(plain) + padder.finalize()
    return base64.b64encode(iv + encryptor.update(padded) + encryptor.finalize()).decode()

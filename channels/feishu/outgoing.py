"""Sending for one Feishu app: a part in the first form that Feishu accepts, and Markdown split to fit.

A refused card or rich text falls back to plain text; a text that fails the audit is replaced by a note. A reply to a
withdrawn message becomes a plain message in the chat, except in a topic, where it would open a new one.

A growing answer is a streaming card. Operations on a card carry an increasing number, the time since its creation, so it
also increases after a crash; an idempotency key made of the card's id lets Feishu find a message that was already sent.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson
import structlog

from channels import split as markdown
from channels.channel import DeliveryError, Fetch, Gone, Refused
from channels.feishu.api import (
    AUDIT_CODES,
    BAD_CONTENT_CODES,
    NO_CARD_CODES,
    NO_THREAD_CODES,
    WITHDRAWN_CODES,
    FeishuApi,
)
from channels.feishu.card import answer_card, card, fenced, made, needs_card, shown, without_pings
from channels.feishu.config import Rendering
from channels.message import PICTURES, File, Outbound, StoredFile, not_sent
from channels.spelling import spelt
from channels.split import Limit
from channels.wire import mapping, text
from channels.wire import text as text_of

log = structlog.get_logger()

NOT_PASSED = "这条回复未通过平台的内容审核，未能发送。 / This reply did not pass the platform's content audit."
UUID_CHARS_MAX = 50
PART_CHARS_MAX = 4_000
PART_BYTES_MAX = 20_000
"""Maximum size as JSON. It is encoded twice, and Feishu's 30 KB apply to the outer form."""
IMAGE_BYTES_MAX = 10 * 1024 * 1024
FILE_BYTES_MAX = 30 * 1024 * 1024
_KINDS = {
    ".pdf": "pdf",
    ".mp4": "mp4",
    ".doc": "doc",
    ".docx": "doc",
    ".xls": "xls",
    ".xlsx": "xls",
    ".ppt": "ppt",
    ".pptx": "ppt",
}
_VOICE = ("audio/ogg", "audio/opus")
"""Types that Feishu plays as a voice message."""
_QUOTES = 2
_MESSAGES = "/open-apis/im/v1/messages"
_CHATS = "/open-apis/im/v1/chats"


class FeishuOutgoing:
    """Send for one app. `cards` are its growing answers."""

    def __init__(self, *, api: FeishuApi, account: str, stored: Fetch, rendering: Rendering) -> None:
        self._api = api
        self._account = account
        self._stored = stored
        self._rendering = rendering
        self.cards = LiveCards(api, self._place)

    async def send(self, part: Outbound, key: str) -> str:
        """Send a part and return the message id. Raises DeliveryError."""
        if part.replaces is not None and part.replaces.startswith(HANDLE):
            try:
                return await self.cards.finish(part, key)
            except (Refused, Gone) as error:
                log.warning("feishu_card_not_finished", account=self._account, code=error.code)
            with suppress(Refused, Gone):
                await self.cards.take_away(part)
            part = replace(part, replaces=None)
        for file in part.files:
            kind, content = await _uploaded(self._api, self._stored, file, voice=part.voice)
            return await self._place(part, key, kind, content)
        for kind, content, tolerated in _forms(part, self._rendering):
            try:
                return await self._place(part, key, kind, content)
            except DeliveryError as error:
                if error.code not in tolerated:
                    raise
        raise AssertionError("the last form tolerates nothing")

    async def delete(self, message_id: str) -> None:
        with suppress(Gone):
            await self._api.call(f"{_MESSAGES}/{quote(message_id, safe='')}", method="DELETE")

    async def leave(self, chat: str, app_id: str) -> None:
        """Remove the bot from a group; this may need the scope `im:chat.members:write_only`."""
        path, body = f"{_CHATS}/{quote(chat, safe='')}/members", {"id_list": [app_id]}
        await self._api.call(path, {"member_id_type": "app_id"}, body, method="DELETE")

    async def _place(self, part: Outbound, key: str, kind: str, content: dict[str, Any]) -> str:
        target, written = part.target, orjson.dumps(content).decode()
        if part.replaces is not None:
            path = f"{_MESSAGES}/{quote(part.replaces, safe='')}"
            if kind == "interactive":
                await self._api.call(path, body={"content": written}, method="PATCH")
            else:
                await self._api.call(path, body={"msg_type": kind, "content": written}, method="PUT")
            return part.replaces
        body: dict[str, Any] = {"msg_type": kind, "content": written, "uuid": key[:UUID_CHARS_MAX]}
        if target.reply_to is not None:
            path = f"{_MESSAGES}/{quote(target.reply_to, safe='')}/reply"
            try:
                return await self._post(path, body | {"reply_in_thread": True} if target.thread else body)
            except DeliveryError as error:
                if error.code in NO_THREAD_CODES and target.thread:
                    return await self._post(path, body)
                if error.code not in WITHDRAWN_CODES:
                    raise
                if target.thread:
                    raise Gone("the message was withdrawn, and its topic with it", code=error.code) from error
        kind_of_id = "open_id" if target.chat.startswith("ou_") else "chat_id"
        return await self._post(_MESSAGES, body | {"receive_id": target.chat}, {"receive_id_type": kind_of_id})

    async def _post(self, path: str, body: dict[str, Any], params: dict[str, str] | None = None) -> str:
        return text_of(mapping(await self._api.call(path, params, body), "data"), "message_id")


_Form: TypeAlias = tuple[str, dict[str, Any], frozenset[str]]
"""Type, content, and the error codes after which to try the next form."""


async def _uploaded(api: FeishuApi, stored: Fetch, file: StoredFile, *, voice: bool) -> tuple[str, dict[str, Any]]:
    # A refused file is replaced by a sentence, so that its answer does not fail; a refused picture is sent as a file.
    # Sizes and types: the open platform's pages on uploads.
    found = await stored(file.id)
    data = found[1] if found else b""
    if not data or len(data) > FILE_BYTES_MAX:
        return "text", {"text": not_sent(file)}
    whole = File(name=file.name, type=file.type, data=data)
    try:
        if file.type in PICTURES and len(data) <= IMAGE_BYTES_MAX:
            try:
                answer = await api.upload("/open-apis/im/v1/images", {"image_type": "message"}, "image", whole)
                return "image", {"image_key": text_of(answer, "image_key")}
            except Refused as error:
                log.info("feishu_picture_refused", code=error.code)
        as_voice = voice and file.type in _VOICE
        kind = "opus" if as_voice else _KINDS.get(PurePath(file.name).suffix.lower(), "stream")
        answer = await api.upload("/open-apis/im/v1/files", {"file_type": kind, "file_name": file.name}, "file", whole)
        return "audio" if as_voice else "file", {"file_key": text_of(answer, "file_key")}
    except Refused as error:
        log.error("feishu_file_refused", code=error.code, reason=str(error))
        return "text", {"text": not_sent(file)}


def _forms(part: Outbound, rendering: Rendering) -> Iterator[_Form]:
    # Each form is tried if Feishu refused the one before. Only a card can replace a card.
    text = without_pings(spelt(part.whole, boxes=True))
    if part.replaces is not None:
        no_card = frozenset[str]() if part.buttons or part.form else NO_CARD_CODES
        yield "interactive", card(part.text, part.buttons, part.folded, part.form), AUDIT_CODES | no_card
        yield "interactive", card(NOT_PASSED, ()), no_card
    elif part.buttons or part.form:
        yield "interactive", card(part.text, part.buttons, part.folded, part.form), BAD_CONTENT_CODES | AUDIT_CODES
    elif rendering == "card" or (rendering == "auto" and needs_card(part.text)):
        yield "interactive", answer_card(part.text), BAD_CONTENT_CODES | AUDIT_CODES
    # Clients may drop text after a fence in the same node; the official SDK also separates them.
    rows = [[{"tag": "md", "text": it}] for it in fenced(text) if it.strip()] or [[{"tag": "md", "text": text}]]
    yield "post", {"zh_cn": {"content": rows}}, BAD_CONTENT_CODES | AUDIT_CODES
    yield "text", {"text": text}, AUDIT_CODES
    yield "text", {"text": NOT_PASSED}, frozenset()


def split(text: str, *, chars_max: int = PART_CHARS_MAX, bytes_max: int = PART_BYTES_MAX) -> list[str]:
    """Return the parts in order; none for an empty text. Apart from repeated fences and table heads, they join to the
    text."""
    limits = (Limit(measure=len, most=chars_max), Limit(measure=_bytes, most=bytes_max - _QUOTES))
    return markdown.split(spelt(text, boxes=True), limits)


def _bytes(text: str) -> int:
    return len(orjson.dumps(text.encode("utf-8", errors="replace").decode())) - _QUOTES


HANDLE = "card:"
ELEMENT = "answer"
CARDS_KEPT = 1_000
SEQUENCE_MAX = 2**31 - 1
_CARDS = "/open-apis/cardkit/v1/cards"
_APPLIED = "200770"
"""The operation was already applied."""
_CLOSED = frozenset({"300309", "200850"})
"""The card's streaming ended, after ten minutes."""

PlaceCard: TypeAlias = Callable[[Outbound, str, str, dict[str, Any]], Awaitable[str]]


@dataclass(slots=True)
class _Card:
    message: str | None = None
    sequence: int = 0


class LiveCards:
    """`place` sends a message of some kind and content under a key, and returns its id."""

    def __init__(self, api: FeishuApi, place: PlaceCard, *, now: Callable[[], float] = time.time) -> None:
        self._api = api
        self._place = place
        self._now = now
        self._cards: OrderedDict[str, _Card] = OrderedDict()

    async def open(self, part: Outbound) -> str:
        """Create a card without sending it; return its handle. Raises DeliveryError."""
        body = {"type": "card_json", "data": orjson.dumps(_body(part.text, streams=True)).decode()}
        card = text(mapping(await self._api.call(_CARDS, body=body), "data"), "card_id")
        if not card:
            raise Refused("Feishu's answer does not name the card")
        return f"{HANDLE}{card}:{int(self._now() * 1000)}"

    async def update(self, part: Outbound) -> str:
        """Update the card, or send it if it was not sent yet. Return its new handle. Raises DeliveryError."""
        card, begun, message = _parts(part)
        if not message:
            return f"{HANDLE}{card}:{begun}:{await self._send(card, part)}"
        body = {"content": shown(part.text), **self._number(card, begun)}
        await self._api.call(f"{_CARDS}/{quote(card, safe='')}/elements/{ELEMENT}/content", body=body, method="PUT")
        return part.replaces or ""

    async def finish(self, part: Outbound, key: str) -> str:
        """Show the complete answer and return the message's id; an empty answer deletes the message. Raises DeliveryError,
        Refused or Gone if the card cannot be finished."""
        card, begun, message = _parts(part)
        if not part.text.strip():
            await self.take_away(part)
            return ""
        whole = {"type": "card_json", "data": orjson.dumps(_body(part.text, streams=False)).decode()}
        body = {"card": whole, "uuid": key, **self._number(card, begun)}
        try:
            await self._api.call(f"{_CARDS}/{quote(card, safe='')}", body=body, method="PUT")
        except DeliveryError as error:
            if error.code != _APPLIED:
                raise
        return message or await self._send(card, part)

    async def take_away(self, part: Outbound) -> None:
        """Delete the message; no error if it is gone. Raises DeliveryError."""
        card, _, message = _parts(part)
        try:
            message = message or await self._send(card, part)
            await self._api.call(f"/open-apis/im/v1/messages/{quote(message, safe='')}", method="DELETE")
        except Gone:
            return

    async def _send(self, card: str, part: Outbound) -> str:
        known = self._known(card)
        if known.message is None:
            fresh = Outbound(target=part.target, text="")
            content = {"type": "card", "data": {"card_id": card}}
            known.message = await self._place(fresh, f"card-{card}", "interactive", content)
        return known.message

    def _number(self, card: str, begun: int) -> dict[str, int]:
        known, since = self._known(card), int(self._now() * 1000) - begun
        known.sequence = min(max(since, known.sequence + 1), SEQUENCE_MAX)
        return {"sequence": known.sequence}

    def _known(self, card: str) -> "_Card":
        if len(self._cards) >= CARDS_KEPT and card not in self._cards:
            self._cards.popitem(last=False)
        return self._cards.setdefault(card, _Card())


def is_closed(error: DeliveryError) -> bool:
    return error.code in _CLOSED


def _parts(part: Outbound) -> tuple[str, int, str]:
    card, begun, *message = (part.replaces or "").removeprefix(HANDLE).split(":")
    return card, int(begun), "".join(message)


def _body(words: str, *, streams: bool) -> dict[str, Any]:
    element = {"tag": "markdown", "element_id": ELEMENT, "content": shown(words)}
    return made([element], "…" if streams else words, streaming_mode=streams)

"""An answer that grows in a streaming card: created, sent as a message, updated, and finished as the whole answer.

Every operation of a card carries a number that rises; it is the time since the card was made, so that it also rises after
a crash. Once the card was sent, its handle names the message. Between the sending and that, an idempotency key made of the
card's id has Feishu find the first message, for an hour. Source: the open platform's pages on CardKit.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson

from channels.channel import DeliveryError, Gone, Refused
from channels.feishu.api import FeishuApi
from channels.feishu.card import made, shown
from channels.message import Outbound
from channels.wire import mapping, text

HANDLE = "card:"
ELEMENT = "answer"
CARDS_KEPT = 1_000
SEQUENCE_MAX = 2**31 - 1
_CARDS = "/open-apis/cardkit/v1/cards"
_APPLIED = "200770"
"""This very operation was done before."""
_CLOSED = frozenset({"300309", "200850"})
"""Ten minutes have passed: the card takes no more streaming."""

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
        """Makes a card, which is not sent yet; its handle. Raises DeliveryError."""
        body = {"type": "card_json", "data": orjson.dumps(_body(part.text, streams=True)).decode()}
        card = text(mapping(await self._api.call(_CARDS, body=body), "data"), "card_id")
        if not card:
            raise Refused("Feishu's answer does not name the card")
        return f"{HANDLE}{card}:{int(self._now() * 1000)}"

    async def update(self, part: Outbound) -> str:
        """The handle from here on: what was not sent yet is, as it is. Raises DeliveryError."""
        card, begun, message = _parts(part)
        if not message:
            return f"{HANDLE}{card}:{begun}:{await self._send(card, part)}"
        body = {"content": shown(part.text), **self._number(card, begun)}
        await self._api.call(f"{_CARDS}/{quote(card, safe='')}/elements/{ELEMENT}/content", body=body, method="PUT")
        return part.replaces or ""

    async def finish(self, part: Outbound, key: str) -> str:
        """The card as the whole answer; the message's id. With nothing to say the message is taken away. Raises
        DeliveryError, Refused or Gone if the card cannot be finished."""
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
        """Raises DeliveryError, but not if there is nothing any more."""
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
    """The card, when it was made, and the message that shows it, as far as that is known."""
    card, begun, *message = (part.replaces or "").removeprefix(HANDLE).split(":")
    return card, int(begun), "".join(message)


def _body(words: str, *, streams: bool) -> dict[str, Any]:
    element = {"tag": "markdown", "element_id": ELEMENT, "content": shown(words)}
    return made([element], "…" if streams else words, streaming_mode=streams)

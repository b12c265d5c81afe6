"""The streaming cards of an emulated Feishu, as strict as CardKit: one sending, numbers that rise, ten minutes.

Source: the open platform's pages on CardKit, and its table of codes.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field
from starlette.requests import Request

from tests.emulators.feishu.rules import FeishuShape, Filled, Refusal, parsed, within_tables

STREAMING_SECONDS = 600
CARD_BYTES_MAX = 30 * 1024
SEQUENCE_MAX = 2**31 - 1


class NewCard(FeishuShape):
    type: Literal["card_json"]
    data: Filled


class Content(FeishuShape):
    content: Annotated[str, Field(min_length=1, max_length=100_000)]
    sequence: Annotated[int, Field(ge=1, le=SEQUENCE_MAX)]
    uuid: Annotated[str, Field(max_length=64)] | None = None


class Whole(FeishuShape):
    card: NewCard
    sequence: Annotated[int, Field(ge=1, le=SEQUENCE_MAX)]
    uuid: Annotated[str, Field(max_length=64)] | None = None


class Named(FeishuShape):
    tag: Literal["markdown"]
    element_id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,19}$")]
    content: str


class Summary(FeishuShape):
    content: str


class Config(FeishuShape):
    streaming_mode: bool
    update_multi: Literal[True]
    summary: Summary


class Body(FeishuShape):
    elements: Annotated[list[Named], Field(min_length=1, max_length=200), AfterValidator(within_tables)]


class StreamedCard(FeishuShape):
    schema_: Annotated[Literal["2.0"], Field(alias="schema")]
    config: Config
    body: Body


@dataclass(kw_only=True, slots=True)
class LiveCard:
    """One card. `states` is what people saw of it, in order."""

    card: StreamedCard
    streaming_since: float | None
    sequence: int = 0
    sent: bool = False
    states: list[str] = field(default_factory=list)
    uuids: set[str] = field(default_factory=set)

    @property
    def streams(self) -> bool:
        return self.card.config.streaming_mode


@dataclass(kw_only=True)
class CardKit:
    """All cards by id."""

    now: Callable[[], float]
    cards: dict[str, LiveCard] = field(default_factory=dict)

    async def create(self, request: Request) -> dict[str, Any]:
        card = _card(parsed(NewCard, await request.body(), code=10002).data)
        card_id = str(7_355_000_000_000_000_000 + secrets.randbelow(10**15))
        since = self.now() if card.config.streaming_mode else None
        self.cards[card_id] = LiveCard(card=card, streaming_since=since, states=[card.body.elements[0].content])
        return {"card_id": card_id}

    async def write(self, request: Request) -> dict[str, Any]:
        change = parsed(Content, await request.body(), code=10002)
        live = self._next(request, change.sequence, change.uuid)
        element = live.card.body.elements[0]
        if request.path_params["element_id"] != element.element_id:
            raise Refusal(300313, "no such element")
        if live.streaming_since is None or self.now() - live.streaming_since > STREAMING_SECONDS:
            raise Refusal(300309, "streaming mode is closed")
        if len(change.content.encode()) > CARD_BYTES_MAX:
            raise Refusal(200860, "card content too large")
        self._done(live, change.sequence, change.uuid, change.content)
        return {}

    async def replace(self, request: Request) -> dict[str, Any]:
        change = parsed(Whole, await request.body(), code=10002)
        live = self._next(request, change.sequence, change.uuid)
        live.card = _card(change.card.data)
        live.streaming_since = self.now() if live.streams else None
        self._done(live, change.sequence, change.uuid, live.card.body.elements[0].content)
        return {}

    def send(self, card_id: str) -> None:
        """Raises Refusal: a card is sent once."""
        live = self.cards.get(card_id)
        if live is None:
            raise Refusal(230099, "Failed to create card content, ext=ErrCode: 200740; no such card")
        if live.sent:
            raise Refusal(230099, "Failed to create card content, ext=ErrCode: 200740; sent already")
        live.sent = True

    def _next(self, request: Request, sequence: int, uuid: str | None) -> LiveCard:
        live = self.cards.get(request.path_params["card_id"])
        if live is None:
            raise Refusal(200740, "no such card")
        if uuid in live.uuids:
            raise Refusal(200770, "uuid conflict")
        if sequence <= live.sequence:
            raise Refusal(300317, "sequence number compare failed")
        return live

    def _done(self, live: LiveCard, sequence: int, uuid: str | None, text: str) -> None:
        live.sequence = sequence
        live.uuids |= {uuid} if uuid else set()
        live.states.append(text)


def _card(data: str) -> StreamedCard:
    if len(data.encode()) > CARD_BYTES_MAX:
        raise Refusal(200860, "card content too large")
    try:
        return parsed(StreamedCard, orjson.loads(data), code=200220)
    except orjson.JSONDecodeError:
        raise Refusal(200220, "bad card JSON") from None

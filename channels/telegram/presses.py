"""Buttons that people press: the bot has none of its own, but one from before it, or forwarded, spins until answered.

Beside everything else and as well as it goes: each press is answered once and in silence, what fails is not repeated,
and of too many the latest are left to spin. A press starts no turn: its data is whatever some old message carried.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from channels.channel import DeliveryError
from channels.telegram.api import TelegramApi
from channels.telegram.errors import MethodError
from channels.telegram.wire import mapping, text

WAITING_MAX = 100
KNOWN_MAX = 1_000
ID_CHARS_MAX = 64
ANSWER_SECONDS = 5.0
"""Later the button has given up by itself."""

log = structlog.get_logger()


class Presses:
    def __init__(self, api: TelegramApi, *, account: str) -> None:
        self._api = api
        self._account = account
        self._waiting: asyncio.Queue[str] = asyncio.Queue(WAITING_MAX)
        self._known: dict[str, None] = {}
        """The latest ones, as an update may come again."""

    def note(self, update: Mapping[str, Any]) -> None:
        """Takes no time. An update of another kind is none of ours."""
        query = text(mapping(update, "callback_query"), "id")
        if not query or len(query) > ID_CHARS_MAX or query in self._known or self._waiting.full():
            return
        self._known[query] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._waiting.put_nowait(query)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            query = await self._waiting.get()
            try:
                await self._api.call(
                    "answerCallbackQuery", {"callback_query_id": query}, timeout_seconds=ANSWER_SECONDS
                )
            except (MethodError, DeliveryError) as error:  # too late for it, or no connection: it matters little
                log.info("telegram_press_unanswered", account=self._account, error=type(error).__name__)

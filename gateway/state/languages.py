"""The language of each person in each chat: what their newest text decided, for the texts that decide nothing.

It is stored as two letters without the text, also for a stranger who asks to be let in. `/new`, `/agent` and a restart
keep it. A process caches it for a minute, because another replica may have stored a newer one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from agents.language import Language, decided_by, language_of_platform
from channels.message import MessageContext
from gateway.store.chatter import LANGUAGE
from gateway.store.errors import StoreUnavailable
from gateway.store.store import Store

REMEMBERED_MAX = 10_000
REMEMBERED_SECONDS = 60.0


class Languages:
    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._remembered: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        self._keeping: set[asyncio.Task[None]] = set()

    async def found(self, context: MessageContext, default: Language) -> MessageContext:
        """Return the message with the language in which it is answered, and store what its text decides. Raise
        StoreUnavailable.

        The order: the page's own language, the text's, the person's last one in this chat, their last one in another chat
        of the account, the last one of others in this chat, the platform's hint, the default.
        """
        if context.language:
            return context
        account = f"{context.channel}:{context.account}"
        key = f"{LANGUAGE}{account}:{context.chat.id}", f"{account}:{context.sender.id}"
        if decided := decided_by(context.text):
            if self._known(key) != decided:
                self._keep(key, decided)
            return replace(context, language=decided)
        known = self._known(key)
        if known is None:
            await asyncio.gather(*self._keeping)  # what this person has just written in another chat
            known = await self._store.chatter.language(*key)
        language: Language = (
            "zh" if known == "zh" else "en" if known == "en" else language_of_platform(context, default)
        )
        return replace(context, language=language)

    def _known(self, key: tuple[str, str]) -> str | None:
        language, since = self._remembered.get(key, (None, 0.0))
        return language if abs(self._now() - since) < REMEMBERED_SECONDS else None

    def _remember(self, key: tuple[str, str], language: str) -> None:
        self._remembered[key] = language, self._now()
        self._remembered.move_to_end(key)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _keep(self, key: tuple[str, str], language: str) -> None:
        """Stores it without making the message's own commit wait: a language that is lost is found again."""
        self._remember(key, language)
        task = asyncio.create_task(self._write(key, language))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _write(self, key: tuple[str, str], language: str) -> None:
        with suppress(StoreUnavailable):
            await self._store.chatter.speak(*key, language, self._now())

    async def close(self) -> None:
        await asyncio.gather(*self._keeping)

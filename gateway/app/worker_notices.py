"""The notices of other workers of a shared database: choices and owners are loaded, what is due is looked at, and the rest
goes to the lanes and the pages."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import structlog

from channels.web.live import LiveTurns
from channels.web.views import conversation_view, event
from gateway.state.choices import CHOICES_NOTICE
from gateway.state.owners import OWNERS_NOTICE
from gateway.state.runtime import Runtime
from gateway.store.archive import WEB_NOTICE
from gateway.store.errors import StoreUnavailable
from gateway.store.later import LATER_NOTICE
from gateway.turns.lanes import Lanes
from gateway.web.chats import CHAT_NOTICE
from gateway.web.replicas import LIVE_NOTICE, Replicas

AGAIN_SECONDS = 5.0

log = structlog.get_logger()


class WorkerNotices:
    """`wake` looks at what is due."""

    def __init__(self, runtime: Runtime, lanes: Lanes, live: LiveTurns, wake: Callable[[], None]) -> None:
        self._runtime = runtime
        self._lanes = lanes
        self._live = live
        self._wake = wake
        self._loading: set[asyncio.Task[None]] = set()
        """Database calls that are awaited on close, never cancelled: a cancelled driver call can hang."""
        self.replicas = Replicas(live, runtime.store, self._soon) if runtime.store.shared else None

    def receive(self, what: str | None) -> None:
        """Handles a notice: about a session, all sessions, choices, what is due or the web chat."""
        # None also after a lost connection: a notice may have been missed.
        if what in (CHOICES_NOTICE, OWNERS_NOTICE, None) and not self._runtime.control.draining:
            self._soon(self.load_choices())
        if what in (LATER_NOTICE, None):
            self._wake()
        if what is not None and what.startswith(LIVE_NOTICE):
            if self.replicas:
                self.replicas.receive(what)
        elif what == WEB_NOTICE:
            self._live.announce(None)
        elif what is not None and what.startswith(CHAT_NOTICE):
            if self._live.pages:
                self._soon(self._tell_chat(what.removeprefix(CHAT_NOTICE)))
        elif what not in (CHOICES_NOTICE, OWNERS_NOTICE, LATER_NOTICE):
            self._lanes.notified(what)

    async def load_choices(self) -> None:
        """Loads what people have chosen and who owns the bot; tries again until the database gives it."""
        try:
            await self._runtime.choices.load()
            await self._runtime.setup.owners.claimed.load()
        except StoreUnavailable as error:
            log.error("choices_not_loaded", error=repr(error))
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.receive, CHOICES_NOTICE)

    async def _tell_chat(self, chat: str) -> None:
        with suppress(StoreUnavailable):
            if found := await self._runtime.store.archive.conversation(chat):
                view = conversation_view(found, running=self._live.running(found.id))
                self._live.announce(event("chat", view), found.owner)

    async def close(self) -> None:
        await asyncio.gather(*self._loading, return_exceptions=True)

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

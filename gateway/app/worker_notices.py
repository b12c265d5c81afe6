"""Handle the notices of other workers of a shared database: reload choices and owners, run due work, wake lanes and pages.

Running turns of the web chat reach the pages of other replicas in the same way. A replica with pages asks for them every
few seconds; while asked, a replica with running turns sends each as it grows. Nothing is stored: the next update replaces a
lost one. A single replica only asks.
"""

import asyncio
import secrets
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

import orjson
import structlog

from channels.abilities import ToolUse
from channels.web.live import LiveTurn, LiveTurns, TurnKey
from channels.web.views import conversation_view, event
from gateway.state.choices import CHOICES_NOTICE
from gateway.state.owners import OWNERS_NOTICE
from gateway.state.runtime import Runtime
from gateway.store.archive import WEB_NOTICE
from gateway.store.errors import StoreUnavailable
from gateway.store.later import LATER_NOTICE
from gateway.store.store import Store
from gateway.turns.lanes import Lanes
from gateway.web.chats import CHAT_NOTICE

log = structlog.get_logger()

AGAIN_SECONDS = 5.0


class WorkerNotices:
    """Dispatch notices; `wake` looks for due work."""

    def __init__(self, runtime: Runtime, lanes: Lanes, live: LiveTurns, wake: Callable[[], None]) -> None:
        self._runtime = runtime
        self._lanes = lanes
        self._live = live
        self._wake = wake
        self._loading: set[asyncio.Task[None]] = set()
        """Database calls that are awaited on close, never cancelled: a cancelled driver call can hang."""
        self.replicas = Replicas(live, runtime.store, self._soon) if runtime.store.shared else None

    def receive(self, what: str | None) -> None:
        """Handle a notice: about a session, all sessions, choices, due work or the web chat."""
        # None also means a lost connection: notices may have been missed.
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
        """Load the stored choices and owners; retry until the database is available."""
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


LIVE_NOTICE = "live "
"""Prefix of its notices; no session id starts so."""
ASK_SECONDS = 10.0
ASKED_SECONDS = 3 * ASK_SECONDS
PACE_SECONDS = 0.1
"""Minimum seconds between two notices, so each of many turns is sent less often."""
PIECE_CHARS = 7_000
"""PostgreSQL limits notices to less than 8,000 bytes."""


class Replicas:
    """Share running turns with other replicas. `spawn` runs the sends, which are awaited when the process ends."""

    def __init__(self, live: LiveTurns, store: Store, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._live = live
        self._store = store
        self._spawn = spawn
        self._id = secrets.token_hex(8)
        self._last_ask = self._asked = float("-inf")
        self._due: dict[TurnKey | None, LiveTurn | None] = {}
        """Turns to send; the key None is the request for the turns of others."""
        self._sending = False
        self._pieces: dict[str, str] = {}
        """The pieces received so far of the newest notice of each replica."""
        live.watched, live.changed = self._ask, self._changed

    def receive(self, notice: str) -> None:
        """Read a notice of another replica; ignore one in the format of another version."""
        origin, left, piece = f"{notice.removeprefix(LIVE_NOTICE)}  ".split(" ")[:3]
        if origin == self._id:
            return
        if not piece:
            self._asked = time.monotonic()
            for key, turn in self._live.own():
                self._changed(key, turn)
            return
        whole = self._pieces.pop(origin, "") + piece
        if left != "0":
            self._pieces[origin] = whole
            return
        try:
            chat, message, person, text, tools, note, outcome = orjson.loads(zlib.decompress(b64decode(whole)))
            turn = LiveTurn(person, text, tuple(ToolUse(**it) for it in tools), note, outcome, heard=time.monotonic())
        except (ValueError, TypeError, zlib.error) as error:
            log.info("notice_not_read", error=repr(error))
        else:
            self._live.update((chat, message), turn)

    def _ask(self) -> None:
        if time.monotonic() - self._last_ask >= ASK_SECONDS:
            self._last_ask = time.monotonic()
            self._live.lose(self._last_ask - ASKED_SECONDS)
            self._send(None, None)

    def _changed(self, key: TurnKey, turn: LiveTurn) -> None:
        if time.monotonic() - self._asked < ASKED_SECONDS:
            self._send(key, turn)

    def _send(self, key: TurnKey | None, turn: LiveTurn | None) -> None:
        self._due[key] = turn
        if not self._sending:
            self._sending = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._due:
                key = next(iter(self._due))
                turn = self._due.pop(key)
                data = _packed(key, turn) if key and turn else ""
                for at in range(0, len(data) or 1, PIECE_CHARS):
                    left = max(0, len(data) - at - PIECE_CHARS)
                    await self._store.notify(f"{LIVE_NOTICE}{self._id} {left} {data[at : at + PIECE_CHARS]}")
                    await asyncio.sleep(PACE_SECONDS)
        except StoreUnavailable as error:
            self._due.clear()
            log.info("turns_not_shared", error=repr(error))
        finally:
            self._sending = False


def _packed(key: TurnKey, turn: LiveTurn) -> str:
    tools = [replace(it, arguments="", result="") for it in turn.tools]
    state = [*key, turn.person, turn.text, tools, turn.note, turn.outcome]
    return b64encode(zlib.compress(orjson.dumps(state))).decode()

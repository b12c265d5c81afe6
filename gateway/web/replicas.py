"""The web chat's running turns on the pages of other replicas, over the notices of the database that they share.

A replica with pages asks for them every few seconds; a replica that runs turns sends each as it grows, for as long as it is
asked. Nothing of it lasts, and what gets lost comes with the next answer. A single replica only asks.
"""

import asyncio
import secrets
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from dataclasses import replace

import orjson
import structlog

from channels.abilities import ToolUse
from channels.web.live import LiveTurn, LiveTurns, TurnKey
from gateway.store.errors import StoreUnavailable
from gateway.store.store import Store

LIVE_NOTICE = "live "
"""The beginning of its notices; no session has such a name."""
ASK_SECONDS = 10.0
ASKED_SECONDS = 3 * ASK_SECONDS
PACE_SECONDS = 0.1
"""Seconds between any two notices: a replica with many turns sends each more seldom."""
PIECE_CHARS = 7_000
"""PostgreSQL takes notices of less than 8,000 bytes."""

log = structlog.get_logger()


class Replicas:
    """`spawn` runs what is sent, and is waited for at the end of the process."""

    def __init__(self, live: LiveTurns, store: Store, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._live = live
        self._store = store
        self._spawn = spawn
        self._id = secrets.token_hex(8)
        self._last_ask = self._asked = float("-inf")
        self._due: dict[TurnKey | None, LiveTurn | None] = {}
        """The turns that are to be sent; under None a question."""
        self._sending = False
        self._pieces: dict[str, str] = {}
        """The text that has arrived of the newest notice of each replica."""
        live.watched, live.changed = self._ask, self._changed

    def receive(self, notice: str) -> None:
        """Reads the notice of any replica: another version's may not be understood."""
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

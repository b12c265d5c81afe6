"""Choices for a chat that the inbox must know before a message is stored: which agent answers there, and what becomes of
messages that arrive during a turn.

There are few of them, so every worker has them all in memory and accepting a message asks no database. They last as
marks of ids of their own; whoever writes one notifies the other workers, which read them anew.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from channels.message import MessageContext
from channels.queue import QueueMode
from gateway.records.sessions import CHOICE, chat_session
from gateway.store.records import SessionMark
from gateway.store.store import Store

MODES: Sequence[QueueMode] = get_args(QueueMode)
CHOICES_NOTICE = "choices"
"""The notice by which workers tell each other of a choice; no session has this name."""


class Choices:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chosen: Mapping[str, str] = {}
        self._lock = asyncio.Lock()

    def agent(self, context: MessageContext) -> str:
        """The agent that was chosen for the message's chat or topic; empty where none was."""
        return self._chosen.get(chat_key(self.at_home(context)), "")

    def at_home(self, context: MessageContext) -> MessageContext:
        """In the chat under the id that it began with: its conversations keep their names."""
        before = self._chosen.get(_moved_key(context.channel, context.account, context.chat.id))
        return replace(context, chat=replace(context.chat, id=before)) if before else context

    async def move(self, channel: str, account: str, before: str, after: str) -> None:
        """A chat goes on under another id; the same however often."""
        if (key := _moved_key(channel, account, after)) not in self._chosen:
            await self._choose(key, before, 0, 0.0)

    def queue(self, sid: str) -> QueueMode | None:
        """The mode that was chosen for a conversation."""
        chosen = self._chosen.get(sid)
        return next((mode for mode in MODES if mode == chosen), None)

    async def choose_agent(self, context: MessageContext, agent: str, *, turn: int, at: float) -> None:
        await self._choose(chat_key(self.at_home(context)), agent, turn, at)

    async def choose_queue(self, sid: str, mode: str, *, turn: int, at: float) -> None:
        if mode != self._chosen.get(sid, ""):
            await self._choose(sid, mode, turn, at)

    async def load(self) -> None:
        """Raises StoreUnavailable."""
        async with self._lock:  # an older answer must not come behind a newer one
            self._chosen = await self._store.choices()

    async def _choose(self, key: str, value: str, turn: int, at: float) -> None:
        """By the command that is message `turn`: the newest one holds, and one that runs again changes nothing."""
        await self._store.mark(CHOICE + key, SessionMark(turn=turn, kind="settings", content=value, at=at))
        await self.load()
        await self._store.notify(CHOICES_NOTICE)


def chat_key(context: MessageContext) -> str:
    """A chat or a topic whoever answers there; no session of an agent has this name, since agents have ids."""
    thread = () if context.chat.thread is None else ("thread", context.chat.thread)
    return chat_session("", context.channel, context.account, context.chat.id, *thread)


def _moved_key(channel: str, account: str, chat: str) -> str:
    return f"moved:{chat_session('', channel, account, chat)}"

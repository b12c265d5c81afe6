"""Choices that the inbox needs before it stores a message: the agent of a chat, its queue mode, its listening switch,
and whether it is unreachable.

There are few, so every worker keeps all of them in memory and accepting a message needs no query. They are stored as
marks with separate ids; the worker that writes one notifies the others, which reload them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

from agents.language import Language, decided_by, language_of_platform
from channels.access import Switch
from channels.message import MessageContext
from channels.section import QueueMode
from gateway.store.chatter import LANGUAGE
from gateway.store.errors import StoreUnavailable
from gateway.store.records import SessionMark
from gateway.store.sessions import CHOICE, chat_session, session_parts
from gateway.store.store import Store

MODES: Sequence[QueueMode] = get_args(QueueMode)
SWITCHES: Sequence[Switch] = get_args(Switch)
CHOICES_NOTICE = "choices"
"""The notice by which workers announce a choice; no session has this name."""
_MOVED = "moved:"
REST_SECONDS = 86_400.0
"""Seconds after which a hook with an unreachable chat accepts an event again, to see whether the chat is back."""


class Choices:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chosen: Mapping[str, str] = {}
        self._moves: Mapping[str, Move] = {}
        """Migrations by the chat's first id."""
        self._lock = asyncio.Lock()

    def agent(self, context: MessageContext) -> str:
        """Return the agent chosen for the message's chat or topic; empty if none was."""
        return self._chosen.get(chat_key(self.before_migration(context)), "")

    def before_migration(self, context: MessageContext) -> MessageContext:
        """Return the message with the chat's id from before a migration, since its conversations keep their names."""
        before = self._chosen.get(_moved_key(context.channel, context.account, context.chat.id))
        return replace(context, chat=replace(context.chat, id=before)) if before else context

    def after_migration(self, context: MessageContext) -> MessageContext:
        """Return the message with the chat's current id, for sending and access checks."""
        move = self._moves.get(chat_session("", context.channel, context.account, context.chat.id))
        return replace(context, chat=replace(context.chat, id=move.after)) if move else context

    @property
    def moves(self) -> Sequence["Move"]:
        return [*self._moves.values()]

    async def move(self, channel: str, account: str, before: str, after: str) -> None:
        """Record a chat's new id. Idempotent."""
        if (key := _moved_key(channel, account, after)) not in self._chosen:
            await self._choose(key, before, 0, 0.0)

    def listens(self, context: MessageContext) -> Switch | None:
        """Return an owner's switch for the message's group; None without one."""
        return self.listens_in(context.channel, context.account, context.chat.id)

    def listens_in(self, channel: str, account: str, chat: str) -> Switch | None:
        chosen = self._chosen.get(self._listen_key(channel, account, chat))
        return switch_of(chosen)

    async def choose_listening(self, context: MessageContext, switch: Switch, *, turn: int, at: float) -> None:
        await self._choose(self._listen_key(context.channel, context.account, context.chat.id), switch, turn, at)

    def _listen_key(self, channel: str, account: str, chat: str) -> str:
        first = self._chosen.get(_moved_key(channel, account, chat), chat)
        return listen_key(channel, account, first)

    def rests(self, hook: str, to: str, now: float) -> bool:
        """Return whether the hook's chat `to` was unreachable within the last day."""
        place, _, at = self._chosen.get(f"hook:{hook}", "").rpartition(" ")
        return place == to and 0 <= now - float(at) < REST_SECONDS

    async def rest(self, hook: str, to: str, *, turn: int, at: float) -> None:
        """Record that the hook's chat `to` is unreachable."""
        await self._choose(f"hook:{hook}", f"{to} {at:.0f}", turn, at)

    def queue(self, sid: str) -> QueueMode | None:
        """Return the mode that was chosen for a conversation."""
        chosen = self._chosen.get(sid)
        return next((mode for mode in MODES if mode == chosen), None)

    async def choose_agent(self, context: MessageContext, agent: str, *, turn: int, at: float) -> None:
        await self._choose(chat_key(self.before_migration(context)), agent, turn, at)

    async def choose_queue(self, sid: str, mode: str, *, turn: int, at: float) -> None:
        if mode != self._chosen.get(sid, ""):
            await self._choose(sid, mode, turn, at)

    async def load(self) -> None:
        """Load all choices. Raises StoreUnavailable."""
        async with self._lock:  # an older answer must not come behind a newer one
            self._chosen = await self._store.choices()
            moves = (Move.of(key, before) for key, before in self._chosen.items() if key.startswith(_MOVED))
            self._moves = {chat_session("", it.channel, it.account, it.before): it for it in moves}

    async def _choose(self, key: str, value: str, turn: int, at: float) -> None:
        """Record the choice of the command `turn`. The newest one applies; repeating it is idempotent."""
        await self._store.mark(CHOICE + key, SessionMark(turn=turn, kind="settings", content=value, at=at))
        await self.load()
        await self._store.notify(CHOICES_NOTICE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A group's migration to another chat id."""

    channel: str
    account: str
    before: str
    after: str

    @classmethod
    def of(cls, key: str, before: str) -> "Move":
        place = session_parts(key.removeprefix(_MOVED))
        return cls(channel=place.channel, account=place.account, before=before, after=place.chat)


def listen_key(channel: str, account: str, chat: str) -> str:
    """Return the key of a group's switch, by the group's first id."""
    return f"listen:{chat_session('', channel, account, chat)}"


def switch_of(chosen: str | None) -> Switch | None:
    return next((it for it in SWITCHES if it == chosen), None)


def chat_key(context: MessageContext) -> str:
    """Return the key of a chat or topic for all agents; no session has this name, because agents have ids."""
    thread = () if context.chat.thread is None else ("thread", context.chat.thread)
    return chat_session("", context.channel, context.account, context.chat.id, *thread)


def _moved_key(channel: str, account: str, chat: str) -> str:
    return f"{_MOVED}{chat_session('', channel, account, chat)}"


REMEMBERED_MAX = 10_000
REMEMBERED_SECONDS = 60.0


class Languages:
    """The language of each user in each chat, decided by their newest text and used for texts that do not show a
    language.

    Only two letters are stored, never the text, also for unknown senders. `/new`, `/agent` and a restart keep it. A
    process caches it for a minute, because another replica may have stored a newer one.
    """

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._remembered: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        self._keeping: set[asyncio.Task[None]] = set()

    async def found(self, context: MessageContext, default: Language) -> MessageContext:
        """Return the message with the language of its answer, and store what its text decides. Raises StoreUnavailable.

        The order: the page's own language, the text's, the user's last one in this chat, their last one in another chat
        of the account, the last one of other users in this chat, the platform's hint, the default.
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
        """Store the language without delaying the message's own commit: a lost one is detected again."""
        self._remember(key, language)
        task = asyncio.create_task(self._write(key, language))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _write(self, key: tuple[str, str], language: str) -> None:
        with suppress(StoreUnavailable):
            await self._store.chatter.speak(*key, language, self._now())

    async def close(self) -> None:
        await asyncio.gather(*self._keeping)

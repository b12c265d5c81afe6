"""What an agent may remember for a person, from the store: `tools.memory.Memory`, and the notes beside a message.

The scope is always the call's own session, and for notes its own sender in a direct chat: two people, two chats and two
agents never share one. Nothing here is asked for where nothing was ever noted or searched.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from agents.compaction import Save
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, texts
from agents.prompt.inbound import spoken, timestamp
from channels.api.channel import ApiChannel
from channels.message import MessageContext
from gateway.history import numbered_turns, turns_of
from gateway.routing import agent_of
from gateway.store.store import Store, StoreUnavailable
from tools.memory import Note, Passage
from tools.tool import Call

CANDIDATES = 4
"""Turns that are looked at for each result that is wanted: the index knows that words are there, not how well they fit."""


def person(context: MessageContext) -> str:
    """Whose notes they are, as the inbox names senders."""
    return f"{context.channel}:{context.account}:{context.sender.id}"


def _is_personal(message: MessageContext) -> bool:
    """Where others read along there are no notes; behind one program may stand many people."""
    return message.chat.kind == "direct" and message.channel != ApiChannel.name


class StoredMemory:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def notes(self, session: str, message: MessageContext) -> Sequence[Note]:
        """Oldest first; none where others read along."""
        if not _is_personal(message):
            return ()
        return await self._store.memory.notes(person(message), agent_of(session))

    def saver(self, session: str, message: MessageContext, *, turn: int, at: float) -> Save | None:
        """Keeps a note before a compaction of the turn, one however often that runs; nobody does where others read along."""

        async def save(words: str) -> None:
            with suppress(StoreUnavailable):  # the turn does not hang on it
                await self._store.memory.take_note(person(message), agent_of(session), words, turn=turn, at=at)

        return save if _is_personal(message) else None

    async def passages(self, wanted: Sequence[str], limit: int, call: Call) -> Sequence[Passage]:
        notes = [Passage(path=f"notes/{it.number}", at=it.at, text=it.text) for it in await self._call_notes(call)]
        turns = await self._store.memory.search(call.session, wanted, CANDIDATES * limit)
        rows = await self._store.memory.turns(call.session, turns) if turns else ()
        return [*notes, *(_passage(turn, messages) for turn, messages in numbered_turns(rows))]

    async def text(self, path: str, call: Call) -> str | None:
        kind, _, number = path.partition("/")
        if path == "notes":
            lines = [f"{it.number}. {' '.join(it.text.split())}" for it in await self._call_notes(call)]
            return "\n".join(lines) or "(no notes)"
        if kind not in ("notes", "sessions") or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        if kind == "notes":
            return next((it.text for it in await self._call_notes(call) if it.number == int(number)), None)
        rows = await self._store.memory.turns(call.session, [int(number)])
        return next(("\n".join(_shown(messages)) for messages in turns_of(rows)), None)

    async def _call_notes(self, call: Call) -> Sequence[Note]:
        return await self.notes(call.session, call.message)


def _passage(turn: int, messages: Sequence[Message]) -> Passage:
    return Passage(path=f"sessions/{turn}", at=messages[0].timestamp, text="\n".join(map(spoken, messages)))


def _shown(messages: Sequence[Message]) -> Iterator[str]:
    """A turn as an agent reads it again."""
    for message in messages:
        match message:
            case UserMessage():
                yield f"{timestamp(datetime.fromtimestamp(message.timestamp, UTC))}\n{spoken(message)}"
            case AssistantMessage():
                if message.text.strip():
                    yield f"You: {message.text.strip()}"
                yield from (f"[call {it.name} {it.arguments_raw}]" for it in message.calls)
            case ToolResultMessage():
                yield f"[result of {message.tool}]\n{''.join(texts(message))}"

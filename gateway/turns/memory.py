"""An agent's memory for a person, from the store: `tools.memory.Memory`, and the notes beside a message.

The scope is always the call's own session, and for notes its sender in a direct chat: two people, two chats and two
agents never share one. A person without notes and a session without a search cost no query.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo

from agents.compaction import Save
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, texts
from agents.prompt.inbound import spoken
from channels.api.channel import ApiChannel
from channels.marks import CALL, RESULT
from channels.message import MessageContext
from channels.moment import timestamp
from gateway.records.sessions import agent_of, sender_of
from gateway.store.errors import StoreUnavailable
from gateway.store.store import Store
from gateway.turns.history import numbered_turns, turns_of
from tools.memory import Note, Passage
from tools.tool import Call

CANDIDATES = 4
"""Turns read for each wanted result: the index knows which words occur, not how well they fit."""


def _is_personal(message: MessageContext) -> bool:
    """Returns True if notes may be kept: a person alone with the bot, and no program, which may serve many people, nor
    the operator's own turn."""
    return message.chat.kind == "direct" and message.channel != ApiChannel.name and message.sender.id != ""


class StoredMemory:
    def __init__(self, store: Store, zone: tzinfo) -> None:
        self._store = store
        self.zone = zone

    async def notes(self, session: str, message: MessageContext) -> Sequence[Note]:
        """Returns the notes, oldest first; empty outside a direct chat."""
        if not _is_personal(message):
            return ()
        return await self._store.memory.notes(sender_of(message), agent_of(session))

    def saver(self, session: str, message: MessageContext, *, turn: int, at: float, revision: int) -> Save | None:
        """Returns the function that keeps a note before a compaction of the turn, once, unless the conversation has
        changed since it was read; None outside a direct chat."""

        async def save(words: str) -> None:
            with suppress(StoreUnavailable):  # the turn does not hang on it
                await self._store.memory.take_note(
                    sender_of(message), agent_of(session), words, turn=turn, at=at, of=(session, revision)
                )

        return save if _is_personal(message) else None

    async def passages(self, query: Sequence[str], limit: int, call: Call) -> Sequence[Passage]:
        notes = [Passage(path=f"notes/{it.number}", at=it.at, text=it.text) for it in await self._call_notes(call)]
        turns = await self._store.memory.search(call.session, query, CANDIDATES * limit)
        rows = await self._store.memory.turns(call.session, turns) if turns else ()
        for turn, messages in numbered_turns(rows):
            text = "\n".join(map(spoken, messages))
            notes.append(Passage(path=f"sessions/{turn}", at=messages[0].timestamp, text=text))
        return notes

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
        return next(("\n".join(_shown(messages, self.zone)) for messages in turns_of(rows)), None)

    async def _call_notes(self, call: Call) -> Sequence[Note]:
        return await self.notes(call.session, call.message)


def _shown(messages: Sequence[Message], zone: tzinfo) -> Iterator[str]:
    """A turn as an agent reads it again."""
    for message in messages:
        match message:
            case UserMessage():
                yield f"{timestamp(message.timestamp, zone)}\n{spoken(message)}"
            case AssistantMessage():
                if message.text.strip():
                    yield f"You: {message.text.strip()}"
                yield from (f"{CALL} {it.name} {it.arguments_raw}]" for it in message.calls)
            case ToolResultMessage():
                yield f"{RESULT} {message.tool}]\n{''.join(texts(message))}"

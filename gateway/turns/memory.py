"""An agent's memory from the store (`tools.memory.Memory`), and the notes that are added to a message.

The scope is the session of the call, and for notes its sender in a direct chat: two users, two chats and two agents
never share memory. A user without notes and a session without a search cost no query.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo

import orjson

from agents.compaction import Save
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, holds_external, texts
from agents.prompt.inbound import spoken
from channels.api.channel import ApiChannel
from channels.marks import CALL, RESULT
from channels.message import MessageContext
from channels.moment import timestamp
from gateway.state.runtime import Setup
from gateway.store.errors import StoreUnavailable
from gateway.store.records import Entry
from gateway.store.sessions import agent_of, is_among_others, sender_of
from gateway.store.store import Store
from gateway.turns.history import numbered_turns
from tools.memory import Note, Passage
from tools.tool import Call, note_source, repeats, turn_source

CANDIDATES = 4
"""Turns read per requested result: the index knows which words occur, not how well they match."""


def _is_personal(message: MessageContext) -> bool:
    """Return whether notes may be kept: one user alone with the bot. API clients, which may serve many users, and
    the operator's own turns are excluded."""
    return message.chat.kind == "direct" and message.channel != ApiChannel.name and message.sender.id != ""


class StoredMemory:
    """The memory of all agents. `setup`, which is built from it, decides whose text in a recalled turn is external
    to the call."""

    setup: Setup | None = None

    def __init__(self, store: Store, zone: tzinfo) -> None:
        self._store = store
        self.zone = zone

    async def notes(self, session: str, message: MessageContext) -> Sequence[Note]:
        """Return the notes, oldest first; empty outside a direct chat."""
        if not _is_personal(message):
            return ()
        return await self._store.memory.notes(sender_of(message), agent_of(session))

    def saver(self, session: str, message: MessageContext, *, turn: int, at: float, revision: int) -> Save | None:
        """Return the function that stores a note before the turn is compacted: once, and only if the conversation
        was not revised since it was read. None outside a direct chat."""

        async def save(words: str) -> None:
            with suppress(StoreUnavailable):  # the turn does not hang on it
                await self._store.memory.take_note(
                    sender_of(message), agent_of(session), words, turn=turn, at=at, of=(session, revision)
                )

        return save if _is_personal(message) else None

    async def passages(self, query: Sequence[str], limit: int, call: Call) -> Sequence[Passage]:
        notes = [
            Passage(path=f"notes/{it.number}", at=it.at, text=it.text, source=_note(call, it.number))
            for it in await self._call_notes(call)
        ]
        turns = await self._store.memory.search(call.session, query, CANDIDATES * limit)
        rows = await self._store.memory.turns(call.session, turns) if turns else ()
        foreign = await self._foreign(rows, call)
        for turn, messages in numbered_turns(rows):
            text, at, source = "\n".join(map(spoken, messages)), messages[0].timestamp, turn_source(turn)
            notes.append(Passage(path=f"sessions/{turn}", at=at, text=text, external=turn in foreign, source=source))
        return notes

    async def text(self, path: str, call: Call) -> Passage | None:
        kind, _, number = path.partition("/")
        if path == "notes":
            repeats(_note(call, None))
            lines = [f"{it.number}. {' '.join(it.text.split())}" for it in await self._call_notes(call)]
            return Passage(path=path, at=0.0, text="\n".join(lines) or "(no notes)")
        if kind not in ("notes", "sessions") or not (number.isascii() and number.isdigit() and len(number) < 19):
            return None
        if kind == "notes":
            repeats(_note(call, int(number)))
            notes = (it for it in await self._call_notes(call) if it.number == int(number))
            return next((Passage(path=path, at=it.at, text=it.text) for it in notes), None)
        rows = await self._store.memory.turns(call.session, [int(number)])
        repeats(turn_source(int(number)))
        foreign = await self._foreign(rows, call)
        for turn, messages in numbered_turns(rows):
            text, at = "\n".join(_shown(messages, self.zone)), messages[0].timestamp
            return Passage(path=path, at=at, text=text, external=turn in foreign)
        return None

    async def _foreign(self, rows: Sequence[Entry], call: Call) -> Collection[int]:
        """Return the turns that hold external content, came from a request with some, or hold text of users with
        fewer rights than the call's turn."""
        found = {*_external(rows)}
        if rows and is_among_others(call.message) and self.setup is not None:
            agent, turns = agent_of(call.session), sorted({row.turn for row in rows})
            ranked = self.setup.has_ranks(agent, call.message)
            speakers = await self._store.memory.speakers_in(call.session, turns) if ranked else ()
            found |= {turn for turn, person in speakers if self.setup.outranks(agent, call.message, [person])}
        return found

    async def was_external(self, session: str, turn: int) -> bool:
        """Return whether external content may have influenced a finished turn. True for a turn that no longer
        exists."""
        rows = await self._store.memory.turns(session, [turn])
        return not rows or turn in _external(rows)

    async def _call_notes(self, call: Call) -> Sequence[Note]:
        return await self.notes(call.session, call.message)


def _external(rows: Sequence[Entry]) -> Collection[int]:
    """Return the turns that hold external content, or came from a request with some."""
    marked = {row.turn for row in rows if row.kind == "final" and orjson.loads(row.content).get("external")}
    return marked | {turn for turn, messages in numbered_turns(rows) if holds_external(messages)}


def _note(call: Call, number: int | None) -> str:
    return note_source(sender_of(call.message), agent_of(call.session), number)


def _shown(messages: Sequence[Message], zone: tzinfo) -> Iterator[str]:
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

"""Read the transcript back as history: the finished turns of a conversation, in order.

Two kinds of turns are skipped: those the model's safety system declined, since everything after them would be declined
too, and those with an unreadable row, so that one bad row cannot break a chat. A chat's turns are cached; only newer
rows are read, and the same statement reports whether the cached ones are still valid.

A turn gets the newest part of a long chat, limited by turns and bytes that few model windows can hold. The cache keeps
exactly that part, so no turn rereads a long chat.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter

import orjson
import structlog
from pydantic import ValidationError

from agents.context import IMAGE_TURNS, past
from agents.messages import Message, message_json
from gateway.store.records import Entry, Known, Lease, View
from gateway.store.store import Store
from tools.tool import Image, NativeDocument

TURNS_MAX = 500
"""Most turns of one chat. A summary replaces most of a long conversation before this limit, unless its turns are
short."""
WAITING_MAX = 20
"""Most messages of one chat that are loaded together."""
KEPT_SIZE_MAX, SESSION_SIZE_MAX = 48_000_000, 8_000_000
"""Cache limits in bytes (`PastTurn.size`), for all chats and for one: enough for forty chats of 500 short turns. The
least recently active chat is evicted first and read again when needed."""
CUT_SHARE = 0.75
"""The share of a chat's limits that remains after a cut. The step is large so that the prompt prefix stays cacheable
between cuts."""
_SIZE = attrgetter("size")

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    """The cached turns up to the row of `known`, with the last row of the newest turn."""

    known: Known
    numbers: Sequence[int]
    turns: Sequence[Sequence[Message]]
    newest: Sequence[Entry]
    size: int


class Histories:
    """A cache of the finished turns of recently active chats."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self.size = 0
        """Bytes of memory that the cached turns use."""

    async def load(self, lease: Lease) -> View:
        """Load the work of a chat with its finished turns."""
        kept = self._kept.get(lease.sid)
        known = kept.known if kept else None
        view = await self._store.load(lease, history_turns=TURNS_MAX, waiting_max=WAITING_MAX, known=known)
        if (work := view.work) is None:
            return view
        rows = history = work.history
        numbered = numbered_turns(rows)
        numbers = [number for number, _ in numbered]
        turns: list[Sequence[Message]] = [turn for _, turn in numbered]
        since = 0
        if kept and work.continues:
            history = [*kept.newest, *rows]
            since = max(0, len(kept.turns) - IMAGE_TURNS)
            numbers, turns = [*kept.numbers, *numbers], [*kept.turns, *turns]
        shown = past(turns[since:])
        parts = [part for turn in turns[-IMAGE_TURNS:] for message in turn for part in message.content]
        files = sum(len(part.data) for part in parts if isinstance(part, Image | NativeDocument))
        sizes = list(map(_SIZE, chain(turns[:since], shown)))
        turns[since:] = [it if it.is_final_form else turn for it, turn in zip(shown, turns[since:], strict=True)]
        if (cut := _beyond(sizes)) > 0:
            log.info("history_cut", turns=cut)
            numbers, turns, sizes = numbers[cut:], turns[cut:], sizes[cut:]
        work = replace(work, history=history, numbers=numbers, turns=turns)
        self._forget(lease.sid)
        is_whole = {row.turn for row in rows} == {row.turn for row in rows if row.kind == "final"}
        if is_whole and not work.so_far and work.known:  # else one of them may go on
            size = sum(sizes) + files
            kept = _Kept(known=work.known, numbers=numbers, turns=turns, newest=history[-1:], size=size)
            self._kept[lease.sid] = kept
            self.size += size
            while self.size > KEPT_SIZE_MAX:
                self._forget(next(iter(self._kept)))
        return replace(view, work=work)

    def _forget(self, sid: str) -> None:
        if gone := self._kept.pop(sid, None):
            self.size -= gone.size


def _beyond(sizes: Sequence[int]) -> int:
    """Return how many of the oldest turns to cut; 0 while the chat is within its limits."""
    total, left = sum(sizes), len(sizes)
    if left <= TURNS_MAX and total <= SESSION_SIZE_MAX:
        return 0
    turns_max, size_max = int(TURNS_MAX * CUT_SHARE), int(SESSION_SIZE_MAX * CUT_SHARE)
    for size in sizes[:-1]:
        if left <= turns_max and total <= size_max:
            break
        total, left = total - size, left - 1
    return len(sizes) - left


def turns_of(entries: Sequence[Entry]) -> list[list[Message]]:
    """Return the finished turns among `entries`, oldest first, each with its messages in order."""
    return [messages for _, messages in numbered_turns(entries)]


def numbered_turns(entries: Sequence[Entry]) -> list[tuple[int, list[Message]]]:
    """Return the finished turns with their numbers."""
    turns: list[tuple[int, list[Message]]] = []
    for number, rows in groupby(entries, key=lambda entry: entry.turn):
        try:
            messages = _turn(list(rows))
        except (ValidationError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            log.error("turn_unreadable", unreadable_turn=number, error=type(error).__name__)
            continue
        if messages:
            turns.append((number, messages))
    return turns


def last_active(entries: Sequence[Entry]) -> float | None:
    """Return the time of the last event among the entries; None if there is none."""
    for row in reversed(entries):
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            return float(orjson.loads(row.content)["at" if row.kind == "final" else "timestamp"])
    return None


def _turn(rows: Sequence[Entry]) -> list[Message]:
    ended = next((row for row in rows if row.kind == "final"), None)
    if ended is not None and '"declined"' in ended.content and orjson.loads(ended.content)["outcome"] == "declined":
        return []
    return [message_json.validate_json(row.content) for row in rows if row.kind not in ("drained", "final")]

"""Live state: the running turns with their progress, and the connected pages.

Nothing here is stored: a page that reconnects gets the state of every running turn, and reads earlier messages from the
archive. A page that is too slow is disconnected, and reconnects to get the state.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from channels.abilities import Progress, ToolUse
from channels.web.admission import OPERATOR
from channels.web.views import blocks, event

BACKLOG_MAX = 500
BACKLOG_BYTES_MAX = 8 * 1_048_576
"""Maximum queued events and bytes per page."""
ENDED_MAX = 256
"""Turns whose tools are remembered until their reply is sent."""

TurnKey = tuple[str, str]
"""The conversation, and the message being answered."""


@dataclass(slots=True)
class LiveTurn:
    person: str
    """The owner of its conversation."""
    text: str = ""
    tools: tuple[ToolUse, ...] = ()
    note: str = ""
    outcome: str | None = None
    heard: float | None = None
    """The time of the last report by another replica; None if it runs here."""
    blocks: list[str] = field(default_factory=list)
    drawn: str = ""
    """The text that `blocks` show."""

    def draw(self) -> None:
        if self.drawn != self.text:
            self.blocks, self.drawn = blocks(self.text), self.text


class Watcher:
    """One page. `lost`: it is to disconnect, and its queued events are dropped. `behind` is set if it was too slow, since a
    send to it may block forever. `plain`: it wants drafts as text, for a terminal."""

    def __init__(self, person: str = OPERATOR, *, lost: bool = False, plain: bool = False) -> None:
        self.person = person
        self.lost = lost
        self.plain = plain
        self.behind = asyncio.Event()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._bytes = 0

    def tell(self, notice: bytes | None) -> None:
        if self.lost:
            return
        self._bytes += len(notice or b"")
        self._queue.put_nowait(notice)
        if self._queue.qsize() > BACKLOG_MAX or self._bytes > BACKLOG_BYTES_MAX:
            self.behind.set()
            self.let_go()

    def let_go(self) -> None:
        self.lost = True
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def next(self) -> bytes | None:
        notice = await self._queue.get()
        self._bytes -= len(notice or b"")
        return notice


class LiveTurns:
    """The running turns of this process and of other replicas, and the connected pages.

    It lives as long as the process: a reload replaces the web channel, and running turns are still shown. `watched` is
    called regularly while there are pages, `changed` at each step of a turn of this process."""

    def __init__(self) -> None:
        self.watched: Callable[[], None] = lambda: None
        self.changed: Callable[[TurnKey, LiveTurn], None] = lambda key, turn: None
        self._turns: dict[TurnKey, LiveTurn] = {}
        self.leaving: set[str] = set()
        """Conversations that are being erased."""
        self._watchers: set[Watcher] = set()
        self._closed = False

    @property
    def pages(self) -> int:
        return len(self._watchers)

    @contextmanager
    def watching(self, person: str = OPERATOR, *, plain: bool = False) -> Iterator[Watcher]:
        watcher = Watcher(person, lost=self._closed, plain=plain)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Disconnect all pages for good: open streams would keep the server running."""
        self._closed = True
        self.let_go()

    def let_go(self) -> None:
        """Disconnect all pages. They reconnect immediately, under the config then in force."""
        for watcher in self._watchers:
            watcher.let_go()

    def announce(self, notice: bytes | None, person: str = OPERATOR) -> None:
        """Send a notice to every page of a person; `None` tells all pages to check the archive."""
        for watcher in self._watchers:
            if notice is None or watcher.person == person:
                watcher.tell(notice)

    def show(self, progress: Progress) -> None:
        key, person = (progress.context.chat.id, progress.context.message_id), progress.context.sender.id
        news = LiveTurn(person, progress.text, progress.tools, progress.note, progress.outcome)
        self.update(key, news)
        self.changed(key, self._turns.get(key, news))

    def update(self, key: TurnKey, news: LiveTurn) -> None:
        """Apply a turn's new state. Ignore another replica's late news of a turn that runs here."""
        turn, before = self._turns.get(key), None
        if turn is None:
            ended = [key for key, turn in self._turns.items() if turn.outcome is not None]
            for oldest in ended[: max(0, len(ended) - ENDED_MAX)]:
                del self._turns[oldest]
            turn = self._turns[key] = LiveTurn(news.person)
        elif news.heard and not turn.heard and turn.outcome is None:
            return
        else:
            before = (turn.tools, turn.note, turn.outcome)
        turn.tools, turn.note, turn.outcome = news.tools or turn.tools, news.note, news.outcome
        turn.heard = news.heard
        if before != (turn.tools, turn.note, turn.outcome):
            self.announce(_turn_event(key, turn), turn.person)
        if news.outcome is not None:
            turn.text = news.text or turn.text
            if news.heard:
                del self._turns[key]
        else:
            turn.text = news.text
            if self._watchers:
                self._tell_draft(key, turn)

    def own(self) -> list[tuple[TurnKey, LiveTurn]]:
        return [(key, turn) for key, turn in self._turns.items() if turn.outcome is None and turn.heard is None]

    def lose(self, before: float) -> None:
        """Interrupt turns of replicas not heard from since `before`: another replica continues them."""
        for key, turn in list(self._turns.items()):
            if turn.heard and turn.heard < before:
                self.update(key, LiveTurn(turn.person, outcome="interrupted", heard=turn.heard))

    def running(self, chat: str) -> bool:
        return any(key[0] == chat and turn.outcome is None for key, turn in self._turns.items())

    def text(self, key: TurnKey) -> str:
        """Return the turn's text so far; "" if it runs elsewhere."""
        return turn.text if (turn := self._turns.get(key)) else ""

    def tools(self, key: TurnKey) -> tuple[ToolUse, ...]:
        """Return the tools that the turn has used, and forget the turn if it has ended."""
        turn = self._turns.get(key)
        if turn is not None and turn.outcome is not None:
            del self._turns[key]
        return turn.tools if turn else ()

    def state(self, person: str = OPERATOR) -> Iterator[bytes]:
        """Yield the state of a person's running turns, for a page that has just connected.

        Each is read when it is yielded. Queued drafts may be repeated after it, and end at the same text."""
        for key in list(self._turns):
            turn = self._turns.get(key)
            if turn is not None and turn.outcome is None and turn.person == person:
                turn.draw()
                yield _turn_event(key, turn)
                yield _draft_event(key, 0, turn.blocks)

    def _tell_draft(self, key: TurnKey, turn: LiveTurn) -> None:
        watchers = [it for it in self._watchers if it.person == turn.person]
        for watcher in (it for it in watchers if it.plain):
            watcher.tell(event("draft", {"chat": key[0], "message": key[1], "text": turn.text}))
        pages = [it for it in watchers if not it.plain]
        if not pages:
            return
        drawn_before = turn.blocks
        turn.draw()
        pairs = enumerate(zip(drawn_before, turn.blocks, strict=False))
        at = next((n for n, (old, new) in pairs if old != new), min(len(drawn_before), len(turn.blocks)))
        if at < max(len(drawn_before), len(turn.blocks)):
            for watcher in pages:
                watcher.tell(_draft_event(key, at, turn.blocks[at:]))


def _turn_event(key: TurnKey, turn: LiveTurn) -> bytes:
    facts = {"chat": key[0], "message": key[1], "running": turn.outcome is None, "outcome": turn.outcome}
    tools = [replace(it, arguments="", result="") for it in turn.tools]  # these arrive with the answer
    return event("turn", facts | {"note": turn.note, "tools": tools})


def _draft_event(key: TurnKey, at: int, drawn: list[str]) -> bytes:
    return event("draft", {"chat": key[0], "message": key[1], "at": at, "blocks": drawn})

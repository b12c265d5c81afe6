"""A provider's stream with its text rewritten on the way: a preview of the words as they arrive, all else unchanged.

The final message is read as a whole when it is there, and what it says beyond the preview follows, so what was shown and
what is kept agree. Calls that were found in the text are reported right before `Done`.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field, replace

from agents.messages import AssistantMessage
from agents.providers.provider import (
    Done,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from agents.providers.textcalls.answer import Reading, Style, read
from agents.providers.textcalls.thinking import Thoughts


async def rewritten(
    events: AsyncIterator[ModelEvent], request: ModelRequest, style: Style
) -> AsyncGenerator[ModelEvent, None]:
    writer = _Writer(style)
    try:
        async for event in events:
            match event:
                case TextDelta():
                    for piece in writer.text(event):
                        yield piece
                case Done(message=message):
                    reading = read(message, request, style)
                    for piece in writer.rest(message, reading):
                        yield piece
                    for piece in writer.calls(message, reading.message):
                        yield piece
                    yield event if reading.message is message else Done(message=reading.message)
                case _:
                    index = writer.indices.of(event.index)
                    yield event if index == event.index else replace(event, index=index)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


@dataclass(slots=True)
class _Indices:
    """Theirs and ours: parts that we add push those that come later."""

    _ours: dict[int, int] = field(default_factory=dict)
    _added: int = 0
    _highest: int = -1

    def of(self, theirs: int) -> int:
        ours = self._ours.get(theirs)
        if ours is None:
            ours = self._ours[theirs] = theirs + self._added
            self._highest = max(self._highest, ours)
        return ours

    def new(self) -> int:
        self._added += 1
        self._highest += 1
        return self._highest


class _Writer:
    """The words of one stream. Places count the characters of all its texts."""

    def __init__(self, style: Style) -> None:
        self.indices = _Indices()
        self._thoughts = Thoughts()
        self._preview = style.preview()
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._texts: list[int] = []
        """Where each of the provider's texts starts, and its index."""
        self._chars = 0
        self._shown = 0
        self._thought_index: int | None = None

    def text(self, event: TextDelta) -> Iterator[ModelEvent]:
        if not self._texts or self._texts[-1] != event.index:
            self._texts.append(event.index)
            self._starts.append(self._chars)
        self._pieces.append(event.text)
        self._chars += len(event.text)
        thought, words = self._thoughts.feed(event.text)
        yield from self._thinking(thought)
        if words:
            released = self._preview.feed(words) if self._preview else words
            for piece in self._words(max(self._shown, self._thoughts.end), released):
                yield event if piece == event else piece

    def rest(self, message: AssistantMessage, reading: Reading) -> Iterator[ModelEvent]:
        """What the preview has not shown. Nothing where the message and its deltas disagree: a failed attempt's are void."""
        received, text = "".join(self._pieces), message.text
        if not text.startswith(received):
            return
        if text != received:
            yield from self.text(TextDelta(index=self._texts[-1] if self._texts else 0, text=text[len(received) :]))
        yield from self._thinking(self._thoughts.finish()[0])
        for start, end in reading.kept:
            start = max(start, self._shown)
            yield from self._words(start, text[start:end])

    def calls(self, before: AssistantMessage, after: AssistantMessage) -> Iterator[ModelEvent]:
        native = {call.id for call in before.calls}
        for call in after.calls:
            if call.id not in native:
                index = self.indices.new()
                yield ToolCallStart(index=index, id=call.id, name=call.name)
                yield ToolCallDelta(index=index, text=call.arguments_raw)
                yield ToolCallEnd(index=index, call=call)

    def _thinking(self, thought: str) -> Iterator[ModelEvent]:
        if thought:
            if self._thought_index is None:
                self._thought_index = self.indices.new()
            yield ThinkingDelta(index=self._thought_index, text=thought)

    def _words(self, start: int, text: str) -> Iterator[ModelEvent]:
        """They may be from more than one of the provider's texts: each keeps its index."""
        at, end = start, start + len(text)
        while at < end:
            number = bisect_right(self._starts, at) - 1
            until = min(end, self._starts[number + 1]) if number + 1 < len(self._starts) else end
            yield TextDelta(index=self.indices.of(self._texts[number]), text=text[at - start : until - start])
            at = self._shown = until

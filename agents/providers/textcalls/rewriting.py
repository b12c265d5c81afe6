"""A provider's stream with its text rewritten on the way: text passes through an `Answer`, all else as it came.

The final message is made from the same answer, so what was shown and what is kept agree. Calls that were found in the
text are told of right before `Done`, for only then is it known whether the answer went well, and what its id is.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from agents.messages import AssistantMessage
from agents.providers.provider import (
    Done,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from agents.providers.textcalls.answer import Answer
from agents.providers.textcalls.visible import Shown


async def rewritten(
    events: AsyncIterator[ModelEvent], new_answer: Callable[[], Answer]
) -> AsyncGenerator[ModelEvent, None]:
    writer = _Writer(answer=new_answer())
    try:
        async for event in events:
            match event:
                case TextDelta():
                    for piece in writer.text(event):
                        yield piece
                case Done():
                    for piece in writer.rest(event.message):
                        yield piece
                    message = writer.message(event.message, new_answer)
                    for piece in writer.calls(event.message, message):
                        yield piece
                    yield event if message is event.message else Done(message=message)
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


@dataclass(slots=True)
class _Writer:
    answer: Answer
    indices: _Indices = field(default_factory=_Indices)
    _pieces: list[str] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _texts: list[int] = field(default_factory=list)
    """Where in the answer each of the provider's texts starts, and its index."""
    _chars: int = 0
    _thoughts: int | None = None

    def text(self, event: TextDelta) -> Iterator[ModelEvent]:
        if not self._texts or self._texts[-1] != event.index:
            self._texts.append(event.index)
            self._starts.append(self._chars)
        self._pieces.append(event.text)
        self._chars += len(event.text)
        for piece in self._events(self.answer.feed(event.text)):
            yield event if piece == event else piece

    def rest(self, message: AssistantMessage) -> Iterator[ModelEvent]:
        """What the message has and no delta brought, then what was held back. Nothing where the two disagree."""
        came, text = "".join(self._pieces), message.text
        if text.startswith(came):
            if text != came:
                yield from self.text(TextDelta(index=self._texts[-1] if self._texts else 0, text=text[len(came) :]))
            yield from self._events(self.answer.finish(message))

    def message(self, message: AssistantMessage, new_answer: Callable[[], Answer]) -> AssistantMessage:
        text = message.text
        if "".join(self._pieces) != text:  # deltas of a failed attempt are void, so its message alone counts
            self.answer = new_answer()
            for _ in self.answer.feed(text):
                pass
            for _ in self.answer.finish(message):
                pass
        return self.answer.message(message)

    def calls(self, before: AssistantMessage, after: AssistantMessage) -> Iterator[ModelEvent]:
        native = {call.id for call in before.calls}
        for call in after.calls:
            if call.id not in native:
                index = self.indices.new()
                yield ToolCallStart(index=index, id=call.id, name=call.name)
                yield ToolCallDelta(index=index, text=call.arguments_raw)
                yield ToolCallEnd(index=index, call=call)

    def _events(self, pieces: Iterable[Shown | str]) -> Iterator[ModelEvent]:
        for piece in pieces:
            if isinstance(piece, str):
                if self._thoughts is None:
                    self._thoughts = self.indices.new()
                yield ThinkingDelta(index=self._thoughts, text=piece)
            else:
                yield from self._shown(piece)

    def _shown(self, shown: Shown) -> Iterator[ModelEvent]:
        """Held text may be from more than one of the provider's texts: each keeps its index."""
        at, end = shown.start, shown.start + len(shown.text)
        while at < end:
            number = bisect_right(self._starts, at) - 1
            until = min(end, self._starts[number + 1]) if number + 1 < len(self._starts) else end
            text = shown.text[at - shown.start : until - shown.start]
            yield TextDelta(index=self.indices.of(self._texts[number]), text=text)
            at = until

"""A provider with a scripted answer, cut into pieces, and the strategies that make up answers."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

from hypothesis import strategies as st

from agents.messages import AssistantMessage, AssistantPart, ModelError, Opaque, StopReason, Text, Thinking, ToolCall
from agents.providers.provider import (
    Done,
    ModelEvent,
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from tests.agents.providers.requests import assistant, collect


@dataclass
class Scripted:
    """`pieces` are the lengths into which each text is cut, over and over; without them it comes whole."""

    content: Sequence[AssistantPart]
    pieces: Sequence[int] = ()
    stop_reason: StopReason = "end_turn"
    response_id: str | None = "resp_1"
    error: ModelError | None = None
    name: str = "scripted"
    api: str = "scripted-api"
    requests: list[ModelRequest] = field(default_factory=list)
    sent: list[ModelEvent] = field(default_factory=list)
    warm: bool = False
    closed: bool = False
    streams_closed: int = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        try:
            for index, part in enumerate(self.content):
                for event in self._events(index, part):
                    self.sent.append(event)
                    yield event
            done = Done(message=self._message(request))
            self.sent.append(done)
            yield done
        finally:
            self.streams_closed += 1

    async def warm_up(self) -> None:
        self.warm = True

    async def close(self) -> None:
        self.closed = True

    def _events(self, index: int, part: AssistantPart) -> Iterator[ModelEvent]:
        match part:
            case Text(text=text):
                for piece in cut(text, self.pieces):
                    yield TextDelta(index=index, text=piece)
            case Thinking(text=text):
                yield ThinkingDelta(index=index, text=text)
            case ToolCall():
                yield ToolCallStart(index=index, id=part.id, name=part.name)
                yield ToolCallDelta(index=index, text=part.arguments_raw)
                yield ToolCallEnd(index=index, call=part)

    def _message(self, request: ModelRequest) -> AssistantMessage:
        made = replace(assistant(), content=tuple(self.content), provider=self.name, model=request.model, api=self.api)
        stop, made_id = self.stop_reason, self.response_id
        return replace(made, stop_reason=stop, error=self.error, response_id=made_id, timestamp=12.5)


def says(text: str, pieces: Sequence[int] = (), stop_reason: StopReason = "end_turn") -> Scripted:
    return Scripted((Text(text=text),), pieces=pieces, stop_reason=stop_reason)


def cut(text: str, pieces: Sequence[int]) -> Iterator[str]:
    for length in cycle(pieces or [len(text)]):
        if not text:
            return
        yield text[:length]
        text = text[length:]


def shown(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def outline(message: AssistantMessage) -> list[str | tuple[str, object]]:
    """Texts as strings, calls as pairs of name and arguments, thoughts in brackets."""
    return [
        (part.name, part.arguments) if isinstance(part, ToolCall)
        else f"({part.text})" if isinstance(part, Thinking)
        else part.text
        for part in message.content
        if not isinstance(part, Opaque)
    ]  # fmt: skip


async def ask(wrapper: Provider, request: ModelRequest) -> tuple[list[ModelEvent], AssistantMessage]:
    """As `collect`, and what must hold of every stream: what was shown is what is kept, and calls are told of once."""
    events, message = await collect(wrapper, request)
    if message.error is None:
        assert shown(events) == message.text
    if message.stop_reason not in ("error", "aborted"):
        thoughts = [event.text for event in events if isinstance(event, ThinkingDelta)]
        assert thoughts == [part.text for part in message.content if isinstance(part, Thinking)]
    assert [event.call for event in events if isinstance(event, ToolCallEnd)] == list(message.calls)
    assert len({call.id for call in message.calls}) == len(message.calls)
    kinds = {(event.index, type(event).__name__[:4]) for event in events if not isinstance(event, Done)}
    assert len(dict(kinds)) == len(kinds), kinds
    return events, message


_FRAGMENTS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<function=ls>",
    "<parameter=path>", "</parameter>", "</function>", "[tool:ls]", "[ls]\n", "[/ls]", "[END_TOOL_REQUEST]",
    "[TOOL_CALLS]", "<|channel|>commentary to=functions.ls", "<|message|>", "<|call|>", "<function_calls>",
    "</function_calls>", '<invoke name="ls">', "</invoke>", '{"name": "ls", "arguments": {"path": "/tmp"}}',
    '{"path": "a</tool_call>b"}', '[{"name": "ls", "arguments": {}}]', '{"name": "rm"', '"', "\\", "{", "}", "[", "]",
    "<", ">", "```", "```\n", "\n```json\n", "`", "``", "~~~\n", "\n", "\n\n", " ", "a", "Hello 你好 ", "🙂", "x < y",
)  # fmt: skip

texts = st.lists(st.sampled_from(_FRAGMENTS), max_size=14).map("".join)
"""Answers made of everything that means something to a scanner, in any order."""

_MENTIONS = (
    "<tool_call>", "</tool_call>", "`<tool_call>`", "<tool_response>", "`</tool_response>`", "<function=ls>", "<invoke ",
    "`<tool_call>{…}</tool_call>`", "<tool_call>oops</tool_call>", "[tool:ls]", "[TOOL_CALLS]", "<function_calls>", "<",
    "<|channel|>commentary to=ls", "<tool_ca", "\n```\n<tool_call>{}\n```\n", '`<tool_call>{"name": "ls"}</tool_call>`',
    "你好 🙂", '"', "\\", "}", "]", "\n\n",
)  # fmt: skip

mentions = st.lists(st.sampled_from(_MENTIONS), min_size=1, max_size=9).map(
    lambda parts: "".join(f"So {part}" for part in parts) + " it is."
)
"""Answers that speak of calls and make none."""

chunkings = st.lists(st.integers(1, 9), min_size=1, max_size=6)

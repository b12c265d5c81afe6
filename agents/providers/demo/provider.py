"""`demo/guide`, the scripted model that ships: no key, no network, the same answer to the same history.

It streams like a real one and goes the same way through the loop, so that the whole product can be tried and tested
without an account. What it decides is in `plan`, what it says in `words`.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator

from agents.messages import AssistantMessage, Message, Text, ToolCall, Usage
from agents.providers.demo.plan import Call, next_step
from agents.providers.provider import (
    Done,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

API = "demo"
PIECE_CHARS = 16
CHARS_PER_TOKEN = 3.5


class DemoProvider:
    """A `Provider` of the api `demo`. Any model name will do."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.time) -> None:
        self._name = name
        self._now = now

    @property
    def name(self) -> str:
        return self._name

    @property
    def api(self) -> str:
        return API

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        step = next_step(request)
        part = _call(step) if isinstance(step, Call) else Text(text=step)
        for event in _events(part):
            yield event
            await asyncio.sleep(0)  # let others in between, as a network would
        yield Done(message=self._message(request, part))

    async def warm_up(self) -> None:
        """There is nothing to warm."""

    async def close(self) -> None:
        """There is nothing to close."""

    def _message(self, request: ModelRequest, part: Text | ToolCall) -> AssistantMessage:
        read = len(request.system.stable) + len(request.system.volatile) + sum(_chars(it) for it in request.messages)
        usage = Usage(input=_tokens(read), output=_tokens(_part_chars(part)), estimated=True)
        return AssistantMessage(
            content=(part,),
            provider=self._name,
            model=request.model,
            api=API,
            stop_reason="tool_use" if isinstance(part, ToolCall) else "end_turn",
            usage=usage,
            timestamp=self._now(),
        )


def _call(step: Call) -> ToolCall:
    raw = json.dumps(step.arguments, ensure_ascii=False)
    return ToolCall(id=step.id, name=step.name, arguments=step.arguments, arguments_raw=raw)


def _events(part: Text | ToolCall) -> Iterator[ModelEvent]:
    match part:
        case Text(text=text):
            for piece in _pieces(text):
                yield TextDelta(index=0, text=piece)
        case ToolCall():
            yield ToolCallStart(index=0, id=part.id, name=part.name)
            for piece in _pieces(part.arguments_raw):
                yield ToolCallDelta(index=0, text=piece)
            yield ToolCallEnd(index=0, call=part)


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), PIECE_CHARS):
        yield text[at : at + PIECE_CHARS]


def _chars(message: Message) -> int:
    return sum(_part_chars(part) for part in message.content)


def _part_chars(part: object) -> int:
    match part:
        case Text(text=text) | ToolCall(arguments_raw=text):
            return len(text)
        case _:
            return 0


def _tokens(chars: int) -> int:
    return int(chars / CHARS_PER_TOKEN) + 1

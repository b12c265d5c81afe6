"""`demo/guide`, the scripted model that ships: no key, no network, the same answer to the same history.

It streams like a real one and goes the same way through the loop, so that the whole product can be tried and tested
without an account. What it decides and says is in `guide`.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator

from agents.messages import Message, Text, ToolCall, Usage
from agents.providers.demo.guide import Step, next_step
from agents.providers.draft import Draft
from agents.providers.provider import Done, ModelEvent, ModelRequest

API = "demo"
PIECE_CHARS = 16
CHARS_PER_TOKEN = 3.5


class DemoProvider:
    """A `Provider` of the api `demo`. Any model name will do."""

    api = API

    def __init__(self, name: str, *, now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._now = now

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        draft = Draft(api=API, provider=self.name, model=request.model, timestamp=self._now())
        for event in _events(draft, next_step(request)):
            yield event
            await asyncio.sleep(0)  # let others in between, as a network would
        message = draft.finished("end_turn")
        read = len(request.system.stable) + len(request.system.volatile) + sum(_chars(it) for it in request.messages)
        draft.usage = Usage(input=_tokens(read), output=_tokens(_chars(message)), estimated=True)
        yield Done(message=draft.finished("end_turn"))

    async def warm_up(self) -> None:
        """There is nothing to warm."""

    async def close(self) -> None:
        """There is nothing to close."""


def _events(draft: Draft, step: Step | str) -> Iterator[ModelEvent]:
    if isinstance(step, str):
        draft.open(0, "text")
    else:
        draft.open(0, "call")
        yield from draft.start(0, vendor_id=step.id, name=step.name)
    text = step if isinstance(step, str) else json.dumps(step.arguments, ensure_ascii=False)
    for at in range(0, len(text), PIECE_CHARS):
        yield from draft.add(0, text[at : at + PIECE_CHARS])
    yield from draft.close(0)


def _chars(message: Message) -> int:
    texts = (part.text for part in message.content if isinstance(part, Text))
    arguments = (part.arguments_raw for part in message.content if isinstance(part, ToolCall))
    return sum(map(len, texts)) + sum(map(len, arguments))


def _tokens(chars: int) -> int:
    return int(chars / CHARS_PER_TOKEN) + 1

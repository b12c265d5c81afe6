"""What is shown of a turn: never twice what was said once, and all of it where an answer came in pieces."""

import asyncio
from typing import Any

import pytest

from agents.messages import AssistantMessage, StopReason, Text, ToolCall
from agents.providers.provider import TextDelta
from agents.turn import ModelAnswered, ModelCalled, ModelStreamed, ToolStarted, silent
from channels.abilities import Progress
from gateway.observe.secrets import Scrubber
from gateway.turns.watch import SHOW_SECONDS, SHOW_SHARE, Watch
from tests.tools.bench import CALL

LS = ToolCall(id="t1", name="ls", arguments={"path": "."}, arguments_raw='{"path": "."}')


class Screen:
    """A channel as far as a watch knows one."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, progress: Progress) -> None:
        self.texts.append(progress.text)


def answered(text: str, stop: StopReason) -> ModelAnswered:
    message = AssistantMessage(content=(Text(text=text),), provider="p", model="m", api="demo", stop_reason=stop)
    return ModelAnswered(round=1, message=message)


async def test_an_answer_that_is_continued_is_shown_once_and_whole() -> None:
    screen: Any = Screen()
    requested: Any = ModelCalled(round=1, provider="p", request=None)  # type: ignore[arg-type]
    with Watch([screen.show], CALL.message, silent, Scrubber()) as watch:
        watch.tell(requested)
        watch.tell(ModelStreamed(round=1, event=TextDelta(index=0, text="One two ")))
        watch.tell(answered("One two ", "max_tokens"))
        watch.tell(ToolStarted(call=LS))  # shows at once, as a timer might here
        watch.tell(requested)
        watch.tell(ModelStreamed(round=2, event=TextDelta(index=0, text="three")))
        watch.tell(answered("three", "end_turn"))
        watch.outcome = "replied"
    assert [text.strip() for text in screen.texts] == ["One two", "One two three"]


async def test_what_takes_long_to_show_is_shown_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("gateway.turns.watch.time.perf_counter", lambda: clock[0])
    pauses: list[float] = []

    def later(seconds: float, call: Any) -> Any:
        pauses.append(seconds)
        return asyncio.get_running_loop().call_soon(call)

    def show(progress: Progress) -> None:
        clock[0] += 0.3

    with Watch([show], CALL.message, silent, Scrubber()) as watch:
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(asyncio.get_running_loop(), "call_later", later)
                watch.tell(ModelStreamed(round=1, event=TextDelta(index=0, text="word ")))
            await asyncio.sleep(0)
    assert pauses == [SHOW_SECONDS, pytest.approx(0.3 / SHOW_SHARE)]

"""The tool loop against a script of answers: every stop reason, every limit, and what a crash leaves behind.

A unit test because the door cannot choose the moment of a crash between two journal writes; the stories kill processes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.loop import ToolLoop
from agents.messages import (
    AssistantMessage,
    Message,
    ModelError,
    StopReason,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agents.turn import Answered, Declined, LimitReached, ModelFailed, Outcome, TurnLimits, silent
from tests.tools.bench import CALL, Bench, bench

USER = UserMessage(content=(Text(text="go"),))
LIMITS = TurnLimits(continuations=1, rounds=6, toolCalls=20)
RESULT_CHARS = 1_000


def call(name: str, number: int = 1, raw: str | None = None, **arguments: Any) -> ToolCall:
    given = None if raw is not None else arguments
    return ToolCall(id=f"c{number}", name=name, arguments=given, arguments_raw=raw or json.dumps(arguments))


def answer(
    *parts: Text | ToolCall | str, stop: StopReason | None = None, error: ModelError | None = None
) -> AssistantMessage:
    content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    called = any(isinstance(part, ToolCall) for part in content)
    return AssistantMessage(
        content=content,
        provider="p",
        model="m",
        api="a",
        stop_reason=stop or ("tool_use" if called else "end_turn"),
        error=error,
    )


@dataclass
class Run:
    """One loop, its script, its journal, and what it asked with."""

    script: list[AssistantMessage]
    at: Bench
    limits: TurnLimits = LIMITS
    journal: list[Message] = field(default_factory=list)
    asked: list[list[Message]] = field(default_factory=list)
    journal_breaks_after: int | None = None
    words: list[UserMessage] = field(default_factory=list)

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        if self.journal_breaks_after is not None and len(self.journal) >= self.journal_breaks_after:
            raise ConnectionAbortedError("fenced")
        self.journal.append(message)

    async def steered(self) -> Sequence[UserMessage]:
        return [self.words.pop(0)] if self.words else []

    async def ask(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        self.asked.append(list(messages))
        return self.script.pop(0) if self.script else answer("end of script")

    async def go(self, so_far: Sequence[Message] = (), *, interrupted: bool = False) -> Outcome:
        loop = ToolLoop(
            turn="turn",
            context=CALL.message,
            complete=self.ask,
            toolbox=self.at.toolbox,
            journal=self,
            limits=self.limits,
            result_chars=RESULT_CHARS,
            emit=silent,
            now=lambda: 1.0,
        )
        return await loop.run([USER, *so_far], interrupted=interrupted)

    @property
    def results(self) -> list[ToolResultMessage]:
        return [message for message in self.journal if isinstance(message, ToolResultMessage)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Run]:
    at = bench(tmp_path)
    return lambda *script, **more: Run(list(script), at, **more)


def said(result: ToolResultMessage) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


async def test_every_step_is_journaled_before_the_next_and_shown_to_the_model(make: Callable[..., Run]) -> None:
    wanted = answer("Looking.", call("ls"))
    run = make(wanted, answer("done"))
    await run.go()
    assert [message.role for message in run.journal] == ["assistant", "toolResult"]
    assert run.journal[0] is wanted
    assert run.asked[1] == [USER, *run.journal]


async def test_several_calls_are_answered_in_call_order_by_id(make: Callable[..., Run]) -> None:
    run = make(answer(call("write", 1, file_path="a", content="x"), call("nope", 2), call("read", 3, file_path="a")))
    await run.go()
    assert [(result.call_id, result.is_error) for result in run.results] == [("c1", False), ("c2", True), ("c3", False)]
    assert said(run.results[2]) == "x"


async def test_calls_that_only_read_may_overlap_and_are_still_journaled_in_order(make: Callable[..., Run]) -> None:
    run = make(answer(*(call("ls", number) for number in range(8))))
    await run.go()
    assert [result.call_id for result in run.results] == [f"c{number}" for number in range(8)]


async def test_a_large_result_is_cut_to_the_budget(make: Callable[..., Run]) -> None:
    run = make(answer(call("read", file_path="big")))
    (run.at.root / "big").write_text("x" * 50_000)
    await run.go()
    assert len(said(run.results[0])) <= RESULT_CHARS


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
async def test_a_refusal_runs_nothing(make: Callable[..., Run], stop: StopReason) -> None:
    run = make(answer(call("write", file_path="a", content="x"), stop=stop))
    assert await run.go() == Declined()
    assert run.journal == []
    assert list(run.at.root.iterdir()) == []


@pytest.mark.parametrize("stop", ["error", "aborted"])
async def test_a_failed_answer_is_not_journaled(make: Callable[..., Run], stop: StopReason) -> None:
    error = ModelError(kind="overloaded", summary="529", retryable=True)
    run = make(answer("half a", stop=stop, error=error))
    assert await run.go() == ModelFailed(error=error, model="p/m")
    assert run.journal == []


async def test_a_cut_text_is_continued_and_arrives_as_one(make: Callable[..., Run]) -> None:
    run = make(answer("half an answ", stop="max_tokens"), answer("er, and the rest"))
    outcome = await run.go()
    assert isinstance(outcome, Answered)
    assert (outcome.text, outcome.cut) == ("half an answer, and the rest", False)
    assert [message.role for message in run.asked[1]] == ["user", "assistant", "user"]
    assert [type(message).__name__ for message in run.journal] == ["AssistantMessage"]


async def test_a_text_that_is_cut_again_and_again_is_delivered_and_said_to_be_cut(make: Callable[..., Run]) -> None:
    outcome = await make(answer("one ", stop="max_tokens"), answer("two", stop="max_tokens")).go()
    assert isinstance(outcome, Answered)
    assert (outcome.text, outcome.cut) == ("one two", True)


async def test_where_the_continuation_fails_what_was_said_is_delivered(make: Callable[..., Run]) -> None:
    failed = answer(stop="error", error=ModelError(kind="server", summary="", retryable=True))
    for then in (failed, answer(stop="refusal"), answer(""), answer(stop="max_tokens")):
        outcome = await make(answer("the first half", stop="max_tokens"), then).go()
        assert isinstance(outcome, Answered)
        assert (outcome.message, outcome.text, outcome.cut) == (None, "the first half", True)


async def test_a_full_window_is_not_asked_to_go_on(make: Callable[..., Run]) -> None:
    run = make(answer("half", stop="context_window"))
    outcome = await run.go()
    assert isinstance(outcome, Answered)
    assert outcome.cut
    assert len(run.asked) == 1


async def test_a_restart_in_the_middle_of_a_long_answer_goes_on_with_it(make: Callable[..., Run]) -> None:
    run = make(answer("second half"))
    outcome = await run.go([answer("first half, ", stop="max_tokens")], interrupted=True)
    assert isinstance(outcome, Answered)
    assert outcome.text == "first half, second half"
    assert run.asked[0][-1].role == "user"


async def test_a_cut_call_is_not_run_but_answered_once(make: Callable[..., Run]) -> None:
    cut = answer(call("write", file_path="a", content="x"), stop="max_tokens")
    run = make(cut, answer("smaller"))
    assert isinstance(await run.go(), Answered)
    assert "CUT_OFF" in said(run.results[0])
    assert list(run.at.root.iterdir()) == []
    assert await make(cut, cut).go() == LimitReached(limit="cut")


async def test_an_empty_answer_is_asked_about_once(make: Callable[..., Run]) -> None:
    run = make(answer(), answer("found it"))
    assert isinstance(await run.go(), Answered)
    assert run.asked[1][-1].role == "user"
    assert run.journal == []
    assert await make(answer(), answer(" ")).go() == LimitReached(limit="empty")


async def test_a_pause_goes_on_unchanged_and_not_for_ever(make: Callable[..., Run]) -> None:
    pause = answer("…", stop="pause")
    run = make(pause, answer("done"))
    assert isinstance(await run.go(), Answered)
    assert run.asked[1][-1] is pause
    limits = TurnLimits(continuations=1, rounds=20, toolCalls=20)
    assert await make(*[pause] * 9, limits=limits).go() == LimitReached(limit="pauses")


async def test_rounds_are_counted_over_a_restart_too(make: Callable[..., Run]) -> None:
    run = make(*(answer(call("ls", number)) for number in range(9)))
    assert await run.go() == LimitReached(limit="rounds")
    assert len(run.asked) == LIMITS.rounds
    again = make(answer(call("ls", 9)), answer(call("ls", 10)))
    assert await again.go(run.journal[:8]) == LimitReached(limit="rounds")
    assert len(again.asked) == 2


async def test_the_same_call_failing_again_and_again_ends_the_turn_and_another_one_does_not(
    make: Callable[..., Run],
) -> None:
    failing = [answer(call("read", number, file_path="nope")) for number in range(5)]
    run = make(*failing)
    assert await run.go() == LimitReached(limit="repeating")
    assert len(run.results) == 3
    varied = [answer(call("read", number, file_path=f"nope{number}")) for number in range(4)]
    assert isinstance(await make(*varied).go(), Answered)


async def test_beyond_the_calls_of_a_turn_the_model_is_told_to_answer(make: Callable[..., Run]) -> None:
    limits = TurnLimits(continuations=1, rounds=6, toolCalls=2, identicalFailures=9)
    run = make(answer(*(call("ls", number) for number in range(4))), answer("well"), limits=limits)
    assert isinstance(await run.go(), Answered)
    assert ["TOOL_CALLS_EXHAUSTED" in said(result) for result in run.results] == [False, False, True, True]


async def test_when_the_journal_refuses_nothing_more_is_run(make: Callable[..., Run]) -> None:
    write = [call("write", number, file_path=f"f{number}", content="x") for number in range(3)]
    run = make(answer(*write), journal_breaks_after=2)
    with pytest.raises(ConnectionAbortedError):
        await run.go()
    assert sorted(path.name for path in run.at.root.iterdir()) == ["f0", "f1"]
    assert len(run.asked) == 1


def result(number: int, tool: str) -> ToolResultMessage:
    return ToolResultMessage(call_id=f"c{number}", tool=tool, content=(Text(text="had"),))


RESUMED = [
    # calls, those with a result, interrupted, what becomes of the first open call
    (["exec"], 0, True, "INTERRUPTED"),
    (["edit"], 0, True, "INTERRUPTED"),
    (["exec"], 0, False, "ran"),
    (["ls"], 0, True, "ran"),
    (["message"], 0, True, "ran"),
    (["write"], 0, True, "ran"),
    (["exec", "exec"], 1, True, "INTERRUPTED"),
    (["exec", "exec"], 0, True, "INTERRUPTED"),
    (["ls", "ls", "ls"], 1, True, "ran"),
]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "exec": {"command": "echo ran"},
    "edit": {"file_path": "ran", "old_text": "x", "new_text": "ran"},
    "ls": {},
    "message": {"action": "send", "message": "ran"},
    "write": {"file_path": "ran", "content": "ran"},
}


@pytest.mark.parametrize(("tools", "answered", "interrupted", "first"), RESUMED)
async def test_after_a_crash_the_declared_effect_decides_what_may_run_again(
    make: Callable[..., Run], tools: list[str], answered: int, interrupted: bool, first: str
) -> None:
    run = make(answer("done"))
    (run.at.root / "ran").write_text("x")
    calls = [call(tool, number, **ARGUMENTS[tool]) for number, tool in enumerate(tools)]
    so_far: list[Message] = [answer(*calls), *(result(number, tools[number]) for number in range(answered))]
    assert isinstance(await run.go(so_far, interrupted=interrupted), Answered)
    assert [r.call_id for r in run.results] == [f"c{number}" for number in range(answered, len(tools))]
    assert ("INTERRUPTED" in said(run.results[0])) == (first == "INTERRUPTED")
    assert all("INTERRUPTED" not in said(r) for r in run.results[1:])


async def test_a_repeated_call_carries_the_same_key(make: Callable[..., Run]) -> None:
    wanted = answer(call("message", 7, action="send", message="hi"))
    first, again = make(wanted), make()
    await first.go()
    await again.go([wanted], interrupted=True)
    assert {part["key"] for part in first.at.outbox.sent} == {"turn:c7"}
    assert [part["begun_at"] for part in first.at.outbox.sent] == [None, wanted.timestamp]
    assert len(first.at.outbox.sent) == 2


async def test_a_second_call_under_the_same_id_has_a_key_of_its_own(make: Callable[..., Run]) -> None:
    run = make(*(answer(call("message", 7, action="send", message=text)) for text in ("one", "two")))
    await run.go()
    assert [part["key"] for part in run.at.outbox.sent] == ["turn:c7", "turn:c7:1"]
    again = make()
    await again.go(run.journal[:3], interrupted=True)
    assert again.at.outbox.sent[-1]["key"] == "turn:c7:1"


async def test_failures_pauses_and_cuts_before_a_restart_count_after_it(make: Callable[..., Run]) -> None:
    failing = [answer(call("read", number, file_path="nope")) for number in range(3)]
    run = make(*failing[:2], answer("gave up"))
    await run.go()
    assert await make(failing[2]).go(run.journal) == LimitReached(limit="repeating")
    cut = answer(call("write", file_path="a", content="x"), stop="max_tokens")
    assert await make(cut).go([cut]) == LimitReached(limit="cut")
    pauses = [answer("…", stop="pause")] * 5
    limits = TurnLimits(continuations=1, rounds=20, toolCalls=20)
    assert await make(*pauses, limits=limits).go(pauses) == LimitReached(limit="pauses")


async def test_a_cut_call_is_not_run_after_a_restart_either(make: Callable[..., Run]) -> None:
    run = make(answer("smaller"))
    cut = answer(call("write", file_path="a", content="x"), stop="max_tokens")
    assert isinstance(await run.go([cut], interrupted=True), Answered)
    assert "CUT_OFF" in said(run.results[0])
    assert list(run.at.root.iterdir()) == []


async def test_a_call_in_a_paused_answer_gets_its_result(make: Callable[..., Run]) -> None:
    run = make(answer(call("ls"), stop="pause"), answer("done"))
    assert isinstance(await run.go(), Answered)
    assert [result.call_id for result in run.results] == ["c1"]


async def test_a_change_gives_a_failing_call_a_new_chance(make: Callable[..., Run]) -> None:
    fails = [answer(call("read", number, file_path="nope")) for number in range(4)]
    wrote = answer(call("write", 9, file_path="other", content="x"))
    assert isinstance(await make(*fails[:2], wrote, *fails[2:], answer("well")).go(), Answered)


async def test_what_people_write_meanwhile_is_shown_behind_the_results(make: Callable[..., Run]) -> None:
    word = UserMessage(content=(Text(text="use the other file"),))
    run = make(answer(call("ls")), answer(call("ls", 2)), answer("done"), words=[word])
    assert isinstance(await run.go(), Answered)
    assert run.asked[1][-1] is word
    assert [message.role for message in run.asked[2]] == [
        "user",
        "assistant",
        "toolResult",
        "user",
        "assistant",
        "toolResult",
    ]

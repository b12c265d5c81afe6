"""The tool loop against a script of answers: every stop reason, every limit, and what a crash leaves behind.

A unit test because the door cannot choose the moment of a crash between two journal writes; the stories kill processes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from agents.turn import Answered, Declined, LimitReached, ModelFailed, Outcome, TurnLimit, TurnLimits, silent
from tests.agents.providers.requests import MODEL, assistant
from tests.tools.bench import CALL, Bench, bench

USER = UserMessage(content=(Text(text="go"),))
LIMITS = TurnLimits(continuations=1, rounds=20, toolCalls=99)
RESULT_CHARS = 1_000


def call(name: str, number: int = 1, raw: str | None = None, **arguments: Any) -> ToolCall:
    given = None if raw is not None else arguments
    return ToolCall(id=f"c{number}", name=name, arguments=given, arguments_raw=raw or json.dumps(arguments))


def answer(
    *parts: Text | ToolCall | str, stop: StopReason | None = None, error: ModelError | None = None
) -> AssistantMessage:
    made = assistant(*(Text(text=part) if isinstance(part, str) else part for part in parts))
    return replace(made, stop_reason=stop or made.stop_reason, error=error)


@dataclass
class Run:
    """One loop, its script, its journal, and the messages of its requests."""

    script: list[AssistantMessage]
    at: Bench
    limits: TurnLimits = LIMITS
    journal: list[Message] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    journal_breaks_after: int | None = None
    words: list[UserMessage] = field(default_factory=list)

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        if self.journal_breaks_after is not None and len(self.journal) >= self.journal_breaks_after:
            raise ConnectionAbortedError("fenced")
        self.journal.append(message)

    async def steered(self) -> Sequence[UserMessage]:
        return [self.words.pop(0)] if self.words else []

    async def summarised(
        self, text: str, turns: int, answers: tuple[AssistantMessage, ...], *, external: bool = False
    ) -> None:
        raise AssertionError("the loop sums nothing up")

    async def ask(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        self.requests.append(list(messages))
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


def text_of(result: ToolResultMessage) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


async def test_loop_answers_calls_in_order_and_journals_first(
    make: Callable[..., Run],
) -> None:
    calls = [call("write", 1, file_path="a", content="x"), call("nope", 2), call("read", 3, file_path="a")]
    wanted = answer("Looking.", *calls, *(call("read", number, file_path="big") for number in range(4, 9)))
    run = make(wanted, answer("done"))
    (run.at.root / "big").write_text("x" * 50_000)
    await run.go()
    assert run.journal[0] is wanted
    assert [(result.call_id, result.is_error) for result in run.results] == [(f"c{n}", n == 2) for n in range(1, 9)]
    assert text_of(run.results[2]) == "x"
    assert all(len(text_of(result)) <= RESULT_CHARS for result in run.results)
    assert run.requests[1] == [USER, *run.journal]


ERROR = ModelError(kind="overloaded", summary="529", retryable=True)


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [
        *((stop, Declined()) for stop in ("refusal", "content_filter")),
        *((stop, ModelFailed(error=ERROR, model=f"anthropic/{MODEL}")) for stop in ("error", "aborted")),
    ],
)
async def test_what_is_refused_or_failed_runs_nothing_and_is_not_journaled(
    make: Callable[..., Run], stop: StopReason, outcome: Outcome
) -> None:
    error = ERROR if isinstance(outcome, ModelFailed) else None
    run = make(answer("half", call("write", file_path="a", content="x"), stop=stop, error=error))
    assert await run.go() == outcome
    assert run.journal == []
    assert list(run.at.root.iterdir()) == []


HALF = answer("half", stop="max_tokens")


@pytest.mark.parametrize(
    ("so_far", "script", "text", "cut", "requests"),
    [
        ([], [HALF, answer(" and rest")], "half and rest", False, 2),
        ([HALF], [answer(" and rest")], "half and rest", False, 1),
        ([], [HALF, answer(" again", stop="max_tokens")], "half again", True, 2),
        ([], [HALF, answer(stop="error", error=ERROR)], "half", True, 2),
        *(([], [HALF, nothing], "half", True, 2) for nothing in (answer(stop="refusal"), answer(""))),
        ([], [answer("half", stop="context_window")], "half", True, 1),
    ],
)
async def test_a_cut_text_is_continued_once_and_arrives_as_one(
    make: Callable[..., Run],
    so_far: list[Message],
    script: list[AssistantMessage],
    text: str,
    cut: bool,
    requests: int,
) -> None:
    run = make(*script)
    outcome = await run.go(so_far, interrupted=bool(so_far))
    assert isinstance(outcome, Answered)
    assert (outcome.text, outcome.cut, len(run.requests)) == (text, cut, requests)
    assert (outcome.message is None) == (text == "half" and requests == 2)
    if so_far or requests == 2:
        assert [message.role for message in run.requests[-1]] == ["user", "assistant", "user"]
    assert [message.role for message in run.journal] == ["assistant"] * (requests - 1)


def result(number: int, tool: str, *, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(call_id=f"c{number}", tool=tool, content=(Text(text="had"),), is_error=is_error)


LS = [answer(call("ls", number)) for number in range(22)]
MISSING = [answer(call("read", number, file_path="nope")) for number in range(4)]
CUT = answer(call("write", file_path="a", content="x"), stop="max_tokens")
PAUSE = answer("…", stop="pause")
LISTED: list[Message] = [it for number in range(18) for it in (LS[number], result(number, "ls"))]
MISSED: list[Message] = [it for number in range(2) for it in (MISSING[number], result(number, "read", is_error=True))]


@pytest.mark.parametrize(
    ("limit", "so_far", "script", "requests"),
    [
        ("rounds", [], LS, 20),
        ("rounds", LISTED, LS[18:], 2),
        ("repeating", [], MISSING, 3),
        ("repeating", MISSED, MISSING[2:], 1),
        ("cut", [], [CUT, CUT], 2),
        ("cut", [CUT], [CUT], 1),
        ("empty", [], [answer(), answer(" ")], 2),
        ("pauses", [], [PAUSE] * 9, 6),
        ("pauses", [PAUSE] * 5, [PAUSE] * 5, 1),
    ],
)
async def test_what_is_counted_is_counted_over_a_restart_too(
    make: Callable[..., Run], limit: TurnLimit, so_far: list[Message], script: list[AssistantMessage], requests: int
) -> None:
    run = make(*script)
    assert await run.go(so_far) == LimitReached(limit=limit)
    assert len(run.requests) == requests


@pytest.mark.parametrize("so_far", [[], [CUT]])
async def test_a_cut_call_is_not_run_but_answered(make: Callable[..., Run], so_far: list[Message]) -> None:
    run = make(*([] if so_far else [CUT]), answer("smaller"))
    assert isinstance(await run.go(so_far, interrupted=bool(so_far)), Answered)
    assert "CUT_OFF" in text_of(run.results[0])
    assert list(run.at.root.iterdir()) == []


async def test_an_empty_answer_is_asked_about_and_a_pause_goes_on_unchanged(make: Callable[..., Run]) -> None:
    run = make(answer(), PAUSE, answer(call("ls"), stop="pause"), answer("found it"))
    assert isinstance(await run.go(), Answered)
    assert (run.requests[1][-1].role, run.requests[1][-1] == USER) == ("user", False)
    assert run.requests[2][-1] is PAUSE
    assert [message.role for message in run.journal] == ["assistant", "assistant", "toolResult"]


async def test_another_call_or_a_change_gives_failing_calls_a_new_chance(make: Callable[..., Run]) -> None:
    varied = [answer(call("read", number, file_path=f"nope{number}")) for number in range(4)]
    assert isinstance(await make(*varied).go(), Answered)
    wrote = answer(call("write", 9, file_path="other", content="x"))
    assert isinstance(await make(*MISSING[:2], wrote, *MISSING[2:]).go(), Answered)


async def test_beyond_the_calls_of_a_turn_the_model_is_told_to_answer(make: Callable[..., Run]) -> None:
    limits = TurnLimits(continuations=1, rounds=6, toolCalls=2, identicalFailures=9)
    run = make(answer(*(call("ls", number) for number in range(4))), answer("well"), limits=limits)
    assert isinstance(await run.go(), Answered)
    assert ["TOOL_CALLS_EXHAUSTED" in text_of(result) for result in run.results] == [False, False, True, True]


async def test_when_the_journal_refuses_nothing_more_is_run(make: Callable[..., Run]) -> None:
    write = [call("write", number, file_path=f"f{number}", content="x") for number in range(3)]
    run = make(answer(*write), journal_breaks_after=2)
    with pytest.raises(ConnectionAbortedError):
        await run.go()
    assert sorted(path.name for path in run.at.root.iterdir()) == ["f0", "f1"]
    assert len(run.requests) == 1


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
    assert ("INTERRUPTED" in text_of(run.results[0])) == (first == "INTERRUPTED")
    assert all("INTERRUPTED" not in text_of(r) for r in run.results[1:])


async def test_loop_idempotency_key_of_a_repeated_call(make: Callable[..., Run]) -> None:
    run = make(*(answer(call("message", 7, action="send", message=text)) for text in ("one", "two")))
    await run.go()
    await make().go(run.journal[:1], interrupted=True)
    await make().go(run.journal[:3], interrupted=True)
    assert [(part["key"], part["begun_at"]) for part in run.at.outbox.sent] == [
        *(("turn:c7", None), ("turn:c7:1", None)),
        *((f"turn:c7{more}", run.journal[0].timestamp) for more in ("", ":1")),
    ]


async def test_what_people_write_meanwhile_is_shown_behind_the_results(make: Callable[..., Run]) -> None:
    word = UserMessage(content=(Text(text="use the other file"),))
    run = make(*LS[:2], answer("done"), words=[word])
    assert isinstance(await run.go(), Answered)
    assert run.requests[1][-1] is word
    assert [message.role for message in run.requests[2]] == ["user", "assistant", "toolResult"] * 2


async def test_loop_of_the_same_failing_call_ends_the_turn(
    make: Callable[..., Run],
) -> None:
    """What changed something gives every call a new chance; a look at a folder changes nothing."""
    pairs = [answer(call("read", 2 * n, file_path="none"), call("ls", 2 * n + 1)) for n in range(9)]
    run = make(*pairs)
    assert await run.go() == LimitReached(limit="repeating")
    assert sum(it.is_error for it in run.results) == LIMITS.identical_failures


@pytest.mark.parametrize("restarted", [False, True])
async def test_equal_calls_of_one_answer_that_fail_are_one_attempt(make: Callable[..., Run], restarted: bool) -> None:
    """The model has read none of their results when it makes them."""
    answers = [answer(*(call("read", 3 * n + at, file_path="none") for at in range(3))) for n in range(3)]
    results = [result(at, "read", is_error=True) for at in range(3)]
    so_far: list[Message] = [answers[0], *results] if restarted else []
    run = make(*answers[restarted:2], answer("done"))
    assert isinstance(await run.go(so_far), Answered)
    run = make(*answers[restarted:], answer("done"))
    assert await run.go(so_far) == LimitReached(limit="repeating")

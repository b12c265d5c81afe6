"""What a request holds of a conversation that does not fit: how it shrinks, and what of it is a law."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context import ContextFitter, past, window_limits
from agents.messages import AssistantMessage, Message, Text, ToolResultMessage, UserMessage
from agents.providers.models import ModelFacts
from agents.tokens import tokens
from tests.agents.providers.requests import PIXEL, assistant, call, result, user
from tools.tool import Image

RESULT_CHARS = 4_000
LIMIT = 6_000
"""Of tokens: about six whole results of English."""


def conversation(turns: Sequence[Sequence[Message]]) -> ContextFitter:
    return ContextFitter(turns=past(turns), result_chars=RESULT_CHARS)


def requested(
    turns: Sequence[Sequence[Message]], running: Sequence[Message], **limits: int
) -> tuple[list[Message], bool]:
    """The request behind these messages, built from nothing but them; and the reach that its answer carries."""
    fit = conversation(turns).fit(running, tokens_max=limits.get("tokens", LIMIT), chars_max=limits.get("chars", 10**9))
    return fit.messages, fit.fits


def lived(turns: list[list[Message]], rounds: Sequence[Sequence[str]]) -> tuple[list[Message], list[list[Message]]]:
    """A turn whose answers call for these results, one list a round; its messages as journaled, and its requests."""
    running: list[Message] = [user("go", metadata="## Inbound Context")]
    requests: list[list[Message]] = []
    past_of_turn = conversation(turns)
    for number, texts in enumerate([*rounds, ()]):
        fit = past_of_turn.fit(running, tokens_max=LIMIT, chars_max=10**9)
        assert fit.fits
        requests.append(fit.messages)
        ids = [f"c{len(turns)}_{number}_{n}" for n in range(len(texts))]
        answer = assistant(*map(call, ids)) if ids else assistant(Text(text="done"))
        running.append(replace(answer, reach=fit.back))
        running += [result(it, text) for it, text in zip(ids, texts, strict=True)]
    return running, requests


def changes(requests: Sequence[Sequence[Message]]) -> list[int]:
    """The requests that do not begin with the one before them."""
    return [n for n, (one, two) in enumerate(pairwise(requests), 1) if two[: len(one)] != one]


def test_context_of_large_results_is_rebuilt_identically() -> None:
    texts = [[f"result {n}\n" + "the quick brown fox jumps over it " * 110] for n in range(60)]
    running, requests = lived([], texts)
    assert all(sum(map(tokens, request)) <= LIMIT for request in requests)
    stepped = changes(requests)
    assert len(stepped) > 3
    assert min(later - earlier for earlier, later in pairwise(stepped)) >= 3
    for request in requests:  # what the model sees first is whole
        assert not [it for it in request[-1:] if isinstance(it, ToolResultMessage) and "omitted" in str(it.content)]
    answers = [n for n, it in enumerate(running) if isinstance(it, AssistantMessage)]
    for number, at in enumerate(answers):  # a process that resumes knows nothing but the journal
        assert requested([], running[:at]) == (requests[number], True)
    later, _ = requested([running], [user("and now?")])
    plain = [replace(it, metadata="") if isinstance(it, UserMessage) else it for it in requests[-1]]
    assert later[: len(plain)] == plain


TEXTS = st.sampled_from(["a", "中文", "line one\nline two ", "0123456789"]).flatmap(
    lambda text: st.integers(0, RESULT_CHARS).map(lambda chars: (text * chars)[:chars])
)
ROUNDS = st.lists(st.lists(TEXTS, min_size=1, max_size=4), max_size=8)


@given(st.lists(ROUNDS, max_size=4))
def test_context_always_fits_is_paired_and_rebuilt(
    turns: list[list[list[str]]],
) -> None:
    journaled: list[list[Message]] = []
    for rounds in turns:
        running, requests = lived(journaled, rounds)
        for request in requests:
            assert sum(map(tokens, request)) <= LIMIT
            called = [it.id for message in request if isinstance(message, AssistantMessage) for it in message.calls]
            assert called == [message.call_id for message in request if isinstance(message, ToolResultMessage)]
        answers = [n for n, it in enumerate(running) if isinstance(it, AssistantMessage)]
        assert [requested(journaled, running[:at])[0] for at in answers] == requests
        journaled.append(running)


def test_context_drops_oldest_turns_last_and_keeps_the_message() -> None:
    chat: list[list[Message]] = [
        [user(f"question {n} " + "word " * 300), assistant(Text(text="answer " * 300))] for n in range(20)
    ]
    messages, fits = requested(chat, [user("now")])
    assert fits
    shown = [
        it.content[0].text[:11] for it in messages if isinstance(it, UserMessage) and isinstance(it.content[0], Text)
    ]
    assert shown[-2:] == ["question 19", "now"]
    assert 4 < len(shown) < 10
    _, fits = requested(chat, [user("word " * 2 * LIMIT)])
    assert not fits


def test_a_text_that_is_too_long_does_not_cost_the_turns_before_it() -> None:
    chat: list[list[Message]] = [[user(f"fact {n}"), assistant(Text(text="noted"))] for n in range(5)]
    poisoned: list[list[Message]] = [*chat, [user("长" * 20_000)]]
    messages, fits = requested(poisoned, [user("which facts?")])
    assert fits
    assert "fact 0" in str(messages)


def test_the_results_of_all_turns_together_are_limited_too() -> None:
    turns: list[list[Message]] = [
        [user("look"), assistant(call(f"c{n}")), result(f"c{n}", "z" * 1_000), assistant(Text(text="ok"))]
        for n in range(30)
    ]
    messages, _ = requested(turns, [user("go on")], tokens=10**6, chars=20_000)
    results = [it for it in messages if isinstance(it, ToolResultMessage)]
    assert len(results) == 30
    assert sum(len(part.text) for it in results for part in it.content if isinstance(part, Text)) <= 20_000
    assert results[-1] == turns[-1][2]


def test_pictures_leave_after_three_turns() -> None:
    picture = Image(media_type="image/png", data=PIXEL, name="cat.png")
    turns: list[list[Message]] = [[UserMessage(content=(Text(text="look"), picture)), assistant(Text(text="a cat"))]]
    shown = []
    for _ in range(4):
        messages, _ = requested(turns, [user("go on")])
        shown.append(picture in messages[0].content)
        turns.append([user("go on"), assistant(Text(text="yes"))])
    assert shown == [True, True, False, False]
    assert "cat.png" in str(messages[0].content)


@pytest.mark.parametrize(
    ("window", "wanted", "max_output", "answer"),
    [
        (200_000, None, 64_000, 16_384),
        (60_000, None, 64_000, 15_000),
        (8_192, None, 64_000, 2_048),
        (8_192, 16_000, 8_192, 2_048),
        (128_000, 500, 8_192, 500),
        (1_024, None, 8_192, 256),
    ],
)
def test_context_of_a_small_window_reserves_less_for_the_answer(
    window: int, wanted: int | None, max_output: int, answer: int
) -> None:
    facts = ModelFacts(window=window, max_output=max_output)
    found = window_limits(facts, window=window, answer_tokens=wanted, result_chars=16_000)
    assert found.answer == answer
    assert found.input == int((window - answer) * 0.95)
    assert found.results >= 64_000

"""The offline estimate against counts of a real tokenizer, and what usage that came back makes of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import AssistantMessage, Message, Opaque, Thinking, ToolCall, Usage, UserMessage, Wire
from agents.providers.provider import System
from agents.tokens import MODELS_MAX, RATIO_MAX, RATIO_MIN, Calibration, estimate, request_tokens, tokens
from tests.agents.providers.requests import LS, READ, assistant, result, user
from tools.tool import Image

# Each sample stands under a line `%% NAME COUNT`. COUNT was measured with the tokenizer o200k_base over the text
# without its last line break; whoever changes a text must measure again.
SAMPLES = Path(__file__).parent / "samples"


def written(kind: str) -> list[tuple[str, str, int]]:
    """Name, text and count of each sample of a kind."""
    _, *blocks = re.split(r"^%% ", (SAMPLES / f"{kind}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    heads = [(block.partition("\n")[0].split(), block.partition("\n")[2].rstrip("\n")) for block in blocks]
    return [(name, text, int(count)) for (name, count), text in heads]


def used(real: int, *, estimated: bool = False) -> Usage:
    """As it comes back when most of a prompt was in the cache."""
    return Usage(input=real - real // 2 - real // 4, cache_read=real // 2, cache_write=real // 4, estimated=estimated)


WITHIN = {"english": 0.15, "chinese": 0.15, "machine": 0.20, "mixed": 0.20, "scripts": 0.20}


@pytest.mark.parametrize(("kind", "share"), WITHIN.items())
def test_token_estimate_of_each_sample_is_near(kind: str, share: float) -> None:
    samples = written(kind)
    for name, text, count in samples:
        assert estimate(text) == pytest.approx(count, rel=share), name
    assert sum(estimate(text) for _, text, _ in samples) == pytest.approx(sum(it[2] for it in samples), rel=0.05)


@pytest.mark.parametrize(
    "repeated", [" ", "\n", "\t", "=", "_", "a", "A", "7", "'", "中", "。", "é", "🎉", "─", "\x1b"]
)
def test_no_repetition_makes_a_long_text_count_for_nothing(repeated: str) -> None:
    assert 100 <= estimate(repeated * 10_000) <= 20_000


@given(st.text(max_size=200), st.text(max_size=200))
def test_texts_count_together_about_what_they_count_apart(one: str, other: str) -> None:
    assert 0 <= estimate(one) <= 3 * len(one)
    assert estimate(one + other) == pytest.approx(estimate(one) + estimate(other), abs=4)


def test_the_base64_of_a_picture_is_never_counted() -> None:
    small, large = (Image(media_type="image/png", data="iVBO" * times) for times in (2, 1_000_000))
    assert tokens(UserMessage(content=(small,))) == tokens(UserMessage(content=(large,))) == 1_504
    assert tokens(UserMessage(content=(large, large))) == 3_004


def test_everything_a_message_says_counts() -> None:
    words = "word " * 100
    payload = Wire(api="a", family="m", kind="search", data={"found": words})
    call = ToolCall(id="c1", name="ls", arguments={}, arguments_raw=words)
    messages: list[Message] = [user(words), user("", metadata=words), result("c1", words), assistant(call)]
    assert [message for message in messages if not 100 <= tokens(message) <= 106] == []
    for part in (Thinking(text=words), Opaque(wire=payload)):
        message = AssistantMessage(content=(part,), provider="p", model="m", api="a", stop_reason="pause")
        assert 100 <= tokens(message) <= 115


def test_token_estimate_counts_prompt_tools_and_messages() -> None:
    nothing = System(stable="", volatile="")
    words = "word " * 100
    assert request_tokens(nothing, (), ()) == 0
    assert request_tokens(System(stable=words, volatile=""), (), ()) >= 100
    assert request_tokens(System(stable="", volatile=words), (), ()) >= 100
    assert request_tokens(nothing, (), (user(words), user(words))) == 2 * tokens(user(words))
    one, two = request_tokens(nothing, (LS,), ()), request_tokens(nothing, (LS, READ), ())
    assert 30 <= one <= 60
    assert two == pytest.approx(2 * one, abs=2)
    assert request_tokens(nothing, (replace(LS, description=words),), ()) >= one + 90


@given(st.floats(0.3, 4.0), st.integers(1_000, 1_000_000))
def test_the_correction_converges_to_the_real_ratio(ratio: float, estimated: int) -> None:
    calibration = Calibration()
    for _ in range(20):
        calibration.learn("m", estimated, used(round(estimated * ratio)))
    assert calibration.ratio("m") == pytest.approx(ratio, rel=0.02)
    assert calibration.corrected("m", 10_000) == pytest.approx(10_000 * ratio, rel=0.02)


@given(st.lists(st.tuples(st.integers(-10, 10**9), st.integers(0, 10**9), st.booleans()), max_size=30))
def test_whatever_a_provider_counts_the_correction_stays_in_its_bounds(
    counts: list[tuple[int, int, bool]],
) -> None:
    calibration = Calibration()
    for size, real, guessed in counts:
        calibration.learn("m", size, used(real, estimated=guessed))
        assert RATIO_MIN <= calibration.ratio("m") <= RATIO_MAX


@pytest.mark.parametrize(
    ("estimated", "usage"),
    [
        (1_000, used(2_000, estimated=True)),
        *((1_000, usage) for usage in (Usage(output=500), used(5_100))),
        *((0, used(2_000)), (199, used(300)), (300, used(199)), (2_000, used(399))),
    ],
)
def test_usage_that_says_nothing_of_the_tokenizer_is_ignored(estimated: int, usage: Usage) -> None:
    calibration = Calibration()
    calibration.learn("m", estimated, usage)
    assert calibration.ratio("m") == 1.0


def test_the_newer_claude_counts_more_from_the_start() -> None:
    newer = "opus-4-7 opus-4-8-20260401 opus-5 sonnet-5-5 haiku-5-5-latest fable-5-1 sonnet-10"
    older = "opus-4-6 opus-4-20250514 opus-4-70000101 sonnet-4-6 haiku-4-5 3-5-sonnet-20241022"
    assert {Calibration().ratio(f"claude-{model}") for model in newer.split()} == {1.3}
    assert {Calibration().ratio(f"claude-{model}") for model in older.split()} == {1.0}
    assert [Calibration().ratio(model) for model in ("gpt-6-sol", "not-claude-opus-5")] == [1.0, 1.0]
    assert Calibration().corrected("claude-opus-5", 1_000) == 1_300


def test_learning_begins_where_the_model_starts_and_models_do_not_mix() -> None:
    calibration = Calibration()
    calibration.learn("claude-opus-5", 1_000, used(1_300))
    calibration.learn("m", 1_000, used(2_000))
    assert [calibration.ratio(it) for it in ("claude-opus-5", "m", "n")] == pytest.approx([1.3, 1.3, 1.0])


def test_of_too_many_models_the_one_that_learned_longest_ago_is_forgotten() -> None:
    calibration = Calibration()
    for number in range(MODELS_MAX):
        calibration.learn(f"m{number}", 1_000, used(2_000))
    for again in ("m0", "m2"):
        calibration.learn(again, 1_000, used(2_000))
    assert calibration.ratio("m1") != 1.0
    calibration.learn("another", 1_000, used(2_000))
    assert calibration.ratio("m1") == 1.0
    assert {calibration.ratio(model) == 1.0 for model in ("m0", "m2", "another")} == {False}

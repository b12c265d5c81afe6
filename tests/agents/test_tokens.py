"""The offline estimate against counts of a real tokenizer, and what usage that came back makes of it."""

import base64
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import AssistantMessage, Message, Opaque, Text, Thinking, ToolCall, Usage, UserMessage, Wire
from agents.providers.provider import System
from agents.tokens import MODELS_MAX, RATIO_MAX, RATIO_MIN, Calibration, bound, estimate, request_tokens, tokens
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


def samples(*kinds: str) -> list[object]:
    return [pytest.param(text, count, id=f"{kind}-{name}") for kind in kinds for name, text, count in written(kind)]


def used(real: int, *, estimated: bool = False) -> Usage:
    """As it comes back when most of a prompt was in the cache."""
    return Usage(input=real - real // 2 - real // 4, cache_read=real // 2, cache_write=real // 4, estimated=estimated)


@pytest.mark.parametrize(("text", "count"), samples("english", "chinese"))
def test_english_and_chinese_prose_is_estimated_within_15_percent(text: str, count: int) -> None:
    assert estimate(text) == pytest.approx(count, rel=0.15)


@pytest.mark.parametrize(("text", "count"), samples("machine", "mixed", "scripts"))
def test_code_data_tool_output_mixed_text_and_other_scripts_are_within_20_percent(text: str, count: int) -> None:
    assert estimate(text) == pytest.approx(count, rel=0.20)


@pytest.mark.parametrize("kind", ["english", "chinese", "machine", "mixed", "scripts"])
def test_over_many_texts_the_errors_cancel_out(kind: str) -> None:
    told = sum(estimate(text) for _, text, _ in written(kind))
    assert told == pytest.approx(sum(count for _, _, count in written(kind)), rel=0.05)


@pytest.mark.parametrize(
    "repeated", [" ", "\n", "\t", "=", "_", "a", "A", "7", "'", "中", "。", "é", "🎉", "─", "\x1b"]
)
def test_no_repetition_makes_a_long_text_count_for_nothing(repeated: str) -> None:
    assert 100 <= estimate(repeated * 10_000) <= 20_000


@given(st.text(max_size=200), st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_texts_count_together_about_what_they_count_apart(one: str, other: str) -> None:
    assert 0 <= estimate(one) <= 3 * len(one)
    assert estimate(one + other) == pytest.approx(estimate(one) + estimate(other), abs=4)


def test_the_base64_of_a_picture_is_never_counted() -> None:
    small = Image(media_type="image/png", data="iVBORw0K")
    large = Image(media_type="image/png", data=base64.b64encode(os.urandom(3_000_000)).decode())
    assert tokens(UserMessage(content=(small,))) == tokens(UserMessage(content=(large,))) == 1_504
    assert tokens(UserMessage(content=(large, large))) == 3_004


@pytest.mark.parametrize(
    "message",
    [
        user("word " * 100),
        user("", metadata="word " * 100),
        result("c1", "word " * 100),
        assistant(ToolCall(id="c1", name="ls", arguments={}, arguments_raw="word " * 100)),
    ],
    ids=["text", "metadata", "tool result", "arguments of a call"],
)
def test_everything_a_message_says_counts(message: Message) -> None:
    assert 100 <= tokens(message) <= 106


def test_thinking_and_payloads_of_a_provider_count() -> None:
    payload = Wire(api="a", family="m", kind="search", data={"found": "word " * 100})
    for part in (Thinking(text="word " * 100), Opaque(wire=payload)):
        message = AssistantMessage(content=(part,), provider="p", model="m", api="a", stop_reason="pause")
        assert 100 <= tokens(message) <= 115


def test_a_request_counts_both_halves_of_the_prompt_its_tools_and_its_messages() -> None:
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
    for told, real, guessed in counts:
        calibration.learn("m", told, used(real, estimated=guessed))
        assert RATIO_MIN <= calibration.ratio("m") <= RATIO_MAX


@given(st.lists(st.floats(0.85, 1.15), min_size=1, max_size=30))
def test_estimates_that_are_a_little_off_move_the_correction_only_a_little(ratios: list[float]) -> None:
    calibration = Calibration()
    for ratio in ratios:
        calibration.learn("m", 10_000, used(round(10_000 * ratio)))
    assert 0.84 <= calibration.ratio("m") <= 1.16


@given(st.floats(0.3, 4.0))
def test_one_odd_request_moves_the_correction_by_less_than_a_third_of_the_way(odd: float) -> None:
    calibration = Calibration()
    calibration.learn("m", 10_000, used(round(10_000 * odd)))
    assert abs(calibration.ratio("m") - 1.0) <= abs(odd - 1.0) / 3 + 0.001


@pytest.mark.parametrize(
    ("estimated", "usage"),
    [
        (1_000, used(2_000, estimated=True)),
        (1_000, Usage(output=500)),
        (0, used(2_000)),
        (199, used(300)),
        (300, used(199)),
        (1_000, used(5_100)),
        (2_000, used(399)),
    ],
    ids=["a guess", "no input", "no estimate", "tiny estimate", "tiny request", "absurdly many", "absurdly few"],
)
def test_usage_that_says_nothing_of_the_tokenizer_is_ignored(estimated: int, usage: Usage) -> None:
    calibration = Calibration()
    calibration.learn("m", estimated, usage)
    assert calibration.ratio("m") == 1.0


@pytest.mark.parametrize(
    ("model", "ratio"),
    [
        ("claude-opus-4-7", 1.3),
        ("claude-opus-4-8-20260401", 1.3),
        ("claude-opus-5", 1.3),
        ("claude-sonnet-5-5", 1.3),
        ("claude-haiku-5-5-latest", 1.3),
        ("claude-fable-5-1", 1.3),
        ("claude-sonnet-10", 1.3),
        ("claude-opus-4-6", 1.0),
        ("claude-opus-4-20250514", 1.0),
        ("claude-opus-4-70000101", 1.0),
        ("claude-sonnet-4-6", 1.0),
        ("claude-haiku-4-5", 1.0),
        ("claude-3-5-sonnet-20241022", 1.0),
        ("gpt-6-sol", 1.0),
        ("not-claude-opus-5", 1.0),
    ],
)
def test_the_newer_claude_counts_more_from_the_start(model: str, ratio: float) -> None:
    assert Calibration().ratio(model) == ratio
    assert Calibration().corrected(model, 1_000) == round(1_000 * ratio)


def test_learning_begins_where_the_model_starts_and_models_do_not_mix() -> None:
    calibration = Calibration()
    calibration.learn("claude-opus-5", 1_000, used(1_300))
    calibration.learn("m", 1_000, used(2_000))
    assert calibration.ratio("claude-opus-5") == pytest.approx(1.3)
    assert calibration.ratio("m") == pytest.approx(1.3)
    assert calibration.ratio("n") == 1.0


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


def test_an_empty_text_costs_only_its_wrapping() -> None:
    assert estimate("") == 0
    assert tokens(UserMessage(content=(Text(text=""),))) == 4


@given(st.lists(st.text(max_size=200), max_size=5))
def test_the_cheap_bound_is_never_below_the_estimate(texts: list[str]) -> None:
    messages = [UserMessage(content=(Text(text=text),), metadata=text) for text in texts]
    assert bound(messages) >= sum(tokens(message) for message in messages)

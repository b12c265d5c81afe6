"""How much of a result the model sees: the tiers, the tail where it matters, and the limit as a law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context import OMISSION, result_limit_chars, truncate_result


@pytest.mark.parametrize(
    ("window", "chars"),
    [
        (8_000, 9_600),
        (13_000, 15_600),
        (99_999, 16_000),
        (100_000, 32_000),
        (200_000, 64_000),
        (1_000_000, 64_000),
    ],
)
def test_truncate_tiers_grow_up_to_thirty_percent(window: int, chars: int) -> None:
    assert result_limit_chars(window) == chars
    assert chars <= 0.3 * window * 4


@given(st.text(max_size=3_000), st.integers(1, 2_000))
def test_no_result_is_longer_than_its_limit_and_a_short_one_is_untouched(text: str, limit: int) -> None:
    shown = truncate_result(text, limit)
    assert len(shown) <= limit
    if len(text) <= limit:
        assert shown == text


@pytest.mark.parametrize("end", ["Traceback: boom", "exit code 3", '{"a": [1, 2]}', "Total: 7", "ERROR 42", "done"])
def test_an_end_that_matters_is_kept_with_the_head(end: str) -> None:
    text = "HEAD" + "x" * 50_000 + "\n" + end
    shown = truncate_result(text, 16_000)
    assert shown.startswith("HEAD")
    assert OMISSION in shown
    assert end in shown
    tail = shown.split(OMISSION)[1]
    assert len(tail) <= 4_000 + 200


def test_truncate_keeps_the_head_and_says_how_much_is_missing() -> None:
    shown = truncate_result("y" * 50_000, 16_000)
    assert OMISSION not in shown
    assert shown.count("y") > 15_900
    assert f"{50_000 - shown.count('y'):,} characters were cut" in shown
    assert "narrow" in shown

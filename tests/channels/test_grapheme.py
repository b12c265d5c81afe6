"""The places inside a text where a person sees one character, and a cut would show two."""

import pytest

from channels.plain import joined


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("🇩🇪🇫🇷", [1, 3]),
        ("a🇩🇪🇫", [2]),
        ("👍🏽!", [1]),
        ("e\u0301e", [1]),
        ("ab", []),
        ("🇩🇪" * 400, [*range(1, 800, 2)]),
    ],
)
def test_the_halves_of_a_flag_and_marks_are_joined_and_nothing_else(text: str, inside: list[int]) -> None:
    assert [at for at in range(len(text)) if joined(text, at)] == inside

"""The line of a message that a search shows, and what is marked in it."""

import pytest

from gateway.web.chats import LINE_CHARS, found_line, words_of

LONG = f"{'a ' * 200}needle{' b' * 200}"


@pytest.mark.parametrize(
    ("query", "text", "line"),
    [
        ("needle", "hay\nthe needle is here\nhay", ["the ", "needle", " is here"]),
        ("two one", "one\n  one and two  \ntwo", ["", "one", " and ", "two", ""]),
        ("NEEDLE", "needle, Needle", ["", "needle", ", ", "Needle", ""]),
        ("strasse", "Die Straße!", ["Die ", "Straße", "!"]),
        ("s", "ß", ["", "ß", ""]),
        ("狐狸", "敏捷的狐狸🦊跳", ["敏捷的", "狐狸", "🦊跳"]),
        ("<b>", "<b>not</b> HTML", ["", "<b>", "not</b> HTML"]),
        ("in inside", "inside", ["", "inside", ""]),
        ("title only", "nothing", ["nothing"]),
        ("x", "", [""]),
    ],
)
def test_the_line_with_the_most_of_the_words_is_cut_where_they_stand(query: str, text: str, line: list[str]) -> None:
    assert found_line(text, words_of(query)) == line


def test_a_long_line_is_shown_around_its_first_word() -> None:
    pieces = found_line(LONG, ["needle"])
    assert pieces[1] == "needle"
    assert pieces[0].startswith("…")
    assert pieces[2].endswith("…")
    assert len("".join(pieces)) == LINE_CHARS + 2
    assert found_line("a" * 500, ["zz"]) == ["a" * LINE_CHARS + "…"]
    assert found_line("needle" * 100, ["needle"])[-2:] == ["need", "…"]

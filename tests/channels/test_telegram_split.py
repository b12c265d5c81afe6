"""Long answers in Telegram: every part fits and is well formed, cuts fall where a reader would cut, nothing is lost."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.split import Limit
from channels.split import split as cut
from channels.telegram.render import BYTES_MAX, UNITS_MAX, rendered, split, units
from tests.channels.telegram_html import plain, render, seen
from tests.channels.telegram_texts import check_nothing_is_lost, nasty

SENTENCE = "The quick brown fox jumps over the lazy dog. "
PARAGRAPH = SENTENCE * 8


def check_fits(part: str) -> str:
    text = seen(part)
    assert 0 < units(text) <= UNITS_MAX
    assert units(plain(part)) <= UNITS_MAX
    assert len(text.encode()) + sum(len(entity.get("url", "")) for entity in rendered(part).entities) <= BYTES_MAX
    return text


@given(nasty(repeats=25))
@settings(max_examples=150, deadline=None)
def test_whatever_a_model_writes_every_part_fits_and_nothing_is_lost(markdown: str) -> None:
    check_nothing_is_lost(markdown, "\n".join(check_fits(part) for part in split(markdown)))


@given(nasty(repeats=8), st.integers(150, 600))
@settings(max_examples=200, deadline=None)
def test_tidy_parts_hold_their_limit_and_lose_nothing_at_any_size(markdown: str, most: int) -> None:
    markdown = markdown.replace("\0", "").replace("\ud800", "").replace("\r", "")
    parts = cut(markdown, [Limit(measure=units, most=most)], tidy=True)
    assert all(units(part) <= most for part in parts)
    check_nothing_is_lost(markdown, "\n".join(parts))


def test_a_cut_falls_between_paragraphs_and_never_behind_a_heading() -> None:
    text = "\n\n".join(
        f"## Part {number}\n\n{PARAGRAPH.strip()}\n\nas follows:\n\n{SENTENCE.strip()}" for number in range(40)
    )
    parts = split(text)
    assert len(parts) > 3
    assert "\n\n".join(parts) == text
    assert all(part.startswith("## Part ") and part.endswith(".") for part in parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a" * 40 + "\n\n" + "b" * 40 + "\n\n" + "c" * 40, ["a" * 40 + "\n\n" + "b" * 40, "c" * 40]),
        ("a" * 60 + "\n\n# Head\n\n" + "b" * 60, ["a" * 60, "# Head\n\n" + "b" * 60]),
        ("a" * 60 + "\n\nAs follows:\n\n" + "b" * 60, ["a" * 60, "As follows:\n\n" + "b" * 60]),
        ("a\n\n" + "b " * 49 + "\n" + "c", ["a\n\n" + "b " * 25, "b " * 24 + "\nc"]),
        ("|a|b|\n|--|--|" + "\n|1|2|" * 8 + "\n" + "y" * 45, ["|a|b|\n|--|--|" + "\n|1|2|" * 8, "y" * 45]),
        ("> ```\n> " + "x" * 45 + "\n" + "y" * 50, ["> ```\n> " + "x" * 45 + "\n> ```", "y" * 50]),
        ("```py\n" + "x" * 95 + "\n```", ["```py\n" + "x" * 50 + "\n```", "```py\n" + "x" * 45 + "\n```"]),
    ],
    ids=["paragraphs", "heading", "leads-on", "third-full", "table-end", "quote-end", "long-code"],
)
def test_where_a_part_of_a_hundred_characters_ends(text: str, parts: list[str]) -> None:
    assert cut(text, [Limit(measure=len, most=100)], tidy=True) == parts


def test_a_code_block_that_fits_a_message_is_not_cut() -> None:
    code = "```python\n" + "print('hello')\n" * 150 + "```"
    assert split(f"{PARAGRAPH * 5}\n\n{code}\n\n{PARAGRAPH * 5}") == [PARAGRAPH * 5, code, PARAGRAPH * 5]


def test_a_long_paragraph_is_cut_behind_a_sentence() -> None:
    parts = split(SENTENCE * 300)
    assert "".join(parts) == SENTENCE * 300
    assert all(part.endswith("dog. ") for part in parts)


def test_the_rest_of_a_cut_line_does_not_become_a_list_or_a_heading() -> None:
    parts = split("ab" + "a - " * 5_000)
    assert len(parts) > 3
    assert "".join(re.sub(r"\s", "", render(part)) for part in parts) == "ab" + "a-" * 5_000


def test_a_cut_code_block_is_closed_and_opened_again_with_its_language() -> None:
    parts = split("```python\n" + "print('hello')\n" * 1_000 + "```\ndone")
    assert all(render(part).startswith('<pre><code class="language-python">print') for part in parts)
    assert sum(render(part).count("print(") for part in parts) == 1_000
    assert render(parts[-1]).endswith("</code></pre>\n\ndone")


@pytest.mark.parametrize("prefix", ["  ", "    ", "        "])
def test_a_cut_code_block_deep_in_a_list_stays_code_and_its_list_a_list(prefix: str) -> None:
    outer = "".join(f"{prefix[:at]}- item\n" for at in range(0, len(prefix), 2))
    code = f"{prefix}```sh\n" + f"{prefix}  ls\n" * 2_000 + f"{prefix}```\n"
    parts = [render(part) for part in split(f"{outer}{code}{prefix}and so on\n\n- last")]
    assert len(parts) > 2
    assert all('<code class="language-sh">  ls\n' in part for part in parts)
    assert sum(part.count("ls") for part in parts) == 2_000
    assert not parts[-1].startswith("<pre>and")
    assert parts[-1].count("<pre>") == 1
    assert parts[-1].endswith("• last")


def test_a_cut_code_block_in_a_quote_stays_in_it() -> None:
    parts = split("> ```js\n" + "> call()\n" * 1_000 + "> ```\nafter")
    assert all(part.startswith("> ```js\n> call()") for part in parts)
    assert render(parts[-1]).endswith("after")


def test_a_cut_nested_list_does_not_become_code() -> None:
    parts = split("- top\n" + "    - nested item\n" * 1_000)
    assert len(parts) > 2
    assert not any("<pre>" in render(part) for part in parts)


def test_a_cut_table_gets_its_head_again() -> None:
    parts = split("| Name | Amount |\n|---|---|\n" + "| apples | 1 |\n" * 1_000)
    assert all(render(part).startswith("<pre>Name   | Amount\n-------+-------\napples | 1") for part in parts)
    assert sum(part.count("apples") for part in parts) == 1_000


def test_a_table_that_grows_in_the_rendering_is_cut_smaller() -> None:
    head = "|" + "w" * 50 + "|\n|-|\n"
    parts = split(head + "|a\n" * 1_000)
    assert sum(check_fits(part).count("a") for part in parts) == 1_000


@pytest.mark.parametrize(
    "character",
    [
        *("👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301", "❤️", "नि", "각", "1\ufe0f\u20e3", "、\ufe00"),
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ],
)
def test_no_character_is_cut_in_two(character: str) -> None:
    parts = split("x" + character * 4_000)
    assert "".join(parts) == "x" + character * 4_000
    assert len(parts) > 1
    for part in parts:
        assert part.removeprefix("x").replace(character, "") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "word " * 20_000,
        "a\n" * 50_000,
        "中" * 100_000,
        "😀" * 50_000,
        "&" * 100_000,
        "[a](http://x.y) " * 6_000,
        f"[a](http://x.y/{'z' * 900}) " * 100,
        "**b** `c` " * 10_000,
        "> " * 50_000,
        "\\" * 100_000,
        "a" + "\u0301" * 100_000,
        "```" * 30_000,
        "```\n" * 25_000,
        "`" * 30_000 + "\n" + "x\n" * 20_000,
        "|a" * 30_000 + "\n" + "|-" * 30_000 + "\n" + "|b\n" * 10_000,
        "<b>" * 30_000,
        f"{PARAGRAPH}\n\n" * 280,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_hundred_kilobytes_of_anything_fit(text: str) -> None:
    parts = split(text)
    for part in parts:
        check_fits(part)
    assert len(parts) < 200
    assert all("".join(parts).count(char) >= text.count(char) for char in set(text) if char.isalnum())


def test_an_answer_that_fits_is_left_as_it_is() -> None:
    text = "# Hi\n\n- a\n\n```\nx\n```\n"
    assert split(text) == [text.strip("\n")]
    links = "[x](https://example.com/a/long/address) " * 100
    assert split(links) == [links]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t"])
def test_nothing_to_say_is_no_part(text: str) -> None:
    assert split(text) == []


def test_blanks_alone_make_no_message() -> None:
    parts = split("```\n" + "\n" * 20_000 + "x\n```")
    assert [seen(part) for part in parts] == ["x"]

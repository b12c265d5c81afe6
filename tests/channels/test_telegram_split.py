"""Long answers in Telegram: every part fits and is well formed, cuts fall where a reader would cut, nothing is lost."""

import re

import pytest
from hypothesis import given
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
def test_whatever_a_model_writes_every_part_fits_and_nothing_is_lost(markdown: str) -> None:
    parts = split(markdown)
    check_nothing_is_lost(markdown, "\n".join(check_fits(part) for part in parts))
    check_nothing_is_lost(markdown, "\n".join(plain(part) for part in parts))


@given(nasty(repeats=8), st.integers(150, 600))
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


def test_telegram_split_leaves_what_fits() -> None:
    code = "```python\n" + "print('hello')\n" * 150 + "```"
    assert split(f"{PARAGRAPH * 5}\n\n{code}\n\n{PARAGRAPH * 5}") == [PARAGRAPH * 5, code, PARAGRAPH * 5]
    text, links = "# Hi\n\n- a\n\n```\nx\n```\n", "[x](https://example.com/a/long/address) " * 100
    assert [split(it) for it in (text, links)] == [[text.strip("\n")], [links]]
    assert [split(it) for it in ("", " ", "\n\n", "\t")] == [[]] * 4
    assert [seen(part) for part in split("```\n" + "\n" * 20_000 + "x\n```")] == ["x"]


def in_a_list(prefix: str) -> str:
    outer = "".join(f"{prefix[:at]}- item\n" for at in range(0, len(prefix), 2))
    return f"{outer}{prefix}```sh\n" + f"{prefix}  ls\n" * 2_000 + f"{prefix}```\n{prefix}and so on\n\n- last"


PYTHON = "```python\n" + "print('hello')\n" * 600 + "```\ndone"
TABLE = "| Name | Amount |\n|---|---|\n" + "| apples | 1 |\n" * 600
HEAD = r"<pre>Name   \| Amount\n-------\+-------\napples \| 1"
QUOTED = "> ```js\n" + "> f()\n" * 2_000 + "> ```\nafter"
WIDE = "|" + "w" * 50 + "|\n|-:|\n" + "|a\n" * 200
LIST_CODE = r'.*<code class="language-sh">  ls\n'
LIST_END = "</pre>\n\nand so on\n\n• last"
CUT = {
    "sentences": (SENTENCE * 300, r".*dog\.$", ("fox", 300), "dog."),
    "no list": ("ab" + "a - " * 2_500, r"(?!.*•)", ("a", 2_501), "-"),
    "code": (PYTHON, '<pre><code class="language-python">print', ("print(", 600), "</code></pre>\n\ndone"),
    "quoted code": (QUOTED, "<pre><code.*js", ("f()", 2_000), "</pre>\n\nafter"),
    "no code": ("- top\n" + "    - nested item\n" * 700, r"(?!.*<pre>)", ("nested", 700), "item"),
    "table": (TABLE, HEAD, ("apples", 600), "</pre>"),
    "a table that grows": (WIDE, r"<pre>w{50}\n", ("a", 200), "</pre>"),
} | {
    f"code in a list, {len(prefix)} deep": (in_a_list(prefix), LIST_CODE, ("ls", 2_000), LIST_END)
    for prefix in ("  ", "    ", "        ")
}


@pytest.mark.parametrize(("text", "every", "counted", "last"), CUT.values(), ids=CUT)
def test_what_is_cut_goes_on_as_what_it_was(text: str, every: str, counted: tuple[str, int], last: str) -> None:
    parts = split(text)
    shown = [render(part) for part in parts]
    assert len(parts) > 2
    assert [html for html in shown if not re.match(every, html, re.S)] == []
    assert sum(check_fits(part).count(counted[0]) for part in parts) == counted[1]
    assert shown[-1].endswith(last)


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


@pytest.mark.parametrize("share", [20, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "text",
    [
        *("word " * 20_000, "a\n" * 50_000, "中" * 100_000, "😀" * 50_000, "&" * 100_000, "a" + "\u0301" * 100_000),
        *("[a](http://x.y) " * 6_000, f"[a](http://x.y/{'z' * 900}) " * 100, "**b** `c` " * 10_000, "> " * 50_000),
        *("\\" * 100_000, "```" * 30_000, "```\n" * 25_000, "`" * 30_000 + "\n" + "x\n" * 20_000, "<b>" * 30_000),
        "|a" * 30_000 + "\n" + "|-" * 30_000 + "\n" + "|b\n" * 10_000,
        f"{PARAGRAPH}\n\n" * 280,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_hundred_kilobytes_of_anything_fit(text: str, share: int) -> None:
    """Five in `make test`."""
    text = text[: len(text) // share]
    parts = split(text)
    for part in parts:
        check_fits(part)
    assert len(parts) < 200
    assert all("".join(parts).count(char) >= text.count(char) for char in set(text) if char.isalnum())

"""What a model writes that is no markup arrives as it was written, on every platform: formulas, names of files, numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.feishu.card import shown
from channels.feishu.outgoing import split as feishu_split
from channels.spelling import shielded, spelt
from channels.telegram.render import rendered
from channels.telegram.render import split as telegram_split

FORMULAS = [
    r"$$\int x\,dx$$",
    r"$a_1$",
    r"$a*b*c$",
    r"\(f(x)\,\! = y_2\)",
    r"\[ x^2_1 \\ \{1\} \]",
    r"$$\begin{aligned}a_1 &= b \\ c &= d*e*f\end{aligned}$$",
    "$$\na_1\n= b\n- c\n+ d\n# e\n$$",
    "\\[\n\\sum_{i=1}^n x_i\n- 1\n\\]",
    r"$x_`y`$",
]
PROSE = [
    "It is ",
    "**so** ",
    "\n\n",
    "\n",
    "- item ",
    "\n> quote ",
    "`code $b_1$` ",
    "costs $5, or $10 ",
    " $PATH ",
    "|",
    "字",
]
RAW = [
    "<b>",
    "</b>",
    "<code>",
    "</code>",
    "<br>",
    "<sup>",
    "</sup>",
    "2",
    "[a][1]",
    "\n[1]: http://x.yz\n",
    "- [x] t",
    "\\",
]


def tight(text: str) -> str:
    return "".join(text.split())


def read(markdown: str) -> str:
    """What a reader sees of Markdown."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    inside = (child for token in tokens for child in (token.children or [token]))
    return "".join(token.content for token in inside)


@given(st.lists(st.sampled_from(FORMULAS) | st.sampled_from(PROSE), max_size=12))
def test_what_is_done_twice_changes_nothing_and_nothing_is_lost_by_it(pieces: list[str]) -> None:
    text = " ".join(pieces)
    once = shielded(text)
    assert shielded(once) == once
    assert tight(once.replace("`", "")) == tight(text.replace("`", ""))


@given(st.lists(st.sampled_from(RAW) | st.sampled_from(PROSE) | st.sampled_from(FORMULAS), max_size=12).map(" ".join))
def test_what_is_spelt_out_twice_is_spelt_out_once(text: str) -> None:
    once = spelt(text, boxes=True)
    assert spelt(once, boxes=True) == once


@pytest.mark.parametrize("before", ["", "So ", "text\n\n", "- item: ", "> "])
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_formula_loses_a_character(formula: str, before: str) -> None:
    text = f"{before}{formula} and *more*"
    if before == "> ":
        text = text.replace("\n", "\n> ")
    wanted = tight(formula.replace("\n", "\n> ") if before == "> " else formula)
    for found in (rendered(text).text, rendered(text).plain, read(shielded(text)), read(shown(text))):
        assert wanted in tight(found) or wanted.replace(">", "") in tight(found)
    assert wanted in tight("".join(telegram_split(text))) + tight("".join(feishu_split(text)))


def test_a_formula_longer_than_a_message_is_whole_over_its_parts() -> None:
    formula = "$$\n" + "\n".join(rf"x_{{{number}}} \, y*z*{number} \\" for number in range(90)) + "\n$$"
    parts = telegram_split("x " * 1900 + "\n\n" + formula)
    assert len(parts) > 1
    assert tight(formula) in tight("".join(rendered(part).text for part in parts))


def test_money_and_variables_are_no_formulas() -> None:
    for text in ("$5 and $10", "US$5 to US$7_0", "$HOME/a_b:$PATH", "`$a_1$`", "```\n$a_1$\n```", r"\$a_1\$", "$x$"):
        assert shielded(text) == text


def test_hostile_dollars_cost_little() -> None:
    for text in ("\\[" * 30_000, "$$ " * 30_000, "$a " * 30_000, "\\(x" * 30_000, "`" * 60_000, "``` $\n" * 10_000):
        assert len(shielded(text)) >= len(text)


FILES = {
    "see README.md, backup.sh; run scripts/x.py": ["README.md", "backup.sh", "scripts/x.py"],
    "看README.md文件(main.py)": ["README.md", "main.py"],
    "**setup.py**! ../lib.rs, libssl.so": ["setup.py", "../lib.rs", "libssl.so"],
    "`a.py` google.com docs.rs/x me@home.sh https://x.io/README.md www.x.md/y x.sh.com": ["a.py"],
    "[README.md](https://a.bc) ||secret.sh|| a.pyc README.mdx": [],
}


@pytest.mark.parametrize(("text", "files"), FILES.items())
def test_a_name_that_clients_take_for_an_address_is_code(text: str, files: list[str]) -> None:
    made = rendered(text)
    units = made.text.encode("utf-16-le")
    code = [it for it in made.entities if it["type"] == "code"]
    assert [units[2 * it["offset"] : 2 * (it["offset"] + it["length"])].decode("utf-16-le") for it in code] == files


def test_a_number_behind_a_list_is_no_item_of_it() -> None:
    for text, seen in {
        "- a\n- b\n\n2024 was good": "• a\n• b\n\n2024 was good",
        "1. a\n2. b\n\n3 dogs": "1. a\n2. b\n\n3 dogs",
        "- a\n\n1. b\n2. c\n\n42": "• a\n\n1. b\n2. c\n\n42",
    }.items():
        assert rendered(text).text == seen
        assert feishu_split(text) == [text]


TABLE = "| a | b |\n|---|---|\n| {} | 2 |"


def test_feishu_card_tables_are_limited() -> None:
    tables = [TABLE.format(number) for number in range(8)]
    found = shown("Look:\n\n" + "\n\n".join(tables))
    kinds = [token.type for token in MarkdownIt("commonmark").enable("table").parse(found)]
    assert (kinds.count("table_open"), kinds.count("fence")) == (5, 3)
    assert all(table in found for table in tables)
    assert shown("> " + TABLE.replace("\n", "\n> ")) == "> " + TABLE.replace("\n", "\n> ")

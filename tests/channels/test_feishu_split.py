"""Long replies: every part fits, no part breaks its Markdown, and together they say what the text said."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.feishu.card import shown, without_pings
from channels.feishu.outgoing import PART_CHARS_MAX, split
from tests.emulators.feishu.rules import POST_BYTES_MAX, check_content

_line = st.text(alphabet='ab 中文，。"\\|`~-😀', max_size=60)
_marks = st.sampled_from(["", "```python", "```", "~~~", "| a | b |", "|---|---|", "| 1 | 2 |", "# Heading"])
_texts = st.lists(_line | _marks, max_size=60).map("\n".join)


def content(part: str) -> str:
    return orjson.dumps({"zh_cn": {"content": [[{"tag": "md", "text": part}]]}}).decode()


@given(_texts, st.integers(60, 400))
def test_every_part_fits_nothing_is_lost_and_no_fence_stays_open_at_a_cut(text: str, chars_max: int) -> None:
    parts = split(text, chars_max=chars_max, bytes_max=4 * chars_max)
    put_in_again = re.compile(r"^ {0,3}(?:`{3,}|~{3,}).*$|^.*\|.*$|\n", re.M)
    for part in parts:
        assert part.strip()
        assert len(part) <= chars_max
    assert not any(open_fence(part) for part in parts[:-1])
    wanted = put_in_again.sub("", text)
    got = put_in_again.sub("", "\n".join(parts))
    assert got.replace(" ", "") == wanted.replace(" ", "")


def open_fence(part: str) -> str:
    fence = ""
    for line in part.split("\n"):
        found = re.match(r"^ {0,3}(`{3,}|~{3,})(.*)$", line)
        if found is None:
            continue
        if not fence:
            fence = "" if found[1][0] == "`" and "`" in found[2] else found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence


@pytest.mark.parametrize(
    "text", ["中" * 30_000, '"' * 30_000, "\\" * 30_000, "😀" * 20_000, "a" * 100_000, "\n" * 9 + "x"]
)
def test_the_strict_platform_takes_every_part_of_the_worst_texts(text: str) -> None:
    for part in split(text):
        assert len(part) <= PART_CHARS_MAX
        assert len(content(part).encode()) <= POST_BYTES_MAX
        check_content("post", content(part))
    assert [split(blank) for blank in ("", " ", "\n\n", "\t")] == [[]] * 4


@pytest.mark.parametrize("word", ["x", "word ", "很长的一句话。"])
def test_feishu_split_of_a_long_line_is_minimal(word: str) -> None:
    text = (word * 20_000)[:20_000].strip()
    parts = split(text)
    assert len(parts) <= 6
    assert "".join(parts) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- [x] done\n  - [ ] open\n1. [X] first\n`- [x] a`", "- ☑ done\n  - ☐ open\n1. ☑ first\n`- [x] a`"),
        ("<b>x</b> <u>y</u> m<sup>2</sup> `<b>z</b>`", "**x** y m² `<b>z</b>`"),
        ("- a<br>b\n\n> c<br/>d\n\n|a|\n|-|\n|b<br>c|", "- a\n  b\n\n> c\n> d\n\n|a|\n|-|\n|b / c|"),
        ("[docs][1], `[docs][1]`\n\n[1]: https://a.bc", "[docs](https://a.bc), `[docs][1]`"),
        ("|f|n|\n|-|-|\n|$|x|$|$1|", "|f|n|\n|-|-|\n|`$\\|x\\|$`|$1|"),
        ("<<u></u>at id=all></at>", "<​at id=all><​/at>"),
    ],
)
def test_a_post_and_a_card_show_no_markup_that_feishu_does_not_know(text: str, part: str) -> None:
    assert [without_pings(it) for it in split(text)] == [part]
    assert shown(text) == shown(part) == part
    check_content("post", content(part))

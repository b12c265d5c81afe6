"""Nasty Markdown for properties: every fragment carries words that occur nowhere else, so that a loss is noticed."""

import re
from collections.abc import Iterator
from itertools import count

from hypothesis import strategies as st

FRAGMENTS = (
    *("W W. W，W。 **W W** *W **W* W** `W` __W", "W" + " and more W" * 30, "# W `W` **W**", "\\*W\\* \\"),
    *("- W", "  - W", "    - W\n      W", "- [ ] W", "1. W\n\n   W", "7) - > W", "> W `W`\n>> W", "    W"),
    *("```py", "```", "~~~~", "- ```", "    ```sh", "> ```js", "---", "===", "", "T", "> T", "- T"),
    *("<b>W</i> <br> <!-- W --> <script>W", "&amp;W&lt; &W; &#1; &#0; & < > \" '"),
    '[W](http://a.bc/x?y=1&z=2) **[`W`](tg://resolve?domain=x "") W**',
    "[W](javascript:x) [W](http://localhost:3) ![W](http://a.bc) ![](http://a.bc) []() [W](",
    *("[W][1]\n\n[1]: http://x.yz", "~~W~~ ||W|| ||*W|| W*", "中文W。😀👨‍👩‍👧🇩🇪👍🏽W שלום W é́W", "\0W\ud800 W\r\nW\rW"),
)
TABLE = "| W | [W](http://a.bc) `W` |\n|---|:-:|\n| W | **W** | W |\n|W"
NARROW = "|W|W|\n|-|-:|\n|中文W|W\\|W|"


@st.composite
def nasty(draw: st.DrawFn, *, repeats: int) -> str:
    """Words in plain text are `w1q`, in tables `t2q`: their heads are said more than once."""
    number = count(1)
    lines = []
    chosen = draw(st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, repeats)), min_size=1, max_size=25))
    for fragment, times in chosen:
        table = draw(st.sampled_from((TABLE, NARROW)))
        lines += [with_words(fragment, table, number) for _ in range(times)]
    return "\n".join(lines)


def with_words(fragment: str, table: str, number: Iterator[int]) -> str:
    kind = "t" if fragment.endswith("T") else "w"
    prefix = fragment.removesuffix("T").replace("-", " ")
    text = fragment.replace("T", table.replace("\n", "\n" + prefix))
    return re.sub("W", lambda _: f"{kind}{next(number)}q", text)


def words(text: str) -> list[str]:
    return re.findall(r"[wt][0-9]+q", text)


def check_nothing_is_lost(markdown: str, seen: str) -> None:
    """All words are there, and those outside of tables in their order."""
    found = words(re.sub(r"\s", "", seen))
    assert set(words(markdown)) <= set(found)
    assert [word for word in words(markdown) if word[0] == "w"] == [word for word in found if word[0] == "w"]

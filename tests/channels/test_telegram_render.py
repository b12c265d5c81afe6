"""What Markdown looks like in Telegram: every construct, and that nothing a model writes makes HTML Telegram refuses."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.telegram.render import ENTITIES_MAX, rendered
from tests.channels.telegram_html import plain, render, seen

LOOKS = {
    # emphasis
    "**b** *i* _i_ __b__ ~~s~~ ||sp||": "<b>b</b> <i>i</i> <i>i</i> <b>b</b> <s>s</s> <tg-spoiler>sp</tg-spoiler>",
    "||a || *b*|| c||": "<tg-spoiler>a || <i>b</i></tg-spoiler> c||",
    "***both***": "<i><b>both</b></i>",
    "*a **b* c**": "<i>a b c</i>",
    "2 * 3 * 4, a_b_c, a || b": "2 * 3 * 4, a_b_c, a || b",
    # code stands alone inside emphasis and gives way in links and quotes
    "**use `x` now**": "<b>use </b><code>x</code><b> now</b>",
    "**`x`**": "<code>x</code>",
    "# Run `x`": "<b>Run </b><code>x</code>",
    "[`x`](https://a.bc)": '<a href="https://a.bc">x</a>',
    "> the `x`": "<blockquote>the x</blockquote>",
    "`<b> & *x*`": "<code>&lt;b&gt; &amp; *x*</code>",
    # code blocks
    "```py⏎  if a < b:⏎⏎    pass⏎```": '<pre><code class="language-py">  if a &lt; b:⏎⏎    pass</code></pre>',
    "```⏎x⏎```": "<pre>x</pre>",
    "```python main.py⏎x⏎```": 'main.py⏎<pre><code class="language-python">x</code></pre>',
    "```⏎```": "```⏎```",
    "a⏎```js⏎never closed": 'a⏎⏎<pre><code class="language-js">never closed</code></pre>',
    "~~~a&b⏎x⏎~~~": "a&amp;b⏎<pre>x</pre>",
    "    indented⏎    code": "<pre>indented⏎code</pre>",
    # headings rules and paragraphs
    "# One⏎## Two **bold**⏎text⏎more  ⏎end⏎⏎⏎⏎para": "<b>One</b>⏎⏎<b>Two bold</b>⏎⏎text⏎more⏎end⏎⏎para",
    "Title⏎===⏎---⏎x": "<b>Title</b>⏎⏎———⏎⏎x",
    # lists
    "- a⏎- b⏎  more⏎  - c⏎    1. d⏎    2. e⏎- f⏎⏎end": "• a⏎• b⏎  more⏎  • c⏎    1. d⏎    2. e⏎• f⏎⏎end",
    "3. c⏎4. d⏎⏎   para": "3. c⏎⏎4. d⏎⏎   para",
    "0) zero": "0) zero",
    "- [ ] open⏎- [x] done⏎1. [X] first": "☐ open⏎☑ done⏎⏎1. ☑ first",
    "- x:⏎  ```sh⏎  ls⏎  ```⏎- y": '• x:⏎<pre><code class="language-sh">ls</code></pre>⏎• y',
    "It was in⏎⏎2024.": "It was in⏎⏎2024.",
    "intro:⏎- a⏎⏎- b": "intro:⏎⏎• a⏎⏎• b",
    # quotes are flat and code blocks stand outside of them
    "> a⏎> b⏎>> c⏎⏎d": "<blockquote>a⏎b⏎⏎c</blockquote>⏎⏎d",
    "> a⏎> ```⏎> x⏎> ```⏎> b": "<blockquote>a</blockquote>⏎⏎<pre>x</pre>⏎⏎<blockquote>b</blockquote>",
    "> - x⏎> - y": "<blockquote>• x⏎• y</blockquote>",
    # links
    '[a](https://a.bc/?x=1&y="2" "title")': '<a href="https://a.bc/?x=1&amp;y=%222%22">a</a>',
    "<https://a.bc>": '<a href="https://a.bc">https://a.bc</a>',
    "<me@a.bc> [m](mailto:me@a.bc)": '<a href="mailto:me@a.bc">me@a.bc</a> <a href="mailto:me@a.bc">m</a>',
    "[t](tg://resolve?domain=x)": '<a href="tg://resolve?domain=x">t</a>',
    "[a](javascript:alert(1)) [b](file:///x)": "a (javascript:alert(1)) b (file:///x)",
    "[c](../d.md) [e]()": "c (../d.md) e",
    "[dev](http://localhost:3000)": "dev (http://localhost:3000)",
    "[you](tg://user?id=7) [you](tg:user?id=7)": "you (tg://user?id=7) you (tg:user?id=7)",
    "[**b** x](https://a.bc)": '<a href="https://a.bc"><b>b</b> x</a>',
    "[](https://a.bc)": '<a href="https://a.bc">https://a.bc</a>',
    "![alt *x*](https://a.bc/i.png)": '<a href="https://a.bc/i.png">alt <i>x</i></a>',
    "![](https://a.bc/i.png)": '<a href="https://a.bc/i.png">https://a.bc/i.png</a>',
    "[![badge](https://a.bc/i.png)](https://a.bc)": '<a href="https://a.bc">badge</a>',
    # reference links are links, and the definitions that no link uses are text
    "[ref][1] [Ref] [no]⏎⏎[1]: https://a.bc⏎[ref]: https://d.ef 'title'": (
        '<a href="https://a.bc">ref</a> <a href="https://d.ef">Ref</a> [no]'
    ),
    "`[ref][1]`⏎⏎[1]: https://a.bc": "<code>[ref][1]</code>⏎⏎[1]: https://a.bc",
    # simple tags are markup, or their text; what is no pair, other html and entities are text
    '<b>x</b><br> <a href="u">': '<b>x</b>⏎&lt;a href="u"&gt;',
    "<i>x</i> <del>y</del> <u>z</u> <b>x <kbd>y</kbd></b>": "<i>x</i> <s>y</s> z <b>x y</b>",
    "H<sub>2</sub>O x<sup>2</sup> a<sub>i</sub> <code>a*b*</code>": "H₂O x² a_i <code>a*b*</code>",
    "<details><summary>More</summary>⏎⏎text⏎</details>": "<b>More</b>⏎⏎text",
    "`<b>x</b>` the <b> tag, </i>": "<code>&lt;b&gt;x&lt;/b&gt;</code> the &lt;b&gt; tag, &lt;/i&gt;",
    "<u></u>": "&lt;u&gt;&lt;/u&gt;",
    "```⏎<b>x</b><br>⏎```": "<pre>&lt;b&gt;x&lt;/b&gt;&lt;br&gt;</pre>",
    "- a<br>b": "• a⏎  b",
    "|a|⏎|-|⏎|x<br>y|": "<pre>a⏎-----⏎x / y</pre>",
    "|f|n|⏎|-|-|⏎|$|x|$|$P(A|B)$|⏎⏎$|x|$": "<pre>f     | n⏎------+---------⏎$|x|$ | $P(A|B)$</pre>⏎⏎$|x|$",
    "<div>⏎*x*⏎</div>": "&lt;div&gt;⏎<i>x</i>⏎&lt;/div&gt;",
    "&lt;b&gt; &amp;amp; &copy; &nope; &#65;": "&lt;b&gt; &amp;amp; © &amp;nope; A",
    "a < b && c > d": "a &lt; b &amp;&amp; c &gt; d",
    # a narrow table is a grid of even columns, a wide one and one with links are lines with the head before every cell
    "| Name | Amount |⏎|---|--:|⏎| 苹果 | 1 |⏎| 👍🏽 ok | 1000 |": (
        "<pre>Name  | Amount⏎------+-------⏎苹果  |      1⏎👍🏽 ok |   1000</pre>"
    ),
    "|a|b|⏎|:-:|-|⏎|`x\\|y`|**z**|too|many|⏎|short": (
        "<pre>  a   | b⏎------+---------------⏎ x|y  | z | too | many⏎short |</pre>"
    ),
    "> |a|b|⏎> |-|-|⏎> |1|2|3|": "<pre>a | b⏎--+------⏎1 | 2 | 3</pre>",
    f"|Name|Text|⏎|-|-|⏎|one|{'long ' * 11}|⏎||**two**|": (
        f"<b>Name</b>: one⏎<b>Text</b>: {'long ' * 10}long⏎⏎<b>Name</b>: –⏎<b>Text</b>: <b>two</b>"
    ),
    "|a|b|⏎|-|-|⏎|[x](https://a.bc)|y|": '<b>a</b>: <a href="https://a.bc">x</a>⏎<b>b</b>: y',
    # what telegram cannot take is replaced
    "a\x00b": "a�b",
    "a\ud800b": "a�b",
    "\ud83d\ude00": "😀",
    "a\r⏎b\rc": "a⏎b⏎c",
    # markdown that would show nothing is shown as it is
    "#": "#",
    ">": "&gt;",
    "": "",
    " ⏎ ": "",
}
"""Markdown, and its entities shown as HTML; ⏎ is a line end."""


@pytest.mark.parametrize(("markdown", "html"), LOOKS.items())
def test_what_it_looks_like(markdown: str, html: str) -> None:
    assert render(markdown.replace("⏎", "\n")).replace("\n", "⏎") == html


def test_a_table_of_very_many_columns_is_shown_as_it_is() -> None:
    table = "|a" * 30 + "\n" + "|-" * 30 + "\n" + "|b" * 30
    assert render(table) == table


def test_plain_text_has_no_markup_and_keeps_the_addresses() -> None:
    markdown = "# T\n**b** `c` [x](https://a.bc/ü) <https://a.bc> <b>\n- y\n\n> q\n\n```py\n1 < 2\n```"
    assert plain(markdown) == "T\n\nb c x (https://a.bc/ü) https://a.bc <b>\n\n• y\n\nq\n\n1 < 2"


def test_telegram_render_beyond_a_hundred_entities_is_plain() -> None:
    markdown = "**b** " * (ENTITIES_MAX - 1) + "**[*x*](https://a.bc)** [y](https://d.ef/g) *z*"
    html = render(markdown)
    assert len(rendered(markdown).entities) == ENTITIES_MAX == 100
    assert html.endswith("<b>x (https://a.bc)</b> y (https://d.ef/g) z")


@pytest.mark.parametrize(
    "text",
    [">" * 3_000 + "x", "- " * 2_000 + "x", "[" * 4_000, "*a" * 2_000, "`" * 4_000, "1. " * 999, ">" * 99 + "\0x"],
)
def test_what_is_nested_beyond_reason_is_still_shown(text: str) -> None:
    assert seen(text).strip()
    assert "\0" not in seen(text)
    assert "x" not in text or "x" in seen(text)


@given(st.text(alphabet=" \n\t>-*_`~#|[]()<&!\\:1.a中😀\0\ud800", max_size=80))
@example("*1*_1_")
def test_whatever_characters_there_are_telegram_takes_the_entities(markdown: str) -> None:
    assert bool(seen(markdown)) == bool(markdown.strip())
    assert "\0" not in plain(markdown)

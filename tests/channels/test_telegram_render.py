"""What Markdown looks like in Telegram: every construct, and that nothing a model writes makes HTML Telegram refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from channels.telegram.document import width
from channels.telegram.render import ENTITIES_MAX, rendered
from tests.channels.telegram_html import plain, render, seen
from tests.channels.telegram_texts import check_nothing_is_lost, nasty


def looks(*markdown: str) -> dict[str, str]:
    """What each becomes; a line end is shown as ⏎."""
    return {text.replace("\n", "⏎"): render(text).replace("\n", "⏎") for text in markdown}


def test_emphasis() -> None:
    assert looks(
        "**b** *i* _i_ __b__ ~~s~~ ||sp||", "||a || *b*|| c||", "***both***", "*a **b* c**", "2 * 3 * 4, a_b_c, a || b"
    ) == snapshot(
        {
            "**b** *i* _i_ __b__ ~~s~~ ||sp||": "<b>b</b> <i>i</i> <i>i</i> <b>b</b> <s>s</s> <tg-spoiler>sp</tg-spoiler>",
            "||a || *b*|| c||": "<tg-spoiler>a || <i>b</i></tg-spoiler> c||",
            "***both***": "<i><b>both</b></i>",
            "*a **b* c**": "<i>a b c</i>",
            "2 * 3 * 4, a_b_c, a || b": "2 * 3 * 4, a_b_c, a || b",
        }
    )


def test_code_stands_alone_inside_emphasis_and_gives_way_in_links_and_quotes() -> None:
    assert looks(
        "**use `x` now**", "**`x`**", "# Run `x`", "[`x`](https://a.bc)", "> the `x`", "`<b> & *x*`"
    ) == snapshot(
        {
            "**use `x` now**": "<b>use </b><code>x</code><b> now</b>",
            "**`x`**": "<code>x</code>",
            "# Run `x`": "<b>Run </b><code>x</code>",
            "[`x`](https://a.bc)": '<a href="https://a.bc">x</a>',
            "> the `x`": "<blockquote>the x</blockquote>",
            "`<b> & *x*`": "<code>&lt;b&gt; &amp; *x*</code>",
        }
    )


def test_code_blocks() -> None:
    assert looks(
        "```py\n  if a < b:\n\n    pass\n```",
        "```\nx\n```",
        "```python main.py\nx\n```",
        "```\n```",
        "a\n```js\nnever closed",
        "~~~a&b\nx\n~~~",
        "    indented\n    code",
    ) == snapshot(
        {
            "```py⏎  if a < b:⏎⏎    pass⏎```": '<pre><code class="language-py">  if a &lt; b:⏎⏎    pass</code></pre>',
            "```⏎x⏎```": "<pre>x</pre>",
            "```python main.py⏎x⏎```": 'main.py⏎<pre><code class="language-python">x</code></pre>',
            "```⏎```": "```⏎```",
            "a⏎```js⏎never closed": 'a⏎⏎<pre><code class="language-js">never closed</code></pre>',
            "~~~a&b⏎x⏎~~~": "a&amp;b⏎<pre>x</pre>",
            "    indented⏎    code": "<pre>indented⏎code</pre>",
        }
    )


def test_headings_rules_and_paragraphs() -> None:
    assert looks("# One\n## Two **bold**\ntext\nmore  \nend\n\n\n\npara", "Title\n===\n---\nx") == snapshot(
        {
            "# One⏎## Two **bold**⏎text⏎more  ⏎end⏎⏎⏎⏎para": "<b>One</b>⏎⏎<b>Two bold</b>⏎⏎text⏎more⏎end⏎⏎para",
            "Title⏎===⏎---⏎x": "<b>Title</b>⏎⏎———⏎⏎x",
        }
    )


def test_lists() -> None:
    assert looks(
        "- a\n- b\n  more\n  - c\n    1. d\n    2. e\n- f\n\nend",
        "3. c\n4. d\n\n   para",
        "0) zero",
        "- [ ] open\n- [x] done\n1. [X] first",
        "- x:\n  ```sh\n  ls\n  ```\n- y",
        "It was in\n\n2024.",
        "intro:\n- a\n\n- b",
    ) == snapshot(
        {
            "- a⏎- b⏎  more⏎  - c⏎    1. d⏎    2. e⏎- f⏎⏎end": "• a⏎• b⏎  more⏎  • c⏎    1. d⏎    2. e⏎• f⏎⏎end",
            "3. c⏎4. d⏎⏎   para": "3. c⏎⏎4. d⏎⏎   para",
            "0) zero": "0) zero",
            "- [ ] open⏎- [x] done⏎1. [X] first": "☐ open⏎☑ done⏎⏎1. ☑ first",
            "- x:⏎  ```sh⏎  ls⏎  ```⏎- y": '• x:⏎<pre><code class="language-sh">ls</code></pre>⏎• y',
            "It was in⏎⏎2024.": "It was in⏎⏎2024.",
            "intro:⏎- a⏎⏎- b": "intro:⏎⏎• a⏎⏎• b",
        }
    )


def test_quotes_are_flat_and_code_blocks_stand_outside_of_them() -> None:
    assert looks("> a\n> b\n>> c\n\nd", "> a\n> ```\n> x\n> ```\n> b", "> - x\n> - y") == snapshot(
        {
            "> a⏎> b⏎>> c⏎⏎d": "<blockquote>a⏎b⏎⏎c</blockquote>⏎⏎d",
            "> a⏎> ```⏎> x⏎> ```⏎> b": "<blockquote>a</blockquote>⏎⏎<pre>x</pre>⏎⏎<blockquote>b</blockquote>",
            "> - x⏎> - y": "<blockquote>• x⏎• y</blockquote>",
        }
    )


def test_links() -> None:
    assert looks(
        '[a](https://a.bc/?x=1&y="2" "title")',
        "<https://a.bc>",
        "<me@a.bc> [m](mailto:me@a.bc)",
        "[t](tg://resolve?domain=x)",
        "[a](javascript:alert(1)) [b](file:///x)",
        "[c](../d.md) [e]()",
        "[dev](http://localhost:3000)",
        "[you](tg://user?id=7) [you](tg:user?id=7)",
        "[**b** x](https://a.bc)",
        "[](https://a.bc)",
        "![alt *x*](https://a.bc/i.png)",
        "![](https://a.bc/i.png)",
        "[![badge](https://a.bc/i.png)](https://a.bc)",
        "[ref][1]\n\n[1]: https://a.bc",
    ) == snapshot(
        {
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
            "[ref][1]⏎⏎[1]: https://a.bc": "[ref][1]⏎⏎[1]: https://a.bc",
        }
    )


def test_raw_html_and_entities_are_text() -> None:
    assert looks(
        '<b>x</b><br> <a href="u">', "<div>\n*x*\n</div>", "&lt;b&gt; &amp;amp; &copy; &nope; &#65;", "a < b && c > d"
    ) == snapshot(
        {
            '<b>x</b><br> <a href="u">': '&lt;b&gt;x&lt;/b&gt;&lt;br&gt; &lt;a href="u"&gt;',
            "<div>⏎*x*⏎</div>": "&lt;div&gt;⏎<i>x</i>⏎&lt;/div&gt;",
            "&lt;b&gt; &amp;amp; &copy; &nope; &#65;": "&lt;b&gt; &amp;amp; © &amp;nope; A",
            "a < b && c > d": "a &lt; b &amp;&amp; c &gt; d",
        }
    )


def test_a_narrow_table_is_a_grid_of_even_columns() -> None:
    tables = [
        "| Name | Amount |\n|---|--:|\n| 苹果 | 1 |\n| 👍🏽 ok | 1000 |",
        "|a|b|\n|:-:|-|\n|`x\\|y`|**z**|too|many|\n|short",
        "> |a|b|\n> |-|-|\n> |1|2|3|",
    ]
    assert [render(table) for table in tables] == snapshot(
        [
            """\
<pre>Name  | Amount
------+-------
苹果  |      1
👍🏽 ok |   1000</pre>\
""",
            """\
<pre>  a   | b
------+---------------
 x|y  | z | too | many
short |</pre>\
""",
            """\
<pre>a | b
--+------
1 | 2 | 3</pre>\
""",
        ]
    )


def test_a_wide_table_and_one_with_links_are_lines_with_the_head_before_every_cell() -> None:
    tables = [
        "|Name|Text|\n|-|-|\n|one|" + "long " * 11 + "|\n||**two**|",
        "|a|b|\n|-|-|\n|[x](https://a.bc)|y|",
    ]
    assert [render(table) for table in tables] == snapshot(
        [
            """\
<b>Name</b>: one
<b>Text</b>: long long long long long long long long long long long

<b>Name</b>: –
<b>Text</b>: <b>two</b>\
""",
            """\
<b>a</b>: <a href="https://a.bc">x</a>
<b>b</b>: y\
""",
        ]
    )


def test_a_table_of_very_many_columns_is_shown_as_it_is() -> None:
    table = "|a" * 30 + "\n" + "|-" * 30 + "\n" + "|b" * 30
    assert render(table) == table


def test_what_telegram_cannot_take_is_replaced() -> None:
    assert looks("a\0b", "a\ud800b", "\ud83d\ude00", "a\r\nb\rc") == snapshot(
        {"a\x00b": "a�b", "a\ud800b": "a�b", "\ud83d\ude00": "😀", "a\r⏎b\rc": "a⏎b⏎c"}
    )


def test_markdown_that_would_show_nothing_is_shown_as_it_is() -> None:
    assert looks("#", ">", "```\n```", "", " \n ") == snapshot(
        {"#": "#", ">": "&gt;", "```⏎```": "```⏎```", "": "", " ⏎ ": ""}
    )


def test_plain_text_has_no_markup_and_keeps_the_addresses() -> None:
    markdown = "# T\n**b** `c` [x](https://a.bc/ü) <https://a.bc> <b>\n- y\n\n> q\n\n```py\n1 < 2\n```"
    assert plain(markdown) == snapshot("""\
T

b c x (https://a.bc/ü) https://a.bc <b>

• y

q

1 < 2\
""")


def test_beyond_a_hundred_entities_text_is_plain_and_links_show_their_address() -> None:
    markdown = "**b** " * (ENTITIES_MAX - 1) + "**[*x*](https://a.bc)** [y](https://d.ef/g) *z*"
    html = render(markdown)
    assert len(rendered(markdown).entities) == ENTITIES_MAX == 100
    assert html.endswith("<b>x (https://a.bc)</b> y (https://d.ef/g) z")


CELLS = {"abc": 3, "中文": 4, "é": 1, "e\u0301": 1, "😀": 2, "👍🏽": 2, "👨‍👩‍👧": 2, "🇩🇪": 2, "❤️": 2, "ｱ": 1}


@pytest.mark.parametrize(("text", "cells"), CELLS.items())
def test_width_is_what_a_terminal_shows(text: str, cells: int) -> None:
    assert width(text) == cells


@pytest.mark.parametrize(
    "text",
    [">" * 3_000 + "x", "- " * 2_000 + "x", "[" * 4_000, "*a" * 2_000, "`" * 4_000, "1. " * 999, ">" * 99 + "\0x"],
)
def test_what_is_nested_beyond_reason_is_still_shown(text: str) -> None:
    assert seen(text).strip()
    assert "\0" not in seen(text)
    assert "x" not in text or "x" in seen(text)


@given(nasty(repeats=2))
@settings(max_examples=300, deadline=None)
def test_whatever_a_model_writes_telegram_takes_the_entities_and_nothing_is_lost(markdown: str) -> None:
    check_nothing_is_lost(markdown, seen(markdown))
    check_nothing_is_lost(markdown, plain(markdown))


@given(st.text(alphabet=" \n\t>-*_`~#|[]()<&!\\:1.a中😀\0\ud800", max_size=80))
@settings(max_examples=500, deadline=None)
def test_whatever_characters_there_are_telegram_takes_the_entities(markdown: str) -> None:
    assert bool(seen(markdown)) == bool(markdown.strip())
    assert "\0" not in plain(markdown)

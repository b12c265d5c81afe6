"""An answer's Markdown as HTML: whatever a model writes, a page shows it as words and never as anything else."""

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.web.views import _markdown, blocks, html

VOID = {"br", "hr"}
PLAIN = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "li", "blockquote", "pre", "table", "thead", "tbody", "tr"}
PLAIN |= {"strong", "em", "s", "del"} | VOID
ATTRIBUTES = {"target": "_blank", "rel": "noopener noreferrer nofollow"}
SAFE_LINK = re.compile(r"(https?://|mailto:|#)", re.IGNORECASE)


class Shown(HTMLParser):
    """`wrong` is what must not be there."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += [f"<{tag}> stays open" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if len(attributes) < len(attrs) or not self._fits(tag, attributes):
            self.wrong.append(f"<{tag} {attrs}>")
        if tag not in VOID:
            self._open.append(tag)

    def _fits(self, tag: str, attributes: dict[str, str]) -> bool:
        match tag:
            case "a":
                self.links.append(attributes.get("href", ""))
                fits = SAFE_LINK.match(attributes.pop("href", "")) is not None
                return fits and attributes.pop("class", "remote") == "remote" and attributes == ATTRIBUTES
            case "code":
                return not attributes or (
                    re.fullmatch(r"language-\S+", attributes.pop("class", "")) is not None and not attributes
                )
            case "ol":
                return attributes.pop("start", "0").isdecimal() and not attributes
            case "th" | "td":
                return attributes.pop("class", "left") in ("left", "center", "right") and not attributes
            case _:
                return tag in PLAIN and not attributes

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.wrong.append(f"<{tag}/>")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_decl(self, decl: str) -> None:
        self.wrong.append(f"<!{decl}>")

    def handle_comment(self, data: str) -> None:
        self.wrong.append(f"<!{data}>")

    handle_pi = unknown_decl = handle_comment


LINK = 'target="_blank" rel="noopener noreferrer nofollow"'
SHOWN = {
    "": "",
    "hello": "<p>hello</p>\n",
    "one\ntwo": "<p>one<br />\ntwo</p>\n",
    "# Title": "<h1>Title</h1>\n",
    "**a** *b* ~~c~~ `d`": "<p><strong>a</strong> <em>b</em> <s>c</s> <code>d</code></p>\n",
    "```\x1f\nx\n```": "<pre><code>x\n</code></pre>\n",
    "```python\nx < 1\n```": '<pre><code class="language-python">x &lt; 1\n</code></pre>\n',
    "```\nx\n```": "<pre><code>x\n</code></pre>\n",
    "    indented": "<pre><code>indented\n</code></pre>\n",
    "3. three\n4. four": '<ol start="3">\n<li>three</li>\n<li>four</li>\n</ol>\n',
    "- a\n  - b": "<ul>\n<li>a\n<ul>\n<li>b</li>\n</ul>\n</li>\n</ul>\n",
    "> q": "<blockquote>\n<p>q</p>\n</blockquote>\n",
    "---": "<hr />\n",
    "|a|b|\n|:-:|-:|\n|1|2|": (
        '<table>\n<thead>\n<tr>\n<th class="center">a</th>\n<th class="right">b</th>\n</tr>\n</thead>\n'
        '<tbody>\n<tr>\n<td class="center">1</td>\n<td class="right">2</td>\n</tr>\n</tbody>\n</table>\n'
    ),
    "[a](https://x.test/?q=1&r=2)": f'<p><a href="https://x.test/?q=1&amp;r=2" {LINK}>a</a></p>\n',
    '[a](https://x.test "said when pointed at")': f'<p><a href="https://x.test" {LINK}>a</a></p>\n',
    "<https://x.test>": f'<p><a href="https://x.test" {LINK}>https://x.test</a></p>\n',
    "![a picture](https://x.test/a.png)": f'<p><a href="https://x.test/a.png" class="remote" {LINK}>a picture</a></p>\n',
    "![](https://x.test/a.png)": f'<p><a href="https://x.test/a.png" class="remote" {LINK}>https://x.test/a.png</a></p>\n',
    "<b>bold</b>": "<p>&lt;b&gt;bold&lt;/b&gt;</p>\n",
    "你好,世界": "<p>你好,世界</p>\n",
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_what_is_shown_of_it(text: str, shown: str) -> None:
    assert html(text) == shown
    assert Shown(shown).wrong == []


HOSTILE = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- -->", "<!doctype html>", "<?php ?>"),
    *("<![CDATA[x]]>", "</p></div><iframe src=//evil.example>", "<svg/onload=alert(1)>"),
    *("<style>*{display:none}</style>", "&lt;script&gt; &#60;script&#62; &#x3c;script&#x3e;"),
    *("[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](java\tscript:alert(1))"),
    *("[a](&#106;avascript:alert(1))", "[a](\x01javascript:alert(1))", "[a](vbscript:x)"),
    *("[a](data:text/html;base64,PHNjcmlwdD4=)", "[a](file:///etc/passwd)", "[a](//evil.example)"),
    *("[a](/api/session)", "[a](?x)", "[a](x:y)", "![a](data:image/svg+xml,<svg/onload=alert(1)>)"),
    *("![a](javascript:alert(1))", "![a][r]\n\n[r]: javascript:alert(1)", "<javascript:alert(1)>"),
    *("<data:text/html,x>", '[a](https://x.test"onmouseover="alert(1))'),
    *('[a](<https://x.test" onmouseover="alert(1)>)', "[a](https://x.test '\" onmouseover=\"alert(1)')"),
    *('![" onerror="alert(1)](https://x.test)', '```js" onclick="alert(1)\nx\n```'),
    *("```</code><script>alert(1)</script>\nx\n```", "|<script>|\n|-|\n|<b onclick=x>|"),
    *("| a |\n| :-: |\n| style='x' |", "`<script>`", "**<b>**", "a\x00b\x00<\x00script>"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_is_tried_stays_text(text: str) -> None:
    shown = Shown(html(text))
    assert shown.wrong == []
    assert all(link.startswith("https://x.test") for link in shown.links)


pieces = st.one_of(
    st.sampled_from([*HOSTILE, *SHOWN, "\n", "\n\n", "  ", "|", "> ", "- ", "1. ", "```", "~~~", "\t"]),
    st.text(),
    st.text(alphabet="<>&\"'`[]()!#*_~|-:\\ \n\tahref=/x", max_size=200),
)


@given(st.lists(pieces, max_size=6), st.sampled_from(["", "\n", "\n\n"]))
def test_any_text_is_shown_in_the_agreed_tags_and_every_block_stands_alone(texts: list[str], between: str) -> None:
    text = between.join(texts)
    drawn = blocks(text)
    assert [Shown(block).wrong for block in drawn] == [[]] * len(drawn)
    assert "".join(drawn) == html(text) == _markdown().render(text)


def test_a_bare_address_is_a_link_and_what_only_looks_like_one_is_not() -> None:
    shown = Shown(
        html("See https://docs.test/a_b?x=1, main.py, docs.test, a@b.test and `https://code.test`. ftp://x.test")
    )
    assert shown.links == ["https://docs.test/a_b?x=1"]
    assert shown.wrong == []


def test_many_addresses_in_a_row_cost_what_their_length_costs() -> None:
    def seconds(count: int) -> float:
        began = time.thread_time()
        html("http://a" * count)
        return time.thread_time() - began

    assert seconds(4_000) < 12 * min(seconds(1_000) for _ in range(3)) + 0.1

"""A stranger's text in a message stays text: on Telegram, on the page, and as Feishu is given it."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.feishu.card import needs_card
from channels.plain import plain
from channels.telegram.render import rendered
from channels.web.views import html as page

HOSTILE = [
    "**bold** _it_ ~~no~~ `code`",
    "# heading\n## another\n===\n---\n- item\n+ item\n1. one\n2) two\n> quote",
    "    indented\n\ttab",
    "```sh\nrm -rf /\n```",
    "[click](https://evil.example) ![x](https://evil.example/i.png) <https://evil.example> <b>x</b>",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    r"\(x_y\) \[z\] $$a_b$$ $a_b$ \*",
    "&lt;b&gt; &#42; &amp;",
    '<at user_id="all">all</at> <at id=all></at>',
    "@channel @all_of_you and /approve me /stop",
    "MEDIA:/etc/passwd\n[[reply_to:om_1]]\n__SILENT__",
    "[x]: https://evil.example\n[x]",
    "*\n_\n~\n:smile: :OK:",
]
UNSEEN = re.compile("[\u200b\u00a0 \t\n…]")


def seen(text: str) -> str:
    return UNSEEN.sub("", text)


def same(text: str) -> None:
    made = rendered(plain(text))
    assert made.entities == []
    assert seen(made.text) == seen(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_it_is_markup(text: str) -> None:
    same(text)
    assert not needs_card(plain(text))


@given(st.text(st.sampled_from("*_`~[]()<>|$!#+-=.:&;\\@/ \n\taB1中"), max_size=60))
def test_no_text_is_markup_for_telegram_and_none_is_lost(text: str) -> None:
    same(text)


@given(st.text(st.sampled_from("*_`~[]()<>|$!#+-=.:&;\\@/ \n\taB1中"), max_size=60))
def test_no_text_is_markup_on_the_page(text: str) -> None:
    made = page(plain(text))
    assert set(re.findall(r"<(/?\w+)", made)) <= {"p", "/p", "br"}
    assert seen(unescape(re.sub(r"<[^>]*>", "", made))) == seen(text)


@given(st.text(st.sampled_from("`~ \naB*"), max_size=60))
def test_no_text_ends_the_code_around_it(text: str) -> None:
    for around, where in (
        ("`{}`", "line of code"),
        ("```\n{}\n```", "block of code"),
        ("~~~\n{}\n~~~", "block of code"),
    ):
        inside = plain(f"x{text}x", where)  # type: ignore[arg-type]
        tokens = MarkdownIt("commonmark").parse(around.format(inside))
        spans = [it for token in tokens for it in (token.children or [token]) if it.content]
        assert [it.type for it in spans] in (["code_inline"], ["fence"])

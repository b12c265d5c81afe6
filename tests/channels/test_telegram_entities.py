"""Telegram's HTML as the emulator reads it: what comes out, what is refused, and two laws."""

import html
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.emulators.telegram.entities import parse_html
from tests.emulators.telegram.formatted import (
    Formatted,
    Unparsable,
    covered_by,
    given_entities,
    trimmed,
    utf16_length,
    with_found,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
TAGS = ["b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "tg-spoiler", "blockquote", "code", "pre"]


def named(formatted: Formatted) -> list[tuple[str, str]]:
    """The entities as a person would say them: what kind, of which words."""
    return [(entity["type"], covered_by(formatted.text, entity)) for entity in formatted.entities]


@pytest.mark.parametrize(
    ("source", "text", "entities"),
    [
        ("plain", "plain", []),
        ("Hello <b>there</b>", "Hello there", [("bold", "there")]),
        ("<strong>a</strong> <em>b</em> <ins>c</ins>", "a b c", [("bold", "a"), ("italic", "b"), ("underline", "c")]),
        ("<s>a</s> <strike>b</strike>", "a b", [("strikethrough", "a"), ("strikethrough", "b")]),
        ("<del>a</del> <u>b</u>", "a b", [("strikethrough", "a"), ("underline", "b")]),
        ('<span class="tg-spoiler">a</span>', "a", [("spoiler", "a")]),
        ("<tg-spoiler>a</tg-spoiler>", "a", [("spoiler", "a")]),
        ("<B>a</B>", "a", [("bold", "a")]),
        ("<b>a</>", "a", [("bold", "a")]),
        ("<b\n>a</b >", "a", [("bold", "a")]),
        ("👨‍👩‍👧‍👦 𝒳 <b>жир</b>", "👨‍👩‍👧‍👦 𝒳 жир", [("bold", "жир")]),
        ("<b>bold <i>both</i></b>", "bold both", [("bold", "bold both"), ("italic", "both")]),
        ("<b>a<b>b</b>c</b>", "abc", [("bold", "abc")]),
        ("<b></b>a", "a", []),
        ("<code>x &lt; y</code>", "x < y", [("code", "x < y")]),
        ("<b>a <code>x</code> c</b>", "a x c", [("bold", "a "), ("code", "x"), ("bold", " c")]),
        ("<code>a<b>b</b></code>", "ab", [("code", "ab")]),
        ("<pre>a</pre>", "a", [("pre", "a")]),
        ("<pre>a<code>b</code></pre>", "ab", [("pre", "ab")]),
        ("<blockquote>a <b>b</b></blockquote>", "a b", [("blockquote", "a b"), ("bold", "b")]),
        ("<blockquote expandable>a</blockquote>", "a", [("expandable_blockquote", "a")]),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>", "ab", [("blockquote", "ab")]),
        ("<a href='nowhere'>a</a>", "a", []),
        ("<a href='mailto:a@b.c'>a</a>", "a", []),
        ("<a href='http://[x'>a</a>", "a", []),
        ("&lt;b&gt; &amp; &quot;", '<b> & "', []),
        ("&#65;&#x42;&#x1F600;", "AB😀", []),
        ("&nbsp;&copy; & a&b &#0; &#xD800; &", "&nbsp;&copy; & a&b &#0; &#xD800; &", []),
    ],
)
def test_tags_become_entities_and_the_rest_stays(source: str, text: str, entities: list[tuple[str, str]]) -> None:
    parsed = parse_html(source)
    assert parsed.text == text
    assert named(parsed) == entities


@pytest.mark.parametrize(
    ("source", "entity"),
    [
        ('<a href="https://example.com/?a=1&amp;b=2">x</a>', {"type": "text_link", "url": "https://example.com/?a=1&b=2"}),
        ("<a href='example.com'>x</a>", {"type": "text_link", "url": "http://example.com/"}),
        ('<a href="tg://user?id=500000011">x</a>', {"type": "text_mention", "user": {"id": 500000011}}),
        ('<pre><code class="language-python">x</code></pre>', {"type": "pre", "language": "python"}),
        ('<code class="language-python">x</code>', {"type": "code"}),
        ('<tg-emoji emoji-id="5368324170671202286">x</tg-emoji>', {"type": "custom_emoji", "custom_emoji_id": "5368324170671202286"}),  # noqa: E501
        ('<tg-time unix="1647531900" format="t">x</tg-time>', {"type": "date_time", "unix_time": 1647531900, "date_time_format": "t"}),  # noqa: E501
    ],
)  # fmt: skip
def test_an_attribute_ends_up_in_the_entity(source: str, entity: dict[str, Any]) -> None:
    assert parse_html(source).entities == ({"offset": 0, "length": 1, **entity},)


@pytest.mark.parametrize(
    "source",
    [
        *("Hello world<br>", "<br/>", "привет <p>a</p>", "😀<h1>a</h1>", "a < b", "ab <b", "ab <b ", 'ab <a href="x'),
        *("ab <a href=x", "<b>a</b", "ab</b>", "<b>ж</i>", "<b>a<i>b</b></i>", "<b><code>a", "a<span>b</span>"),
        *('<span class="big">b</span>', "<a =x>b</a>", "<a href=a:b>b</a>", "<tg-emoji>b</tg-emoji>"),
        "<tg-time unix='now'>b</tg-time>",
    ],
)
def test_what_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(Unparsable):
        parse_html(source)


@pytest.mark.parametrize(("offset", "length"), [(1, 1), (0, 1), (2, 9), (5, 1), (-1, 1), ("0", 1)])
def test_a_given_entity_must_lie_on_whole_characters_of_the_text(offset: Any, length: int) -> None:
    with pytest.raises(Unparsable):
        given_entities("😀ab", [{"type": "bold", "offset": offset, "length": length}])


def test_given_entities_are_kept_and_those_of_kinds_that_telegram_finds_itself_are_not() -> None:
    rows = [
        {"type": "pre", "offset": 2, "length": 2, "language": "go"},
        {"type": "mention", "offset": 0, "length": 2},
        {"type": "bold", "offset": 2, "length": 0},
    ]
    assert given_entities("😀ab", rows).entities == ({"offset": 2, "length": 2, "type": "pre", "language": "go"},)


def test_of_a_hundred_and_more_entities_a_hundred_are_kept() -> None:
    assert len(parse_html("<b>a</b> " * 130).entities) == 100


def test_space_around_the_text_goes_and_the_entities_move_along() -> None:
    parsed = trimmed(parse_html("\n 😀 <b> a </b> <i> </i>\n"))
    assert parsed.text == "😀  a"
    assert parsed.entities == ({"offset": 3, "length": 2, "type": "bold"},)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("🔥🔥 @fixture_helper_bot what is new?", [("mention", "@fixture_helper_bot")]),
        ("@FIXTURE_HELPER_BOT ping", [("mention", "@FIXTURE_HELPER_BOT")]),
        ("/start ref_42", [("bot_command", "/start")]),
        ("/ask@fixture_helper_bot do", [("bot_command", "/ask@fixture_helper_bot")]),
        ("mail me at bob@fixture_helper_bot", []),
        ("and/or, 1/2, /etc/hosts, @me", []),
        ("see https://example.com/a?b=@alice, then @alice", [("url", "https://example.com/a?b=@alice"), ("mention", "@alice")]),  # noqa: E501
    ],
)  # fmt: skip
def test_telegram_finds_mentions_commands_and_addresses_by_itself(text: str, found: list[tuple[str, str]]) -> None:
    assert named(with_found(Formatted(text=text))) == found


def test_nothing_is_found_in_code_and_links() -> None:
    parsed = with_found(parse_html('<code>@alice</code> <a href="https://a.bc">@alice</a> <b>@alice</b>'))
    assert [kind for kind, _ in named(parsed)] == ["code", "text_link", "bold", "mention"]


@given(TEXT)
@example("&lt; & &#65; <b>")
def test_text_that_is_escaped_comes_out_as_it_was(text: str) -> None:
    assert parse_html(html.escape(text)) == Formatted(text=text)


@given(st.lists(st.tuples(st.sampled_from([*TAGS, None]), TEXT), max_size=8))
def test_an_entity_covers_in_utf16_units_what_its_tag_was_around(pieces: list[tuple[str | None, str]]) -> None:
    # a dot after each piece, because neighbours of the same style become one
    source = "".join(f"<{tag}>{html.escape(text)}</{tag}>." if tag else html.escape(text) + "." for tag, text in pieces)
    parsed = parse_html(source)
    assert parsed.text == "".join(text + "." for _, text in pieces)
    assert [words for _, words in named(parsed)] == [text for tag, text in pieces if tag and text]
    before, expected = 0, []
    for tag, text in pieces:
        if tag and text:
            expected.append((before, utf16_length(text)))
        before += utf16_length(text) + 1
    assert [(entity["offset"], entity["length"]) for entity in parsed.entities] == expected


@given(st.text(alphabet='<>/abi ="&;é😀\n', max_size=30))
def test_whatever_is_read_or_refused_the_entities_lie_inside_the_text(source: str) -> None:
    try:
        parsed = trimmed(parse_html(source))
    except Unparsable:
        return
    for entity in parsed.entities:
        assert entity["length"] > 0
        assert 0 <= entity["offset"] <= entity["offset"] + entity["length"] <= parsed.length
        covered_by(parsed.text, entity)

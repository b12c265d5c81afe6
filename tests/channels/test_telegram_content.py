"""A message of Telegram as Markdown: how its words are marked, and each block and node of a rich message."""

from collections.abc import Iterator
from typing import Any

import pytest

from channels.channel import Arrived
from channels.telegram.content import Me
from channels.telegram.updates import receipt
from tests.channels.telegram_samples import BOT_ID, BOT_USERNAME
from tests.channels.test_telegram_receive import GROUP, ME, NOW, arrived, entity, message

BOLD = {"type": "bold", "text": "loud"}
FILE = {"file_id": "AgAC-1", "file_unique_id": "u1"}
SIZE = {**FILE, "width": 90, "height": 60}
FILM = {**SIZE, "duration": 3, "file_name": "film.mp4"}
CAPTION = {"text": ["under ", BOLD], "credit": "by Dana"}
PARAGRAPH = {"type": "paragraph", "text": "inside"}
USER = {"id": 500000012, "is_bot": False, "first_name": "Dana"}

BLOCKS: list[dict[str, Any]] = [
    {"type": "paragraph", "text": ["a", BOLD]},
    {"type": "heading", "text": "Title", "size": 2},
    {"type": "pre", "text": "print(1)", "language": "python"},
    {"type": "footer", "text": "small print"},
    {"type": "divider"},
    {"type": "mathematical_expression", "expression": "E=mc^2"},
    {"type": "anchor", "name": "here"},
    {"type": "list", "items": [{"label": "1.", "blocks": [PARAGRAPH], "value": 1, "type": "1"}]},
    {"type": "blockquote", "blocks": [PARAGRAPH], "credit": "by Dana"},
    {"type": "expandable_blockquote", "text": "quoted", "credit": "by Dana"},
    {"type": "pullquote", "text": "pulled", "credit": "by Dana"},
    {"type": "collage", "blocks": [{"type": "photo", "photo": [SIZE]}, PARAGRAPH], "caption": CAPTION},
    {"type": "slideshow", "blocks": [{"type": "photo", "photo": [SIZE]}], "caption": CAPTION},
    {"type": "table", "cells": [[{"text": BOLD, "align": "left", "valign": "top"}]], "caption": "Sums"},
    {"type": "details", "summary": "More", "blocks": [PARAGRAPH]},
    {
        "type": "map",
        "location": {"latitude": 1.5, "longitude": 2.5},
        "zoom": 3,
        "width": 9,
        "height": 9,
        "caption": CAPTION,
    },
    {"type": "photo", "photo": [SIZE], "caption": CAPTION},
    {"type": "video", "video": FILM, "caption": CAPTION},
    {"type": "audio", "audio": {**FILE, "duration": 3, "title": "Song", "performer": "Band"}, "caption": CAPTION},
    {"type": "animation", "animation": FILM, "caption": CAPTION},
    {"type": "document", "document": {**FILE, "file_name": "a.pdf"}, "caption": CAPTION},
    {"type": "voice_note", "voice_note": {**FILE, "duration": 3}, "caption": CAPTION},
    {"type": "buttons", "buttons": [{"text": "Open", "url": "https://x.y"}, {"text": "Yes", "callback_data": "yes-1"}]},
    {"type": "thinking", "text": "hmm"},
]
NODES: list[dict[str, Any]] = [
    *({"type": kind, "text": "words"} for kind in ("bold", "italic", "underline", "strikethrough", "spoiler", "code")),
    *({"type": kind, "text": "words"} for kind in ("marked", "subscript", "superscript")),
    {"type": "url", "text": BOLD, "url": "https://x.y/z"},
    {"type": "email_address", "text": "write", "email_address": "a@b.example"},
    {"type": "phone_number", "text": "call", "phone_number": "+4712345678"},
    {"type": "bank_card_number", "text": "card", "bank_card_number": "4242"},
    {"type": "hashtag", "text": "#topic", "hashtag": "topic"},
    {"type": "cashtag", "text": "$TON", "cashtag": "TON"},
    {"type": "mention", "text": BOLD, "username": "dana_samples"},
    {"type": "text_mention", "text": [BOLD, "!"], "user": USER},
    {"type": "bot_command", "text": "/help", "bot_command": "/help"},
    {"type": "custom_emoji", "custom_emoji_id": "5", "alternative_text": "🔥"},
    {"type": "mathematical_expression", "expression": "x^2"},
    {"type": "date_time", "text": "noon", "unix_time": 1790000000, "date_time_format": "t"},
    {"type": "anchor", "name": "here"},
    {"type": "anchor_link", "text": "up", "anchor_name": "here"},
    {"type": "reference", "text": "note one", "name": "1"},
    {"type": "reference_link", "text": "see", "reference_name": "1"},
    {"type": "button", "button": {"text": "Open", "url": "https://x.y"}},
]
UNSAID = ("type", "file_unique_id", "align", "valign", "custom_emoji_id", "date_time_format", "name", "first_name")
"""What shows nothing to a person: kinds, places on the page, names that only links use."""


def rich(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return message(None, rich_message={"blocks": list(blocks)}, **more)


def strings(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, key)
    elif isinstance(value, str) and key not in UNSAID:
        yield value


RICH = [*BLOCKS, *({"type": "paragraph", "text": ["see ", node]} for node in NODES)]


@pytest.mark.parametrize("block", RICH, ids=lambda it: str(it.get("text", it["type"]))[:40])
def test_rich_message_gives_every_string_and_file_of_every_block_and_node(block: dict[str, Any]) -> None:
    alone = [block] if block["type"] != "anchor" else [block, PARAGRAPH]
    context = arrived(rich(*alone)).context
    given = context.text + " ".join(f"{it.key} {it.name}" for it in context.attachments)
    assert [it for it in strings(block) if it.strip() not in given] == []
    again = arrived(message("look", reply_to_message=rich(*alone, message_id=5))).context.reply_to
    assert again is not None
    assert (again.text, again.attachments) == (context.text, context.attachments)


def test_rich_message_of_an_unknown_block_is_read_or_named() -> None:
    assert arrived(rich({"type": "hologram", "text": "words"})).context.text == "words"
    assert arrived(rich({"type": "hologram", "size": 3})).context.text == "[unsupported: hologram]"


def test_rich_list_shows_what_is_checked() -> None:
    items = [{"label": "☐", "blocks": [PARAGRAPH], "has_checkbox": True, "is_checked": it} for it in (True, False)]
    assert arrived(rich({"type": "list", "items": items})).context.text == "- [x] inside\n- [ ] inside"


MINE = [
    {"type": "mention", "text": BOLD, "username": BOT_USERNAME.upper()},
    {"type": "mention", "text": ["@", BOT_USERNAME], "username": BOT_USERNAME},
    {"type": "text_mention", "text": BOLD, "user": {**USER, "id": BOT_ID}},
]


@pytest.mark.parametrize("node", MINE, ids=lambda it: f"{it['type']} {type(it['text']).__name__}")
@pytest.mark.parametrize("place", ["paragraph", "caption", "bold", "alone"])
def test_rich_mention_of_the_bot_counts_wherever_it_is(node: dict[str, Any], place: str) -> None:
    blocks: dict[str, dict[str, Any]] = {
        "paragraph": {"type": "paragraph", "text": [node, " hi"]},
        "caption": {"type": "photo", "photo": [SIZE], "caption": {"text": [node, " hi"]}},
        "bold": {"type": "paragraph", "text": {"type": "bold", "text": [node, " hi"]}},
        "alone": {"type": "paragraph", "text": node},
    }
    context = arrived(rich(blocks[place], chat=GROUP)).context
    assert (context.mentioned, bool(context.text)) == (True, True)
    assert place == "alone" or context.text.strip("*").endswith("hi")


@pytest.mark.parametrize(
    ("command", "text", "mentioned"),
    [(f"/new@{BOT_USERNAME}", "/new", True), ("/stop", "/stop", True), ("/new@other_bot", None, None)],
)
def test_rich_command_is_the_bots_as_in_a_text(command: str, text: str | None, mentioned: bool | None) -> None:
    block = {"type": "paragraph", "text": {"type": "bot_command", "text": command, "bot_command": command}}
    update = {"update_id": 1, "message": rich(block, chat=GROUP)}
    found = receipt(update, account="default", me=ME, now=NOW)
    got = (found.context.text, found.context.mentioned) if isinstance(found, Arrived) else (None, None)
    assert got == (text, mentioned)


MARKED = [
    (["strikethrough"], "buy 😀 milk and eggs", "milk", "buy 😀 ~~milk~~ and eggs"),
    (["spoiler"], "it was him", "him", "it was ||him||"),
    (["code"], "run rm -rf now", "rm -rf", "run `rm -rf` now"),
    (["code"], "run a`b now", "a`b", "run `` a`b `` now"),
    (["bold"], "only the red one", " red ", "only the **red** one"),
    (["italic"], "really", "really", "*really*"),
    (["underline"], "really", "really", "__really__"),
    (["bold", "italic"], "only this one", "this", "only ***this*** one"),
    (["blockquote", "bold"], "said so", "said so", "> **said so**"),
    (["text_link", "bold"], "see it", "it", "see [**it**](https://x.y)"),
    (["bold", "bot_command"], "/stop", "/stop", "/stop"),
]


@pytest.mark.parametrize(("kinds", "text", "words", "shown"), MARKED, ids=[" ".join(it[0]) for it in MARKED])
@pytest.mark.parametrize("where", ["text", "caption"])
def test_mark_of_words_reaches_the_model_also_nested(
    kinds: list[str], text: str, words: str, shown: str, where: str
) -> None:
    entities = [entity(kind, words, text, url="https://x.y") for kind in kinds]
    keys = {"text": "entities", "caption": "caption_entities"}
    context = arrived(message(None) | {where: text, keys[where]: entities}).context
    assert context.text == shown


def test_mention_inside_marked_words_is_the_bots() -> None:
    text = f"@{BOT_USERNAME} look here"
    entities = [entity("bold", text, text), entity("mention", f"@{BOT_USERNAME}", text), entity("code", "here", text)]
    context = arrived(message(text, entities=entities, chat=GROUP)).context
    assert (context.text, context.mentioned) == ("**look `here`**", True)
    assert not arrived(
        message(text, entities=entities, chat=GROUP), me=Me(id=1, username="other_bot")
    ).context.mentioned


LISTED: list[tuple[dict[str, Any], str]] = [
    (
        {
            "checklist": {
                "title": "Trip",
                "tasks": [{"id": 1, "text": "pack", "completion_date": 5}, {"id": 2, "text": "go"}],
            }
        },
        "[checklist: Trip — [x] pack / [ ] go]",
    ),
    (
        {
            "poll": {
                "question": "Lunch?",
                "options": [{"text": "Noodles", "voter_count": 2}, {"text": "Rice", "voter_count": 0}],
            }
        },
        "[poll: Lunch? — Noodles (2) / Rice (0)]",
    ),
    (
        {"poll": {"question": "1+1?", "options": [{"text": "2"}], "is_closed": True, "explanation": "sums"}},
        "[poll, closed: 1+1? — 2; sums]",
    ),
]


@pytest.mark.parametrize(("body", "text"), LISTED)
def test_checklist_says_what_is_done_and_poll_how_many_chose(body: dict[str, Any], text: str) -> None:
    assert arrived(message(None) | body).context.text == text


def test_reply_names_the_task_the_option_or_the_story_that_it_answers() -> None:
    checklist = {"title": "Trip", "tasks": [{"id": 1, "text": "pack"}, {"id": 2, "text": "go"}]}
    answered = message(None, message_id=5) | {"checklist": checklist}
    found = arrived(message("done", reply_to_message=answered, reply_to_checklist_task_id=2)).context.reply_to
    assert found is not None
    assert found.text == "[checklist: Trip — [ ] pack / [ ] go]\n[this task: go]"
    poll = {"question": "Lunch?", "options": [{"text": "Rice", "persistent_id": "a1"}]}
    answered = message(None, message_id=5) | {"poll": poll}
    found = arrived(message("why?", reply_to_message=answered, reply_to_poll_option_id="a1")).context.reply_to
    assert found is not None
    assert found.text == "[poll: Lunch? — Rice]\n[this option: Rice]"
    story = arrived(message("nice", reply_to_story={"chat": GROUP, "id": 3})).context.reply_to
    assert story is not None
    assert (story.text, story.sender, story.foreign) == ("[story]", "Team chat", True)

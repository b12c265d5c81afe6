"""A message of Feishu as text: every type and every node is read or named, alone and behind a mention of the bot."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from channels.channel import Arrived, Ignored
from channels.feishu.card import UNREADABLE_CARD
from channels.feishu.content import UNREAD
from channels.message import MessageContext
from tests.channels.test_feishu_receive import BOT, NOW, channel, delivered, emulator

MENTION = {"key": "@_user_1", "id": {"open_id": BOT}, "name": "Helper Bot", "mentioned_type": "bot"}
AT = {"tag": "at", "user_id": "@_user_1", "user_name": "Helper Bot"}
WORDS = {"tag": "text", "text": "nested words"}
PLAIN = {"tag": "plain_text", "content": "nested words"}


def arrived(kind: str, content: Any, **more: Any) -> MessageContext:
    raw = content if isinstance(content, str) else json.dumps(content)
    event = emulator().message_event(kind, raw, sender="ou_alice", chat="oc_1", **more)
    receipt = channel().receive(delivered(event), NOW)
    assert isinstance(receipt, Arrived), receipt
    return receipt.context


def in_group(kind: str, content: Any, **more: Any) -> MessageContext:
    return arrived(kind, content, chat_type="group", **more)


TYPES: dict[str, Any] = {
    "text": {"text": "hi"},
    "post": {"title": "", "content": [[WORDS]]},
    "image": {"image_key": "img_1"},
    "file": {"file_key": "f", "file_name": "a.pdf"},
    "folder": {"file_key": "f", "file_name": "plans"},
    "audio": {"file_key": "f", "duration": 2000},
    "media": {"file_key": "f", "image_key": "img_1", "file_name": "v.mp4", "duration": 2000},
    "video": {"file_key": "f", "file_name": "v.mp4"},
    "sticker": {"file_key": "f"},
    "interactive": {"title": "Bill", "elements": [[WORDS]]},
    "share_chat": {"chat_id": "oc_2"},
    "share_user": {"user_id": "ou_2"},
    "merge_forward": '"Merged and Forwarded Message"',
    "location": {"name": "Tower", "longitude": "121.4", "latitude": "31.2"},
    "share_calendar_event": {"summary": "Plan", "start_time": "1608265395000"},
    "calendar": {"summary": "Plan"},
    "general_calendar": {"title": "Plan"},
    "video_chat": {"topic": "Sync"},
    "todo": {"summary": "buy milk", "due_time": 1608265395000},
    "vote": {"topic": "Lunch", "options": ["a"]},
    "hongbao": {"text": "[红包]"},
    "newest": {"a": {"text": "nested words"}},
}


@pytest.mark.parametrize("shape", ["as it is", "empty", "null", "content lost"])
@pytest.mark.parametrize("kind", TYPES)
def test_message_of_every_type_arrives_with_words_whatever_it_lacks(kind: str, shape: str) -> None:
    content: Any = {
        "as it is": TYPES[kind],
        "empty": {},
        "null": dict.fromkeys(TYPES[kind] if isinstance(TYPES[kind], dict) else ()),
    }.get(shape, "")
    for context in (arrived(kind, content), in_group(kind, content, mentions=[MENTION], parent_id="om_before")):
        assert context.text.strip()
        assert not any(it in context.text for it in ("[]", ": ]", "(, )", "None", "null"))
    assert context.mentioned
    assert context.reply_to is not None


NODES: dict[str, tuple[dict[str, Any], str, int]] = {
    "text": (WORDS, "nested words", 0),
    "bold code": ({"tag": "text", "text": " x ", "style": ["bold", "code"]}, "**`x`**", 0),
    "struck": ({"tag": "text", "text": "x", "style": ["strikethrough"]}, "~~x~~", 0),
    "link": ({"tag": "a", "text": "it", "href": "https://x.y"}, "[it](https://x.y)", 0),
    "link alone": ({"tag": "a", "href": "https://x.y"}, "[https://x.y](https://x.y)", 0),
    "at of another": ({"tag": "at", "user_id": "ou_dana", "user_name": "Dana"}, "@Dana", 0),
    "at of all": ({"tag": "at", "user_id": "all"}, "@all", 0),
    "at without a name": ({"tag": "at", "user_id": "@_user_9"}, "@_user_9", 0),
    "img": ({"tag": "img", "image_key": "img_1"}, "[image]", 1),
    "media": ({"tag": "media", "file_key": "f", "image_key": "img_1"}, "[video]", 1),
    "file": ({"tag": "file", "file_key": "f", "file_name": "a.pdf"}, "[file: a.pdf]", 1),
    "audio": ({"tag": "audio", "file_key": "f"}, "[voice message]", 1),
    "folder": ({"tag": "folder", "file_key": "f", "file_name": "plans"}, "[folder: plans]", 1),
    "emotion": ({"tag": "emotion", "emoji_type": "SMILE"}, "[SMILE]", 0),
    "hr": ({"tag": "hr"}, "---", 0),
    "code_block": ({"tag": "code_block", "language": "PYTHON", "text": "x\n"}, "```python\nx\n```", 0),
    "md": ({"tag": "md", "text": '# T\n<at user_id="ou_dana">Dana</at> ![](img_v3_a)'}, "# T\n@Dana [image]", 1),
    "md code": ({"tag": "md", "text": '```\n<at user_id="ou_dana">Dana</at>\n```'}, "<at user_id", 0),
    "note": ({"tag": "note", "elements": [WORDS]}, "nested words", 0),
    "blockquote": ({"tag": "blockquote", "elements": [[WORDS], [WORDS]]}, "nested words nested words", 0),
    "children": ({"tag": "list", "children": [{"tag": "item", "content": [WORDS]}]}, "nested words", 0),
    "object": ({"tag": "figure", "caption": {"text": "nested words"}, "image_key": "img_1"}, "nested words [image]", 1),
    "figure": ({"tag": "figure", "image_key": "img_1"}, "[image]", 1),
    "select": ({"tag": "select_static", "placeholder": PLAIN, "options": [{"text": PLAIN}]}, "nested words", 0),
    "button": ({"tag": "button", "text": "Open", "url": "https://x.y"}, "[Open](https://x.y)", 0),
    "whatever": ({"tag": "whatever", "text": "nested words"}, "nested words", 0),
    "nothing inside": ({"tag": "countdown"}, "[unsupported: countdown]", 0),
    "no tag": ({"to": 1}, "[unsupported: content]", 0),
}
POSTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "content": lambda node: {"title": "", "content": [[node]]},
    "locale": lambda node: {"zh_cn": {"title": "", "content": [[node]]}},
    "content_v2": lambda node: {"title": "", "content": [], "content_v2": [[node]]},
    "content_v2 in a locale": lambda node: {"en_us": {"content_v2": [[node]]}},
}


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("name", NODES)
def test_post_node_of_every_kind_is_read_or_named_also_behind_a_mention(name: str, post: str) -> None:
    node, words, files = NODES[name]
    alone = arrived("post", POSTS[post](node))
    assert (words in alone.text, len(alone.attachments)) == (True, files), alone.text
    content = POSTS[post](AT)
    holder = next((it for it in content.values() if isinstance(it, dict)), content)
    (row,) = next(it for key, it in holder.items() if key.startswith("content") and it)
    row.append(node)
    behind = in_group("post", content, mentions=[MENTION])
    assert (words in behind.text, len(behind.attachments), behind.mentioned) == (True, files, True)
    assert "Helper Bot" not in behind.text


def test_post_words_are_those_of_content_v2_and_its_files_those_of_both() -> None:
    flat = [[{"tag": "text", "text": "Heading one"}], [{"tag": "img", "image_key": "img_1"}]]
    native = [[{"tag": "md", "text": "# Heading\n- one\n  - two"}], [{"tag": "md", "text": "![x](img_2)"}]]
    files = [{"file_key": "f", "file_name": "a.pdf"}]
    context = arrived("post", {"files": files, "zh_cn": {"title": "T", "content": flat, "content_v2": native}})
    assert context.text == "**T**\n# Heading\n- one\n  - two\n[image: x]\n[file: a.pdf]"
    assert [it.key.partition("/")[2] for it in context.attachments] == ["img_1", "img_2", "f"]
    assert arrived("post", {"files": files}).text == "[file: a.pdf]"


@pytest.mark.parametrize(
    "node",
    [
        {"tag": "at", "user_id": BOT, "user_name": "Helper Bot"},
        {"tag": "md", "text": f'<at user_id="{BOT}">Helper Bot</at>'},
    ],
    ids=["at", "md"],
)
def test_post_that_mentions_the_bot_in_its_content_alone_is_said_to_it(node: dict[str, Any]) -> None:
    context = in_group("post", {"content": [[node, {"tag": "text", "text": " look"}]]})
    assert (context.text, context.mentioned) == ("look", True)
    assert in_group("post", {"content": [[node]]}).text == "@Helper Bot"
    other = {"tag": "at", "user_id": "ou_other", "user_name": "Helper Bot"}  # a name is no proof
    assert not in_group("post", {"content": [[other, {"tag": "text", "text": " look"}]]}).mentioned


MENTIONS = [
    ("@_user_1", "Helper Bot", "@Helper Bot"),
    ("@_user_1 hi", "Helper Bot", "hi"),
    ("@_user_1", "", "@_user_1"),
    ("ask @_user_2 please", "", "ask @_user_2 please"),
    ("@_user_10 @_user_2 hi", "Bob", "@_user_10 @Bob hi"),
    ("@_all lunch", "", "@all lunch"),
    ("@_all_employees", "", "@_all_employees"),
]


@pytest.mark.parametrize(("text", "name", "shown"), MENTIONS)
def test_mention_is_a_whole_token_with_a_name(text: str, name: str, shown: str) -> None:
    mentions = [{**MENTION, "name": name}, {"key": "@_user_2", "id": {"open_id": "ou_b"}, "name": name}]
    context = in_group("text", {"text": text}, mentions=mentions)
    assert (context.text, context.mentioned) == (shown, True)


TEXTS: list[tuple[str, Any, str]] = [
    ("location", {"name": "Tower", "longitude": 121.4, "latitude": 31}, "[location: Tower (31, 121.4)]"),
    ("location", {"name": "Tower"}, "[location: Tower]"),
    ("location", {"longitude": True, "latitude": []}, "[location]"),
    (
        "calendar",
        {"title": "Plan", "start_time": 1608265395000},
        "[calendar event: Plan, from Fri 2020-12-18 04:23 UTC]",
    ),
    ("todo", {"summary": "buy milk"}, "[task]\nbuy milk"),
    ("folder", {"name": "plans", "file_key": "f"}, "[folder: plans]"),
    ("hongbao", {"text": "Happy New Year"}, "[red packet: Happy New Year]"),
    ("media", {"file_name": "v.mp4", "duration": "2000"}, "[video: v.mp4, 2 s]"),
    ("video", {"file_name": "v.mp4", "file_key": "f"}, "[video: v.mp4]"),
    ("vote", {"options": [{"text": "a"}, {"id": 1}, 7]}, "[vote]\n- a\n- [unsupported: content]\n- 7"),
    ("vote", {"topic": "x", "options": ["a"] * 23}, "[vote: x]" + "\n- a" * 20 + "\n- [3 more]"),
    ("text", {"text": 12}, "12"),
    ("newest", {"body": {"text": "nested words"}}, "[unsupported message: newest]\nnested words"),
    ("text", "", UNREAD),
    ("text", {"text": "  "}, UNREAD),
]


@pytest.mark.parametrize(("kind", "content", "text"), TEXTS)
def test_values_of_any_scalar_type_are_shown_and_no_brackets_are_empty(kind: str, content: Any, text: str) -> None:
    assert arrived(kind, content).text == text


def card(*elements: Any, **more: Any) -> dict[str, Any]:
    return {"schema": "2.0", "body": {"elements": list(elements)}, **more}


OPEN = {"tag": "button", "text": {"tag": "plain_text", "content": "Open"}}
COLUMNS = [{"name": "h", "display_name": "Host", "data_type": "text"}, {"name": "c", "display_name": "CPU"}]
TABLE = {
    "tag": "table",
    "columns": COLUMNS,
    "rows": [{"h": "db-1", "c": 99}, {"h": [{"text": "a"}, {"text": "b"}], "c": None}],
}
EXCUSE = "请升级至最新版本客户端，以查看内容"
CARDS: dict[str, tuple[Any, str]] = {
    "markdown": (card({"tag": "markdown", "content": "**x** <at user_id='ou_d'>D</at>"}), "**x** @D"),
    "header": ({"header": {"title": {"tag": "plain_text", "content": "T"}, "subtitle": {"content": "S"}}}, "T\nS"),
    "header without elements": (
        {"schema": "2.0", "header": {"title": {"content": "T"}}, "body": {"elements": []}},
        "T",
    ),
    "header before the body": (card({"tag": "markdown", "content": "x"}, header={"title": {"content": "T"}}), "T\nx"),
    "table": (card(TABLE), "| Host | CPU |\n| --- | --- |\n| db-1 | 99 |\n| a, b |  |"),
    "table without columns": (card({"tag": "table", "rows": [{"a": 1}]}), "| a |\n| --- |\n| 1 |"),
    "button": (card(OPEN), "[button: Open]"),
    "button, url": (card({**OPEN, "url": "https://x.y"}), "[Open](https://x.y)"),
    "button, multi_url": (card({**OPEN, "multi_url": {"pc_url": "https://x.y"}}), "[Open](https://x.y)"),
    "button, behaviors": (
        card({**OPEN, "behaviors": [{"type": "open_url", "default_url": "https://x.y"}]}),
        "[Open](https://x.y)",
    ),
    "buttons in an action": (
        {"elements": [{"tag": "action", "actions": [{**OPEN, "url": "https://x.y"}]}]},
        "[Open](https://x.y)",
    ),
    "template": (
        {"type": "template", "data": {"template_id": "AAq1", "template_variable": {"who": "Dana", "rows": [{"n": 1}]}}},
        "who: Dana\nrows 1.n: 1",
    ),
    "note": ({"elements": [{"tag": "note", "elements": [PLAIN]}]}, "nested words"),
    "fields": (
        {"elements": [{"tag": "div", "fields": [{"is_short": True, "text": {"tag": "lark_md", "content": "**a**"}}]}]},
        "**a**",
    ),
    "columns": (
        card({"tag": "column_set", "columns": [{"tag": "column", "elements": [{"tag": "markdown", "content": "x"}]}]}),
        "x",
    ),
    "form": (
        card({"tag": "form", "elements": [{"tag": "input", "label": PLAIN, "placeholder": {"content": "why"}}]}),
        "nested words\nwhy",
    ),
    "select": (
        card({"tag": "select_static", "placeholder": PLAIN, "options": [{"text": {"content": "A"}, "value": "1"}]}),
        "nested words\nA",
    ),
    "person": (card({"tag": "person", "user_id": "ou_d"}), "@ou_d"),
    "img": (card({"tag": "img", "img_key": "img_1", "alt": {"content": "a chart"}}), "[image: a chart]"),
    "chart": (card({"tag": "chart", "chart_spec": {"title": {"text": "Sales"}}}), "[unsupported: chart: Sales]"),
    "unknown": (card({"tag": "hologram", "size": 3}), "[unsupported: hologram]"),
    "unknown with words": (card({"tag": "hologram", "parts": [{"tag": "x", "text": PLAIN}]}), "nested words"),
    "json_card": (
        {
            "json_card": json.dumps(
                {"body": {"property": {"elements": [{"tag": "markdown", "property": {"content": "x"}}]}}}
            )
        },
        "x",
    ),
    "user_dsl": ({"user_dsl": json.dumps(card(PLAIN))}, "nested words"),
    "translated": (card({"tag": "plain_text", "content": "", "i18n": {"zh_cn": "你好"}}), "你好"),
    "degraded": (
        {
            "title": "T",
            "elements": [[WORDS, {"tag": "button", "text": "Open"}], [{"tag": "note", "elements": [WORDS]}]],
        },
        "T\nnested words Open\nnested words",
    ),
    "degraded, in part": ({"title": "T", "elements": [[{"tag": "text", "text": EXCUSE}]]}, f"T\n{UNREADABLE_CARD}"),
}


@pytest.mark.parametrize("name", CARDS)
def test_card_construct_of_every_kind_is_read_or_named(name: str) -> None:
    content, text = CARDS[name]
    assert arrived("interactive", content).text == f"[card]\n{text}"


@pytest.mark.parametrize(
    "content",
    [
        {"title": None, "elements": [[{"tag": "img", "image_key": "img_1"}, {"tag": "text", "text": EXCUSE}]]},
        card({"tag": "markdown", "content": EXCUSE}),
        {"elements": [[{"tag": "text", "text": "Please upgrade to the latest version to view this card"}]]},
        {"type": "template", "data": {"template_id": "AAq1"}},
        {"json_card": "{"},
        {},
    ],
)
def test_card_that_nobody_can_read_says_so(content: Any) -> None:
    assert arrived("interactive", content).text == UNREADABLE_CARD


def test_card_of_many_lines_says_how_many_are_left_out() -> None:
    text = arrived("interactive", card(*({"tag": "plain_text", "content": str(it)} for it in range(250)))).text
    assert text.endswith("\n199\n[50 more lines]")


def test_feishu_event_without_a_person_or_ids_is_ignored() -> None:
    system = emulator().message_event("system", '{"template":"x"}', sender="ou_a", chat="oc_1")
    assert isinstance(channel().receive(delivered(system), NOW), Ignored)
    for lost in ("sender", "message"):
        event = emulator().text_event("hi", sender="ou_a", chat="oc_1")
        event["event"][lost] = {}
        receipt = channel().receive(delivered(event), NOW)
        assert isinstance(receipt, Ignored)
        assert receipt.reason.startswith("event without ")

"""The emulated Bot API judges what a bot sends and where: what it takes, and what it refuses."""

import struct
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.channels.contexts import Clock
from tests.channels.telegram_calls import (  # fmt: skip
    ALICE,
    BEGAN,
    FORUM,
    SMALL,
    TEAM,
    ask,
    call,
    emulator,
    keyboard,
    refusal,
    sample,
)
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.formatted import Formatted, Unparsable, covered_by, given_entities, trimmed, with_found
from tests.emulators.telegram.requests import parse_multipart

BUTTON = {"text": "a", "callback_data": "b"}
LIKE = {"type": "emoji", "emoji": "👍"}
DRAFT = {"chat_id": ALICE, "draft_id": 7, "text": "a"}
HOOK = {"url": "https://bot.example.com/hook"}
BOLD = {"type": "bold", "offset": 0, "length": 3}
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480)


@pytest.fixture
def telegram() -> TelegramEmulator:
    return emulator()


def pass_seconds(telegram: TelegramEmulator, seconds: float) -> None:
    assert isinstance(telegram.now, Clock)
    telegram.now.now += seconds


# the door


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/bot7000000001:EMULATED-telegram_token-of-no-VALUE/getMe", 401),
        ("/botnonsense/getMe", 404),
        ("/bot{token}/getNothing", 404),
        ("/elsewhere", 404),
        ("/file/bot{token}/documents/file_7.pdf", 404),
        ("/file/bot7000000001:xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/a", 401),
    ],
)
async def test_wrong_addresses(telegram: TelegramEmulator, path: str, status: int) -> None:
    answer = await ask(telegram, path, verb="GET")
    assert (answer.status_code, answer.json()["ok"], answer.json()["error_code"]) == (status, False, status)


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "sendMessage": [
        (sample(chatId=1), ""),
        (sample(message_thread_id=True), ""),
        (sample(disable_notification="yes"), ""),
        (sample(reply_parameters="["), ""),
        (sample(reply_markup=keyboard(BUTTON | {"callback_data": "中" * 22})), ""),
        (sample(reply_markup=keyboard({"text": "a", "url": "javascript:x"})), ""),
        (sample(reply_markup=keyboard(BUTTON | {"url": "https://a.bc"})), ""),
        (sample(reply_markup=keyboard({"text": "a"})), ""),
        (sample(reply_markup=keyboard(*[BUTTON] * 9)), ""),
        (sample(reply_markup={"inline_keyboard": [[BUTTON]] * 101}), ""),
        (sample(reply_markup={"buttons": []}), ""),
        (sample(text=" \n "), "message text is empty"),
        (sample(text="😀" * 2049), "message is too long"),
        (sample(text=" " * 33_000 + "a"), "text is too long"),
        (sample(entities=[BOLD]), "can't parse entities"),
        ({"text": "hi"}, "chat_id is empty"),
        *((sample(chat_id=chat), "chat not found") for chat in (1, "1", "@alice_fixture", "@nobody", "team_chat")),
        (sample(reply_parameters={"message_id": 9}), "message to be replied not found"),
    ],
    "sendDocument": [
        ({"chat_id": ALICE, "document": "https://example.com/a.pdf"}, ""),
        ({"chat_id": ALICE, "document": "BQAC-unknown"}, "wrong file_id"),
    ],
    "getFile": [({"file_id": "BQAC-unknown"}, "wrong file_id")],
    "sendMessageDraft": [(DRAFT | {"chat_id": TEAM}, ""), (DRAFT | {"draft_id": 0}, ""), (DRAFT | {"text": "a" * 4097}, "")],
    "sendChatAction": [({"chat_id": ALICE, "action": "thinking"}, "")],
    "setMessageReaction": [
        ({"chat_id": ALICE, "message_id": 9, "reaction": reaction}, "")
        for reaction in ([{"type": "emoji", "emoji": "✅"}], [LIKE, LIKE], [LIKE])
    ],
    "setMyCommands": [
        ({"commands": [{"command": name, "description": text}] * times}, "")
        for name, text, times in (("New", "a", 1), ("a", "", 1), ("a", "a" * 257, 1), ("a", "a", 101))
    ],
    "editMessageText": [(sample(message_id=9), "")],
    "deleteMessage": [({"chat_id": ALICE, "message_id": 9}, "")],
    "answerCallbackQuery": [({"callback_query_id": "1"}, "")],
    "setWebhook": [
        *(({"url": f"https://{place}/"}, "") for place in ("a.bc:x", "a.bc:8080", "127.0.0.1", "[2606:4700::1]")),
        *(({"url": url}, "") for url in ("nonsense", "http://bot.example.com/")),
        *((HOOK | {"secret_token": secret}, "") for secret in ("7000000001:x", "a" * 257)),
        (HOOK | {"max_connections": 101}, ""),
        (HOOK | {"allowed_updates": ["messages"]}, ""),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "parameters", "words"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
async def test_what_is_refused_leaves_nothing_behind(
    telegram: TelegramEmulator, method: str, parameters: dict[str, Any], words: str
) -> None:
    assert words in await refusal(telegram, method, **parameters)
    assert (telegram.webhook.url, telegram.commands, telegram.reactions, telegram.drafts) == ("", {}, [], [])


# messages


async def test_a_message_is_written_down_and_answered_as_a_whole_message(telegram: TelegramEmulator) -> None:
    markup = {
        "inline_keyboard": [[{"text": "Yes", "callback_data": "x" * 64}, {"text": "Docs", "url": "https://a.bc"}]]
    }
    bold, preview = {"offset": 3, "length": 3, "type": "bold"}, {"is_disabled": True}
    wanted = {"text": "Hi you", "entities": [bold], "link_preview_options": preview, "reply_markup": markup}
    message = await call(telegram, "sendMessage", **sample() | wanted)
    assert message == wanted | {
        "message_id": 1001,
        "from": telegram.bot,
        "chat": {"id": ALICE, "type": "private", "first_name": "Alice", "username": "alice_fixture"},
        "date": BEGAN,
    }
    (sent,) = await telegram.sent(1)
    assert (sent.message_id, sent.chat_id, sent.thread, sent.reply_to, sent.silent) == (1001, ALICE, None, None, False)
    assert (sent.kind, sent.text, sent.entities, sent.reply_markup) == ("text", "Hi you", (bold,), markup)
    others: list[dict[str, Any]] = [{"remove_keyboard": True}, {"keyboard": [["a"]]}, {"inline_keyboard": []}]
    for other in others:
        assert "reply_markup" not in await call(telegram, "sendMessage", **sample(reply_markup=other))


@pytest.mark.parametrize(("text", "shown"), [("  a\n", "a"), ("a" * 4096, "a" * 4096), ("😀" * 2048, "😀" * 2048)])
async def test_text_that_fits(telegram: TelegramEmulator, text: str, shown: str) -> None:
    assert (await call(telegram, "sendMessage", **sample(text=text)))["text"] == shown


async def test_a_mention_by_id_is_of_somebody_the_bot_knows_or_it_is_none(telegram: TelegramEmulator) -> None:
    links = [{"type": "text_link", "offset": at, "length": 1, "url": f"tg://user?id={id_}"} for at, id_ in ((0, ALICE), (2, 1))]  # noqa: E501  # fmt: skip
    message = await call(telegram, "sendMessage", chat_id=TEAM, text="A B", entities=links)
    assert [entity["user"]["first_name"] for entity in message["entities"]] == ["Alice"]


@pytest.mark.parametrize("chat_id", [TEAM, str(TEAM), "@TEAM_CHAT"])
async def test_a_chat_is_named_by_number_or_public_name(telegram: TelegramEmulator, chat_id: object) -> None:
    await call(telegram, "sendMessage", chat_id=chat_id, text="hi")
    assert telegram.messages[0].chat_id == TEAM
    assert (await call(telegram, "getChat", chat_id=chat_id))["title"] == "Team chat"


async def test_where_the_bot_is_not_wanted_every_call_says_why(telegram: TelegramEmulator) -> None:
    bob, eve = telegram.private(1, "Bob", started=False), telegram.private(2, "Eve")
    telegram.block(ALICE)
    telegram.kick(TEAM)
    telegram.restrict(FORUM)
    telegram.deactivate(eve)
    words = {ALICE: "bot was blocked", TEAM: "bot was kicked", FORUM: "not enough rights", bob: "Forbidden"}
    for chat_id, description in (words | {eve: "user is deactivated"}).items():
        assert description in await refusal(telegram, "sendMessage", chat_id=chat_id, text="hi")
        assert description in await refusal(telegram, "sendChatAction", chat_id=chat_id, action="typing")
    telegram.text_update("back", chat=ALICE)
    await call(telegram, "sendMessage", **sample())


async def test_a_group_that_moved_says_where_to(telegram: TelegramEmulator) -> None:
    old, new = (update["message"] for update in telegram.migrate(SMALL, -1002000000099))
    assert (old["migrate_to_chat_id"], new["migrate_from_chat_id"]) == (-1002000000099, SMALL)
    answer = await ask(telegram, "/bot{token}/sendMessage", json={"chat_id": SMALL, "text": "hi"})
    assert (answer.status_code, answer.json()["parameters"]) == (400, {"migrate_to_chat_id": -1002000000099})
    assert (await call(telegram, "sendMessage", chat_id=-1002000000099, text="hi"))["message_id"] == 1002


async def test_a_message_or_a_reply_in_a_topic_says_so(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend")
    message = await call(telegram, "sendMessage", chat_id=FORUM, text="hi", message_thread_id=thread)
    assert (message["message_thread_id"], message["is_topic_message"]) == (thread, True)
    assert message["reply_to_message"]["forum_topic_created"]["name"] == "Backend"
    question = telegram.text_update("status?", chat=FORUM, sender=ALICE, thread=thread)["message"]
    reply = {"message_id": question["message_id"]}
    message = await call(telegram, "sendMessage", chat_id=FORUM, text="hi", reply_parameters=reply)
    assert (message["message_thread_id"], message["reply_to_message"]["text"]) == (thread, "status?")
    assert "reply_to_message" not in message["reply_to_message"]
    places = [(sent.thread, sent.reply_to) for sent in telegram.messages]
    assert places == [(thread, None), (thread, question["message_id"])]


async def test_general_has_no_thread_and_unknown_threads_are_not_found(telegram: TelegramEmulator) -> None:
    deleted, closed = telegram.topic(FORUM, "Old"), telegram.topic(FORUM, "Done")
    question = telegram.text_update("before", chat=FORUM, sender=ALICE, thread=closed)["message"]["message_id"]
    root = telegram.text_update("root", chat=FORUM, sender=ALICE)["message"]["message_id"]
    chained = telegram.text_update("more", chat=FORUM, sender=ALICE, reply_to=root)["message"]
    assert (chained["message_thread_id"], "is_topic_message" in chained) == (root, False)
    telegram.delete_topic(FORUM, deleted)
    telegram.close_topic(FORUM, closed)
    here = {"chat_id": FORUM, "text": "hi"}
    for thread in (1, 999, deleted, root):
        assert "message thread not found" in await refusal(telegram, "sendMessage", **here, message_thread_id=thread)
    assert "TOPIC_CLOSED" in await refusal(telegram, "sendMessage", **here, message_thread_id=closed)
    assert "TOPIC_CLOSED" in await refusal(telegram, "sendMessage", **here, reply_parameters={"message_id": question})
    assert "message_thread_id" not in await call(telegram, "sendMessage", **here)
    for chat_id in (TEAM, ALICE):  # where there are no topics, a thread is ignored
        message = await call(telegram, "sendMessage", chat_id=chat_id, text="hi", message_thread_id=999)
        assert "message_thread_id" not in message


async def test_direct_chats_have_topics_where_the_bot_has_switched_them_on(telegram: TelegramEmulator) -> None:
    telegram.bot["has_topics_enabled"] = True
    thread = telegram.topic(ALICE, "Plans", by=ALICE)
    message = await call(telegram, "sendMessage", **sample(message_thread_id=thread))
    assert (message["is_topic_message"], "reply_to_message" in message) == (True, False)
    assert "message thread not found" in await refusal(telegram, "sendMessage", **sample(message_thread_id=9))


async def test_a_reply_to_a_message_that_is_gone(telegram: TelegramEmulator) -> None:
    question = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    message = await call(telegram, "sendMessage", **sample(reply_parameters={"message_id": question, "chat_id": ALICE}))
    assert message["reply_to_message"]["text"] == "hello"
    telegram.forget(ALICE, question)
    reply = {"message_id": question, "allow_sending_without_reply": True}
    assert "reply_to_message" not in await call(telegram, "sendMessage", **sample(reply_parameters=reply))
    assert [sent.reply_to for sent in telegram.messages] == [question, None]


# edits, signs of life, limits


async def test_an_edit_changes_what_is_shown_and_drops_buttons_that_it_does_not_name(
    telegram: TelegramEmulator,
) -> None:
    place = {"chat_id": ALICE, "message_id": (await call(telegram, "sendMessage", **sample()))["message_id"]}
    theirs = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    edited = await call(telegram, "editMessageText", **place, text="better", reply_markup=keyboard(BUTTON))
    assert (edited["text"], edited["edit_date"], edited["reply_markup"]) == ("better", BEGAN, keyboard(BUTTON))
    assert (telegram.messages[0].text, telegram.shown(ALICE)) == ("hi", ["better"])
    await refusal(telegram, "editMessageText", **place, text="better", reply_markup=keyboard(BUTTON))
    await refusal(telegram, "editMessageText", **place | {"message_id": theirs}, text="x")
    assert "reply_markup" not in await call(telegram, "editMessageReplyMarkup", **place)
    await refusal(telegram, "editMessageReplyMarkup", **place)


async def test_what_a_bot_may_delete(telegram: TelegramEmulator) -> None:
    own = (await call(telegram, "sendMessage", chat_id=TEAM, text="hi"))["message_id"]
    old = (await call(telegram, "sendMessage", chat_id=TEAM, text="hi"))["message_id"]
    theirs = telegram.text_update("hello", chat=TEAM, sender=ALICE)["message"]["message_id"]
    direct = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    assert await call(telegram, "deleteMessage", chat_id=TEAM, message_id=own) is True
    assert await call(telegram, "deleteMessage", chat_id=ALICE, message_id=direct) is True
    await refusal(telegram, "deleteMessage", chat_id=TEAM, message_id=theirs)
    telegram.promote(TEAM)
    await call(telegram, "deleteMessage", chat_id=TEAM, message_id=theirs)
    assert telegram.deleted == [own, direct, theirs]
    pass_seconds(telegram, 48 * 3600)
    await refusal(telegram, "deleteMessage", chat_id=TEAM, message_id=old)


async def test_typing_and_reactions_are_seen_where_they_belong(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend")
    for number in (thread, 1):
        await call(telegram, "sendChatAction", chat_id=FORUM, action="typing", message_thread_id=number)
    assert [(seen.chat_id, seen.action, seen.thread) for seen in telegram.actions] == [
        (FORUM, "typing", thread),
        (FORUM, "typing", None),
    ]
    await refusal(telegram, "sendChatAction", chat_id=FORUM, action="typing", message_thread_id=9)
    place = {"chat_id": ALICE, "message_id": telegram.text_update("hello", chat=ALICE)["message"]["message_id"]}
    for reaction in ([LIKE], []):
        await call(telegram, "setMessageReaction", **place, reaction=reaction)
    assert [seen.emoji for seen in telegram.reactions] == ["👍", None]


async def test_a_button_press_is_answered_once(telegram: TelegramEmulator) -> None:
    sent = await call(telegram, "sendMessage", **sample(reply_markup=keyboard(BUTTON)))
    query = telegram.press_update(sent["message_id"], "b", chat=ALICE)["callback_query"]
    assert (query["data"], query["message"]["reply_markup"]) == ("b", keyboard(BUTTON))
    await refusal(telegram, "answerCallbackQuery", callback_query_id=query["id"], text="a" * 201)
    await call(telegram, "answerCallbackQuery", callback_query_id=query["id"], text="Saved")
    assert [answer.text for answer in telegram.callback_answers] == ["Saved"]
    await refusal(telegram, "answerCallbackQuery", callback_query_id=query["id"])
    telegram.forget(ALICE, sent["message_id"])
    inaccessible = telegram.press_update(sent["message_id"], "b", chat=ALICE)["callback_query"]["message"]
    assert (inaccessible["date"], set(inaccessible)) == (0, {"chat", "message_id", "date"})


async def test_menus_are_kept_by_scope_and_language(telegram: TelegramEmulator) -> None:
    menu = [{"command": "new", "description": "Start anew"}]
    await call(telegram, "setMyCommands", commands=menu)
    await call(telegram, "setMyCommands", commands=[], scope={"type": "chat", "chat_id": ALICE}, language_code="zh")
    assert (await call(telegram, "getMyCommands"), await call(telegram, "getMyCommands", language_code="zh")) == (
        menu,
        [],
    )
    assert telegram.commands == {("default", ""): menu, (f"chat {ALICE}", "zh"): []}


async def test_a_draft_is_shown_for_half_a_minute_or_until_the_message(telegram: TelegramEmulator) -> None:
    for text in ("", "partial"):
        await call(telegram, "sendMessageDraft", **DRAFT | {"text": text}, can_stop=True)
    assert [draft.text for draft in telegram.live_drafts(ALICE)] == ["partial"]
    assert telegram.stop_update(7, chat=ALICE)["stopped_message_generation"]["draft_id"] == 7
    pass_seconds(telegram, 30)
    assert telegram.live_drafts(ALICE) == []
    await call(telegram, "sendMessageDraft", **DRAFT)
    await call(telegram, "sendMessage", **sample())
    assert telegram.live_drafts(ALICE) == []


@pytest.mark.parametrize(
    ("chats", "step", "passes", "wait"),
    [([ALICE], 0.0, 3, 3), ([TEAM], 1.0, 20, 40), ([*range(1, 40)], 0.0, 30, 1)],
    ids=["a chat", "a group", "the bot"],
)
async def test_who_writes_too_often_is_told_how_long_to_wait(
    chats: list[int], step: float, passes: int, wait: int
) -> None:
    telegram = emulator(limit_rates=True)
    for chat in range(1, 40):
        telegram.private(chat, "Somebody")
    for number in range(passes):
        await call(telegram, "sendMessage", chat_id=chats[number % len(chats)], text="hi")
        pass_seconds(telegram, step)
    after = {"chat_id": chats[passes % len(chats)], "text": "hi"}
    answer = await ask(telegram, "/bot{token}/sendMessage", json=after)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, str(wait))
    assert answer.json()["parameters"] == {"retry_after": wait}
    pass_seconds(telegram, wait)
    await call(telegram, "sendMessage", **after)


async def test_a_failure_can_be_ordered_and_an_answer_lost_after_the_message_was_sent(
    telegram: TelegramEmulator,
) -> None:
    telegram.fail_next("sendmessage", times=2, status=429, parameters={"retry_after": 7}, headers={"Retry-After": "7"})
    await call(telegram, "getMe")
    for _ in range(2):
        answer = await ask(telegram, "/bot{token}/sendMessage", json=sample())
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.json()["parameters"] == {"retry_after": 7}
    telegram.fail_next(lose_answer=True)
    answer = await ask(telegram, "/bot{token}/sendMessage", json=sample())
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (502, "text/html")
    assert (len(telegram.requests), len(telegram.messages)) == (4, 1)


# files


async def upload(telegram: TelegramEmulator, kind: str, content: bytes, *, name: str = "a.pdf", **form: Any) -> Any:
    path = f"/bot{{token}}/send{kind.title()}"
    files = {kind: (name, content, "application/pdf" if kind == "document" else "image/png")}
    return await ask(telegram, path, data={"chat_id": ALICE, **form}, files=files)


async def test_an_uploaded_file_is_sent_can_be_sent_again_and_fetched(telegram: TelegramEmulator) -> None:
    content, marks = b"%PDF-1.7 \r\n\x00\xff--", '[{"type":"bold","offset":0,"length":6}]'
    answer = await upload(telegram, "document", content, name="报告.pdf", caption="Report", caption_entities=marks)
    document = answer.json()["result"]["document"]
    assert (document["file_name"], document["mime_type"], document["file_size"]) == ("报告.pdf", "application/pdf", 15)
    assert answer.json()["result"]["caption_entities"] == [{"offset": 0, "length": 6, "type": "bold"}]
    again = await call(telegram, "sendDocument", chat_id=TEAM, document=document["file_id"])
    assert again["document"] == document
    assert [(sent.kind, sent.text, sent.file_id) for sent in telegram.messages] == [
        ("document", "Report", document["file_id"]),
        ("document", "", document["file_id"]),
    ]
    path = f"/file/bot{{token}}/{(await call(telegram, 'getFile', file_id=document['file_id']))['file_path']}"
    assert (await ask(telegram, path, verb="GET")).content == content
    pass_seconds(telegram, 3_601)
    assert (await ask(telegram, path, verb="GET")).status_code == 404


@pytest.mark.parametrize(
    ("kind", "content", "form"),
    [
        ("photo", b"not a picture", {}),
        ("photo", PNG[:16] + struct.pack(">II", 9_000, 1_001), {}),
        ("photo", PNG[:16] + struct.pack(">II", 2_100, 100), {}),
        ("photo", PNG + bytes(10 * 1024 * 1024), {}),
        ("document", b"", {}),
        ("document", b"a", {"caption": "a" * 1025}),
        ("document", b"a", {"text": "a"}),
    ],
)
async def test_uploads_that_are_refused(telegram: TelegramEmulator, kind: str, content: bytes, form: Any) -> None:
    answer = await upload(telegram, kind, content, **form)
    assert (answer.status_code, telegram.messages) == (400, [])


@given(st.binary(max_size=60), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))
def test_a_form_carries_any_bytes_and_any_text(content: bytes, text: str) -> None:
    request = httpx.Request("POST", "http://t", data={"caption": text}, files={"document": ("a.bin", content)})
    fields, files = parse_multipart(request.headers["content-type"], request.read())
    assert (fields, files["document"].content) == ({"caption": text}, content)


# texts with entities


def marked(text: str, *marks: tuple[str, str], **facts: Any) -> list[tuple[str, str]]:
    """What Telegram keeps of marks, each a kind and the words it is on."""
    rows = []
    for kind, words in marks:
        offset = len(text[: text.index(words)].encode("utf-16-le")) // 2
        rows.append({"type": kind, "offset": offset, "length": len(words.encode("utf-16-le")) // 2, **facts})
    formatted = given_entities(text, rows)
    return [(entity["type"], covered_by(text, entity)) for entity in formatted.entities]


@pytest.mark.parametrize(
    ("marks", "kept"),
    [
        ([("bold", "𝒳 ab"), ("italic", "b")], None),
        ([("bold", "𝒳 ab"), ("code", "a")], [("bold", "𝒳 "), ("code", "a"), ("bold", "b")]),
        ([("code", "ab"), ("bold", "b")], [("code", "ab")]),
        ([("bold", "𝒳 a"), ("bold", " ab")], [("bold", "𝒳 ab")]),
        ([("blockquote", "𝒳 ab"), ("blockquote", "a")], [("blockquote", "𝒳 ab")]),
        ([("pre", "a"), ("text_mention", "a")], [("pre", "a")]),
        ([("mention", "ab")], []),
    ],
)
def test_entities_overlap_only_as_telegram_lets_them(marks: list[Any], kept: list[Any] | None) -> None:
    assert marked("𝒳 ab", *marks) == (marks if kept is None else kept)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://a.bc/?a=1", {"type": "text_link", "url": "https://a.bc/?a=1"}),
        ("a.bc", {"type": "text_link", "url": "http://a.bc/"}),
        ("tg://user?id=5", {"type": "text_mention", "user": {"id": 5}}),
        *((url, None) for url in ("nowhere", "mailto:a@b.c", "http://[x", "http://a.b c")),
    ],
)
def test_a_link_goes_somewhere_or_is_none(url: str, kept: dict[str, Any] | None) -> None:
    place = {"offset": 0, "length": 1}
    found = given_entities("x", [place | {"type": "text_link", "url": url}]).entities
    assert found == (() if kept is None else (place | kept,))


@pytest.mark.parametrize(("offset", "length"), [(1, 1), (0, 1), (2, 9), (5, 1)])
def test_an_entity_must_lie_on_whole_characters_of_the_text(offset: int, length: int) -> None:
    with pytest.raises(Unparsable):
        given_entities("😀ab", [{"type": "bold", "offset": offset, "length": length}])


def test_of_a_hundred_and_more_entities_a_hundred_are_kept_and_they_move_with_the_text() -> None:
    rows = [{"type": "bold", "offset": 3 * at + 1, "length": 2} for at in range(130)]
    assert len(given_entities(" 😀" * 130, rows).entities) == 100
    shifted = trimmed(Formatted(text="\n 😀 a ", entities=({"type": "bold", "offset": 1, "length": 6},)))
    assert shifted == Formatted(text="😀 a", entities=({"type": "bold", "offset": 0, "length": 4},))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("🔥🔥 @fixture_helper_bot what is new?", [("mention", "@fixture_helper_bot")]),
        ("/ask@fixture_helper_bot do", [("bot_command", "/ask@fixture_helper_bot")]),
        ("mail me at bob@fixture_helper_bot", []),
        ("and/or, 1/2, /etc/hosts, @me", []),
        ("see https://a.bc/a?b=@alice, then @alice", [("url", "https://a.bc/a?b=@alice"), ("mention", "@alice")]),
    ],
)
def test_telegram_finds_mentions_commands_and_addresses_by_itself(text: str, found: list[tuple[str, str]]) -> None:
    assert [(entity["type"], covered_by(text, entity)) for entity in with_found(Formatted(text=text)).entities] == found
    code = ({"type": "code", "offset": 0, "length": len(text) + 2},)
    assert with_found(Formatted(text=text, entities=code)).entities == code

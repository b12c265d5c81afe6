"""The emulated Bot API judges what a bot writes and where: what it takes, what it refuses and in which words."""

from typing import Any

import httpx
import pytest

from tests.channels.telegram_calls import ALICE, FORUM, TEAM, ask, call, emulator, refusal, sample
from tests.emulators.telegram.emulator import TelegramEmulator


@pytest.fixture
def telegram() -> TelegramEmulator:
    return emulator()


# the door


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/bot7000000001:EMULATED-telegram_token-of-no-VALUE/getMe", 401),
        ("/botnonsense/getMe", 404),
        ("/bot{token}/getNothing", 404),
        ("/bot{token}", 404),
        ("/elsewhere", 404),
        ("/file/bot{token}/documents/file_7.pdf", 404),
    ],
)
async def test_wrong_addresses(telegram: TelegramEmulator, path: str, status: int) -> None:
    answer = await ask(telegram, path.format(token=telegram.token))
    assert (answer.status_code, answer.json()["ok"], answer.json()["error_code"]) == (status, False, status)


async def test_the_bot_can_ask_who_it_is_in_any_spelling_and_way(telegram: TelegramEmulator) -> None:
    path = f"/bot{telegram.token}/GETME"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(telegram.app), base_url="http://t") as client:
        answers = [(await client.get(path)).json(), (await client.post(path)).json()]
    assert answers[0] == answers[1]
    assert answers[0]["result"]["username"] == "fixture_helper_bot"
    assert answers[0]["result"]["can_read_all_group_messages"] is False


@pytest.mark.parametrize(
    "how",
    [
        {"json": {"chat_id": ALICE, "text": "hi", "reply_parameters": {"message_id": 1, "allow_sending_without_reply": True}}},  # noqa: E501
        {"data": {"chat_id": str(ALICE), "text": "hi", "reply_parameters": '{"message_id":1,"allow_sending_without_reply":true}'}},  # noqa: E501
        {"files": {"chat_id": (None, str(ALICE)), "text": (None, "hi")}},
        {"params": {"chat_id": ALICE, "text": "hi"}},
    ],
    ids=["json", "form", "multipart", "query"],
)  # fmt: skip
async def test_parameters_come_in_four_ways(telegram: TelegramEmulator, how: dict[str, Any]) -> None:
    answer = await ask(telegram, f"/bot{telegram.token}/sendMessage", **how)
    assert answer.json()["result"]["text"] == "hi"
    assert telegram.requests[0].method == "sendMessage"
    assert str(telegram.requests[0].parameters["chat_id"]) == str(ALICE)


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/x-www-form-urlencoded", b"text=\xff"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\nx"),
        ("text/plain", b"x"),
    ],
)
async def test_a_body_that_cannot_be_read(telegram: TelegramEmulator, media_type: str, content: bytes) -> None:
    path = f"/bot{telegram.token}/sendMessage"
    answer = await ask(telegram, path, headers={"content-type": media_type}, content=content)
    assert (answer.status_code, answer.json()["ok"]) == (400, False)


# text


async def test_a_message_is_written_down_and_answered_as_a_whole_message(telegram: TelegramEmulator) -> None:
    markup = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}, {"text": "Docs", "url": "https://a.bc"}]]}
    preview = {"is_disabled": True}
    message = await call(
        telegram,
        "sendMessage",
        **sample(text="Hi <b>you</b>", parse_mode="HTML", reply_markup=markup, link_preview_options=preview),
    )
    bold = {"offset": 3, "length": 3, "type": "bold"}
    assert message == {
        "message_id": 1001,
        "from": telegram.bot,
        "chat": {"id": ALICE, "type": "private", "first_name": "Alice", "username": "alice_fixture"},
        "date": 1_790_000_000,
        "text": "Hi you",
        "entities": [bold],
        "link_preview_options": preview,
        "reply_markup": markup,
    }
    (sent,) = await telegram.sent(1)
    assert (sent.message_id, sent.chat_id, sent.thread, sent.reply_to) == (1001, ALICE, None, None)
    assert (sent.kind, sent.text, sent.entities, sent.parse_mode) == ("text", "Hi you", (bold,), "HTML")
    assert (sent.reply_markup, sent.silent) == (markup, False)


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"text": "  a\n"}, "a"),
        ({"text": "a" * 4096}, "a" * 4096),
        ({"text": "😀" * 2048}, "😀" * 2048),
        ({"text": "<b>" + "&lt;" * 4096 + "</b>", "parse_mode": "html"}, "<" * 4096),
    ],
)
async def test_text_that_fits(telegram: TelegramEmulator, parameters: dict[str, Any], shown: str) -> None:
    assert (await call(telegram, "sendMessage", **sample() | parameters))["text"] == shown


async def test_a_mention_by_id_is_of_somebody_the_bot_knows_or_it_is_none(telegram: TelegramEmulator) -> None:
    text = '<a href="tg://user?id=500000011">A</a> <a href="tg://user?id=1">B</a>'
    message = await call(telegram, "sendMessage", chat_id=TEAM, text=text, parse_mode="HTML")
    assert [entity["user"]["first_name"] for entity in message["entities"]] == ["Alice"]


# where to


@pytest.mark.parametrize("chat_id", [TEAM, str(TEAM), "@team_chat", "@TEAM_CHAT"])
async def test_a_chat_is_named_by_number_or_public_name(telegram: TelegramEmulator, chat_id: object) -> None:
    await call(telegram, "sendMessage", chat_id=chat_id, text="hi")
    assert telegram.messages[0].chat_id == TEAM
    assert (await call(telegram, "getChat", chat_id=chat_id))["title"] == "Team chat"


@pytest.mark.parametrize("chat_id", [1, "1", "@alice_fixture", "@nobody", "team_chat", True])
async def test_a_chat_that_is_not_there(telegram: TelegramEmulator, chat_id: object) -> None:
    assert await refusal(telegram, "sendMessage", chat_id=chat_id, text="hi") == "Bad Request: chat not found"
    assert await refusal(telegram, "sendMessage", text="hi") == "Bad Request: chat_id is empty"


@pytest.mark.parametrize("method", ["sendMessage", "sendChatAction", "editMessageText"])
async def test_where_the_bot_is_not_wanted_every_call_says_why(telegram: TelegramEmulator, method: str) -> None:
    small = telegram.group(-77, "Small")
    bob = telegram.private(1, "Bob", started=False)
    eve = telegram.private(2, "Eve")
    telegram.block(ALICE)
    telegram.kick(TEAM)
    telegram.kick(small)
    telegram.restrict(FORUM)
    telegram.deactivate(eve)
    words = {
        ALICE: "Forbidden: bot was blocked by the user",
        TEAM: "Forbidden: bot was kicked from the supergroup chat",
        small: "Forbidden: bot was kicked from the group chat",
        FORUM: "Bad Request: not enough rights to send text messages to the chat",
        bob: "Forbidden: bot can't initiate conversation with a user",
        eve: "Forbidden: user is deactivated",
    }
    more: dict[str, Any] = {"action": "typing"} if method == "sendChatAction" else {"text": "hi"}
    more |= {"message_id": 1} if method == "editMessageText" else {}
    for chat_id, description in words.items():
        assert await refusal(telegram, method, chat_id=chat_id, **more) == description


async def test_a_group_that_moved_says_where_to(telegram: TelegramEmulator) -> None:
    telegram.migrate(-4000000031, -1002000000099)
    path = f"/bot{telegram.token}/sendMessage"
    answer = await ask(telegram, path, json={"chat_id": -4000000031, "text": "hi"})
    assert answer.json() == {
        "ok": False,
        "error_code": 400,
        "description": "Bad Request: group chat was upgraded to a supergroup chat",
        "parameters": {"migrate_to_chat_id": -1002000000099},
    }
    assert (await call(telegram, "sendMessage", chat_id=-1002000000099, text="hi"))["message_id"] == 1002


async def test_a_message_in_a_topic_says_so(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend")
    message = await call(telegram, "sendMessage", chat_id=FORUM, text="hi", message_thread_id=thread)
    assert (message["message_thread_id"], message["is_topic_message"]) == (thread, True)
    assert message["reply_to_message"]["forum_topic_created"]["name"] == "Backend"
    assert (telegram.messages[0].thread, telegram.messages[0].reply_to) == (thread, None)


async def test_a_reply_lands_in_the_topic_of_what_it_replies_to(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend")
    question = telegram.text_update("status?", chat=FORUM, sender=ALICE, thread=thread)["message"]
    reply = {"message_id": question["message_id"]}
    message = await call(telegram, "sendMessage", chat_id=FORUM, text="hi", reply_parameters=reply)
    assert (message["message_thread_id"], message["reply_to_message"]["text"]) == (thread, "status?")
    assert "reply_to_message" not in message["reply_to_message"]
    assert (telegram.messages[0].thread, telegram.messages[0].reply_to) == (thread, question["message_id"])


async def test_general_has_no_thread_and_unknown_threads_are_not_found(telegram: TelegramEmulator) -> None:
    missing = "Bad Request: message thread not found"
    deleted, closed = telegram.topic(FORUM, "Old"), telegram.topic(FORUM, "Done")
    question = telegram.text_update("before", chat=FORUM, sender=ALICE, thread=closed)["message"]
    telegram.delete_topic(FORUM, deleted)
    telegram.close_topic(FORUM, closed)
    for thread in (1, 999, deleted):
        assert await refusal(telegram, "sendMessage", chat_id=FORUM, text="hi", message_thread_id=thread) == missing
    shut = "Bad Request: TOPIC_CLOSED"
    assert await refusal(telegram, "sendMessage", chat_id=FORUM, text="hi", message_thread_id=closed) == shut
    reply = {"message_id": question["message_id"]}
    assert await refusal(telegram, "sendMessage", chat_id=FORUM, text="hi", reply_parameters=reply) == shut
    message = await call(telegram, "sendMessage", chat_id=FORUM, text="hi")
    assert "message_thread_id" not in message


async def test_the_reply_chain_of_general_is_no_thread_to_send_to(telegram: TelegramEmulator) -> None:
    root = telegram.text_update("root", chat=FORUM, sender=ALICE)["message"]["message_id"]
    reply = telegram.text_update("more", chat=FORUM, sender=ALICE, reply_to=root)["message"]
    assert (reply["message_thread_id"], "is_topic_message" in reply) == (root, False)
    missing = "Bad Request: message thread not found"
    assert await refusal(telegram, "sendMessage", chat_id=FORUM, text="hi", message_thread_id=root) == missing


@pytest.mark.parametrize("chat_id", [TEAM, ALICE])
async def test_where_there_are_no_topics_a_thread_is_ignored(telegram: TelegramEmulator, chat_id: int) -> None:
    message = await call(telegram, "sendMessage", chat_id=chat_id, text="hi", message_thread_id=999)
    assert "message_thread_id" not in message


async def test_direct_chats_have_topics_where_the_bot_has_switched_them_on(telegram: TelegramEmulator) -> None:
    telegram.bot["has_topics_enabled"] = True
    thread = telegram.topic(ALICE, "Plans", by=ALICE)
    message = await call(telegram, "sendMessage", **sample(message_thread_id=thread))
    assert (message["is_topic_message"], "reply_to_message" in message) == (True, False)
    assert (
        await refusal(telegram, "sendMessage", **sample(message_thread_id=9)) == "Bad Request: message thread not found"
    )


async def test_a_reply_to_a_message_that_is_gone(telegram: TelegramEmulator) -> None:
    question = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    message = await call(telegram, "sendMessage", **sample(reply_parameters={"message_id": question, "chat_id": ALICE}))
    assert message["reply_to_message"]["text"] == "hello"
    telegram.forget(ALICE, question)
    missing = "Bad Request: message to be replied not found"
    assert await refusal(telegram, "sendMessage", **sample(reply_parameters={"message_id": question})) == missing
    reply = {"message_id": question, "allow_sending_without_reply": True}
    assert "reply_to_message" not in await call(telegram, "sendMessage", **sample(reply_parameters=reply))
    assert [sent.reply_to for sent in telegram.messages] == [question, None]

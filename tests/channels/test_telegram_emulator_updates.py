"""What people do in the emulated Telegram becomes updates like those of the real one."""

import pytest

from tests.channels.telegram_calls import ALICE, FORUM, TEAM, call, emulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.formatted import covered_by

BOB = 5000000022
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02\x80\x00\x00\x01\xe0"


@pytest.fixture
def telegram() -> TelegramEmulator:
    telegram = emulator()
    telegram.private(BOB, "Boris 🦊")
    return telegram


def test_updates_count_up_and_so_do_the_messages_of_each_chat(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update("hi", chat=chat) for chat in (ALICE, BOB, ALICE)]
    first = updates[0]["update_id"]
    assert [update["update_id"] for update in updates] == [first, first + 1, first + 2]
    assert [update["message"]["message_id"] for update in updates] == [1001, 1001, 1002]


def test_a_message_in_a_group_marks_mentions_and_commands(telegram: TelegramEmulator) -> None:
    text = "🔥🔥 @fixture_helper_bot /ask@fixture_helper_bot"
    message = telegram.text_update(text, chat=TEAM, sender=ALICE)["message"]
    assert message["from"] == {"id": ALICE, "is_bot": False, "first_name": "Alice", "username": "alice_fixture"}
    assert message["chat"] == {"id": TEAM, "type": "supergroup", "title": "Team chat", "username": "team_chat"}
    assert [(entity["type"], covered_by(text, entity)) for entity in message["entities"]] == [
        ("mention", "@fixture_helper_bot"),
        ("bot_command", "/ask@fixture_helper_bot"),
    ]
    assert message["entities"][0]["offset"] == 5
    user = {"id": BOB, "is_bot": False, "first_name": "Boris 🦊"}
    mention = {"offset": 0, "length": 8, "type": "text_mention", "user": user}
    assert telegram.text_update("Boris 🦊 look", chat=TEAM, sender=ALICE, entities=[mention])["message"][
        "entities"
    ] == [mention]


async def test_a_reply_shows_what_it_replies_to_and_its_chain_in_supergroups(telegram: TelegramEmulator) -> None:
    for chat, chained in ((TEAM, True), (-4000000031, False), (ALICE, False)):
        sent = await call(telegram, "sendMessage", chat_id=chat, text="Here is the plan")
        reply = telegram.text_update("shorter", chat=chat, sender=ALICE, reply_to=sent["message_id"])["message"]
        assert reply["reply_to_message"]["from"] == telegram.bot
        assert reply.get("message_thread_id") == (sent["message_id"] if chained else None)
        assert "is_topic_message" not in reply
    with pytest.raises(ValueError, match="no message 77"):
        telegram.text_update("what?", chat=ALICE, reply_to=77)


def test_a_message_in_a_topic_names_it_and_one_in_general_does_not(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend", by=ALICE)
    inside = telegram.text_update("status?", chat=FORUM, sender=ALICE, thread=thread)["message"]
    assert (inside["message_thread_id"], inside["is_topic_message"]) == (thread, True)
    assert inside["reply_to_message"]["forum_topic_created"] == {"name": "Backend", "icon_color": 7322096}
    general = telegram.text_update("status?", chat=FORUM, sender=ALICE)["message"]
    assert not {"message_thread_id", "is_topic_message", "reply_to_message"} & set(general)


def test_an_edit_keeps_the_message_and_brings_new_words(telegram: TelegramEmulator) -> None:
    before = telegram.text_update("/whats 2+2", chat=ALICE)["message"]
    after = telegram.edit_update(before["message_id"], "what's 2+3?", chat=ALICE)["edited_message"]
    assert (after["message_id"], after["text"], "entities" in after) == (before["message_id"], "what's 2+3?", False)
    assert after["edit_date"] == 1_790_000_000


def test_an_album_is_one_update_for_each_picture_and_one_caption(telegram: TelegramEmulator) -> None:
    messages = [update["message"] for update in telegram.album_updates([PNG] * 3, chat=ALICE, caption="@alice_x these")]
    assert len({message["media_group_id"] for message in messages}) == 1
    assert [message.get("caption") for message in messages] == ["@alice_x these", None, None]
    assert messages[0]["caption_entities"][0]["type"] == "mention"
    assert [message["message_id"] for message in messages] == [1001, 1002, 1003]


async def test_a_file_that_somebody_sent_can_be_fetched(telegram: TelegramEmulator) -> None:
    message = telegram.document_update(b"%PDF", name="a.pdf", chat=ALICE, caption="请总结")["message"]
    assert message["caption"] == "请总结"
    file = await call(telegram, "getFile", file_id=message["document"]["file_id"])
    assert telegram.files.download(file["file_path"]) == b"%PDF"


def test_a_message_that_is_gone_makes_a_press_inaccessible(telegram: TelegramEmulator) -> None:
    question = telegram.text_update("hi", chat=ALICE)["message"]["message_id"]
    press = telegram.press_update(question, "a", chat=ALICE)["callback_query"]
    assert (press["message"]["text"], isinstance(press["id"], str)) == ("hi", True)
    telegram.forget(ALICE, question)
    inaccessible = telegram.press_update(question, "a", chat=ALICE)["callback_query"]["message"]
    assert (inaccessible["message_id"], inaccessible["date"], set(inaccessible)) == (
        question,
        0,
        {"chat", "message_id", "date"},
    )


def test_a_block_is_told_and_writing_again_ends_it(telegram: TelegramEmulator) -> None:
    change = telegram.block(ALICE)["my_chat_member"]
    assert (change["old_chat_member"]["status"], change["new_chat_member"]["status"]) == ("member", "kicked")
    assert telegram.chats[ALICE].refusal is not None
    telegram.text_update("back", chat=ALICE)
    assert telegram.chats[ALICE].refusal is None


def test_a_group_that_moves_says_so_in_both_chats(telegram: TelegramEmulator) -> None:
    old, new = telegram.migrate(-4000000031, -1002000000099)
    assert (old["message"]["chat"]["id"], old["message"]["migrate_to_chat_id"]) == (-4000000031, -1002000000099)
    assert (new["message"]["chat"]["id"], new["message"]["migrate_from_chat_id"]) == (-1002000000099, -4000000031)

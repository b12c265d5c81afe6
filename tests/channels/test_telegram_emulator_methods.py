"""The emulated Bot API beyond plain messages: buttons, edits, reactions, drafts, menus, limits and failures."""

from typing import Any

import pytest

from tests.channels.telegram_calls import ALICE, FORUM, TEAM, Clock, ask, call, emulator, keyboard, refused, sample
from tests.emulators.telegram.emulator import Action, CallbackAnswer, Reaction, TelegramEmulator
from tests.emulators.telegram.rules import CALLBACK_DATA_BYTES_MAX


@pytest.fixture
def telegram() -> TelegramEmulator:
    return emulator()


def clock(telegram: TelegramEmulator) -> Clock:
    assert isinstance(telegram.now, Clock)
    return telegram.now


# buttons


async def test_other_keyboards_are_taken_and_are_no_part_of_the_message(telegram: TelegramEmulator) -> None:
    longest = keyboard({"text": "a", "callback_data": "x" * CALLBACK_DATA_BYTES_MAX})
    assert (await call(telegram, "sendMessage", **sample(reply_markup=longest)))["reply_markup"] == longest
    markups: list[Any] = [
        {"remove_keyboard": True},
        {"force_reply": True},
        {"keyboard": [["a"]]},
        {"inline_keyboard": []},
    ]
    for markup in markups:
        assert "reply_markup" not in await call(telegram, "sendMessage", **sample(reply_markup=markup))


# edits


async def test_an_edit_changes_what_is_shown_and_drops_buttons_that_it_does_not_name(
    telegram: TelegramEmulator,
) -> None:
    sent = await call(telegram, "sendMessage", **sample(reply_markup=keyboard({"text": "a", "callback_data": "b"})))
    edited = await call(telegram, "editMessageText", **sample(message_id=sent["message_id"], text="better"))
    assert (edited["text"], edited["edit_date"], "reply_markup" in edited) == ("better", 1_790_000_000, False)
    assert [(edit.message_id, edit.text) for edit in telegram.edits] == [(sent["message_id"], "better")]
    assert telegram.messages[0].text == "hi"
    assert telegram.shown(ALICE) == ["better"]


async def test_an_edit_that_changes_nothing_is_refused(telegram: TelegramEmulator) -> None:
    markup = keyboard({"text": "a", "callback_data": "b"})
    same = sample(text="<b>hi</b>", parse_mode="HTML", reply_markup=markup)
    message_id = (await call(telegram, "sendMessage", **same))["message_id"]
    await refused(telegram, "editMessageText", **same, message_id=message_id)
    await call(telegram, "editMessageText", **same | {"text": "hi"}, message_id=message_id)
    await refused(telegram, "editMessageText", **same | {"text": "hi"}, message_id=message_id)
    place = {"chat_id": ALICE, "message_id": message_id}
    await refused(telegram, "editMessageReplyMarkup", **place, reply_markup=markup)
    assert "reply_markup" not in await call(telegram, "editMessageReplyMarkup", **place)
    await refused(telegram, "editMessageReplyMarkup", **place)
    assert telegram.shown(ALICE) == ["hi"]


async def test_only_own_texts_that_are_still_there_can_be_edited(telegram: TelegramEmulator) -> None:
    theirs = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    how = sample(text="x")
    for message_id in (9, theirs):
        await refused(telegram, "editMessageText", **how, message_id=message_id)
    file = {"document": ("a.txt", b"a", "text/plain")}
    answer = await ask(telegram, f"/bot{telegram.token}/sendDocument", data={"chat_id": ALICE}, files=file)
    own = answer.json()["result"]["message_id"]
    await refused(telegram, "editMessageText", **how, message_id=own)


async def test_what_a_bot_may_delete(telegram: TelegramEmulator) -> None:
    own = (await call(telegram, "sendMessage", chat_id=TEAM, text="hi"))["message_id"]
    theirs = telegram.text_update("hello", chat=TEAM, sender=ALICE)["message"]["message_id"]
    direct = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    assert await call(telegram, "deleteMessage", chat_id=TEAM, message_id=own) is True
    assert await call(telegram, "deleteMessage", chat_id=ALICE, message_id=direct) is True
    await refused(telegram, "deleteMessage", chat_id=TEAM, message_id=own)
    await refused(telegram, "deleteMessage", chat_id=TEAM, message_id=theirs)
    telegram.promote(TEAM)
    await call(telegram, "deleteMessage", chat_id=TEAM, message_id=theirs)
    assert [line.message_id for line in telegram.deleted] == [own, direct, theirs]


async def test_a_message_of_two_days_ago_stays(telegram: TelegramEmulator) -> None:
    own = (await call(telegram, "sendMessage", **sample()))["message_id"]
    clock(telegram).seconds += 48 * 3600
    await refused(telegram, "deleteMessage", chat_id=ALICE, message_id=own)


# signs of life


async def test_typing_is_seen_in_its_topic_and_general_is_topic_one(telegram: TelegramEmulator) -> None:
    thread = telegram.topic(FORUM, "Backend")
    await call(telegram, "sendChatAction", chat_id=ALICE, action="typing")
    for number in (thread, 1):
        await call(telegram, "sendChatAction", chat_id=FORUM, action="upload_document", message_thread_id=number)
    assert telegram.actions == [
        Action(chat_id=ALICE, action="typing", thread=None),
        Action(chat_id=FORUM, action="upload_document", thread=thread),
        Action(chat_id=FORUM, action="upload_document", thread=None),
    ]
    await refused(telegram, "sendChatAction", chat_id=ALICE, action="thinking")
    await refused(telegram, "sendChatAction", chat_id=ALICE)
    await refused(telegram, "sendChatAction", chat_id=FORUM, action="typing", message_thread_id=9)


async def test_a_bot_has_one_reaction_out_of_a_list(telegram: TelegramEmulator) -> None:
    question = telegram.text_update("hello", chat=ALICE)["message"]["message_id"]
    place = {"chat_id": ALICE, "message_id": question}
    for emoji in ("👀", "👨‍💻", "⚡"):
        await call(telegram, "setMessageReaction", **place, reaction=[{"type": "emoji", "emoji": emoji}])
    await call(telegram, "setMessageReaction", **place, reaction=[])
    assert [line.emoji for line in telegram.reactions] == ["👀", "👨‍💻", "⚡", None]
    assert telegram.reactions[0] == Reaction(chat_id=ALICE, message_id=question, emoji="👀")


async def test_a_button_press_is_answered_once(telegram: TelegramEmulator) -> None:
    buttons = keyboard({"text": "a", "callback_data": "b"})
    sent = await call(telegram, "sendMessage", **sample(reply_markup=buttons))
    query = telegram.press_update(sent["message_id"], "b", chat=ALICE)["callback_query"]
    assert (query["data"], query["message"]["reply_markup"]) == ("b", buttons)
    await refused(telegram, "answerCallbackQuery", callback_query_id=query["id"], text="a" * 201)
    await call(telegram, "answerCallbackQuery", callback_query_id=query["id"], text="Saved")
    assert telegram.callback_answers == [CallbackAnswer(callback_query_id=query["id"], text="Saved", show_alert=False)]
    await refused(telegram, "answerCallbackQuery", callback_query_id=query["id"])


async def test_menus_are_kept_by_scope_and_language(telegram: TelegramEmulator) -> None:
    menu = [{"command": "new", "description": "Start anew"}]
    await call(telegram, "setMyCommands", commands=menu)
    await call(telegram, "setMyCommands", commands=[], scope={"type": "chat", "chat_id": ALICE}, language_code="zh")
    assert await call(telegram, "getMyCommands") == menu
    assert await call(telegram, "getMyCommands", language_code="zh") == []
    assert telegram.commands == {("default", ""): menu, (f"chat {ALICE}", "zh"): []}


# drafts


async def test_a_draft_is_shown_for_half_a_minute_or_until_the_message(telegram: TelegramEmulator) -> None:
    for text in ("", "par", "partial"):
        await call(telegram, "sendMessageDraft", chat_id=ALICE, draft_id=7, text=text, can_stop=True)
    assert [draft.text for draft in telegram.live_drafts(ALICE)] == ["partial"]
    stop = telegram.stop_update(7, chat=ALICE)
    assert stop["stopped_message_generation"]["draft_id"] == 7
    clock(telegram).seconds += 30
    assert telegram.live_drafts(ALICE) == []
    await call(telegram, "sendMessageDraft", chat_id=ALICE, draft_id=8, text="again")
    await call(telegram, "sendMessage", **sample(text="done"))
    assert telegram.live_drafts(ALICE) == []
    assert [draft.text for draft in telegram.drafts] == ["", "par", "partial", "again"]


# limits and failures


@pytest.mark.parametrize(
    ("chats", "step", "passes", "wait"),
    [
        ([ALICE], 0.0, 3, 3),
        ([TEAM], 1.0, 20, 40),
        ([*range(1, 40)], 0.0, 30, 1),
    ],
    ids=["a chat", "a group", "the bot"],
)
async def test_who_writes_too_often_is_told_how_long_to_wait(
    chats: list[int], step: float, passes: int, wait: int
) -> None:
    telegram = emulator(limit_rates=True)
    for chat in chats:
        if chat < 40 and chat > 0:
            telegram.private(chat, "Somebody")
    for number in range(passes):
        await call(telegram, "sendMessage", chat_id=chats[number % len(chats)], text="hi")
        clock(telegram).seconds += step
    path = f"/bot{telegram.token}/sendMessage"
    answer = await ask(telegram, path, json={"chat_id": chats[passes % len(chats)], "text": "hi"})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == str(wait)
    assert answer.json()["description"] == f"Too Many Requests: retry after {wait}"
    assert answer.json()["parameters"] == {"retry_after": wait}
    clock(telegram).seconds += wait
    await call(telegram, "sendMessage", chat_id=chats[passes % len(chats)], text="hi")


async def test_edits_count_as_messages(telegram: TelegramEmulator) -> None:
    telegram.limit_rates = True
    message_id = (await call(telegram, "sendMessage", **sample()))["message_id"]
    for text in ("a", "b"):
        await call(telegram, "editMessageText", **sample(text=text, message_id=message_id))
    await refused(telegram, "editMessageText", **sample(text="c", message_id=message_id))


async def test_a_failure_can_be_ordered_for_one_method(telegram: TelegramEmulator) -> None:
    telegram.fail_next(
        "sendmessage",
        times=2,
        status=429,
        description="Too Many Requests: retry after 7",
        parameters={"retry_after": 7},
        headers={"Retry-After": "7"},
    )
    await call(telegram, "getMe")
    for _ in range(2):
        answer = await ask(telegram, f"/bot{telegram.token}/sendMessage", json=sample())
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.json()["parameters"] == {"retry_after": 7}
    await call(telegram, "sendMessage", **sample())
    assert len(telegram.requests) == 4


async def test_an_answer_can_be_lost_after_the_message_was_sent(telegram: TelegramEmulator) -> None:
    telegram.fail_next(lose_answer=True)
    answer = await ask(telegram, f"/bot{telegram.token}/sendMessage", json=sample())
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (502, "text/html")
    assert len(telegram.messages) == 1

"""What the emulated Bot API refuses: by status, and in Telegram's words where our channel reads them."""

from typing import Any

import pytest

from tests.channels.telegram_calls import ALICE, TEAM, emulator, keyboard, refused, sample

DRAFT = {"chat_id": ALICE, "draft_id": 7, "text": "a"}
HOOK = {"url": "https://bot.example.com/hook"}
LIKE = {"type": "emoji", "emoji": "👍"}


def buttons(*row: object) -> dict[str, Any]:
    return sample(reply_markup=keyboard(*row))


def reaction(*reactions: object) -> dict[str, Any]:
    return {"chat_id": ALICE, "message_id": 9, "reaction": list(reactions)}


def menu(name: str, description: str = "a", *, times: int = 1) -> dict[str, Any]:
    return {"commands": [{"command": name, "description": description}] * times}


REFUSED: dict[str, list[dict[str, Any]]] = {
    "sendMessage": [
        buttons({"text": "a", "callback_data": "中" * 22}),
        buttons({"text": "a", "callback_data": ""}),
        buttons({"text": "a", "url": "javascript:x"}),
        buttons({"text": "a"}),
        buttons({"text": "a", "url": "https://a.bc", "callback_data": "b"}),
        buttons({"callback_data": "b"}),
        buttons(*[{"text": "a", "callback_data": "b"}] * 9),
        buttons({"text": "a", "callback_data": "b", "color": "red"}),
        sample(reply_markup={"inline_keyboard": [[{"text": "a", "callback_data": "b"}]] * 101}),
        sample(reply_markup={"buttons": []}),
        sample(chatId=1),
        sample(link_preview_options={"disabled": True}),
        sample(reply_parameters={"id": 1}),
        sample() | {"text": 5},
        sample() | {"text": None},
        sample(message_thread_id=True),
        sample(disable_notification="yes"),
        sample(reply_parameters="["),
        sample(reply_parameters=[1]),
        sample(entities={}),
        sample(parse_mode="MarkdownV2"),
        sample(parse_mode="HTML", entities=[]),
        sample(entities=[{"type": "bold", "offset": 0, "length": 3}]),
    ],
    "sendDocument": [
        {"chat_id": ALICE, "document": ""},
        {"chat_id": ALICE, "document": "https://example.com/a.pdf"},
    ],
    "sendMessageDraft": [DRAFT | {"chat_id": TEAM}, DRAFT | {"draft_id": 0}, DRAFT | {"text": "a" * 4097}],
    "setMessageReaction": [
        reaction({"type": "emoji", "emoji": "✅"}),
        reaction({"type": "emoji", "emoji": "❤️"}),
        reaction({"type": "paid"}),
        reaction(LIKE, LIKE),
        reaction(LIKE),
    ],
    "setMyCommands": [
        menu("New"),
        menu("a" * 33),
        menu("a", ""),
        menu("a", "a" * 257),
        menu("a", times=101),
        {"commands": ["a"]},
    ],
    "setWebhook": [
        {"url": "nonsense"},
        {"url": "https://a.bc:x/"},
        {"url": "http://bot.example.com/"},
        {"url": "https://bot.example.com:8080/"},
        {"url": "https://127.0.0.1/"},
        {"url": "https://[2606:4700::1]/"},
        HOOK | {"secret_token": "7000000001:x"},
        HOOK | {"secret_token": "a" * 257},
        HOOK | {"max_connections": 101},
        HOOK | {"allowed_updates": ["messages"]},
    ],
}


@pytest.mark.parametrize(("method", "parameters"), [(name, one) for name, rows in REFUSED.items() for one in rows])
async def test_what_is_refused_leaves_nothing_behind(method: str, parameters: dict[str, Any]) -> None:
    telegram = emulator()
    assert (await refused(telegram, method, **parameters))["error_code"] == 400
    assert (telegram.webhook.url, telegram.commands, telegram.reactions, telegram.drafts) == ("", {}, [], [])


@pytest.mark.parametrize(
    ("method", "parameters", "words"),
    [
        ("sendMessage", sample(text=""), "message text is empty"),
        ("sendMessage", sample(text=" \n "), "message text is empty"),
        ("sendMessage", sample(text="<b> </b>", parse_mode="HTML"), "message text is empty"),
        ("sendMessage", sample(text="a" * 4097), "message is too long"),
        ("sendMessage", sample(text="😀" * 2049), "message is too long"),
        ("sendMessage", sample(text="&#60;" * 6554, parse_mode="HTML"), "text is too long"),
        ("sendMessage", sample(text="<b>a", parse_mode="HTML"), "can't parse entities"),
        ("sendMessage", sample(entities=[{"type": "bold", "offset": 0, "length": 3}]), "can't parse entities"),
        ("sendMessageDraft", DRAFT | {"text": "<b>half", "parse_mode": "HTML"}, "can't parse entities"),
        ("sendDocument", {"chat_id": ALICE, "document": "BQAC-unknown"}, "wrong file_id"),
    ],
)
async def test_the_words_of_a_refusal_that_our_channel_reads(
    method: str, parameters: dict[str, Any], words: str
) -> None:
    assert words in (await refused(emulator(), method, **parameters))["description"]

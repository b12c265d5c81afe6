"""The emulated Bot API refuses what Telegram refuses of what our bot calls; aiogram judges its shapes next door."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.channels.telegram_calls import ALICE, BOB, FORUM, TEAM, ask, call, emulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.formatted import Formatted, covered_by, given_entities, trimmed, with_found

HI = {"chat_id": ALICE, "text": "hi"}
HOOK = {"url": "https://bot.example.com/hook"}
TOPIC = 1001
BOLD = {"type": "bold"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("getNothing", {}, "Not Found: method not found"),
    *(("sendMessage", HI | bent, "") for bent in ({"chatId": 1}, {"message_thread_id": True}, {"reply_parameters": "["})),
    ("sendMessage", HI | {"text": " \n "}, "message text is empty"),
    ("sendMessage", HI | {"text": "😀" * 2049}, "message is too long"),
    ("sendMessage", HI | {"text": " " * 33_000 + "a"}, "text is too long"),
    *(
        ("sendMessage", HI | {"text": "😀ab", "entities": [BOLD | {"offset": at, "length": it}]}, "can't parse entities")
        for at, it in ((1, 1), (0, 1), (2, 9), (5, 1))
    ),
    *(("sendMessage", HI | {"chat_id": chat}, "chat not found") for chat in (1, "@alice_fixture")),
    ("sendMessage", HI | {"chat_id": BOB}, "bot was blocked"),
    ("sendMessage", HI | {"chat_id": TEAM}, "bot was kicked"),
    ("sendMessage", HI | {"reply_parameters": {"message_id": 9}}, "message to be replied not found"),
    *(("sendMessage", HI | {"chat_id": FORUM, "message_thread_id": it}, "thread not found") for it in (1, 999, TOPIC)),
    ("getFile", {"file_id": "BQAC-unknown"}, "wrong file_id"),
    ("sendChatAction", {"chat_id": ALICE, "action": "thinking"}, ""),
    ("sendChatAction", {"chat_id": FORUM, "action": "typing", "message_thread_id": 9}, "thread not found"),
    ("answerCallbackQuery", {"callback_query_id": "1"}, "query is too old"),
    *(
        ("setMyCommands", {"commands": [{"command": name, "description": text}] * times}, "")
        for name, text, times in (("New", "a", 1), ("a", "", 1), ("a", "a" * 257, 1), ("a", "a", 101))
    ),
    *(("setWebhook", {"url": f"https://{place}/"}, "") for place in ("a.bc:x", "a.bc:8080", "127.0.0.1", "[2606::1]")),
    *(("setWebhook", {"url": url}, "") for url in ("nonsense", "http://bot.example.com/")),
    *(("setWebhook", HOOK | {"secret_token": secret}, "") for secret in ("7000000001:x", "a" * 257)),
    ("setWebhook", HOOK | {"allowed_updates": ["messages"]}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("method", "parameters", "words"), REFUSED)
async def test_what_is_refused_leaves_nothing_behind(method: str, parameters: dict[str, Any], words: str) -> None:
    telegram = emulator()
    telegram.block(BOB)
    telegram.kick(TEAM)
    assert telegram.topic(FORUM, "Old") == TOPIC
    telegram.delete_topic(FORUM, TOPIC)
    answer = (await ask(telegram, f"/bot{{token}}/{method}", **parameters)).json()
    assert (answer["ok"], words in answer["description"]) == (False, True)
    assert (telegram.messages, telegram.actions, telegram.commands, telegram.webhook.url) == ([], [], {}, "")


# how the bot gets its updates


async def poll(telegram: TelegramEmulator) -> asyncio.Task[httpx.Response]:
    """A long poll that is under way."""
    before = telegram.polls
    task = asyncio.create_task(ask(telegram, "/bot{token}/getUpdates", timeout=50))
    async with asyncio.timeout(10):
        while telegram.polls == before:
            await asyncio.sleep(0)
    return task


async def test_telegram_emulator_updates_until_confirmed() -> None:
    telegram = emulator()
    earlier, later = await poll(telegram), await poll(telegram)
    assert (await earlier).status_code == 409
    updates = [telegram.text_update(str(number), chat=ALICE) for number in range(3)]
    await telegram.push(updates[0])
    assert (await later).json()["result"] == updates[:1]
    for update in updates[1:]:
        await telegram.push(update)
    assert await call(telegram, "getUpdates", limit=2) == updates[:2]
    assert await call(telegram, "getUpdates", offset=updates[2]["update_id"]) == updates[2:]
    await call(telegram, "getUpdates", offset=updates[2]["update_id"] + 1)
    polling = await poll(telegram)
    await call(telegram, "setWebhook", **HOOK)
    assert (await polling).status_code == 409
    refused = await ask(telegram, "/bot{token}/getUpdates")
    assert "webhook is active" in refused.json()["description"]  # our log tells a webhook from a rival


# texts with entities: they judge what our renderer makes


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
    text, rows = "𝒳 ab", []
    for kind, words in marks:
        offset, length = (len(it.encode("utf-16-le")) // 2 for it in (text.partition(words)[0], words))
        rows.append({"type": kind, "offset": offset, "length": length})
    entities = given_entities(text, rows).entities
    assert [(entity["type"], covered_by(text, entity)) for entity in entities] == (marks if kept is None else kept)


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


def test_telegram_emulator_keeps_a_hundred_entities() -> None:
    rows = [{"type": "bold", "offset": 3 * at + 1, "length": 2} for at in range(130)]
    assert len(given_entities(" 😀" * 130, rows).entities) == 100
    shifted = trimmed(Formatted(text="\n 😀 a ", entities=({"type": "bold", "offset": 1, "length": 6},)))
    assert shifted == Formatted(text="😀 a", entities=({"type": "bold", "offset": 0, "length": 4},))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("🔥🔥 @fixture_helper_bot what is new?", [("mention", "@fixture_helper_bot")]),
        ("/ask@fixture_helper_bot do", [("bot_command", "/ask@fixture_helper_bot")]),
        ("mail me at bob@fixture_helper_bot, and/or, 1/2, /etc/hosts, @me", []),
        ("see https://a.bc/a?b=@alice, then @alice", [("url", "https://a.bc/a?b=@alice"), ("mention", "@alice")]),
    ],
)
def test_telegram_finds_mentions_commands_and_addresses_by_itself(text: str, found: list[tuple[str, str]]) -> None:
    assert [(entity["type"], covered_by(text, entity)) for entity in with_found(Formatted(text=text)).entities] == found
    code = ({"type": "code", "offset": 0, "length": len(text) + 2},)
    assert with_found(Formatted(text=text, entities=code)).entities == code

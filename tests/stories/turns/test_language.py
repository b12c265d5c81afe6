"""The gateway answers each person in each chat in their language, whatever short thing they wrote last."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.operate import sessions
from tests.emulators.models.script import Fault, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, running
from tests.stories.channels.test_telegram import bot
from tests.stories.commands.test_chat_commands import said
from tests.stories.operate.test_sessions_command import traces
from tests.web_page import WEB, new_id, opened

SHORT = ["OK", "/modle", "git status", "https://example.com/a/b", "/status"]


LET_IN = "/pair {}"
Saying = Callable[[str, str, str], Awaitable[str]]
"""Who writes where, and what: the next words of the bot there. Of `LET_IN` those to the stranger."""


@asynccontextmanager
async def feishu(folder: Path, database: str) -> AsyncIterator[Saying]:
    """Alice owns the bot, Bob is a stranger, and the bot is silent in the group."""
    policies = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing").replace(
        "groupPolicy: open", "groupPolicy: allowlist"
    )
    more = f'owners: ["feishu:{ALICE}"]\ndatabase: {{ url: "{database}" }}'
    chats = {"owner": ALICE_CHAT, "stranger": BOB_CHAT, "group": GROUP}
    async with running(folder, script=lambda _: says("ok"), feishu=policies, more=more) as house:

        async def saying(who: str, where: str, text: str) -> str:
            sender = ALICE if who == "owner" else BOB
            group = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
            read = chats[where] if where == "group" else chats["stranger" if text == LET_IN else who]
            count = len(house.feishu.shown(read))
            await house.say(
                text.format(f"feishu:{BOB}"), sender=sender, **(group if where == "group" else {"chat": chats[who]})
            )
            await house.until(lambda: len(house.feishu.shown(read)) > count)
            await house.idle()
            return house.feishu.shown(read)[count]

        yield saying


@asynccontextmanager
async def telegram(folder: Path, database: str) -> AsyncIterator[Saying]:
    """The same on Telegram, with apps that are set to English."""
    more = f'owners: ["telegram:500000011"]\ndatabase: {{ url: "{database}" }}'
    closed = bot(
        folder, "polling", script=lambda _: says("ok"), more=more, dm_policy="pairing", group_policy="allowlist"
    )
    async with closed as it:
        people = {"owner": it.telegram.private(), "stranger": it.telegram.private(500000012, "Bob")}
        group = it.telegram.group()

        def shown(chat: int) -> list[str]:
            return [sent.text for sent in it.telegram.messages if sent.chat_id == chat]

        async def saying(who: str, where: str, text: str) -> str:
            chat = group if where == "group" else people[who]
            read = people["stranger"] if text == LET_IN else chat
            mention = f"@{it.telegram.bot['username']} " if where == "group" else ""
            said = mention + text.format(f"telegram:{people['stranger']}")
            update = it.telegram.text_update(said, chat=chat, sender=people[who])
            update["message"]["from"]["language_code"] = "en"
            count = len(shown(read))
            await it.happens(update)
            await it.house.until(lambda: len(shown(read)) > count)
            await it.house.idle()
            return shown(read)[count]

        yield saying


CHANNELS = {"feishu": feishu, "telegram": telegram}
WAYS: dict[str, list[tuple[str, str, str, bool | None]]] = {
    "an owner's group after their own chat": [
        ("owner", "direct", "你好，机器人", None),
        ("owner", "group", "/listen", True),
        ("owner", "group", "/status", True),
    ],
    "an owner's group where they were told how to switch it on": [
        ("owner", "group", "大家好，机器人在吗", True),
        ("owner", "group", "/listen", True),
        ("owner", "direct", "/status", True),
    ],
    "the newest of two chats": [
        ("owner", "direct", "你好，机器人", None),
        ("owner", "group", "/listen", True),
        ("owner", "group", "/compact the parts about the garden", False),
        ("owner", "direct", "/status", True),
        ("owner", "group", "/status", False),
    ],
    "a stranger who writes Chinese second": [
        ("stranger", "direct", "/start", False),
        ("stranger", "direct", "您好，可以用吗", True),
        ("owner", "direct", LET_IN, True),
        ("stranger", "direct", "/status", True),
    ],
    "a person in a group of others": [
        ("owner", "group", "大家好，机器人在吗", True),
        ("owner", "group", "/listen", True),
        ("stranger", "direct", "/start", False),
        ("owner", "direct", LET_IN, False),
        ("stranger", "group", "/status", True),
    ],
}


def is_chinese(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)


async def test_language_stays_chinese_after_short_words_new_and_restart(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("好"), *[says("ok")] * 5]) as house:
        await said(house, "你好")
        for text in SHORT:
            await said(house, text)
            assert is_chinese(await said(house, "/status")), text
        assert is_chinese(await said(house, "/new"))
        assert is_chinese(await said(house, "/usage"))
    async with running(tmp_path, script=[]) as house:
        assert is_chinese(await said(house, "/status"))
        assert not is_chinese(await said(house, "/compact the parts about the garden"))
        assert not is_chinese(await said(house, "/status"))


async def test_language_in_a_group_is_per_person(tmp_path: Path) -> None:
    group = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
    async with running(tmp_path, script=[says("好"), says("sure")]) as house:
        await said(house, "大家好", **group)
        await said(house, "what are we doing today?", sender=BOB, **group)
        assert is_chinese(await said(house, "/status", **group))
        assert not is_chinese(await said(house, "/status", sender=BOB, **group))


async def test_language_of_a_failure_is_that_of_the_chat(tmp_path: Path) -> None:
    refused = Fault(status=401)
    async with running(tmp_path, script=[says("好"), refused]) as house:
        await said(house, "你好")
        assert is_chinese(await said(house, "OK"))


async def test_language_on_telegram_is_the_apps_until_a_text(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", script=[says("fine")]) as it:
        chat = it.telegram.private()
        for text, count in (("/status", 1), ("how are you doing today?", 2), ("/status", 3)):
            update = it.telegram.text_update(text, chat=chat)
            update["message"]["from"]["language_code"] = "zh-hans"
            await it.happens(update)
            await it.replies(count)
        await it.house.idle()
        texts = [sent.text for sent in it.telegram.messages]
        assert [is_chinese(text) for text in texts] == [True, False, False]


async def test_language_on_the_page_is_the_pages(tmp_path: Path) -> None:
    rows = [("zh", "en", True), ("en", "zh-CN", False), (None, "zh-CN", True)]
    async with (
        running(tmp_path, feishu=WEB, script=[]) as house,
        opened(house.url) as page,
    ):
        for number, (chosen, header, chinese) in enumerate(rows, 1):
            message = {"id": new_id(), "chat": new_id(), "agent": "helper", "text": "/status", "language": chosen}
            posted = {"accept-language": header}
            answer = await page.http.post("/webhooks/web/default", json=message, headers=posted)
            assert answer.status_code == 200, answer.text
            assert is_chinese((await page.answers(number))[-1]) == chinese, (chosen, header)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("channel", CHANNELS)
async def test_language_is_known_before_pairing_or_group_listening(
    tmp_path: Path, database_url: str, channel: str, way: str
) -> None:
    async with CHANNELS[channel](tmp_path, database_url) as saying:
        for number, (who, where, text, chinese) in enumerate(WAYS[way]):
            answer = await saying(who, where, text)
            assert chinese in (None, is_chinese(answer)), (number, text, answer)


async def test_language_of_a_stranger_is_erased_with_them(tmp_path: Path) -> None:
    pairing = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing")
    async with running(tmp_path, feishu=pairing, more=f'owners: ["feishu:{ALICE}"]') as house:
        for text in ("/start", "您好，可以用吗"):
            await said(house, text, sender=BOB, chat=BOB_CHAT)
        config, store = house.gateway.config, house.gateway.runtime.store
        chat, person = f"feishu:default:{BOB_CHAT}", f"feishu:default:{BOB}"
        assert await store.chatter.language(chat, person) == "zh"
        assert traces(house, "可以用吗") == []
        await asyncio.to_thread(sessions.erase, config, person=("feishu", BOB))
        assert await store.chatter.language(chat, person) is None

"""The gateway answers each person in each chat in their language, whatever short thing they wrote last."""

from pathlib import Path

from tests.emulators.models.script import Fault, says
from tests.running import BOB, GROUP, running
from tests.stories.test_chat_commands import said
from tests.stories.test_telegram import bot
from tests.web_page import WEB, new_id, opened

SHORT = ["OK", "/modle", "git status", "https://example.com/a/b", "/status"]


def is_chinese(text: str) -> bool:
    return any("一" <= char <= "鿿" for char in text)


async def test_a_chinese_chat_stays_chinese_after_short_words_a_new_conversation_and_a_restart(tmp_path: Path) -> None:
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


async def test_in_a_group_each_person_has_their_own(tmp_path: Path) -> None:
    group = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
    async with running(tmp_path, script=[says("好"), says("sure")]) as house:
        await said(house, "大家好", **group)
        await said(house, "what are we doing today?", sender=BOB, **group)
        assert is_chinese(await said(house, "/status", **group))
        assert not is_chinese(await said(house, "/status", sender=BOB, **group))


async def test_a_failure_is_said_in_the_language_of_the_chat_also_after_an_english_word(tmp_path: Path) -> None:
    refused = Fault(status=401)
    async with running(tmp_path, script=[says("好"), refused]) as house:
        await said(house, "你好")
        assert is_chinese(await said(house, "OK"))


async def test_on_telegram_the_app_decides_until_a_text_does(tmp_path: Path) -> None:
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


async def test_on_the_page_its_language_decides(tmp_path: Path) -> None:
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

"""What people send besides words, through the whole gateway: seen, kept, or told of, whatever becomes of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.emulators.feishu.resources import Resource
from tests.emulators.models.script import says
from tests.running import AGENTS, ALICE, ALICE_CHAT, SECRETS, Running, running
from tests.stories.at_work import shown
from tests.stories.channels.test_telegram import PIXEL, PUBLIC, Bot, bot

PDF = b"%PDF-1.7 quarterly figures"
PLATFORMS = pytest.mark.parametrize("platform", ["telegram", "feishu"])


@dataclass
class FeishuRoom:
    """One person's chat with the bot."""

    house: Running

    def photo(self, data: bytes) -> Any:
        return self.house.feishu.image_event(data, sender=ALICE, chat=ALICE_CHAT)

    def file(self, data: bytes, name: str, **facts: Any) -> Any:
        return self.house.feishu.file_event(data, name=name, sender=ALICE, chat=ALICE_CHAT, **facts)

    def enormous(self, name: str) -> Any:
        """A file that the platform itself does not hand out."""
        return self.file(b"", name, size=100 * 1024 * 1024 + 1)

    def fail(self, status: int, times: int) -> None:
        """The platform answers so many downloads with this."""
        self.house.feishu.fail_next("/resources/", status=status, code=0 if status >= 500 else 234009, times=times)

    async def happens(self, event: Any) -> Any:
        await self.house.push(event)

    async def sees(self, event: Any) -> tuple[str, list[str]]:
        """What is before the model's eyes when this has happened: words, and the types of pictures."""
        requests = len(self.house.anthropic.requests)
        await self.happens(event)
        await self.house.requested(requests + 1)
        await self.house.idle()
        return shown(self.house)


@dataclass
class TelegramRoom(FeishuRoom):
    bot: Bot
    chat: int

    def photo(self, data: bytes) -> Any:
        return self.bot.telegram.photo_update(data, chat=self.chat)

    def file(self, data: bytes, name: str, **facts: Any) -> Any:
        return self.bot.telegram.document_update(data, name=name, chat=self.chat, mime_type=facts.get("media_type"))

    def enormous(self, name: str) -> Any:
        facts = {"file_id": "big", "file_unique_id": "u", "file_size": 20 * 1024 * 1024 + 1, "file_name": name}
        return self.bot.telegram.message_update({"document": facts}, chat=self.chat)

    def fail(self, status: int, times: int) -> None:
        self.bot.telegram.fail_next("download", status=status, times=times)

    async def happens(self, event: Any) -> Any:
        await self.bot.happens(event)


@asynccontextmanager
async def room(
    folder: Path, platform: str, *, agents: str = AGENTS, more: str = "", providers: str = ""
) -> AsyncIterator[FeishuRoom]:
    if platform == "telegram":
        async with bot(folder, "polling", agents=agents, more=f"{PUBLIC}\n{more}", providers=providers) as it:
            yield TelegramRoom(house=it.house, bot=it, chat=it.telegram.private())
    else:
        async with running(folder, agents=agents, more=more, providers=providers) as house:
            yield FeishuRoom(house=house)


@PLATFORMS
async def test_attachment_is_shown_or_saved_and_its_path_told(tmp_path: Path, platform: str) -> None:
    async with room(tmp_path, platform, more="limits: { fileBytes: 1000 }") as it:
        words, pictures = await it.sees(it.photo(PIXEL))
        ((photo, data),) = it.house.uploads().items()
        assert (data, pictures, photo[-4:]) == (PIXEL, ["image/png"], ".png")
        assert f"shown to you, saved as {photo}" in words
        words, pictures = await it.sees(it.file(PDF, "报告 2026.pdf", media_type="application/pdf"))
        (path,) = it.house.uploads().keys() - {photo}
        assert (it.house.uploads()[path], pictures) == (PDF, [])
        assert path.endswith("/报告_2026.pdf")
        assert f"26 bytes, saved as {path}" in words
        assert (await it.sees(it.file(PIXEL, "scan", media_type="application/pdf")))[1] == ["image/png"]
        assert (await it.sees(it.file(b"<svg/>", "drawing.png", media_type="image/png")))[1] == []
        words, _ = await it.sees(it.file(bytes(1001), "big.bin"))
        assert "big.bin, not fetched: larger than 1,000 bytes" in words
        await it.sees(it.file(bytes(1000), "small.bin"))
        names = sorted(name.rpartition("/")[2] for name in it.house.uploads().keys() - {photo})
        assert names == ["drawing.png", "scan.png", "small.bin", "报告_2026.pdf"]


@PLATFORMS
async def test_attachment_download_failure_is_told_and_a_retry_is_silent(
    tmp_path: Path, platform: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = {"telegram": "20,971,520", "feishu": "104,857,600"}[platform]
    async with room(tmp_path, platform) as it:
        words, _ = await it.sees(it.enormous("film.mp4"))
        assert f"film.mp4, not fetched: larger than {limit} bytes" in words
        for status, times in ((503, 2), (403, 1)):
            it.fail(status, times=times)
            words, _ = await it.sees(it.file(PDF, "a.pdf"))
            assert "a.pdf, could not be fetched" in words
        assert it.house.uploads() == {}
        it.fail(503, times=1)
        await it.sees(it.file(PDF, "a.pdf"))
        assert list(it.house.uploads().values()) == [PDF]
        secrets = [*SECRETS.values(), *([it.bot.telegram.token] if isinstance(it, TelegramRoom) else [])]
    logged = "".join(capsys.readouterr())
    assert logged.count("attachment_not_fetched") == 3
    assert [secret for secret in secrets if secret in logged + words] == []


async def test_attachment_refusal_is_in_the_senders_language(tmp_path: Path) -> None:
    async with room(tmp_path, "telegram") as it:
        assert isinstance(it, TelegramRoom)
        telegram = it.bot.telegram
        await it.sees(telegram.text_update("请看看这个文件", chat=it.chat))
        await it.sees(it.enormous("film.mp4"))
        await it.house.until(lambda: "（我无法接收film.mp4：超过 20 MB。）" in telegram.messages[-1].text)
        await it.sees(telegram.text_update("now let us speak plain English", chat=it.chat))
        await it.sees(it.enormous("film.mp4"))
        await it.house.until(
            lambda: "(I could not read film.mp4: it is larger than 20 MB.)" in telegram.messages[-1].text
        )
        it.fail(403, times=1)
        await it.sees(it.file(PDF, "a.pdf"))
        told = "(I could not read a.pdf: the download failed; please send it again.)"
        await it.house.until(lambda: told in telegram.messages[-1].text)


async def test_attachment_download_in_feishu_renews_an_expired_token(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        feishu = it.house.feishu
        picture = Resource(name="x", media_type="image/png", data=PIXEL, size=len(PIXEL))

        def post(pictures: int) -> Any:
            keys = [f"img_v3_{number}" for number in range(pictures)]
            feishu.resources |= dict.fromkeys(keys, picture)
            rows = [[{"tag": "text", "text": "look"}], *([{"tag": "img", "image_key": key}] for key in keys)]
            content = orjson.dumps({"title": "", "content": rows}).decode()
            return feishu.message_event("post", content, sender=ALICE, chat=ALICE_CHAT)

        words, pictures = await it.sees(post(12))
        assert "look" in words
        assert len(pictures) == 10
        assert words.count("image, not fetched: of one message only 10 files are") == 2
        event = post(2_012)
        words, _ = await it.sees(event)
        assert words.count("image, not fetched: of one message only 10 files are") == 10
        assert "others, 1992 more not fetched: " in words
        downloads = len(it.house.feishu.requests)
        words, _ = await it.sees(it.file(b"x", "s", kind="sticker"))
        assert "sticker, could not be fetched" in words
        assert [request for request in it.house.feishu.requests[downloads:] if "/resources/" in request.path] == []
        it.house.feishu.expire_tokens()
        it.house.feishu.fail_next("/contact/", code=41050)
        await it.sees(it.file(PDF, "a.pdf"))
        assert PDF in it.house.uploads().values()


async def test_attachment_to_send_on_a_channel_without_files_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("Here it is.\nMEDIA:report.html"), says("MEDIA:report.html")]) as house:
        await house.say("the report, please")
        await house.replies(1)
        await house.say("once more")
        note = "(I could not attach the file report.html.)"
        assert [text.replace("`", "") for text in await house.replies(2)] == [f"Here it is.\n\n{note}", note]

"""What people send besides words, through the whole gateway: seen, kept, or told of, whatever becomes of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

from tests.emulators.models.script import says
from tests.emulators.models.server import Script
from tests.running import ALICE, ALICE_CHAT, SECRETS, Running, running
from tests.stories.at_work import shown
from tests.stories.test_telegram import PIXEL, PUBLIC, Bot, bot

PDF = b"%PDF-1.7 quarterly figures"
PLATFORMS = pytest.mark.parametrize("platform", ["telegram", "feishu"])


class Room(Protocol):
    """One person's chat with the bot."""

    house: Running

    async def photo(self, data: bytes) -> None: ...

    async def file(self, data: bytes, name: str, **facts: Any) -> None: ...

    async def answers(self, count: int) -> list[str]: ...

    def fail(self, status: int, times: int) -> None:
        """The platform answers so many downloads with this."""

    async def enormous(self, name: str) -> None:
        """A file that the platform itself does not hand out."""


@dataclass
class TelegramRoom:
    bot: Bot
    house: Running
    chat: int

    async def photo(self, data: bytes) -> None:
        await self.bot.happens(self.bot.telegram.photo_update(data, chat=self.chat))

    async def file(self, data: bytes, name: str, **facts: Any) -> None:
        media_type = facts.get("media_type")
        update = self.bot.telegram.document_update(data, name=name, chat=self.chat, mime_type=media_type)
        await self.bot.happens(update)

    async def answers(self, count: int) -> list[str]:
        return [sent.text for sent in await self.bot.replies(count)]

    def fail(self, status: int, times: int) -> None:
        self.bot.telegram.fail_next("download", status=status, times=times)

    async def enormous(self, name: str) -> None:
        facts = {"file_id": "big", "file_unique_id": "u", "file_size": 20 * 1024 * 1024 + 1, "file_name": name}
        await self.bot.happens(self.bot.telegram.message_update({"document": facts}, chat=self.chat))


@dataclass
class FeishuRoom:
    house: Running

    async def photo(self, data: bytes) -> None:
        await self.house.push(self.house.feishu.image_event(data, sender=ALICE, chat=ALICE_CHAT))

    async def file(self, data: bytes, name: str, **facts: Any) -> None:
        await self.house.push(self.house.feishu.file_event(data, name=name, sender=ALICE, chat=ALICE_CHAT, **facts))

    async def answers(self, count: int) -> list[str]:
        return await self.house.replies(count)

    def fail(self, status: int, times: int) -> None:
        self.house.feishu.fail_next("/resources/", status=status, code=0 if status >= 500 else 234009, times=times)

    async def enormous(self, name: str) -> None:
        await self.file(b"", name, size=100 * 1024 * 1024 + 1)


@asynccontextmanager
async def room(folder: Path, platform: str, *, script: Script, more: str = "") -> AsyncIterator[Room]:
    if platform == "telegram":
        async with bot(folder, "polling", script=script, more=f"{PUBLIC}\n{more}") as it:
            yield TelegramRoom(bot=it, house=it.house, chat=it.telegram.private())
    else:
        async with running(folder, script=script, more=more) as house:
            yield FeishuRoom(house=house)


@PLATFORMS
async def test_a_photo_is_before_the_models_eyes_and_among_the_uploads(tmp_path: Path, platform: str) -> None:
    async with room(tmp_path, platform, script=[says("a pixel")]) as it:
        await it.photo(PIXEL)
        assert await it.answers(1) == ["a pixel"]
        words, pictures = shown(it.house)
        assert pictures == ["image/png"]
        ((path, data),) = it.house.uploads().items()
        assert data == PIXEL
        assert path.endswith(".png")
        assert f"shown to you, saved as {path}" in words


@PLATFORMS
async def test_a_document_lands_among_the_uploads_and_the_model_is_told_where(tmp_path: Path, platform: str) -> None:
    async with room(tmp_path, platform, script=[says("read")]) as it:
        await it.file(PDF, "报告 2026.pdf", media_type="application/pdf")
        await it.answers(1)
        words, pictures = shown(it.house)
        ((path, data),) = it.house.uploads().items()
        assert (data, pictures) == (PDF, [])
        assert path.endswith("/报告_2026.pdf")
        assert f"26 bytes, saved as {path}" in words


@PLATFORMS
async def test_a_picture_is_known_by_its_bytes_whatever_is_said_of_it(tmp_path: Path, platform: str) -> None:
    async with room(tmp_path, platform, script=[says("seen"), says("not seen")]) as it:
        await it.file(PIXEL, "scan", media_type="application/pdf")
        await it.answers(1)
        assert shown(it.house)[1] == ["image/png"]
        await it.file(b"<svg/>", "drawing.png", media_type="image/png")
        await it.answers(2)
        assert shown(it.house)[1] == []
        assert sorted(path.rpartition("/")[2] for path in it.house.uploads()) == ["drawing.png", "scan.png"]


@PLATFORMS
async def test_a_file_over_our_limit_is_not_fetched_and_the_model_is_told(tmp_path: Path, platform: str) -> None:
    more = "limits: { fileBytes: 1000 }"
    async with room(tmp_path, platform, script=[says("too large for me"), says("fits")], more=more) as it:
        await it.file(bytes(1001), "big.bin")
        assert await it.answers(1) == ["too large for me"]
        assert "big.bin, not fetched: larger than 1,000 bytes" in shown(it.house)[0]
        await it.file(bytes(1000), "small.bin")
        await it.answers(2)
        assert [len(data) for data in it.house.uploads().values()] == [1000]


@PLATFORMS
async def test_a_file_over_the_platforms_limit_is_told_as_well(tmp_path: Path, platform: str) -> None:
    limit = {"telegram": "20,971,520", "feishu": "104,857,600"}[platform]
    async with room(tmp_path, platform, script=[says("I cannot have it")]) as it:
        await it.enormous("film.mp4")
        assert await it.answers(1) == ["I cannot have it"]
        assert f"film.mp4, not fetched: larger than {limit} bytes" in shown(it.house)[0]


@PLATFORMS
async def test_a_download_that_fails_once_is_not_noticed(tmp_path: Path, platform: str) -> None:
    async with room(tmp_path, platform, script=[says("read")]) as it:
        it.fail(503, times=1)
        await it.file(PDF, "a.pdf")
        await it.answers(1)
        assert list(it.house.uploads().values()) == [PDF]


@PLATFORMS
@pytest.mark.parametrize(("status", "times"), [(503, 2), (403, 1)])
async def test_a_download_that_fails_is_told_and_shows_no_secret(
    tmp_path: Path, platform: str, status: int, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with room(tmp_path, platform, script=[says("I did not get it")]) as it:
        it.fail(status, times=times)
        await it.file(PDF, "a.pdf")
        assert await it.answers(1) == ["I did not get it"]
        words, _ = shown(it.house)
        assert "a.pdf, could not be fetched" in words
        assert it.house.uploads() == {}
        secrets = [*SECRETS.values(), *([it.bot.telegram.token] if isinstance(it, TelegramRoom) else [])]
    logged = "".join(capsys.readouterr())
    assert "attachment_not_fetched" in logged
    assert [secret for secret in secrets if secret in logged + words] == []


async def test_a_feishu_post_brings_its_words_and_its_picture(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("both")]) as house:
        await house.push(house.feishu.post_event("look at this", PIXEL, sender=ALICE, chat=ALICE_CHAT))
        await house.replies(1)
        words, pictures = shown(house)
        assert "look at this" in words
        assert pictures == ["image/png"]


async def test_of_a_message_with_too_many_files_the_rest_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("many")]) as house:
        event = house.feishu.post_event("look", PIXEL, sender=ALICE, chat=ALICE_CHAT)
        message = event["event"]["message"]
        content = orjson.loads(message["content"])
        content["content"] += [content["content"][1]] * 11
        message["content"] = orjson.dumps(content).decode()
        await house.push(event)
        await house.replies(1)
        words, pictures = shown(house)
        assert len(pictures) == 10
        assert words.count("image, not fetched: of one message only 10 files are") == 2


async def test_a_feishu_token_that_ended_meanwhile_costs_no_file(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("one"), says("two")]) as house:
        await house.say("hello")
        await house.replies(1)
        house.feishu.expire_tokens()
        house.feishu.fail_next("/contact/", code=41050)
        await house.push(house.feishu.file_event(PDF, name="a.pdf", sender=ALICE, chat=ALICE_CHAT))
        await house.replies(2)
        assert list(house.uploads().values()) == [PDF]


async def test_a_feishu_sticker_is_named_and_not_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("nice")]) as house:
        event = house.feishu.file_event(b"x", name="s", kind="sticker", sender=ALICE, chat=ALICE_CHAT)
        await house.push(event)
        await house.replies(1)
        assert "sticker, could not be fetched" in shown(house)[0]
        assert [asked.path for asked in house.feishu.requests if "/resources/" in asked.path] == []


async def test_a_file_that_a_model_wants_to_send_where_none_can_be_sent_is_told_of(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("Here it is.\nMEDIA:report.html"), says("MEDIA:report.html")]) as house:
        await house.say("the report, please")
        await house.replies(1)
        await house.say("once more")
        told = "(The file report.html could not be attached.)"
        assert [text.replace("`", "") for text in await house.replies(2)] == [f"Here it is.\n\n{told}", told]

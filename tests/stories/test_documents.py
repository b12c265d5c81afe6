"""Documents that people send, through the whole gateway: announced with their pages, read a page at a time."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, Running, running
from tests.stories.at_work import results, spoken, works
from tests.stories.test_files import PLATFORMS, FeishuRoom, TelegramRoom, room
from tests.web_page import WEB, opened

DOCUMENTS = Path(__file__).parents[1] / "documents"
Send = Callable[[bytes, str], Awaitable[None]]
Ask = Callable[[str], Awaitable[None]]


def document(name: str) -> bytes:
    return (DOCUMENTS / name).read_bytes()


async def chat(stack: AsyncExitStack, folder: Path, platform: str) -> tuple[Running, Send, Ask]:
    """One person's chat with the bot: how they send a file there, and how they write."""
    if platform == "web":
        house = await stack.enter_async_context(running(folder, feishu=WEB))
        page = await stack.enter_async_context(opened(house.url))

        async def send(data: bytes, name: str) -> None:
            kept = (await page.upload(data, name)).json()
            await page.say("", files=[kept["id"]])

        async def ask(text: str) -> None:
            await page.say(text)

        return house, send, ask
    it: FeishuRoom = await stack.enter_async_context(room(folder, platform))

    async def sends(data: bytes, name: str) -> None:
        await it.happens(it.file(data, name))

    async def asks(text: str) -> None:
        if isinstance(it, TelegramRoom):
            await it.happens(it.bot.telegram.text_update(text, chat=it.chat))
        else:
            await it.house.say(text)

    return it.house, sends, asks


@pytest.mark.parametrize("platform", ["feishu", "telegram", "web"])
async def test_a_person_sends_a_pdf_and_asks_and_the_model_reads_the_page(tmp_path: Path, platform: str) -> None:
    async with AsyncExitStack() as stack:
        house, send, ask = await chat(stack, tmp_path, platform)
        await send(document("report.pdf"), "报告.pdf")
        await house.requested(1)
        await house.idle()
        (path,) = house.uploads()
        assert f"报告.pdf, 35,525 bytes, saved as {path}, PDF of 3 pages." in spoken(house)
        house.anthropic.script = [calls(("read", {"file_path": path, "page": "2"})), says("It begins there.")]
        await ask("what is on its second page?")
        await house.requested(3)
        await house.idle()
        (said,) = results(house.anthropic.requests[-1].body)
        assert said == "[page 2 of 3]\n\nThe second page begins here. 第二页从这里开始。\n\n" + (
            "[1 more pages were cut; go on with page=3]"
        )


@PLATFORMS
async def test_the_line_says_what_a_document_is_and_no_document_loses_its_message(
    tmp_path: Path, platform: str
) -> None:
    async with room(tmp_path, platform) as it:
        for name, what in (
            ("book.xlsx", 'workbook of 2 sheets: 1 "销售", 2 "Plan"'),
            ("slides.pptx", "document of 3 pages"),
            ("novel.epub", "e-book of 3 pages"),
            ("locked.pdf", "a document that cannot be read: it is protected by a password"),
        ):
            words, _ = await it.sees(it.file(document(name), name))
            assert what in words.rpartition("attached files")[2]
        words, _ = await it.sees(it.file(b"%PDF-1.7 and no more", "broken.pdf"))
        assert "a document that cannot be read: it is damaged" in words
        words, _ = await it.sees(it.file(b"PK\x03\x04 no zip", "bad.zip"))
        assert "bad.zip, 11 bytes, saved as" in words


async def test_a_quoted_document_is_announced_and_can_be_read_by_who_quotes_it(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        sent = it.file(document("report.docx"), "plan.docx")  # which was not for the bot
        parent = sent["event"]["message"]["message_id"]
        asked = it.house.feishu.text_event("and this?", sender=ALICE, chat=ALICE_CHAT, parent_id=parent)
        words, _ = await it.sees(asked)
        assert "quoted-plan.docx" in words
        assert "document of 3 pages" in words
        (path,) = it.house.uploads()
        await it.house.say("/new")
        (said,) = await works(it.house, ("read", {"file_path": path, "page": 3}))
        assert said.startswith("[page 3 of 3]")


async def test_a_document_of_another_chat_is_not_there(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        await it.sees(it.file(document("report.pdf"), "a.pdf"))
        (path,) = it.house.uploads()
        (told,) = await works(it.house, ("read", {"file_path": path, "page": "1"}), sender=BOB, chat=BOB_CHAT)
        assert '"error_code": "NOT_FOUND"' in told
        outside = str(DOCUMENTS / "report.pdf")
        (told,) = await works(it.house, ("read", {"file_path": outside, "page": "1"}))
        assert '"error_code": "NOT_FOUND"' in told


@pytest.mark.parametrize("sees", [True, False])
async def test_a_scanned_page_is_a_picture_to_a_model_that_sees(tmp_path: Path, sees: bool) -> None:
    models = f'models: {{ "anthropic/claude-sonnet-4-6": {{ vision: {str(sees).lower()} }} }}'
    async with room(tmp_path, "feishu", more=models) as it:
        await it.sees(it.file(document("scan.pdf"), "scan.pdf"))
        (path,) = it.house.uploads()
        (told,) = await works(it.house, ("read", {"file_path": path}))
        assert "[page 1 is a scan, a picture without text" in told
        (*_, last) = it.house.anthropic.requests[-1].body["messages"]
        (result,) = last["content"]
        pictures = [part["source"]["media_type"] for part in result["content"] if part["type"] == "image"]
        assert pictures == (["image/jpeg"] if sees else [])
        assert ("[image: ./uploads" in told) != sees


async def test_a_config_with_less_time_reads_nothing_and_says_so(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu", more="limits: { documentSeconds: 0.001 }") as it:
        words, _ = await it.sees(it.file(document("report.pdf"), "a.pdf"))
        assert "a document whose pages were not counted" in words
        (path,) = it.house.uploads()
        (told,) = await works(it.house, ("read", {"file_path": path}))
        assert "DOCUMENT_TOO_SLOW" in told

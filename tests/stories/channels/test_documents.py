"""Documents that people send, through the whole gateway: announced with their pages, read a page at a time."""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agents.providers.config import ProviderConfig, api_of
from tests.case import case
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.script import Fault, calls, says
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, Running, running
from tests.stories.at_work import results, spoken, users, works
from tests.stories.channels.test_files import FeishuRoom, TelegramRoom, room
from tests.stories.turns.test_models import two
from tests.web_page import WEB, opened

DOCUMENTS = Path(__file__).parents[2] / "documents"
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
async def test_document_pdf_is_read_by_the_model_page_by_page(tmp_path: Path, platform: str) -> None:
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
            "[the pages from 3 on were cut; go on with page=3]"
        )


TEXT = "会议纪要：今天讨论了预算。"
TEXTS = {
    "ansi.txt": TEXT.encode("gbk"),
    "unicode.md": TEXT.encode("utf-16"),
    "table.csv": f"名称,值\n{TEXT},1".encode("gbk"),
    "page.html": f"<!doctype html><p>{TEXT}".encode("utf-16"),
    "gbk.html": f"<!doctype html><p>{TEXT}".encode("gbk"),
}


async def test_document_text_in_another_encoding_is_decoded(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        for number, (name, data) in enumerate(TEXTS.items()):
            with case(name):
                await it.sees(it.file(data, name))
                path = next(it for it in it.house.uploads() if it.endswith(name))
                (said,) = await works(it.house, ("read", {"file_path": path}))
                assert TEXT in said
                assert ("read as GBK" in said) == (number == 0)


BROKEN = {"broken.pdf": b"%PDF-1.7 and no more", "bad.zip": b"PK\x03\x04 no zip"}
KINDS = [
    ("book.xlsx", 'workbook of 2 sheets: 1 "销售", 2 "Plan"'),
    ("slides.pptx", "document of 3 pages"),
    ("novel.epub", "e-book of 3 pages"),
    ("report.odt", "document of 3 pages"),
    ("broken.pdf", "a document that cannot be read: it is damaged"),
    ("book.ods", 'workbook of 2 sheets: 1 "销售", 2 "Plan"'),
    ("locked.pdf", "a document that cannot be read: it is protected by a password"),
    ("bad.zip", "bad.zip, 11 bytes, saved as"),
]
HALVES = (slice(0, None, 2), slice(1, None, 2))
"""What a document is is seen behind the channels: each half comes over one of them, and the other way round is long."""


@pytest.mark.parametrize(
    ("platform", "half"),
    [
        *zip(("feishu", "telegram"), HALVES, strict=True),
        *(pytest.param(*it, marks=pytest.mark.long) for it in zip(("telegram", "feishu"), HALVES, strict=True)),
    ],
)
async def test_document_line_describes_it_and_failures_keep_the_message(
    tmp_path: Path, platform: str, half: slice
) -> None:
    async with room(tmp_path, platform) as it:
        for name, what in KINDS[half]:
            words, _ = await it.sees(it.file(BROKEN.get(name) or document(name), name))
            assert what in words.rpartition("attached files")[2], name


async def test_document_in_a_quote_can_be_read(tmp_path: Path) -> None:
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


async def test_document_of_another_chat_is_unreachable(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        await it.sees(it.file(document("report.pdf"), "a.pdf"))
        (path,) = it.house.uploads()
        (told,) = await works(it.house, ("read", {"file_path": path, "page": "1"}), sender=BOB, chat=BOB_CHAT)
        assert '"error_code": "NOT_FOUND"' in told
        outside = str(DOCUMENTS / "report.pdf")
        (told,) = await works(it.house, ("read", {"file_path": outside, "page": "1"}))
        assert '"error_code": "NOT_FOUND"' in told


@pytest.mark.parametrize("sees", [True, False])
async def test_document_scanned_page_is_shown_as_a_picture(tmp_path: Path, sees: bool) -> None:
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


async def test_document_timeout_reads_nothing_and_says_so(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu", more="limits: { documentSeconds: 0.001 }") as it:
        words, _ = await it.sees(it.file(document("report.pdf"), "a.pdf"))
        assert "a document whose pages were not counted" in words
        (path,) = it.house.uploads()
        (told,) = await works(it.house, ("read", {"file_path": path}))
        assert "DOCUMENT_TOO_SLOW" in told


NATIVE = 'models: { "anthropic/claude-sonnet-4-6": { documents: native } }'


def documents(body: Mapping[str, Any]) -> list[bytes]:
    """The PDFs that a request to Claude holds as they are."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [base64.b64decode(block["source"]["data"]) for block in blocks if block["type"] == "document"]


async def test_document_small_pdf_is_native_in_its_own_turn_only(tmp_path: Path) -> None:
    pdf = document("report.pdf")
    async with room(tmp_path, "feishu", more=NATIVE) as it:
        house = it.house
        house.anthropic.script = [calls(("ls", {"path": "uploads"})), says("A report."), says("No.")]
        await it.happens(it.file(pdf, "a.pdf"))
        await house.requested(2)
        await house.idle()
        await house.say("is it signed?")
        await house.requested(3)
        await house.idle()
        first, second, later = (request.body for request in house.anthropic.requests)
        assert "a.pdf, 35,525 bytes, shown to you, saved as ./uploads/" in users(first)[0]
        assert (documents(first), documents(second), documents(later)) == ([pdf], [pdf], [])
        assert "[document: a.pdf, 3 pages; `read` opens it]" in users(later)[0]


async def test_document_long_or_encrypted_is_announced_not_shown(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu", more=NATIVE) as it:
        for name in ("long.pdf", "owner-locked.pdf", "locked.pdf", "report.docx"):
            words, _ = await it.sees(it.file(document(name), name))
            assert "shown to you" not in words.rpartition("attached files")[2]
        assert [documents(request.body) for request in it.house.anthropic.requests] == [[]] * 4


async def test_document_as_text_by_config_and_for_fallback_models(tmp_path: Path) -> None:
    async with room(tmp_path, "feishu") as it:
        words, _ = await it.sees(it.file(document("report.pdf"), "a.pdf"))
        assert "shown to you" not in words
        assert documents(it.house.anthropic.requests[-1].body) == []
    async with two(tmp_path / "two", script=[Fault(status=401)] * 3, other=[says("Fine.")], more=NATIVE) as (
        house,
        other,
    ):
        await house.push(house.feishu.file_event(document("report.pdf"), name="a.pdf", sender=ALICE, chat=ALICE_CHAT))
        await house.replies(1)
        assert documents(house.anthropic.requests[0].body) == [document("report.pdf")]
        said = json.dumps(other.requests[-1].body)
        assert "[document: a.pdf, 3 pages; `read` opens it]" in said
        assert base64.b64encode(document("report.pdf")).decode()[:200] not in said


async def test_document_small_pdf_is_native_on_gemini(tmp_path: Path) -> None:
    emulator = GeminiEmulator([says("A report.")])
    agents = "agents: { list: [{ id: helper, model: google/gemini-3-flash }] }"
    async with serve_on_loopback(emulator.app) as url:
        block = f'  google: {{ apiKey: k, baseUrl: "{url}", documents: native }}'
        async with running(tmp_path, agents=agents, providers=block) as house:
            sent = house.feishu.file_event(document("report.pdf"), name="a.pdf", sender=ALICE, chat=ALICE_CHAT)
            await house.push(sent)
            await house.replies(1)
    (part,) = [it for it in emulator.requests[0].body["contents"][-1]["parts"] if "inlineData" in it]
    assert part["inlineData"]["mimeType"] == "application/pdf"
    assert base64.b64decode(part["inlineData"]["data"]) == document("report.pdf")


def test_document_native_on_an_unsupported_wire_is_a_config_error() -> None:
    with pytest.raises(ValueError, match='"documents: native" is for the wires anthropic-messages and google-gemini'):
        api_of("openai", ProviderConfig(documents="native"))

"""Files that an agent sends with its answer, to Feishu and to Telegram."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Gone
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuAccount
from channels.message import Outbound, StoredFile, Target
from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramAccount
from channels.telegram.render import rendered
from gateway.outbox.reply import arranged
from tests.channels.contexts import Kept
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, FEISHU, GROUP, SECRETS, WITHOUT_EXEC, feishu_emulator, running

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8) + struct.pack(">II", 40, 30) + bytes(20)
WIDE = b"\x89PNG\r\n\x1a\n" + bytes(8) + struct.pack(">II", 9000, 10) + bytes(20)


async def test_media_of_an_answer_arrives_in_feishu(tmp_path: Path) -> None:
    script = [says("Here they are.\nMEDIA: plan.png\nMEDIA: report.pdf\nMEDIA: nowhere.txt")]
    async with running(tmp_path, script=script) as house:
        house.workspace().mkdir(parents=True, exist_ok=True)
        (house.workspace() / "plan.png").write_bytes(PNG)
        (house.workspace() / "report.pdf").write_bytes(b"%PDF-1.7 text")
        await house.say("send me the plan")
        await house.replies(3)
        kinds = [(sent.msg_type, sent.reply_to is not None) for sent in house.feishu.messages]
        assert kinds == [("post", True), ("image", True), ("file", True)]
        text, picture, file = (sent.text for sent in house.feishu.messages)
        assert "Here they are." in text
        assert "nowhere.txt" in text
        assert house.feishu.resources[picture].data == PNG
        assert house.feishu.resources[file].name == "report.pdf"
        assert len({sent.uuid for sent in house.feishu.messages}) == 3


async def test_media_that_is_missing_is_named_without_its_path(tmp_path: Path) -> None:
    words = [("send it", "could not attach"), ("请发给我", "没能附上")]
    places = ["{root}/plan.png", "{root}/../secret/plan.png", "..{root}/plan.png", "/etc/plan.png"]
    async with running(tmp_path) as house:
        for number, ((ask, sentence), place) in enumerate(product(words, places), 1):
            house.anthropic.script = [says(f"Here.\n\nMEDIA:{place.format(root=house.workspace())}")]
            await house.say(ask)
            reply = (await house.replies(number))[-1]
            assert sentence in reply, place
            assert "`plan.png`" in reply, place
            assert str(tmp_path) not in reply, place
            assert "/etc" not in reply, place


ADDRESSES = {
    "https://x.test/a_b_c.png?x=1&y=(2)": "https://x.test/a_b_c.png?x=1&y=(2)",
    "HTTP://x.test/__init__/*a*`b`.png": "HTTP://x.test/%5F%5Finit%5F%5F/%2Aa%2A%60b%60.png",
    "https://x.test/图.png": "https://x.test/%E5%9B%BE.png",
    "https://x.test/100%25 <b>.png": "https://x.test/100%25%20%3Cb%3E.png",
}


async def test_media_url_that_fails_is_shown_as_a_whole_link(tmp_path: Path) -> None:
    agents = WITHOUT_EXEC.replace("message]", "message, web_fetch]")
    script = [says(f"Here it is.\nMEDIA:{address}") for address in ADDRESSES]
    async with running(tmp_path, agents=agents, script=script) as house:
        for number, (address, link) in enumerate(ADDRESSES.items(), 1):
            await house.say("send me the picture")
            reply = (await house.replies(number))[-1]
            why = "I may not open that address" if " " in address else "the download failed"
            assert reply.split() == [*f"Here it is. (I could not attach this: {why}.)".split(), link], address
            shown = rendered(f"Here it is.\n\n{link}")
            assert shown.text.endswith(link), address  # no mark of Markdown takes a character out of it
        assert "MEDIA:<https address>" in str(house.anthropic.requests[0].body["system"])


async def test_media_feishu_refuses_falls_back_to_file_or_sentence() -> None:
    emulator, kept = feishu_emulator(), Kept()
    emulator.text_event("?", sender=ALICE, chat=ALICE_CHAT)
    async with serve_on_loopback(emulator.app) as url:
        account = {"appId": emulator.app_id, "appSecret": emulator.app_secret, "baseUrl": url}
        channel = FeishuChannel(FeishuAccount.model_validate(account), "default", kept)

        async def sent(file: StoredFile, *, voice: bool = False) -> tuple[str, str]:
            await channel.send(Outbound(target=Target(chat=ALICE_CHAT), text="", files=(file,), voice=voice), file.id)
            return emulator.messages[-1].msg_type, emulator.messages[-1].text

        try:
            assert (await sent(kept.add("no.png", "image/png", b"not one")))[0] == "file"
            assert (await sent(kept.add("hi.ogg", "audio/ogg", b"OggS"), voice=True))[0] == "audio"
            assert (await sent(kept.add("hi.ogg", "audio/ogg", b"OggS")))[0] == "file"
            kind, text = await sent(kept.add("empty.txt", "text/plain", b""))
            assert (kind, "empty.txt" in text) == ("text", True)
            emulator.fail_next("/im/v1/files", code=234006)
            kind, text = await sent(kept.add("big.zip", "application/zip", b"PK"))
            assert (kind, "big.zip" in text) == ("text", True)
        finally:
            await channel.close()


LONG = "\n\n".join(f"```\n{number} " + "wörd " * 600 + "\n```" for number in range(8))


@pytest.mark.parametrize(("ask", "note"), [("go", "(The whole answer is"), ("请写长一点", "（完整回答见文件")])
async def test_media_carries_a_very_long_answer_as_a_file(tmp_path: Path, ask: str, note: str) -> None:
    secret = SECRETS["FEISHU_APP_SECRET"]
    more = "limits: { replyParts: 3 }"
    async with running(tmp_path, script=[says(f"{LONG} {secret}")], more=more) as house:
        await house.say(ask)
        await house.replies(2)
        await house.idle()
        text, file = house.feishu.messages
        assert (text.text[:10], note in text.text, text.text.count("```") % 2) == (LONG[:10], True, 0)
        found = house.feishu.resources[file.text]
        assert (found.name, found.data.decode()[: len(LONG)]) == ("answer.md", LONG)
        assert secret not in found.data.decode()


@asynccontextmanager
async def bot() -> AsyncIterator[tuple[TelegramEmulator, TelegramChannel, int, Kept]]:
    telegram, kept = TelegramEmulator(), Kept()
    async with serve_on_loopback(telegram.app) as url:
        account = TelegramAccount.model_validate({"botToken": telegram.token, "apiRoot": url})
        channel = TelegramChannel(account, "default", kept)
        try:
            yield telegram, channel, telegram.private(), kept
        finally:
            await channel.close()


def sent_to(chat: int, *files: StoredFile, text: str = "", voice: bool = False) -> Outbound:
    return Outbound(target=Target(chat=str(chat)), text=text, files=files, voice=voice)


async def test_media_on_telegram_captions_albums_voice_and_documents() -> None:
    async with bot() as (telegram, channel, alice, kept):
        one, two = kept.add("a.png", "image/png", PNG), kept.add("b.png", "image/png", PNG)
        await channel.send(sent_to(alice, one, text="**both** `x`"), "k1")
        await channel.send(sent_to(alice, one, two, text="an album"), "k2")
        await channel.send(sent_to(alice, kept.add("v.ogg", "audio/ogg", b"OggS"), voice=True), "k3")
        await channel.send(sent_to(alice, kept.add("v.ogg", "audio/ogg", b"OggS")), "k4")
        await channel.send(sent_to(alice, kept.add("wide.png", "image/png", WIDE), text="too wide"), "k5")
        await channel.send(sent_to(alice, kept.add("empty.txt", "text/plain", b""), text="see"), "k6")
        await channel.send(sent_to(alice, StoredFile(id="gone", name="old.txt", type="text/plain", size=1)), "k7")
        assert [(it.kind, it.text) for it in telegram.messages] == [
            ("photo", "both x"),
            ("photo", "an album"),
            ("photo", ""),
            ("voice", ""),
            ("document", ""),
            ("document", "too wide"),
            ("text", "see\n\n文件未能发送：empty.txt / This file could not be sent: empty.txt"),
            ("text", "文件未能发送：old.txt / This file could not be sent: old.txt"),
        ]
        assert [entity["type"] for entity in telegram.messages[0].entities] == ["bold", "code"]


async def test_media_caption_too_long_goes_before_its_file() -> None:
    async with bot() as (telegram, channel, alice, kept):
        await channel.send(sent_to(alice, kept.add("a.txt", "text/plain", b"a"), text="word " * 300), "k")
        assert [it.kind for it in telegram.messages] == ["text", "document"]
        telegram.fail_next("sendDocument", status=403, description="Forbidden: bot was blocked by the user")
        with pytest.raises(Gone, match="out of reach"):
            await channel.send(sent_to(alice, kept.add("b.txt", "text/plain", b"b")), "k2")


FILES = [StoredFile(id=str(number), name=f"{number}.png", type="image/png", size=1) for number in range(12)]
PAPER = StoredFile(id="p", name="p.pdf", type="application/pdf", size=1)


@pytest.mark.parametrize(
    ("texts", "files", "shape"),
    [
        (["words"], (), [("words", 0)]),
        (["a", "b"], (FILES[0],), [("a", 0), ("b", 1)]),
        ([""], (FILES[0], FILES[1], PAPER), [("", 2), ("", 1)]),
        (["x" * 900], (PAPER,), [("x" * 900, 0), ("", 1)]),
        (["all"], tuple(FILES), [("all", 10), ("", 2)]),
    ],
)
def test_media_is_spread_over_messages(texts: list[str], files: Any, shape: Any) -> None:
    found = arranged(texts, files, TelegramChannel)  # type: ignore[arg-type]  # its capabilities are all that is looked at
    assert [(text, len(group)) for text, group in found] == shape


@pytest.mark.parametrize(
    ("quotes", "under"), [("all", [True, True]), ("first", [True, False]), ("off", [False, False])]
)
async def test_reply_quotes_the_question_in_which_parts(tmp_path: Path, quotes: str, under: list[bool]) -> None:
    script = [says("word\n" * 1_200)] * 2
    async with running(tmp_path, script=script, feishu=f"{FEISHU}    quotes: {quotes}\n") as house:
        await house.say("long, please")
        await house.replies(2)
        assert [sent.reply_to is not None for sent in house.feishu.messages] == under
        await house.say("here too", thread_id="omt_1", chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(4)
        assert [sent.thread for sent in house.feishu.messages[2:]] == [
            True,
            True,
        ]  # a topic is reached by replies alone

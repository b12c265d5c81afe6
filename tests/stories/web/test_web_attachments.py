"""`MEDIA:` with an address: what an answer names is fetched under the web's rules, and arrives once, or as a sentence."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, SECRETS, running
from tests.stories.channels.test_files import PDF, PLATFORMS, FeishuRoom, TelegramRoom, room
from tests.stories.channels.test_telegram import PIXEL
from tests.stories.process.test_process import platforms, say, started
from tests.tools.hostile import Behaviour, Web, Write, redirect, response, web
from tests.waiting import until
from tests.web_page import WEB, opened

AGENTS = "agents: {{ list: [ {{ id: helper, model: anthropic/claude-sonnet-4-6, tools: {tools} }} ] }}"
READS = "{ allow: [read, ls, message, web_fetch] }"
HELPER = AGENTS.format(tools=READS)


async def endless(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
    while True:
        await write(b"x" * 65_536)


async def dripping(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 9000\r\n\r\n")
    while True:
        await write(b"x")
        await asyncio.sleep(0.02)


PAGES: dict[str, Behaviour] = {
    "/pixel.png": response(PIXEL, type_="image/png"),
    "/moved": redirect("/pixel.png"),
    "/report?id=7": response(PDF, type_="application/pdf; charset=binary"),
    "/inside": redirect("http://10.0.0.1/secret.png"),
    "/gone.png": response(b"no", status="404 Not Found", type_="image/png"),
    "/login.png": response(b"\n<!DOCTYPE html><title>Sign in</title>", type_="image/png"),
    "/page": response(b"<p>words</p>", type_="text/html"),
    "/page.html": response(b"<p>words</p>", type_="text/html"),
    "/empty.png": response(b"", type_="image/png"),
    "/declared.png": response(b"x" * 70_001, type_="image/png"),
    "/endless.png": endless,
    "/dripping.png": dripping,
    "/fake.png": response(b"no picture at all", type_="image/png"),
}


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with web(PAGES) as site:
        yield site


def reaching(site: Web, more: str = "") -> str:
    return (
        f"tools: {{ web: {{ fetch: {{ allowPrivate: ['127.0.0.1:{site.port}'], ports: [80, 443], totalSeconds: 1 }} }} }}\n"
        f"limits: {{ fileBytes: 70000 }}\n{more}"
    )


def address(site: Web, path: str) -> str:
    return site.url(path, host="127.0.0.1")


def arrived(it: FeishuRoom) -> dict[str, bytes]:
    """The files that the platform has, by name."""
    if isinstance(it, TelegramRoom):
        files = it.bot.telegram.files.stored.values()
        return {str(file.facts.get("file_name")): file.content or b"" for file in files}
    return {file.name: file.data for file in it.house.feishu.resources.values()}


@PLATFORMS
async def test_web_media_url_arrives_with_a_fitting_name(tmp_path: Path, site: Web, platform: str) -> None:
    async with room(tmp_path, platform, agents=HELPER, more=reaching(site)) as it:
        named = (address(site, path) for path in ("/pixel.png", "/moved", "/report?id=7", "/page.html", "/fake.png"))
        it.house.anthropic.script = [says("Here.\n" + "\n".join(f"MEDIA:{one}" for one in named))]
        await it.happens(it.file(b"x", "question.txt"))
        await it.house.until(lambda: b"<p>words</p>" in arrived(it).values())
        await it.house.until(lambda: b"no picture at all" in arrived(it).values())
        sent = arrived(it)
        assert [name for name, data in sent.items() if data == PDF] == ["report.pdf"]
        assert PIXEL in sent.values()


async def test_web_media_url_in_the_web_chat(tmp_path: Path, site: Web) -> None:
    async with running(tmp_path, agents=HELPER, more=reaching(site), feishu=WEB) as house, opened(house.url) as page:
        house.anthropic.script = [says(f"MEDIA:{address(site, '/moved')}")]
        await page.say("a picture")
        await page.answers(1)
        (answer,) = page.written()
        ((name, type_, id_),) = [(file["name"], file["type"], file["id"]) for file in answer["files"]]
        assert (name, type_, answer["text"]) == ("moved.png", "image/png", "")
        assert (await page.http.get(f"/api/files/{id_}")).content == PIXEL


REFUSED = {
    "/inside": ("I may not open that address", "我不能访问该地址"),
    "/gone.png": ("its server refused the download", "对方服务器拒绝了"),
    "/login.png": ("it is a web page, not a file", "这是网页，不是文件"),
    "/page": ("it is a web page, not a file", "这是网页，不是文件"),
    "/empty.png": ("the file is empty", "文件是空的"),
    "/declared.png": ("it is larger than 70,000 B", "超过 70,000 B"),
    "/endless.png": ("it is larger than 70,000 B", "超过 70,000 B"),
    "/dripping.png": ("its server is too slow", "对方服务器响应太慢"),
}


async def test_web_media_url_that_fails_is_one_sentence(tmp_path: Path, site: Web) -> None:
    answer = "\n".join(f"MEDIA:{address(site, path)}" for path in REFUSED)
    async with running(tmp_path, agents=HELPER, more=reaching(site), script=[says(answer), says(answer)]) as house:
        await house.say("send me these pictures, please")
        await house.replies(1)
        await house.say("请把图片发给我")
        english, chinese = await house.replies(2)
        lines = [f"(I could not attach this: {why}.) {address(site, path)}" for path, (why, _) in REFUSED.items()]
        assert english.splitlines() == lines
        lines = [f"（我没能附上这个文件：{why}。） {address(site, path)}" for path, (_, why) in REFUSED.items()]
        assert chinese.splitlines() == lines
        assert house.feishu.resources == {}


INWARD = [
    *("http://127.0.0.1/x.png", "http://[::1]/x.png", "http://0x7f.1/x.png", "http://localhost:{port}/pixel.png"),
    *("http://169.254.169.254/latest/meta-data/x.png", "http://user:pw@127.0.0.1:{port}/pixel.png"),
    "http://[::ffff:127.0.0.1]:{port}/pixel.png",
]


async def test_web_media_url_never_reaches_private_addresses(tmp_path: Path, site: Web) -> None:
    named = [it.format(port=site.port) for it in INWARD]
    async with running(tmp_path, agents=HELPER, script=[says("\n".join(f"MEDIA:{it}" for it in named))]) as house:
        await house.say("show me")
        (reply,) = await house.replies(1)
        assert reply.count("(I could not attach this: ") == len(named)
        assert reply.count("I may not open that address") >= len(named) - 1
        assert (site.requests, house.feishu.resources) == ([], {})


DENIED = {
    "never-named": "{ allow: [read, ls, message] }",
    "of-a-profile": "{ profile: coding }",
    "denied": "{ allow: [read, ls, web_fetch], deny: [web_fetch] }",
    "denied-by-its-group": "{ allow: [read, ls, web_fetch], deny: ['group:web'] }",
    "approved-by-people": "{ allow: [read, ls, web_fetch], approval: [web_fetch] }",
    "files-approved": "{ allow: [read, ls, web_fetch], approval: [read] }",
    "without-files": "{ allow: [message, web_fetch] }",
}


async def test_web_media_url_needs_the_right_to_fetch(tmp_path: Path, site: Web) -> None:
    model = "model: anthropic/claude-sonnet-4-6"
    agents = ", ".join(f"{{ id: {name}, {model}, tools: {tools} }}" for name, tools in DENIED.items())
    places = ", ".join(f"{{ agent: {name}, match: {{ chat: {ALICE_CHAT}{name} }} }}" for name in DENIED)
    more = f"{reaching(site)}\nbindings: [ {places} ]"
    async with running(tmp_path, agents=f"agents: {{ list: [ {agents} ] }}", more=more) as house:
        house.anthropic.script = lambda _: says(f"MEDIA:{address(site, '/pixel.png')}")
        for number, name in enumerate(DENIED, start=1):
            await house.say("send me the picture", chat=f"{ALICE_CHAT}{name}")
            assert "I may not attach files from the web here" in (await house.replies(number))[-1], name
            assert site.requests == [], name


async def test_web_media_url_rights_are_the_senders(tmp_path: Path, site: Web) -> None:
    more = reaching(site).replace("tools: {", "tools: { ownerOnly: [web_fetch],", 1)
    more += f'owners: ["feishu:{ALICE}"]'
    script = [says(f"MEDIA:{address(site, '/pixel.png')}")] * 3
    async with running(tmp_path, agents=HELPER, more=more, script=script) as house:
        await house.say("send me the picture", sender=BOB, chat=BOB_CHAT)
        await house.replies(1)
        await house.say("send it here", sender=BOB, chat=GROUP, chat_type="group", mention_bot=True)
        stranger = await house.replies(2)
        assert ["may not attach files from the web" in it for it in stranger] == [True, True]
        assert site.requests == []
        await house.say("send it here", chat=GROUP, chat_type="group", mention_bot=True)
        await house.until(lambda: house.feishu.resources)
        assert len(site.requests) == 1


async def test_web_media_url_only_of_the_answer_itself(tmp_path: Path, site: Web) -> None:
    line = f"MEDIA:{address(site, '/pixel.png')}"
    script = [
        calls(("write", {"file_path": "a.txt", "content": line})),
        calls(("read", {"file_path": "a.txt"})),
        says(f"It says:\n```\n{line}\n```\nand `{line}`."),
    ]
    async with running(tmp_path, agents=HELPER, more=reaching(site), script=script) as house:
        await house.say(f"what does it say?\n{line}")
        await house.replies(1)
        await house.idle()
        assert site.requests == []


async def test_web_media_url_with_a_secret_is_not_fetched(tmp_path: Path, site: Web) -> None:
    secret = SECRETS["FEISHU_APP_SECRET"]
    script = [says(f"MEDIA:{address(site, '/pixel.png')}?k={secret}")]
    async with running(tmp_path, agents=HELPER, more=reaching(site), script=script) as house:
        await house.say("send me the picture")
        (reply,) = await house.replies(1)
        assert "I may not open that address" in reply
        assert secret not in reply
        assert site.requests == []


async def test_web_media_url_limit_is_ten(tmp_path: Path, site: Web) -> None:
    named = [f"MEDIA:{address(site, '/pixel.png')}#{number}" for number in range(11)]
    async with running(tmp_path, agents=HELPER, more=reaching(site), script=[says("\n".join(named))]) as house:
        await house.say("send me the pictures")
        await house.until(lambda: len(house.feishu.resources) == 10)
        await house.idle()
        text = "\n".join(it.text for it in house.feishu.messages)
        assert text.count("an answer can carry at most ten files") == 1


async def test_web_media_url_killed_mid_fetch_arrives_once(tmp_path: Path) -> None:
    held = True

    async def held_at_first(write: Write) -> None:
        await (dripping(write) if held else write(response(PIXEL, type_="image/png")))

    async with web({"/pixel.png": held_at_first}) as site:
        more = reaching(site).replace("totalSeconds: 1", "totalSeconds: 60")
        async with platforms(tmp_path, agents=HELPER, more=more) as (feishu, anthropic, config):
            anthropic.script = lambda _: says(f"Here.\nMEDIA:{address(site, '/pixel.png')}")
            async with started(config) as run:
                await say(run, feishu, "send me the picture")
                await until(lambda: site.requests)
                await run.end(signal.SIGKILL)
            held = False
            feishu.fail_next("/im/v1/images", status=503, times=2)
            async with started(config) as run:
                await until(lambda: any("/im/v1/images" in it.path for it in feishu.requests))
                await run.end(signal.SIGKILL)
            async with started(config) as run:
                await feishu.sent(2)
                await say(run, feishu, "and now?")
                await feishu.sent(4)
            assert [it.msg_type for it in feishu.messages] == ["post", "image", "post", "image"]
            assert [it.data for it in feishu.resources.values()] == [PIXEL, PIXEL]
            assert len(site.requests) == 3

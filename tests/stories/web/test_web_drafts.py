"""What a page sees of an answer before it is there, and that nothing of it is shown which will not be said."""

import asyncio
import re
from pathlib import Path
from typing import Literal

import pytest

from channels.web.views import html
from tests.emulators.models.script import calls, says
from tests.running import Running, running
from tests.stories.at_work import NEVER
from tests.waiting import PATIENCE_SECONDS
from tests.web_page import WEB, Page, opened


def shown(page: Page) -> str:
    """All that any draft has shown, as words."""
    return re.sub(r"<[^>]+>", "", "\n".join(page.drafts()))


async def test_web_draft_grows_and_is_caught_up(house: Running, page: Page) -> None:
    house.anthropic.script = [says("# one\n\ntwo\n\n" + "and more. " * 100 + "\n\n```py\nx = 1\n```\n")]
    house.line.hold(after_pieces=3)
    await page.say("tell me")
    await page.until(lambda: any("<p>two</p>" in draft for draft in page.drafts()))
    assert page.written() == []
    async with opened(house.url) as late:
        await late.until(lambda: bool(late.drafts()))
        assert [event.name for event in late.events[:3]] == ["hello", "turn", "draft"]
        assert late.named("draft")[0]["at"] == 0
        assert late.drafts()[0].startswith("<h1>one</h1>\n<p>two</p>")
        house.line.release()
        await late.answers(1)
    await page.answers(1)
    (answer,) = page.written()
    assert late.written() == [answer]
    assert answer["html"] == html(answer["text"])


@pytest.mark.parametrize("then", ["error", "reset", "end"])
async def test_web_draft_of_a_failed_attempt_is_withdrawn(
    house: Running, page: Page, then: Literal["error", "reset", "end"]
) -> None:
    false_start = says("a false start " * 30, cut_after=12, then=then, pause_seconds=0.05)
    house.anthropic.script = [false_start, says("the real answer", pause_seconds=0.02)]
    await page.say("tell me")
    assert await page.answers(1) == ["the real answer"]
    await house.idle()
    drafts = page.drafts()
    begun = next(number for number, draft in enumerate(drafts) if "false start" in draft)
    assert any("false start" not in draft for draft in drafts[begun:])
    assert not any("false start" in draft and "real" in draft for draft in drafts)
    assert "false start" not in drafts[-1]
    assert len(page.written()) == 1


HIDDEN = [
    *(("silent", text) for text in ("__SILENT__", "```\n__SILENT__\n```")),
    *(("replied", text) for text in ("Here.\n\nMEDIA:./missing-file.txt", "[[reply_to_current]] Here. __SILENT__")),
]


async def test_web_draft_hides_directives(house: Running, page: Page) -> None:
    for outcome, text in HIDDEN:
        house.anthropic.script = [says(text, chunk_bytes=40, pause_seconds=0.02)]
        page.events.clear()
        await page.say("tell me")
        await page.until(lambda: bool(page.named("turn")) and not page.named("turn")[-1]["running"])
        assert page.named("turn")[-1]["outcome"] == outcome
        await house.idle()
        for word in ("SIL", "MED", "missing", "[[", "reply_to", "audio", "`", "*"):
            assert word not in shown(page), page.drafts()
        if outcome == "silent":
            assert not any(page.drafts())
            assert page.written() == []
            assert [chat["running"] for chat in await page.chats()] == [False]


async def test_web_draft_shows_tool_arguments_on_one_line(house: Running, page: Page) -> None:
    house.anthropic.script = [calls(("read", {"file_path": "echo '<script>\n" + "x" * 5000 + "'"}))]
    await page.say("run it")
    await page.answers(1)
    (tool,) = page.written()[0]["tools"]
    assert tool["state"] == "failed"
    assert tool["about"].startswith("echo '<script> xxx")
    assert len(tool["about"]) == 200


async def test_web_stream_does_not_delay_shutdown(tmp_path: Path) -> None:
    async with running(tmp_path, script=[NEVER], more="limits: { graceSeconds: 0.2 }", feishu=WEB) as house:
        page = Page(house.url)
        watching = asyncio.create_task(page._read(0))
        await page.until(lambda: bool(page.named("hello")))
        await page.say("think")
        await house.requested(1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await house.gateway.drain()
            await watching
            await page._read(0)  # who comes now is let go at once
        assert page.named("hello")[-1] == {"after": 1}
    await page.http.aclose()


async def test_web_stream_with_a_future_cursor_is_reset(house: Running, page: Page) -> None:
    await page.say("hello")
    await page.answers(1)
    await house.idle()
    async with opened(house.url, watching=False) as other:
        async with other.watching(after=page.seen + 5):
            await other.until(lambda: other.named("reset") == [{}])
        async with other.watching(after=page.seen - 1):
            await other.until(lambda: len(other.written()) == 1)
        assert other.written("you") == []
        for odd in ("-1", "x", "1e9", "9" * 30, "\u0663", ""):
            async with other.http.stream("GET", f"/api/events?after={odd}") as answer:
                assert answer.status_code == 200
                assert (await anext(answer.aiter_lines())).startswith("event: hello")

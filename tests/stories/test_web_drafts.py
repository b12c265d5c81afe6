"""What a page sees of an answer before it is there, and that nothing of it is shown which will not be said."""

import asyncio
import re
from pathlib import Path

import pytest

from channels.web.views import html
from tests.emulators.models.script import calls, says
from tests.running import running
from tests.stories.test_queue import NEVER
from tests.waiting import PATIENCE_SECONDS
from tests.web_page import WEB, Page, opened


def shown(page: Page) -> str:
    """All that any draft has shown, as words."""
    return re.sub(r"<[^>]+>", "", "\n".join(page.drafts()))


async def test_an_answer_grows_before_the_eyes_and_ends_as_it_is_kept(tmp_path: Path) -> None:
    text = "# Title\n\n" + "Some words in a row. " * 20 + "\n\n```py\nx = 1\n```\n"
    async with running(tmp_path, script=[says(text)], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold(after_pieces=2)
        await page.say("tell me")
        await page.until(lambda: any("Title" in draft and "row" not in draft for draft in page.drafts()))
        house.line.release()
        await page.answers(1)
        assert page.said()[0]["html"] == html(page.said()[0]["text"])


async def test_a_page_that_comes_in_the_middle_sees_the_turn_and_the_draft_so_far(tmp_path: Path) -> None:
    text = "one\n\ntwo\n\n" + "and more. " * 100
    async with running(tmp_path, script=[says(text)], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold(after_pieces=3)
        await page.say("tell me")
        await page.until(lambda: any("<p>two</p>" in draft for draft in page.drafts()))
        async with opened(house.url) as late:
            await late.until(lambda: bool(late.drafts()))
            assert [event.name for event in late.events[:3]] == ["hello", "turn", "draft"]
            assert late.named("draft")[0]["at"] == 0
            assert late.drafts()[0].startswith("<p>one</p>\n<p>two</p>")
            house.line.release()
            await late.answers(1)
        await page.answers(1)
        assert late.said() == page.said()


@pytest.mark.parametrize("then", ["error", "reset", "end"])
async def test_what_a_failed_attempt_had_written_is_taken_back_and_the_answer_comes_once(
    tmp_path: Path, then: str
) -> None:
    false_start = says("a false start " * 30, cut_after=12, then=then, pause_seconds=0.05)
    script = [false_start, says("the real answer", pause_seconds=0.02)]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        await page.say("tell me")
        assert await page.answers(1) == ["the real answer"]
        await house.idle()
        drafts = page.drafts()
        begun = next(number for number, draft in enumerate(drafts) if "false start" in draft)
        assert any("false start" not in draft for draft in drafts[begun:])
        assert not any("false start" in draft and "real" in draft for draft in drafts)
        assert "false start" not in drafts[-1]
        assert len(page.said()) == 1


HIDDEN = [
    ("__SILENT__", "silent"),
    ("**__SILENT__**", "silent"),
    ("`__SILENT__`", "silent"),
    ("```\n__SILENT__\n```", "silent"),
    ("Here.\n\nMEDIA:./missing-file.txt", "replied"),
    ("[[reply_to_current]] Here.", "replied"),
    ("Here. [[audio_as_voice]]", "replied"),
    ("Here. __SILENT__", "replied"),
]


@pytest.mark.parametrize(("text", "outcome"), HIDDEN)
async def test_what_is_meant_for_the_gateway_never_flashes_by(tmp_path: Path, text: str, outcome: str) -> None:
    script = [says(text, chunk_bytes=40, pause_seconds=0.02)]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        await page.say("tell me")
        await page.until(lambda: bool(page.named("turn")) and not page.named("turn")[-1]["running"])
        assert page.named("turn")[-1]["outcome"] == outcome
        await house.idle()
        for word in ("SIL", "MED", "missing", "[[", "reply_to", "audio", "`", "*"):
            assert word not in shown(page), page.drafts()
        if outcome == "silent":
            assert not any(page.drafts())
            assert page.said() == []
            assert [chat["running"] for chat in await page.chats()] == [False]


async def test_what_a_tool_is_given_is_shown_short_and_on_one_line(tmp_path: Path) -> None:
    command = "echo '<script>\n" + "x" * 5000 + "'"
    script = [calls(("exec", {"command": command}))]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        await page.say("run it")
        await page.answers(1)
        (tool,) = page.said()[0]["tools"]
        assert tool["state"] == "failed"
        assert tool["about"].startswith("echo '<script> xxx")
        assert len(tool["about"]) == 200


async def test_an_open_stream_does_not_hold_the_end_up(tmp_path: Path) -> None:
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


@pytest.mark.slow
async def test_who_has_missed_too_much_or_knows_too_much_is_told_to_begin_anew(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        await page.say("hello")
        await page.answers(1)
        await house.idle()
        async with opened(house.url, watching=False) as other:
            async with other.watching(after=page.seen + 5):
                await other.until(lambda: other.named("reset") == [{}])
            async with other.watching(after=page.seen - 1):
                await other.until(lambda: len(other.said()) == 1)
            assert other.said("you") == []
            for odd in ("-1", "x", "1e9", "9" * 30, "\u0663", ""):
                async with other.http.stream("GET", f"/api/events?after={odd}") as answer:
                    assert answer.status_code == 200
                    assert (await anext(answer.aiter_lines())).startswith("event: hello")

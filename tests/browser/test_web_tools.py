"""Tool cards, code, tables and targets, as people read and touch them."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.axe import LIST, WIDTHS, wrong
from tests.browser.tab import Visit
from tests.emulators.models.script import calls, says

MISS = calls(("read", {"file_path": "none.txt"}), ("write", {"file_path": "a.txt", "content": "tea"}))
DIFF = "```diff\n--- a/tea\n+++ b/tea\n@@ -1 +1 @@\n-green\n+black\n same\n```\n"
TEXTS = f"| name | text |{' x |' * 6}\n|{'---|' * 8}\n| a | {'some words ' * 9}|\n"
PICTURES = "![Sales](https://x.test/a.png) and ![](https://x.test/b.png)"
TABLE = "\n".join("|" + cell * 12 for cell in ("a column |", "---|", "a value |"))
PHONE: dict[str, Any] = {"viewport": WIDTHS["phone"], "has_touch": True, "is_mobile": True}
SMALL = """() => [...document.querySelectorAll("button, summary, select")]
    .filter((it) => it.checkVisibility() && !it.closest("[inert], .sidebar"))
    .filter((it) => Math.min(it.offsetWidth, it.offsetHeight) < 44)
    .map((it) => `${it.offsetWidth}×${it.offsetHeight} ${it.outerHTML.slice(0, 100)}`)"""


async def test_page_tool_miss_is_a_sentence(
    visit: Visit,
) -> None:
    more_work = calls(("write", {"file_path": "b.txt", "content": "tea"}), before="I write it down first.")
    async with visit(MISS, says("Done."), more_work, says("Done too.")) as (_, tab):
        await tab.ask("Work", "Done.")
        summary = tab.answers.locator("summary")
        await expect(summary).to_have_text("2 tools used · 1 without success")
        await expect(summary.locator(".tool-state")).to_have_attribute("data-state", "done")
        await summary.click()
        missed = tab.tools(tab.answers).first
        await missed.get_by_role("button").click()
        problem = missed.get_by_label("What went wrong")
        await expect(problem).to_contain_text("none.txt")
        assert not (await problem.inner_text()).startswith("{")
        assert await wrong(tab, beside=LIST) == []

        await tab.new_chat()
        await tab.ask("Work on", "Done too.")
        async for _ in tab.at_once_and_after_a_reload():
            await tab.is_answered("Done too.")
            await tab.answers.locator("summary").click()
            lines = tab.answers.locator(".tools > li")
            await expect(lines).to_have_count(2)
            await expect(lines.first).to_have_text("I write it down first.")


async def test_page_diff_wide_table_and_touch_targets(visit: Visit) -> None:
    async with visit(MISS, says(DIFF + "\n" + TABLE), **PHONE) as (_, tab):
        await tab.ask("Show", "black")
        code = tab.answers.locator("pre")
        await expect(code.locator(".code-removed")).to_have_text(["-green"])
        await expect(code.locator(".code-added")).to_have_text(["+black"])
        await expect(code.locator(".code-comment")).to_have_text(["--- a/tea", "+++ b/tea", "@@ -1 +1 @@"])
        frame = tab.answers.locator(".table")
        assert await frame.evaluate("(it) => it.scrollWidth > it.clientWidth")
        shades = await frame.evaluate("(it) => getComputedStyle(it).backgroundAttachment")
        assert shades == "local, local, scroll, scroll"
        await tab.answers.locator("summary").tap()
        assert await tab.page.evaluate(SMALL) == []
        assert await wrong(tab, beside=LIST) == []


@pytest.mark.parametrize(("locale", "note"), [("en-US", "picture, not loaded"), ("zh-CN", "图片未加载")])
async def test_a_phone_reads_text_in_a_wide_table_and_why_there_is_no_picture(
    visit: Visit, locale: str, note: str
) -> None:
    async with visit(says(f"{TEXTS}\n{PICTURES}"), **PHONE, locale=locale) as (_, tab):
        await tab.page.locator("#message").fill("Show")
        await tab.page.locator("#message").press("Enter")
        await expect(tab.page.get_by_role("link", name=re.compile(note))).to_have_text([f"Sales ({note})", note])
        text = tab.page.locator("td", has_text="some words")
        shape = "(it) => it.clientWidth / parseFloat(getComputedStyle(it).fontSize)"
        assert await text.evaluate(shape) >= 14
        assert await tab.sticking_out() == []

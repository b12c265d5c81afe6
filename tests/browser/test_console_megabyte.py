"""A megabyte in every text of the chat page and of the console's rooms: they show a part at a time, and say what they cut.

A browser takes 40 seconds for a paragraph of a megabyte that turns its direction, and half of one for a twentieth of it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Response, expect

from tests.browser.conftest import SCOPE
from tests.browser.grown import MEGABYTE, grown
from tests.browser.house import House
from tests.browser.tab import Tab
from tests.browser.test_console import go
from tests.browser.test_console_turns import LAYERS, layer, opened

ROOMS = (
    "now",
    "turns",
    "turns/1",
    "chats",
    "approvals",
    "people",
    "later",
    "letters",
    "usage/?by=person",
    "agents",
    "config",
)
ANSWER_BYTES_MAX = 400_000
PIECE_CHARS_MAX = 50_100
LONGEST = """(root) => {
    const own = (it) => [...it.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const shown = [...root.querySelectorAll("*")].filter((it) => !it.closest(".markdown pre"));
    return Math.max(0, ...shown.map((it) => own(it).reduce((sum, node) => sum + node.length, 0)));
}"""
"""The characters of the longest text in an element; code of an answer is not cut."""
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
HOSTILE = {
    "a line without a space": "x" * MEGABYTE,
    "what turns the text": "\u202eא" * (MEGABYTE // 2),
    "markup": (MARKUP * MEGABYTE)[:MEGABYTE],
}
ALL = "".join(text[: MEGABYTE // len(HOSTILE)] for text in HOSTILE.values()) + "x"


@pytest_asyncio.fixture(scope="module", loop_scope=SCOPE)
async def everything(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[House, Tab]]:
    """A house full of all of them, which nothing here changes."""
    async with grown(browser, tmp_path_factory.mktemp("grown"), ALL) as found:
        yield found


async def test_console_shows_a_megabyte_cut_and_inert(
    everything: tuple[House, Tab],
) -> None:
    await shown_in_part(*everything)


@pytest.mark.long
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_nor_where_each_text_is_of_one_kind(browser: Browser, tmp_path: Path, text: str) -> None:
    async with grown(browser, tmp_path, text) as found:
        await shown_in_part(*found)


async def shown_in_part(home: House, tab: Tab) -> None:
    """The chat and every room of the console are walked through, and what they were sent is weighed."""
    page, sizes = tab.page, dict[str, int]()
    await chatted(tab)

    def weigh(answer: Response) -> None:
        if "/api/" in answer.url:
            sizes[answer.url.partition("/api/")[2]] = int(answer.headers["content-length"])

    page.on("response", weigh)
    for room in ROOMS:
        await go(tab, home, room)
        for details in await page.locator("#view details").all():
            await details.evaluate("(it) => (it.open = true)")
        assert await page.locator("#view img, #view script").count() == 0, room
        assert await tab.sticking_out() == [], room
        assert await page.locator("#view").evaluate(LONGEST) < PIECE_CHARS_MAX, room
    assert len(sizes) > len(ROOMS)
    assert {it: size for it, size in sizes.items() if size > ANSWER_BYTES_MAX} == {}


async def chatted(tab: Tab) -> None:
    """The chat opens, back to its first message and with every tool."""
    page, articles = tab.page, tab.log.locator("article")
    await tab.reload()
    await expect(articles).not_to_have_count(0)
    await tab.message.press("h")
    await expect(tab.message).to_have_value("h")
    while not await tab.own.count():
        shown = await articles.count()
        await page.locator("#scroller").evaluate("(it) => (it.scrollTop = 0)")
        await expect(articles).not_to_have_count(shown)
    for summary in await tab.answers.locator("summary").all():  # those of a settled approval, and of the tools
        await summary.click()
    for head in await tab.answers.locator(".tool-head").all():
        await head.click()
    assert await tab.log.evaluate(LONGEST) < PIECE_CHARS_MAX
    bubble = tab.own.locator(".bubble")
    before = len(await bubble.inner_text())
    await bubble.get_by_role("button", name="Show more (").press("Enter")
    assert 45_000 < len(await bubble.inner_text()) - before < 55_000
    await expect(tab.conversations.get_by_role("link").first).to_contain_text("… (+999,7")
    assert await tab.log.locator("img, script").count() == 0
    assert await tab.sticking_out() == []


async def test_what_was_cut_is_said_and_the_rest_is_there(everything: tuple[House, Tab]) -> None:
    home, tab = everything
    page = tab.page
    await go(tab, home, "turns")
    await expect(page.get_by_role("row").filter(has_text="Alice").first).to_contain_text("… (+999,705)")
    await go(tab, home, "turns/1")
    for title in LAYERS:
        await opened(page, title)
    calls = layer(page, "Tool calls").locator(".part").first
    await expect(calls).to_contain_text("rm -rf build")
    reply = layer(page, "Reply")
    more = reply.get_by_role("button", name="Show more (")
    before = len(await reply.locator("pre").inner_text())
    await more.press("Enter")
    await expect(reply.locator("pre")).to_have_text(f"It waits for you.{'x' * (before + 50_000 - 17)}")
    async with page.expect_download() as saved:
        await reply.get_by_role("link", name="Download it whole").click()
    assert (await (await saved.value).path()).read_text() == f"It waits for you.{ALL}"

"""The operator who keeps the console open during a soak: a real page that moves between its rooms and opens a turn now and
then. It is loaded once, so that what it forgets to let go of adds up.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle

from playwright.async_api import CDPSession, Page, async_playwright, expect

from tests.browser.chromium import FLAGS, MISSING, chromium, missing
from tests.browser.watch import Watch

STAY_SECONDS = 6.0
"""In each room: longer than the page waits before it asks again."""
PATIENCE_MS = 60_000
OTHERS = ("now", "approvals", "people", "later", "letters", "usage", "agents", "config")


@dataclass(frozen=True, slots=True)
class PageSample:
    """The page at one moment, after its garbage was collected."""

    heap_mb: float
    nodes: int
    listeners: int

    def __str__(self) -> str:
        return f"page {self.heap_mb:5.2f} MB, {self.nodes:5d} nodes, {self.listeners:4d} listeners"


@dataclass
class OpenConsole:
    """`samples` are all taken in the list of turns, which has the same length each time once it is full."""

    page: Page
    watch: Watch
    _chrome: CDPSession
    samples: list[PageSample] = field(default_factory=list)
    visits: int = 0

    async def walk(self) -> None:
        """The list of turns, the newest of them, and the next of the other rooms, and so on."""
        rooms: Iterator[str] = cycle(OTHERS)
        while True:
            await self._to("turns")
            await asyncio.sleep(STAY_SECONDS)
            self.samples.append(await self._sampled())
            if (turn := self.page.get_by_role("row").get_by_role("link").first) and await turn.count():
                await turn.click()
                await self._unfold()
                await asyncio.sleep(STAY_SECONDS)
            await self._to(next(rooms))
            await asyncio.sleep(STAY_SECONDS)

    async def _to(self, room: str) -> None:
        await self.page.evaluate("(room) => { location.hash = room; }", room)
        await expect(self.page.locator("#view")).to_have_attribute("aria-busy", "false")
        self.visits += 1

    async def _unfold(self) -> None:
        await expect(self.page.get_by_role("heading", level=2).first).to_be_visible()
        await self.page.evaluate("for (const it of document.querySelectorAll('#view details')) it.open = true")
        self.visits += 1

    async def _sampled(self) -> PageSample:
        await self._chrome.send("HeapProfiler.collectGarbage")
        found = {it["name"]: it["value"] for it in (await self._chrome.send("Performance.getMetrics"))["metrics"]}
        return PageSample(found["JSHeapUsedSize"] / 1e6, int(found["Nodes"]), int(found["JSEventListeners"]))


@asynccontextmanager
async def console_open(url: str, token: str) -> AsyncIterator[OpenConsole]:
    """The console of a gateway, signed in. Raises RuntimeError if there is no browser."""
    if missing():
        raise RuntimeError(MISSING)
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = await browser.new_context(locale="en-US", viewport={"width": 1200, "height": 800})
        watch, page = Watch(context, url), await context.new_page()
        watch.expects("status of 401")  # the page asks before it is signed in
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(f"{url}/console#turns")
        await page.get_by_label("Token").fill(token)
        await page.get_by_label("Token").press("Enter")
        await expect(page.locator("#view")).to_have_attribute("aria-busy", "false")
        chrome = await context.new_cdp_session(page)
        await chrome.send("Performance.enable")
        console = OpenConsole(page, watch, chrome)
        async with asyncio.TaskGroup() as group:  # an error of the walk ends the soak
            walk = group.create_task(console.walk())
            yield console
            walk.cancel()
        await browser.close()

"""How the page begins: in how many round trips the list of chats is there, over a slow line and when it was there before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Request, expect

from tests.browser.house import AGENTS
from tests.browser.tab import Tab, Visit
from tests.emulators.models.script import says

LATENCY_MS = 400
CONNECTIONS = 6
"""A browser has so many to one server: what it asks for besides waits for a round trip more."""


def starts(request: Request) -> float:
    return request.timing["startTime"]


def lasts(request: Request) -> float:
    return request.timing["responseEnd"]


def ends(request: Request) -> float:
    return starts(request) + lasts(request)


def round_trips(requests: list[Request], last: Request) -> int:
    """The longest row of requests, `last` at its end, of which each began when the one before had been answered."""
    before = [it for it in requests if ends(it) <= starts(last)]
    return 1 + max((round_trips(before, it) for it in before), default=0)


@asynccontextmanager
async def opened(context: BrowserContext, tab: Tab) -> AsyncIterator[list[Request]]:
    """A page of `context`, over a slow line, with the list there: its requests that were answered."""
    page = await context.new_page()
    requests: list[Request] = []
    page.on("requestfinished", lambda request: requests.append(request))
    devtools = await context.new_cdp_session(page)
    await devtools.send("Network.enable")
    line = {"offline": False, "latency": LATENCY_MS, "downloadThroughput": -1, "uploadThroughput": -1}
    await devtools.send("Network.emulateNetworkConditions", line)
    await page.goto(tab.page.url.partition("#")[0])
    await expect(Tab(page, tab.watch).conversation("Where is the list?")).to_be_visible()
    yield requests
    await page.close()


def the(requests: list[Request], end: str) -> Request:
    [found] = [it for it in requests if urlsplit(it.url).path.endswith(end)]
    return found


async def test_page_list_loads_in_two_round_trips(visit: Visit, browser: Browser) -> None:
    async with visit(says("Found."), agents=AGENTS.replace(", exec]", "]")) as (_, tab):
        await tab.ask("Where is the list?", "Found.")
        context = await browser.new_context()
        async with opened(context, tab) as requests:
            page, listed, script = the(requests, "/"), the(requests, "/api/chats"), the(requests, ".js")
            assert [round_trips(requests, it) for it in (page, listed, script)] == [1, 2, 2]
            at_once = [it for it in requests if it is not page and starts(it) < ends(script)]
            assert len(at_once) <= CONNECTIONS, [it.url for it in at_once]
        async with opened(context, tab) as requests:
            from_server = {urlsplit(it.url).path for it in requests if lasts(it) > LATENCY_MS / 2}
            assert from_server == {"/", "/api/chats"}
        await context.close()

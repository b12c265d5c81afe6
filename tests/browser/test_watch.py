"""The watch over the page is itself watched: whatever a page may complain of, a test would fail of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.browser.watch import Watch
from tests.loopback import serve_on_loopback
from tests.waiting import until


def site(script: str) -> Starlette:
    """A page with a script, and nothing else but an icon."""

    async def page(_request: Request) -> Response:
        return HTMLResponse(f"<!doctype html><link rel=icon href='data:,'><p>ready</p><script>{script}</script>")

    return Starlette(routes=[Route("/", page)])


@asynccontextmanager
async def watched(browser: Browser, script: str) -> AsyncIterator[tuple[Watch, Page]]:
    async with serve_on_loopback(site(script)) as url:
        context = await browser.new_context()
        watch = Watch(context, url)
        page = await context.new_page()
        await page.goto(url)
        yield watch, page
        await context.close()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.error('oh')", "console error: oh"),
        ("console.warn('hm')", "console warning: hm"),
        ("setTimeout(() => { throw new Error('thrown') })", "error: thrown"),
        ("Promise.reject(new Error('rejected'))", "error: rejected"),
        ("alert('hacked')", "dialog: hacked"),
        ("new Image().src = 'http://127.0.0.1:9/pixel.png'", "request elsewhere: http://127.0.0.1:9/pixel.png"),
        ("fetch('https://example.com/').catch(() => 0)", "request elsewhere: https://example.com/"),
        ("fetch('/nowhere')", "console error: Failed to load resource: the server responded with a status of 404"),
    ],
)
async def test_a_page_that_complains_is_heard_unless_the_test_expects_it(
    browser: Browser, script: str, complaint: str
) -> None:
    async with watched(browser, script) as (watch, _):
        await until(lambda: watch.complaints)
        assert watch.complaints[0].startswith(complaint)
        watch.expects(complaint, "net::ERR")
        assert watch.complaints == []


async def test_a_page_that_minds_its_own_business_is_not_complained_of(browser: Browser) -> None:
    async with watched(browser, "fetch('/').then(() => document.body.append('done'))") as (watch, page):
        await expect(page.get_by_text("done")).to_have_count(1)
        assert watch.complaints == []

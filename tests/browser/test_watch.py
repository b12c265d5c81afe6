"""The watch over the page is itself watched: whatever a page may complain of, a test would fail of it."""

from playwright.async_api import Browser, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.browser.watch import Watch
from tests.loopback import serve_on_loopback
from tests.waiting import until

COMPLAINTS = {
    "console.error('oh')": "console error: oh",
    "console.warn('hm')": "console warning: hm",
    "setTimeout(() => { throw new Error('thrown') })": "error: thrown",
    "Promise.reject(new Error('rejected'))": "error: rejected",
    "alert('hacked')": "dialog: hacked",
    "new Image().src = 'http://127.0.0.1:9/pixel.png'": "request elsewhere: http://127.0.0.1:9/pixel.png",
    "fetch('https://example.com/').catch(() => 0)": "request elsewhere: https://example.com/",
    "fetch('/nowhere')": "console error: Failed to load resource: the server responded with a status of 404",
}


async def page(_request: Request) -> Response:
    """Nothing but an icon."""
    return HTMLResponse("<!doctype html><link rel=icon href='data:,'>")


async def test_what_a_page_complains_of_is_heard_unless_the_test_expects_it(browser: Browser) -> None:
    async with serve_on_loopback(Starlette(routes=[Route("/", page)])) as url, await browser.new_context() as context:
        watch = Watch(context, url)
        tab = await context.new_page()
        await tab.goto(url)
        await tab.evaluate("fetch('/').then(() => document.body.append('done'))")
        await expect(tab.get_by_text("done")).to_have_count(1)
        assert watch.complaints == []
        for script, complaint in COMPLAINTS.items():
            await tab.add_script_tag(content=script)
            await until(lambda: watch.complaints)
            assert watch.complaints[0].startswith(complaint)
            watch.expects(complaint, "net::ERR")
            assert watch.complaints == []

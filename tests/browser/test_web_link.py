"""The link that the start prints where agents run commands: it signs in one browser, once, and leaves no trace in it."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from tests.browser.house import TOKEN, house
from tests.browser.tab import visitor
from tests.emulators.models.script import says

TOKENS = pytest.mark.parametrize("server", ["", f"server: {{ adminToken: {TOKEN} }}"], ids=["no token", "a token"])
SPENT = "This sign-in link has been used or has expired."


@TOKENS
async def test_the_link_signs_in_once_and_says_so_the_second_time(
    browser: Browser, tmp_path: Path, server: str
) -> None:
    async with house(tmp_path, script=[says("Welcome.")], more=server) as home:
        link = home.link()
        async with visitor(browser, home, address=link) as tab:
            tab.watch.expects("status of 401")
            await tab.say("Hi")
            await tab.is_answered("Welcome.")
            assert "sign-in" not in tab.page.url
            assert link.partition("=")[2] not in str(
                await tab.page.evaluate("[{ ...localStorage }, { ...sessionStorage }, document.cookie, history.length]")
            )
            await tab.page.go_back()
            assert "sign-in" not in tab.page.url
            await tab.page.goto(link)
            await tab.page.get_by_role("link", name="Hi").click()
            await tab.is_answered("Welcome.")
            await expect(tab.page.get_by_role("dialog", name="Sign in")).to_be_hidden()
        async with visitor(browser, home, address=link) as other:
            other.watch.expects("status of 401")
            asked = other.page.get_by_role("dialog", name="Sign in")
            await expect(asked.get_by_role("alert")).to_contain_text(SPENT)
            assert "sign-in" not in other.page.url
            await other.reload()
            await expect(asked).to_be_visible()
            await expect(asked.get_by_role("alert")).to_be_empty()


async def test_whoever_has_no_session_is_asked_for_the_link_and_can_paste_it_or_open_it_in_the_same_tab(
    browser: Browser, tmp_path: Path
) -> None:
    async with house(tmp_path) as home:
        for way in ("pasted", "opened"):
            async with visitor(browser, home, address=home.url) as tab:
                tab.watch.expects("status of 401")
                asked = tab.page.get_by_role("dialog", name="Sign in")
                await expect(asked).to_contain_text("the sign-in link that it printed at its start")
                if way == "pasted":
                    await asked.get_by_label("Token").fill(home.link())
                    await asked.get_by_label("Token").press("Enter")
                else:
                    await tab.page.goto(home.link())
                await expect(asked).to_be_hidden()
                await expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()
                assert tab.page.url == f"{home.url}/"


async def test_what_is_sent_during_the_sign_in_goes_after_it(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Welcome.")]) as home, visitor(browser, home, address="about:blank") as tab:
        answered = asyncio.Event()

        async def slow(route: Route) -> None:
            await answered.wait()
            await route.continue_()

        await tab.page.route("**/api/session", slow)
        await tab.page.goto(home.link())
        await tab.say("Hi")
        await tab.has_said("Hi")
        answered.set()
        await tab.is_answered("Welcome.")
        await tab.has_said("Hi")


async def test_after_a_restart_the_browser_is_signed_in_still(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Welcome."), says("Again.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING")
        await tab.say("Hi")
        await tab.is_answered("Welcome.")
        await home.down()
        await home.up()
        await tab.reload()
        await tab.say("Still me")
        await tab.is_answered("Welcome.", "Again.")

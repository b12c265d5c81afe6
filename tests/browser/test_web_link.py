"""The link that the start prints where agents run commands: it signs in one browser, once, and leaves no trace in it."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from tests.browser.house import TOKEN, house
from tests.browser.tab import Visit, visitor
from tests.emulators.models.script import says

WITH_TOKEN = f"server: {{ adminToken: {TOKEN} }}"
SPENT = "This sign-in link has been used or has expired."


@pytest.mark.parametrize("server", ["", pytest.param(WITH_TOKEN, marks=pytest.mark.long)], ids=["no token", "a token"])
async def test_page_login_link_works_once_and_outlasts_a_restart(browser: Browser, tmp_path: Path, server: str) -> None:
    async with house(tmp_path, script=[says("Welcome."), says("Again.")], more=server) as home:
        link = home.link()
        async with visitor(browser, home, address=link) as tab:
            tab.watch.expects("status of 401", "net::ERR_")
            await tab.ask("Hi", "Welcome.")
            assert "sign-in" not in tab.page.url
            assert link.partition("=")[2] not in await tab.kept()
            await tab.page.go_back()
            assert "sign-in" not in tab.page.url
            await tab.page.goto(link)
            await tab.page.get_by_role("link", name="Hi").click()
            await tab.is_answered("Welcome.")
            await expect(tab.page.get_by_role("dialog", name="Sign in")).to_be_hidden()
            async with visitor(browser, home, address=link) as other:
                other.watch.expects("status of 401")
                dialog = other.page.get_by_role("dialog", name="Sign in")
                await expect(dialog.get_by_role("alert")).to_contain_text(SPENT)
                assert "sign-in" not in other.page.url
                await other.reload()
                await expect(dialog).to_be_visible()
                await expect(dialog.get_by_role("alert")).to_be_empty()
            await home.down()
            await home.up()
            await tab.reload()
            await tab.ask("Still me", "Welcome.", "Again.")


@pytest.mark.parametrize(("way", "server"), [("pasted", ""), ("opened", WITH_TOKEN)])
async def test_page_login_link_is_pasted_or_opened(browser: Browser, tmp_path: Path, way: str, server: str) -> None:
    async with house(tmp_path, more=server) as home, visitor(browser, home, address=home.url) as tab:
        tab.watch.expects("status of 401")
        dialog = tab.page.get_by_role("dialog", name="Sign in")
        await expect(dialog).to_contain_text("the sign-in link that it printed at its start")
        await (tab.sign_in if way == "pasted" else tab.page.goto)(home.link())
        await expect(dialog).to_be_hidden()
        await expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()
        assert tab.page.url == f"{home.url}/"


async def test_what_is_sent_during_the_sign_in_goes_after_it(visit: Visit) -> None:
    async with visit(says("Welcome."), address="about:blank") as (home, tab):
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


async def test_a_closed_page_says_how_to_open_it_and_offers_nothing_to_press(visit: Visit) -> None:
    async with visit(more="server: { host: 0.0.0.0 }") as (_, tab):
        tab.watch.expects("status of 403")
        await expect(tab.page.get_by_text("Write CLAWGATE_ADMIN_TOKEN=")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="What can you do for me?")).to_be_hidden()

"""Commands in the web chat: what is offered behind a slash, and what becomes of a message that a stop has dropped."""

import asyncio

from playwright.async_api import Route, expect

from tests.browser.tab import Visit
from tests.emulators.models.script import says

LIST = "**/api/chats"


async def test_who_writes_before_the_list_has_come_is_offered_the_commands_then(visit: Visit) -> None:
    async with visit(says("never asked")) as (_, tab):
        released = asyncio.Event()

        async def hold(route: Route) -> None:
            await released.wait()
            await route.continue_()

        await tab.page.route(LIST, hold)
        await tab.page.reload()
        await tab.message.press_sequentially("/st")
        offered = tab.page.get_by_role("listbox", name="Commands")
        await expect(offered).to_be_hidden()
        released.set()
        await expect(offered.get_by_role("option")).to_have_count(2)


async def test_a_slash_offers_the_commands_and_one_is_taken_by_key_or_by_click(visit: Visit) -> None:
    async with visit(says("never asked")) as (home, tab):
        offered = tab.page.get_by_role("listbox", name="Commands")
        await tab.message.press_sequentially("/st")
        await expect(offered.get_by_role("option")).to_have_count(2)
        await tab.message.press("ArrowDown")
        await tab.message.press("ArrowDown")
        await tab.message.press("Escape")
        await expect(offered).to_be_hidden()
        await tab.message.press_sequentially("a")
        await tab.message.press("ArrowUp")
        await expect(offered.get_by_role("option", selected=True)).to_contain_text("/status")
        await tab.message.press("Enter")
        await expect(tab.message).to_have_value("/status ")
        await tab.message.fill("/who")
        await offered.get_by_text("/whoami").click()
        await expect(tab.message).to_have_value("/whoami ")
        await tab.message.press("Enter")
        await expect(tab.answers.last).to_contain_text("web:local")
        await tab.message.fill("/et")
        await expect(offered).to_be_hidden()
        assert home.anthropic.requests == []


async def test_page_dropped_message_is_shown_and_resent(visit: Visit) -> None:
    async with visit(says("first"), says("second")) as (home, tab):
        home.line.hold()
        await tab.say("think long")
        await home.until(lambda: bool(home.anthropic.requests))
        await tab.say("and this")
        await tab.say("/stop")
        bubble = tab.own.filter(has_text="and this")
        await expect(bubble).to_contain_text("Not answered")
        await tab.reload()
        await expect(bubble).to_contain_text("Not answered")
        home.line.release()
        await bubble.get_by_role("button", name="Send again").click()
        await expect(tab.answers.last).to_contain_text("second")
        await expect(bubble.first).to_contain_text("Not answered")

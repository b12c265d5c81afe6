"""Buttons under a message: they last over a reload, are pressed once, and go when the message is replaced."""

import json
from typing import Any

from playwright.async_api import Route, expect

from channels.message import Button, Chat
from tests.browser.axe import RULES
from tests.browser.tab import PHONE, Visit
from tests.browser.test_web_connection import DOOR, OFFLINE
from tests.emulators.models.script import says
from tests.offers import ALLOW, BUTTONS, COMMAND, DENY, offered, presses

LONG = Button(label="审批通过并且以后不再询问 🦄" * 20, token="t:1")
HOSTILE = Button(label="<img src=x onerror=alert(1)>", token="t:2", style="danger")


async def test_page_buttons_are_pressed_once_and_replaced(visit: Visit) -> None:
    async with visit(says("Hello."), says("More.")) as (home, tab):
        await tab.ask("Hi", "Hello.")
        chat = Chat(id=tab.page.url.partition("#")[2], kind="direct")
        key = await offered(home.gateway, "web", chat)
        card = tab.answers.filter(has_text="May I run this?")
        choices = card.get_by_role("group", name="Choices").get_by_role("button")
        async for _ in tab.at_once_and_after_a_reload():
            await expect(choices).to_have_text([ALLOW.label, DENY.label])
            await expect(card.locator("pre > code")).to_have_text("rm -rf ./build  # **not** <at id=all></at>\n")
        other = await tab.another()
        await expect(other.log.get_by_role("button", name=ALLOW.label)).to_be_visible()

        posts: list[dict[str, Any]] = []

        async def lose_the_first_receipt(route: Route) -> None:
            posts.append(json.loads(route.request.post_data or "{}"))
            if len(posts) == 1:
                await route.fetch()
                await route.abort("connectionreset")
            else:
                await route.continue_()

        tab.watch.expects(OFFLINE)
        await tab.page.route(DOOR, lose_the_first_receipt)
        await card.get_by_role("button", name=DENY.label).click()
        await expect(tab.page.get_by_text("The server cannot be reached.")).to_be_visible()
        await expect(choices.first).to_be_enabled()
        await card.get_by_role("button", name=DENY.label).click()
        await home.until(lambda: len(posts) == 2)
        await expect(choices.first).to_be_enabled()
        assert posts[0] == posts[1]
        ((_, pressed),) = presses(home.gateway)
        assert pressed.press is not None
        assert (pressed.press.token, pressed.press.message_id) == (DENY.token, key)

        await tab.page.unroute(DOOR)
        nothing = "You have no pending request"  # nobody was asked for anything: the press is answered so
        await tab.ask("And?", "Hello.", COMMAND[:15], nothing, "More.")
        await offered(home.gateway, "web", chat, buttons=(), said="Denied by you.", replaces=key)
        for seen in (tab, other):
            await seen.is_answered("Hello.", "Denied by you.", nothing, "More.")
            await expect(seen.log.get_by_role("button", name=DENY.label)).to_have_count(0)
        await tab.reload()
        await tab.is_answered("Hello.", "Denied by you.", nothing, "More.")
        await tab.has_said("Hi", "And?")


async def test_page_buttons_are_gone_after_an_absence(visit: Visit) -> None:
    async with visit(says("Hello.")) as (home, tab):
        tab.watch.expects(OFFLINE)
        await tab.ask("Hi", "Hello.")
        chat = Chat(id=tab.page.url.partition("#")[2], kind="direct")
        key = await offered(home.gateway, "web", chat)
        await expect(tab.log.get_by_role("button", name=DENY.label)).to_be_visible()
        await tab.page.context.set_offline(True)
        await home.down()
        await home.up()
        await offered(home.gateway, "web", chat, buttons=(), said="Expired.", replaces=key)
        await tab.page.context.set_offline(False)
        await tab.is_answered("Hello.", "Expired.")
        await expect(tab.log.get_by_role("button", name=DENY.label)).to_have_count(0)


async def test_page_button_labels_fit_and_are_text(visit: Visit) -> None:
    async with visit(says("Hello."), viewport=PHONE, locale="zh-CN") as (home, tab):
        await tab.page.get_by_role("textbox", name="消息", exact=True).fill("Hi")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_text("Hello.")).to_be_visible()
        chat = Chat(id=tab.page.url.partition("#")[2], kind="direct")
        await offered(home.gateway, "web", chat, buttons=(*BUTTONS, LONG, HOSTILE))
        choices = tab.page.get_by_role("group", name="选项").get_by_role("button")
        await expect(choices).to_have_text([ALLOW.label, DENY.label, LONG.shown, HOSTILE.label])
        assert await tab.sticking_out() == []
        assert await tab.page.evaluate(RULES) == []

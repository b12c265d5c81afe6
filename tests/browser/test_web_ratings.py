"""👍 and 👎 under an answer on the page: by mouse and keyboard, taken back, in every tab, and in the person's language."""

from playwright.async_api import Locator, expect

from tests.browser.axe import RULES
from tests.browser.tab import Tab, Visit
from tests.emulators.models.script import says


def thumb(tab: Tab, name: str) -> Locator:
    return tab.answers.first.get_by_role("button", name=name, exact=True)


async def test_page_rating_is_pressed_replaced_and_taken_back(visit: Visit) -> None:
    async with visit(says("an answer"), says("another")) as (_, tab):
        await tab.ask("hello", "an answer")
        good, bad = thumb(tab, "Good answer"), thumb(tab, "Bad answer")
        await expect(good).to_have_attribute("aria-pressed", "false")
        other = await tab.another()
        await expect(other.answers).to_have_count(1)
        await tab.page.bring_to_front()
        await bad.focus()
        await tab.page.keyboard.press("Enter")
        await expect(bad).to_have_attribute("aria-pressed", "true")
        await expect(bad).to_be_focused()
        await good.click()
        async for _moment in tab.at_once_and_after_a_reload():
            await expect(good).to_have_attribute("aria-pressed", "true")
            await expect(bad).to_have_attribute("aria-pressed", "false")
        await other.page.bring_to_front()
        await expect(thumb(other, "Good answer")).to_have_attribute("aria-pressed", "true")
        await tab.page.bring_to_front()
        await tab.ask("again", "an answer", "another")
        await good.click()
        async for _moment in tab.at_once_and_after_a_reload():
            await expect(good).to_have_attribute("aria-pressed", "false")
        assert await tab.page.evaluate(RULES) == []
        await tab.page.locator("#language").click()
        for name in ("回答得好", "回答得不好"):
            await expect(tab.page.get_by_role("button", name=name, exact=True)).to_have_count(2)


async def test_page_offers_no_rating_where_the_config_closes_it(visit: Visit) -> None:
    async with visit(says("an answer"), more="commands: { good: off }") as (_, tab):
        await tab.ask("hello", "an answer")
        await expect(tab.answers.get_by_role("button", name="Answer again")).to_have_count(1)
        await expect(thumb(tab, "Good answer")).to_have_count(0)


async def test_page_rating_that_fails_says_why_and_stays(visit: Visit) -> None:
    async with visit(says("an answer")) as (_, tab):
        await tab.ask("hello", "an answer")
        tab.watch.expects("503")
        await tab.page.route("**/rating", lambda route: route.fulfill(status=503, body="{}"))
        await thumb(tab, "Good answer").click()
        await expect(tab.page.get_by_role("alert")).not_to_be_empty()
        await expect(thumb(tab, "Good answer")).to_have_attribute("aria-pressed", "false")

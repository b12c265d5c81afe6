"""What is decided in the console by keyboard alone: the outcome is announced, and the focus is not lost."""

from pathlib import Path

from playwright.async_api import Browser, Locator, expect

from tests.browser.grown import model
from tests.browser.night import AGENTS, night
from tests.browser.tab import Tab
from tests.browser.test_console import EMPTY, go
from tests.browser.test_web_keys import UNSEEN, walk

WITH_TOOLS = AGENTS.replace("message] }", "message, schedule, task] }", 1)


async def pressed(tab: Tab, button: Locator) -> None:
    """By keys from wherever the focus is, which is to be seen."""
    await walk(tab, button)
    assert await tab.page.evaluate(UNSEEN) == []
    await tab.page.keyboard.press("Enter")


async def announced(tab: Tab, words: str) -> None:
    await expect(tab.page.get_by_role("status").filter(has_text=words)).to_be_visible()


async def test_a_call_is_allowed_and_a_stranger_let_in_by_keys(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, telegram):
        page, view = tab.page, tab.page.locator("#view")
        await go(tab, home, "approvals")
        await pressed(tab, page.get_by_role("button", name="Allow once"))
        await announced(tab, "Allowed once.")
        await expect(page.get_by_text(EMPTY["approvals"])).to_be_visible()
        await expect(view).to_be_focused()

        await go(tab, home, "people")
        await pressed(tab, page.get_by_role("article").get_by_role("button"))
        await announced(tab, "may write now.")
        await expect(page.get_by_text(EMPTY["people"])).to_be_visible()
        await expect(view).to_be_focused()
        await home.until(lambda: any("You may write to me now" in it.text for it in telegram.messages))


async def test_a_reminder_is_paused_goes_on_and_is_stopped_by_keys(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path, script=model, agents=WITH_TOOLS) as (home, tab, _):
        page = tab.page
        await go(tab, home, "later")
        row = page.get_by_role("row").filter(has_text="Light the tree")
        pause, go_on = row.get_by_role("button", name="Pause"), row.get_by_role("button", name="go on")
        stop = row.get_by_role("button", name="Stop")
        await pressed(tab, pause)
        await announced(tab, "Paused.")
        await expect(go_on).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(pause).to_be_focused()

        await pressed(tab, stop)
        dialog = page.get_by_role("dialog", name="Stop it for good?")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(stop).to_be_focused()
        await page.keyboard.press("Enter")
        await pressed(tab, dialog.get_by_role("button", name="Stop"))
        await announced(tab, "Stopped.")
        await expect(row).to_contain_text("cancelled")
        await expect(page.locator("#view")).to_be_focused()

"""What is decided in the console by keyboard alone: the outcome is announced, and the focus is not lost."""

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.grown import model
from tests.browser.night import AGENTS, night
from tests.browser.test_console import go
from tests.browser.test_web_keys import announced, pressed

WITH_TOOLS = AGENTS.replace("message] }", "message, schedule, task] }", 1)


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

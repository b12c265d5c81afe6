"""What is to come and what runs beside, in the console: paused, let go on and stopped there."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.axe import LOOKS, Looks, wrong
from tests.browser.house import house
from tests.browser.night import AGENTS
from tests.browser.tab import visitor
from tests.browser.test_console import go
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.stories.at_work import text_of, users

PLANNED = """
schedules:
  - { id: standup, to: "telegram:500000011", at: "50 8 * * mon-fri", say: Stand-up in ten minutes. }
"""
TELEGRAM = ', telegram: { botToken: "7000000001:AAAnotherAnotherAnotherAnotherAnot1", apiRoot: "http://127.0.0.1:9" }'
REMINDER = ("schedule", {"action": "create", "at": "2099-12-24T18:00", "say": "Light the <b>tree</b>"})
TASK = ("task", {"action": "start", "prompt": "Sum it up", "title": "<i>Sum</i>", "wait": False})
WITH_TOOLS = AGENTS.replace("exec, message]", "exec, message, schedule, task]")


def model(body: dict[str, Any]) -> Reply:
    """The person is reminded and hands over a task, which waits for an approval, and so goes on."""
    (*_, last) = users(body)
    answered = text_of(body["messages"][-1]) == ""
    if "This is the task" in last:
        return says("It waits.") if answered else calls(("exec", {"command": "make sum"}))
    return says("All is arranged.") if answered else calls(REMINDER, TASK)


def arranged(browser: Browser, folder: Path, **options: Any) -> Any:
    """A house with all of it, and its operator's tab."""
    home = house(folder, script=model, agents=WITH_TOOLS, channels=TELEGRAM, more=PLANNED)
    return home, lambda it: visitor(browser, it, **options)


async def test_a_schedule_is_paused_and_goes_on_and_what_is_stopped_ends(browser: Browser, tmp_path: Path) -> None:
    opened, visited = arranged(browser, tmp_path)
    async with opened as home, visited(home) as tab:
        page = tab.page
        await tab.say("Arrange it")
        await tab.answers.filter(has_text="All is arranged.").wait_for()
        await go(tab, home, "later")
        planned = page.get_by_role("table", name="Schedules and reminders").get_by_role("row")
        standup, reminder = planned.filter(has_text="Stand-up"), planned.filter(has_text="Light the <b>tree</b>")
        await expect(standup).to_contain_text("active")
        await expect(standup.get_by_role("button", name="Stop")).to_have_count(0)
        await standup.get_by_role("button", name="Pause").click()
        await expect(standup).to_contain_text("paused")
        await standup.get_by_role("button", name="go on").click()
        await expect(standup).to_contain_text("active")

        dialog = page.get_by_role("dialog", name="Stop it for good?")
        await reminder.get_by_role("button", name="Stop").click()
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(reminder).to_contain_text("active")
        await reminder.get_by_role("button", name="Stop").click()
        await dialog.get_by_role("button", name="Stop").click()
        await expect(reminder).to_contain_text("cancelled")
        await expect(reminder.get_by_role("button")).to_have_count(0)

        task = page.get_by_role("table", name="Tasks").get_by_role("row").filter(has_text="<i>Sum</i>")
        await expect(task).to_contain_text("running")
        await task.get_by_role("button", name="Stop").click()
        await dialog.get_by_role("button", name="Stop").click()
        await expect(task).to_contain_text("stopped")
        await expect(page.locator("#view b, #view i")).to_have_count(0)


@pytest.mark.parametrize("looks", LOOKS)
async def test_no_rule_of_axe_is_broken_in_it(browser: Browser, tmp_path: Path, looks: Looks) -> None:
    opened, visited = arranged(browser, tmp_path)
    async with opened as home, visited(home) as tab:
        await go(tab, home, "later")
        await expect(tab.page.get_by_text("No task runs, and none ran lately.")).to_be_visible()
        await tab.page.goto(home.url)
        await tab.say("Arrange it")
        await tab.answers.filter(has_text="All is arranged.").wait_for()
        await go(tab, home, "later")
        await expect(tab.page.get_by_text("<i>Sum</i>")).to_be_visible()
        assert await wrong(tab, looks) == []

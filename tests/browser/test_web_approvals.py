"""A command that the page approves: where nobody is named, whoever is at this machine decides."""

from playwright.async_api import expect

from tests.browser.house import AGENTS
from tests.browser.tab import Visit
from tests.emulators.models.script import calls, says
from tests.stories.at_work import results

ASKING = AGENTS.replace("mode: allow", "mode: ask")
COMMAND = "echo ran >> ran.txt; echo '<b>done</b>'"


async def test_a_command_is_read_whole_approved_by_a_button_and_runs_once(visit: Visit) -> None:
    script = (calls(("exec", {"command": COMMAND})), says("It waits."), says("It ran."))
    async with visit(*script, agents=ASKING) as (home, tab):
        await tab.say("Run it")
        card = tab.answers.filter(has_text="Run this command?")
        await expect(card.locator("pre > code")).to_have_text(f"{COMMAND}\n")
        await expect(card.get_by_text("SHA-256")).to_be_hidden()
        await card.get_by_text("Details").click()
        await expect(card.get_by_text("SHA-256")).to_be_visible()
        await expect(card.get_by_role("button")).to_contain_text(["Allow once", "Deny"])
        assert await tab.tool_states(tab.answers.filter(has_text="It waits.")) == [("exec", "waiting")]
        assert not (home.workspace() / "ran.txt").exists()
        await card.get_by_role("button", name="Allow once").click()
        await expect(tab.answers.filter(has_text="It ran.")).to_be_visible()
        await expect(tab.log.get_by_role("button", name="Allow once")).to_have_count(0)
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.answers).to_have_count(3)
            shown = await tab.answers.all_inner_texts()
            assert f"✓ You allowed it once: {COMMAND}" in shown[0] + shown[1], "where it was asked"
            assert "It ran." in shown[2]
        assert (home.workspace() / "ran.txt").read_text() == "ran\n"
        assert "<b>done</b>" in results(home.anthropic.requests[-1].body)[-1]

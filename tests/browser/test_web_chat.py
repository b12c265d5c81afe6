"""The web chat as a person has it: a message, an answer that grows, the tools on the way, and all of it there tomorrow."""

import asyncio
import os
import re

from playwright.async_api import expect

from tests.browser.tab import TALE, Visit
from tests.emulators.models.script import Fault, calls, says

SNIPPET = "for name in sorted(names):\n    print(f'<{name}>')"


async def test_page_shows_a_growing_answer_and_restores_it_on_reload(visit: Visit) -> None:
    tools = calls(("exec", {"command": "cat gate"}), ("read", {"file_path": "nowhere.txt"}))
    code = says(f"Like this:\n\n```python\n{SNIPPET}\n```\n")
    async with visit(says(TALE), tools, says("**It says go.**"), Fault(status=529), code) as (home, tab):
        home.line.hold(after_pieces=4)
        await tab.say("Hello there")
        await expect(tab.message).to_have_value("")
        async for _ in tab.at_once_and_after_a_reload():
            await tab.has_said("Hello there")
            await expect(tab.draft).to_contain_text("Good morning.")
            await expect(tab.draft).not_to_contain_text("very last")
            await expect(tab.answers).to_have_count(0)
        home.line.release()
        await tab.is_answered(TALE)
        await expect(tab.conversation("Hello there")).to_be_visible()
        place = tab.page.url
        assert re.search(r"#c_\w+$", place)

        gate = home.workspace() / "gate"
        gate.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(gate)
        home.line.hold()
        await tab.say("What does the gate say?")
        await expect(tab.draft.locator('[data-tool="exec"][data-state="running"]')).to_contain_text("cat gate")
        await asyncio.to_thread(gate.write_text, "go\n")
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.draft.locator('[data-tool="exec"][data-state="done"]')).to_have_count(1)
            await expect(tab.draft.locator('[data-tool="read"][data-state="failed"]')).to_have_count(1)
        home.line.release()
        answer = tab.answers.last
        async for _ in tab.at_once_and_after_a_reload():
            await tab.is_answered(TALE, "It says go.")
            await tab.has_said("Hello there", "What does the gate say?")
            await expect(answer.locator("strong")).to_have_text("It says go.")
            assert await tab.tool_states(answer) == [("exec", "done"), ("read", "failed")]
            await expect(tab.tools(answer).first).to_be_hidden()
            await answer.get_by_text("2 tools used").click()
            await expect(tab.tools(answer).first).to_be_visible()
            await expect(tab.tools(answer).last).to_contain_text("nowhere.txt")
        assert tab.page.url == place
        assert len(home.anthropic.requests) == 3

        home.line.hold()
        await tab.say("How do I print names?")
        await expect(tab.draft.get_by_role("status")).to_have_text("The model is busy. Trying again.")
        home.line.release()
        await tab.is_answered(TALE, "It says go.", "Like this:")
        await expect(tab.message).to_be_focused()
        await expect(tab.page.get_by_text("Trying again")).to_have_count(0)
        await expect(answer.get_by_text("python", exact=True)).to_be_visible()
        await answer.get_by_role("button", name="Copy", exact=True).click()
        await expect(answer.get_by_role("button", name="Copied")).to_be_visible()
        assert (await tab.page.evaluate("navigator.clipboard.readText()")).rstrip("\n") == SNIPPET


async def test_five_tabs_see_the_same_and_each_thing_once(visit: Visit) -> None:
    """A browser has six connections for one server, and each tab that can be seen holds one."""
    async with visit(says("To the left."), says(TALE), says("And more.")) as (home, left):
        await left.ask("From the left", "To the left.")
        right, *others = [await left.another() for _ in range(4)]
        await right.is_answered("To the left.")
        home.line.hold(after_pieces=4)
        await right.say("From the right")
        for tab in (left, right, *others):
            await expect(tab.draft).to_contain_text("Good morning.")
        home.line.release()
        for tab in (left, right, *others):
            await tab.is_answered("To the left.", TALE)
            await tab.has_said("From the left", "From the right")
        await left.say("Left again")
        for tab in (left, right, *others):
            await tab.is_answered("To the left.", TALE, "And more.")
            await tab.has_said("From the left", "From the right", "Left again")


async def test_page_stop_by_click_or_escape(
    visit: Visit,
) -> None:
    endless = says(TALE, cut_after=8, then="stall")
    async with visit(endless, says("Fine."), says(TALE), says(TALE), says("Second.")) as (home, tab):
        await tab.say("Tell me everything")
        await expect(tab.draft).to_contain_text("Good morning.")
        await expect(tab.send).to_have_count(0)
        await tab.stop.click()
        await expect(tab.stop).to_have_count(0)
        await expect(tab.draft).to_have_count(0)
        await home.until(lambda: home.anthropic.hangups == 1)
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.log.locator(".note")).to_have_text(["Stopped."])
            await tab.has_said("Tell me everything")
            await tab.is_answered(re.compile(r"Good morning\..* …"))
        await tab.say("Are you well?")
        await expect(tab.answers.last).to_contain_text("Fine.")
        await expect(tab.own.last).to_contain_text("Are you well?")

        await tab.new_chat()
        home.line.hold(after_pieces=4)
        await tab.message.fill("Tell me again")
        box = await tab.send.bounding_box()
        assert box is not None
        await tab.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, delay=50)
        await expect(tab.draft).to_contain_text("Good morning.")
        await tab.has_said("Tell me again")
        await tab.message.fill("half a word")
        await tab.message.press("Escape")
        await expect(tab.draft).to_have_count(0)
        await expect(tab.message).to_have_value("half a word")
        home.line.release()

        await tab.new_chat()
        home.line.hold(after_pieces=4)
        await tab.say("First question")
        await expect(tab.draft).to_contain_text("Good morning.")
        await expect(tab.stop).to_be_visible()
        await tab.message.fill("Second question")
        await tab.send.click()
        await tab.has_said("First question", "Second question")
        home.line.release()
        await tab.is_answered(TALE, "Second.")
        await tab.has_said("First question", "Second question")
        assert len(home.anthropic.requests) == 5

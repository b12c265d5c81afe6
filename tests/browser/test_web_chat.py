"""The web chat as a person has it: a message, an answer that grows, the tools on the way, and all of it there tomorrow."""

import asyncio
import os
import re
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.house import house
from tests.browser.tab import visitor
from tests.emulators.models.script import Fault, calls, says

TALE = "Good morning. Here is how an answer grows: a few words at a time, until the very last one."
SNIPPET = "for name in sorted(names):\n    print(f'<{name}>')"


async def test_a_first_message_is_answered_and_the_answer_is_seen_growing(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says(TALE)]) as home, visitor(browser, home) as tab:
        home.line.hold(after_pieces=4)
        await tab.say("Hello there")
        await tab.has_said("Hello there")
        await expect(tab.draft).to_contain_text("Good morning.")
        await expect(tab.draft).not_to_contain_text("very last")
        await expect(tab.answers).to_have_count(0)
        home.line.release()
        await tab.is_answered(TALE)
        await tab.has_said("Hello there")
        await expect(tab.conversation("Hello there")).to_be_visible()
        assert re.search(r"#c_\w+$", tab.page.url)
        await expect(tab.message).to_have_value("")
        await expect(tab.message).to_be_focused()


async def test_a_model_that_is_asked_again_is_seen_to_be(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[Fault(status=529), says(TALE)]) as home, visitor(browser, home) as tab:
        home.line.hold(after_pieces=0)
        await tab.say("Hello there")
        await expect(tab.draft.get_by_role("status")).to_have_text("The model is busy right now; I am asking again.")
        home.line.release()
        await tab.is_answered(TALE)
        await expect(tab.page.get_by_text("I am asking again")).to_have_count(0)


async def test_a_tool_is_shown_while_it_runs_and_folds_away_under_the_answer(browser: Browser, tmp_path: Path) -> None:
    script = [calls(("exec", {"command": "cat gate"}), ("read", {"file_path": "nowhere.txt"})), says("It says go.")]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        gate = home.workspace() / "gate"
        gate.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(gate)
        await tab.say("What does the gate say?")
        running = tab.draft.locator('[data-tool="exec"][data-state="running"]')
        await expect(running).to_contain_text("cat gate")
        await asyncio.to_thread(gate.write_text, "go\n")
        await tab.is_answered("It says go.")
        (answer,) = await tab.answers.all()
        assert await tab.tool_states(answer) == [("exec", "done"), ("read", "failed")]
        await expect(tab.tools(answer).first).to_be_hidden()
        await answer.get_by_text("2 tools used").click()
        await expect(tab.tools(answer).first).to_be_visible()
        await expect(tab.tools(answer).nth(1)).to_contain_text("nowhere.txt")


async def test_code_is_copied_as_it_was_written(browser: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says(f"Like this:\n\n```python\n{SNIPPET}\n```\n")]) as home,
        visitor(browser, home) as tab,
    ):
        await tab.say("How do I print names?")
        await tab.is_answered("Like this:")
        await expect(tab.answers.locator("pre")).to_contain_text("print(f'<{name}>')")
        await expect(tab.answers.get_by_text("python", exact=True)).to_be_visible()
        copy = tab.answers.get_by_role("button", name="Copy", exact=True)
        await copy.click()
        await expect(tab.answers.get_by_role("button", name="Copied")).to_be_visible()
        assert (await tab.page.evaluate("navigator.clipboard.readText()")).rstrip("\n") == SNIPPET


async def test_a_reload_brings_the_conversation_back_with_its_tools(browser: Browser, tmp_path: Path) -> None:
    script = [calls(("write", {"file_path": "a.txt", "content": "one"})), says("**Written.**"), says("Again.")]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        await tab.say("Write a file")
        await tab.is_answered("Written.")
        await tab.say("And now?")
        await tab.is_answered("Written.", "Again.")
        place = tab.page.url
        await tab.reload()
        await tab.has_said("Write a file", "And now?")
        await tab.is_answered("Written.", "Again.")
        assert tab.page.url == place
        assert await tab.tool_states(tab.answers.first) == [("write", "done")]
        await expect(tab.answers.first.locator("strong")).to_have_text("Written.")
        assert len(home.anthropic.requests) == 3


async def test_a_reload_in_the_middle_of_an_answer_goes_on_showing_it(browser: Browser, tmp_path: Path) -> None:
    script = [calls(("ls", {})), says(TALE)]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        home.line.hold(after_pieces=4)
        await tab.say("Hello")
        await expect(tab.draft).to_contain_text("Good morning.")
        await tab.reload()
        await expect(tab.draft).to_contain_text("Good morning.")
        assert await tab.tool_states(tab.draft) == [("ls", "done")]
        home.line.release()
        await tab.is_answered(TALE)
        await tab.has_said("Hello")


async def test_two_tabs_see_the_same_and_each_thing_once(browser: Browser, tmp_path: Path) -> None:
    script = [says("To the left."), says(TALE), says("And more.")]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as left:
        await left.say("From the left")
        await left.is_answered("To the left.")
        right = await left.another()
        await right.is_answered("To the left.")
        home.line.hold(after_pieces=4)
        await right.say("From the right")
        for tab in (left, right):
            await expect(tab.draft).to_contain_text("Good morning.")
        home.line.release()
        for tab in (left, right):
            await tab.is_answered("To the left.", TALE)
            await tab.has_said("From the left", "From the right")
        await left.say("Left again")
        for tab in (left, right):
            await tab.is_answered("To the left.", TALE, "And more.")
            await tab.has_said("From the left", "From the right", "Left again")


async def test_stop_ends_the_answer_and_the_conversation_goes_on(browser: Browser, tmp_path: Path) -> None:
    endless = says(TALE, cut_after=8, then="stall")
    async with house(tmp_path, script=[endless, says("Fine.")]) as home, visitor(browser, home) as tab:
        await tab.say("Tell me everything")
        await expect(tab.draft).to_contain_text("Good morning.")
        await expect(tab.send).to_have_count(0)
        await tab.stop.click()
        await expect(tab.stop).to_have_count(0)
        await expect(tab.draft).to_have_count(0)
        await expect(tab.answers.first).to_contain_text("Good morning.")
        await home.until(lambda: home.anthropic.hangups == 1)
        await tab.say("Are you well?")
        await expect(tab.answers.last).to_contain_text("Fine.")
        await expect(tab.own.last).to_contain_text("Are you well?")
        assert len(home.anthropic.requests) == 2


async def test_a_double_click_on_send_does_not_stop_and_escape_does(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says(TALE)]) as home, visitor(browser, home) as tab:
        home.line.hold(after_pieces=4)
        await tab.message.fill("Tell me everything")
        box = await tab.send.bounding_box()
        assert box is not None
        await tab.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, delay=50)
        await expect(tab.draft).to_contain_text("Good morning.")
        await tab.has_said("Tell me everything")
        await tab.message.fill("half a word")
        await tab.message.press("Escape")
        await expect(tab.draft).to_have_count(0)
        await expect(tab.message).to_have_value("half a word")
        home.line.release()


async def test_what_is_written_during_an_answer_is_answered_after_it(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says(TALE), says("Second.")]) as home, visitor(browser, home) as tab:
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

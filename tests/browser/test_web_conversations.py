"""Several conversations: each with its own agent, found again, renamed, deleted, walked through with back and forward."""

import sqlite3
from pathlib import Path

from playwright.async_api import Browser, Locator, expect

from tests.browser.house import AGENTS, House, house
from tests.browser.tab import Tab, visitor
from tests.emulators.models.script import says

TWO_AGENTS = """
agents:
  list:
    - { id: helper, name: Helper, model: anthropic/claude-sonnet-4-6, systemPrompt: You are the helper. }
    - { id: coder, name: Coder, model: anthropic/claude-sonnet-4-6, systemPrompt: You are the coder. }
"""
GUIDE = AGENTS.replace("anthropic/claude-sonnet-4-6", "demo/guide")
LINES = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(60))


def titles(tab: Tab) -> Locator:
    return tab.conversations.get_by_role("link")


def everything_kept(home: House) -> str:
    """Whatever stands in any table of the database."""
    with sqlite3.connect(home.folder / "data" / "clawgate.db") as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for name in tables for row in database.execute(f'SELECT * FROM "{name}"')]
    return str(rows).lower()


async def test_a_new_chat_begins_with_a_welcome_and_examples_to_click(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("A lot.")]) as home, visitor(browser, home) as tab:
        await expect(tab.page.get_by_role("heading", name="Clawgate")).to_be_visible()
        await expect(tab.page.get_by_text("ANTHROPIC_API_KEY")).to_be_hidden()
        await expect(tab.page.get_by_role("combobox", name="Agent")).to_be_hidden()
        await expect(tab.message).to_be_focused()
        await tab.page.get_by_role("button", name="What can you do for me?").click()
        await tab.has_said("What can you do for me?")
        await tab.is_answered("A lot.")


async def test_without_a_key_the_demo_model_answers_and_says_how_to_set_one(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, agents=GUIDE) as home, visitor(browser, home) as tab:
        await expect(tab.page.get_by_text("set ANTHROPIC_API_KEY or OPENAI_API_KEY")).to_be_visible()
        await tab.say("Hello")
        await expect(tab.answers).to_have_count(1)
        await expect(tab.draft).to_have_count(0)
        assert home.anthropic.requests == []


async def test_each_conversation_keeps_the_agent_it_was_begun_with(browser: Browser, tmp_path: Path) -> None:
    script = [says("I help."), says("I code."), says("I still code.")]
    async with house(tmp_path, agents=TWO_AGENTS, script=script) as home, visitor(browser, home) as tab:
        picker = tab.page.get_by_role("combobox", name="Agent")
        await tab.say("To the helper")
        await tab.is_answered("I help.")
        await expect(picker).to_be_hidden()
        await tab.new_chat()
        await picker.select_option(label="Coder")
        await tab.say("To the coder")
        await tab.is_answered("I code.")
        await expect(tab.answers).to_contain_text("Coder")
        await expect(titles(tab)).to_have_text(["To the coder", "To the helper"])
        await tab.conversation("To the helper").click()
        await tab.is_answered("I help.")
        await expect(tab.answers).to_contain_text("Helper")
        await tab.conversation("To the coder").click()
        await tab.say("And now?")
        await tab.is_answered("I code.", "I still code.")
        systems = [received.body["system"][0]["text"] for received in home.anthropic.requests]
        assert ["You are the coder." in system for system in systems] == [False, True, True]
        assert len(home.anthropic.requests[-1].body["messages"]) == 3


async def test_back_and_forward_walk_through_the_conversations(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("One."), says("Two.")]) as home, visitor(browser, home) as tab:
        await tab.say("First")
        await tab.is_answered("One.")
        await tab.new_chat()
        await tab.say("Second")
        await tab.is_answered("Two.")
        await tab.page.go_back()
        await expect(tab.own).to_have_count(0)
        await tab.page.go_back()
        await tab.is_answered("One.")
        await tab.page.go_forward()
        await tab.page.go_forward()
        await tab.is_answered("Two.")
        await tab.page.goto(f"{home.url}/#c_00000000000000000000000000000000")
        tab.watch.expects("404")
        await expect(tab.page.get_by_role("heading", name="Clawgate")).to_be_visible()


async def test_a_conversation_is_renamed_and_stays_so(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("One.")]) as home, visitor(browser, home) as tab:
        await tab.say("First")
        await tab.is_answered("One.")
        other = await tab.another()
        await tab.choose("First", "Rename")
        field = tab.conversations.get_by_role("textbox")
        await field.fill("A better title")
        await field.press("Enter")
        for one in (tab, other):
            await expect(titles(one)).to_have_text(["A better title"])
        await tab.reload()
        await expect(titles(tab)).to_have_text(["A better title"])


async def test_a_deleted_conversation_is_gone_everywhere_and_forgotten(browser: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says("Swordfish, I know it now.")]) as home,
        visitor(browser, home) as tab,
    ):
        await tab.say("The word is swordfish")
        await tab.is_answered("I know it now.")
        place = tab.page.url
        other = await tab.another()
        await other.is_answered("I know it now.")
        await tab.choose("The word is swordfish", "Delete")
        await tab.page.get_by_role("button", name="Cancel").click()
        await expect(titles(tab)).to_have_count(1)
        assert "swordfish" in everything_kept(home)
        await tab.choose("The word is swordfish", "Delete")
        await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        for one in (tab, other):
            await expect(titles(one)).to_have_count(0)
            await expect(one.log).not_to_contain_text("swordfish")
        assert "swordfish" not in everything_kept(home)
        tab.watch.expects("404")
        await tab.page.goto(place)
        await tab.reload()
        await expect(tab.page.get_by_role("heading", name="Clawgate")).to_be_visible()
        await expect(tab.own).to_have_count(0)


async def test_what_is_half_written_waits_in_its_own_conversation(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("One.")]) as home, visitor(browser, home) as tab:
        await tab.say("First")
        await tab.is_answered("One.")
        await tab.message.fill("Half a thou")
        await tab.new_chat()
        await expect(tab.message).to_have_value("")
        await tab.message.fill("Another half")
        await tab.conversation("First").click()
        await expect(tab.message).to_have_value("Half a thou")
        await tab.reload()
        await expect(tab.message).to_have_value("Half a thou")
        await tab.new_chat()
        await expect(tab.message).to_have_value("Another half")


async def test_a_long_conversation_is_read_from_its_end_and_older_messages_come_when_scrolled_to(
    browser: Browser, tmp_path: Path
) -> None:
    script = [says(f"Answer {number}.") for number in range(30)]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        for number in range(30):
            await tab.say(f"Question {number}.")
            await expect(tab.answers).to_have_count(number + 1)
        await tab.reload()
        await expect(tab.own).to_have_count(25)
        await expect(tab.own.last).to_be_in_viewport()
        await tab.own.first.scroll_into_view_if_needed()
        await expect(tab.own).to_have_count(30)
        await expect(tab.own.first).to_contain_text("Question 0.")


async def test_who_reads_above_is_not_pulled_down_by_a_new_answer(browser: Browser, tmp_path: Path) -> None:
    script = [says(LINES), says("The newest answer.")]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        await tab.say("Tell me a lot")
        await tab.is_answered("Paragraph 59")
        end = tab.answers.first.get_by_text("Paragraph 59 of")
        await expect(end).to_be_in_viewport()
        other = await tab.another()
        await other.is_answered("Paragraph 59")
        await tab.own.first.scroll_into_view_if_needed()
        await expect(end).not_to_be_in_viewport()
        await other.say("And?")
        newest = tab.page.get_by_role("button", name="New", exact=True)
        await expect(newest).to_be_visible()
        await tab.is_answered("Paragraph 59", "The newest answer.")
        await expect(tab.own.first).to_be_in_viewport()
        await newest.click()
        await expect(tab.answers.last).to_be_in_viewport()
        await expect(newest).to_be_hidden()

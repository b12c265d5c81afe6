"""Several conversations: each with its own agent, found again, renamed, deleted, walked through with back and forward."""

from playwright.async_api import Locator, expect

from tests.browser.house import AGENTS, remembered
from tests.browser.tab import TWO_AGENTS, Tab, Visit
from tests.emulators.models.script import says


def titles(tab: Tab) -> Locator:
    return tab.conversations.get_by_role("link")


async def test_page_examples_drafts_and_history_navigation(
    visit: Visit,
) -> None:
    async with visit(says("A lot."), says("Two.")) as (home, tab):
        welcome = tab.page.get_by_role("heading", name="Clawgate")
        await expect(welcome).to_be_visible()
        await expect(tab.page.get_by_text("ANTHROPIC_API_KEY")).to_be_hidden()
        await expect(tab.page.get_by_role("combobox", name="Agent")).to_be_hidden()
        await expect(tab.message).to_be_focused()
        await tab.page.get_by_role("button", name="What can you do for me?").click()
        await tab.has_said("What can you do for me?")
        await tab.is_answered("A lot.")

        await tab.message.fill("Half a thou")
        await tab.new_chat()
        await expect(tab.message).to_have_value("")
        await tab.message.fill("Another half")
        await tab.conversation("What can you do for me?").click()
        await expect(tab.message).to_have_value("Half a thou")
        await tab.reload()
        await expect(tab.message).to_have_value("Half a thou")
        await tab.new_chat()
        await expect(tab.message).to_have_value("Another half")

        await tab.ask("Second", "Two.")
        await tab.page.go_back()
        await expect(tab.own).to_have_count(0)
        await tab.page.go_back()
        await tab.is_answered("A lot.")
        await tab.page.go_forward()
        await tab.page.go_forward()
        await tab.is_answered("Two.")
        tab.watch.expects("404")
        await tab.page.goto(f"{home.url}/#c_00000000000000000000000000000000")
        await expect(welcome).to_be_visible()


async def test_page_demo_model_answers_without_a_key(visit: Visit) -> None:
    agents = AGENTS.replace("anthropic/claude-sonnet-4-6", "demo/guide").replace(", exec]", "]")
    async with visit(agents=agents) as (home, tab):
        await expect(tab.page.get_by_text("set ANTHROPIC_API_KEY or OPENAI_API_KEY")).to_be_visible()
        await tab.ask("Hello", "")
        assert home.anthropic.requests == []
        await expect(tab.page.get_by_role("dialog", name="Sign in")).to_be_hidden()
        await expect(tab.page.get_by_role("button", name="Sign out")).to_be_hidden()


async def test_page_conversation_keeps_its_agent(visit: Visit) -> None:
    script = [says(it) for it in ("I help.", "I code.", "I still code.", "I help anew.")]
    async with visit(*script, agents=TWO_AGENTS) as (home, tab):
        picker = tab.page.get_by_role("combobox", name="Agent")
        await tab.ask("To the helper", "I help.")
        await expect(picker).to_be_hidden()
        await tab.new_chat()
        await picker.select_option(label="Coder")
        await tab.ask("To the coder", "I code.")
        await expect(tab.answers).to_contain_text("Coder")
        await expect(titles(tab)).to_have_text(["To the coder", "To the helper"])
        await tab.conversation("To the helper").click()
        await tab.is_answered("I help.")
        await expect(tab.answers).to_contain_text("Helper")
        await tab.conversation("To the coder").click()
        await tab.is_answered("I code.")
        await tab.ask("And now?", "I code.", "I still code.")
        systems = [received.body["system"][0]["text"] for received in home.anthropic.requests]
        assert ["You are the coder." in system for system in systems] == [False, True, True]
        assert len(home.anthropic.requests[-1].body["messages"]) == 3

        await tab.page.get_by_role("button", name="Agent: Coder").click()
        await tab.page.get_by_role("menuitem", name="New chat with Helper").click()
        await expect(picker).to_have_value("helper")
        await tab.ask("Sort", "I help anew.")
        await expect(tab.page.get_by_role("button", name="Agent: Helper")).to_be_visible()


async def test_page_conversation_rename_and_delete(visit: Visit) -> None:
    async with visit(says("Swordfish, I know it now.")) as (_, tab):
        await tab.ask("The word is swordfish", "I know it now.")
        place = tab.page.url
        other = await tab.another()
        await other.is_answered("I know it now.")
        await tab.choose("The word is swordfish", "Rename")
        field = tab.conversations.get_by_role("textbox")
        await field.fill("A better title")
        await field.press("Enter")
        for one in (tab, other):
            await expect(titles(one)).to_have_text(["A better title"])
        await tab.reload()
        await expect(titles(tab)).to_have_text(["A better title"])

        await tab.choose("A better title", "Delete")
        await tab.page.get_by_role("button", name="Cancel").click()
        await expect(titles(tab)).to_have_count(1)
        await tab.choose("A better title", "Delete")
        await tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        for one in (tab, other):
            await expect(titles(one)).to_have_count(0)
            await expect(one.log).not_to_contain_text("swordfish")
        tab.watch.expects("404")
        await tab.page.goto(place)
        await tab.reload()
        await expect(tab.page.get_by_role("heading", name="Clawgate")).to_be_visible()
        await expect(tab.own).to_have_count(0)


async def test_page_long_conversation_opens_at_its_end(visit: Visit) -> None:
    async with visit(says("The answer."), says("The newest.")) as (home, tab):
        await remembered(home, 59, chat="c_of_a_long_time", text="Question no{}.")
        await tab.page.goto(f"{home.url}/#c_of_a_long_time")
        await expect(tab.own.last).to_contain_text("Question no58.")
        await tab.ask("What is it?", "The answer.")
        await expect(tab.answers.last).to_be_in_viewport()
        await tab.reload()
        await expect(tab.own).to_have_count(49)
        await expect(tab.answers.last).to_be_in_viewport()
        await tab.own.first.scroll_into_view_if_needed()
        await expect(tab.own).to_have_count(60)
        await expect(tab.own.first).to_contain_text("Question no0.")

        other = await tab.another()
        await expect(other.answers.last).to_contain_text("The answer.")
        await tab.own.first.scroll_into_view_if_needed()
        await expect(tab.answers.last).not_to_be_in_viewport()
        await other.say("And?")
        newest = tab.page.get_by_role("button", name="New", exact=True)
        await expect(newest).to_be_visible()
        await expect(tab.answers.last).to_contain_text("The newest.")
        await expect(tab.own.first).to_be_in_viewport()
        await newest.click()
        await expect(tab.answers.last).to_be_in_viewport()
        await expect(newest).to_be_hidden()

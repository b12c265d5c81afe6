"""The model, its thinking and the agent in the head of the page: shown, chosen, and set by the commands."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import LIST, LOOKS, Looks, wrong
from tests.browser.tab import Visit
from tests.emulators.models.script import says

TWO_MODELS = """
agents:
  list:
    - { id: helper, name: Helper, model: [anthropic/claude-sonnet-4-6, anthropic/claude-opus-4-6] }
"""


async def test_page_model_menu_is_accessible(
    visit: Visit,
) -> None:
    async with visit(says("One."), says("Two."), agents=TWO_MODELS) as (home, tab):
        model = tab.page.get_by_role("button", name="Model: claude-sonnet-4-6")
        await tab.ask("Hello", "One.")
        await model.focus()
        await model.press("Enter")
        menu = tab.page.get_by_role("menu")
        own = menu.get_by_role("menuitemradio", name="anthropic/claude-sonnet-4-6 · the agent's own", checked=True)
        await expect(own).to_be_focused()
        await tab.page.keyboard.press("ArrowDown")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("button", name="Model: claude-opus-4-6")).to_be_visible()
        note = "anthropic/claude-opus-4-6 answers from your next message until /new."
        await expect(tab.log.get_by_text(note)).to_be_visible()
        await tab.is_answered("One.")
        await tab.has_said("Hello")
        await tab.ask("More", "One.", "Two.")
        assert home.anthropic.requests[-1].body["model"] == "claude-opus-4-6"
        await tab.reload()
        await expect(tab.log.get_by_text(note)).to_be_visible()
        await tab.page.get_by_role("button", name="Model: claude-opus-4-6").click()
        await menu.get_by_role("menuitemradio", name="the agent's own").click()
        await expect(model).to_be_visible()
        await expect(tab.log.get_by_text("Back to the agent's own model")).to_be_visible()


async def test_page_new_chat_keeps_chosen_model_and_thinking(
    visit: Visit,
) -> None:
    async with visit(says("One."), agents=TWO_MODELS) as (home, tab):
        await tab.page.get_by_role("button", name="Model: claude-sonnet-4-6").click()
        await tab.page.get_by_role("menuitemradio", name="anthropic/claude-opus-4-6").click()
        await expect(tab.page.get_by_role("button", name="Model: claude-opus-4-6")).to_be_visible()
        await tab.page.get_by_role("button", name="Thinking", exact=True).click()
        await tab.page.get_by_role("menuitemradio", name="Thinking: high", exact=True).click()
        await expect(tab.page.get_by_role("button", name="Thinking: high")).to_be_visible()
        await tab.ask("A heron", "One.")
        await expect(tab.conversations.get_by_role("link")).to_have_text(["A heron"])
        request = home.anthropic.requests[-1].body
        assert request["model"] == "claude-opus-4-6"
        assert "thinking" in request


async def test_page_offers_no_choice_where_a_command_is_closed(visit: Visit) -> None:
    off = "commands: { model: off, think: off }"
    async with visit(says("One."), agents=TWO_MODELS, more=off) as (_, tab):
        name = tab.page.locator("#model-name")
        await expect(name).to_have_text("claude-sonnet-4-6")
        await expect(tab.page.locator("#choices button")).to_have_count(0)
        await tab.say("/model opus")
        await expect(tab.log.get_by_text("/model is switched off here.")).to_be_visible()
        await expect(name).to_have_text("claude-sonnet-4-6")


@pytest.mark.parametrize("looks", LOOKS)
async def test_no_rule_of_axe_is_broken_while_one_chooses(visit: Visit, looks: Looks) -> None:
    async with visit(says("One."), agents=TWO_MODELS) as (_, tab):
        await tab.page.get_by_role("button", name="Model: claude-sonnet-4-6").click()
        assert await wrong(tab, looks, beside=LIST) == []
        await tab.page.get_by_role("menuitemradio", name="anthropic/claude-opus-4-6").click()
        await tab.ask("Hello", "One.")
        assert await wrong(tab, looks, beside=LIST) == []
        await tab.page.get_by_role("button", name="Thinking", exact=True).click()
        assert await wrong(tab, looks, beside=LIST) == []

"""The settings of the page: how this browser shows it, what holds in the chat, a person's notes, and who is signed in."""

from itertools import cycle

import pytest
from playwright.async_api import Locator, expect

from tests.browser.house import TOKEN
from tests.browser.tab import Tab, Visit
from tests.browser.test_web_choices import TWO_MODELS
from tests.emulators.models.script import says

OPEN = f"server: {{ adminToken: {TOKEN} }}"


async def settings(tab: Tab) -> Locator:
    """Opened by the keys, from a place that no id names."""
    await tab.page.evaluate("document.activeElement.blur()")
    await tab.page.keyboard.press("Control+Comma")
    dialog = tab.page.get_by_role("dialog", name="Settings")
    await expect(dialog).to_be_visible()
    return dialog


async def test_page_display_settings_are_remembered(visit: Visit) -> None:
    async with visit(says("One."), says("Two."), color_scheme="light") as (_, tab):
        html, keys = tab.page.locator("html"), tab.page.keyboard
        await tab.page.get_by_role("button", name="Settings").click()
        dialog = tab.page.get_by_role("dialog", name="Settings")
        await dialog.get_by_label("Theme").select_option("Dark")
        await expect(html).to_have_attribute("data-theme", "dark")
        normal = await html.evaluate("(it) => getComputedStyle(it).fontSize")
        await dialog.get_by_label("Text size").select_option("Larger")
        await expect(html).not_to_have_css("font-size", normal)
        assert await tab.sticking_out() == []
        await dialog.get_by_role("switch", name="Enter sends").uncheck()
        await dialog.get_by_label("Language").focus()
        await dialog.get_by_label("Language").select_option("中文")
        await expect(html).to_have_attribute("lang", "zh-CN")
        dialog = tab.page.get_by_role("dialog", name="设置")
        await expect(dialog.get_by_label("语言")).to_be_focused()
        await dialog.get_by_label("语言").select_option("English")
        await tab.reload()
        await expect(html).to_have_attribute("data-theme", "dark")
        await expect(html).not_to_have_css("font-size", normal)

        await tab.message.fill("One")
        await tab.message.press("Enter")
        await keys.type("line more")
        await expect(tab.message).to_have_value("One\nline more")
        await tab.message.press("Control+Enter")
        await tab.is_answered("One.")
        await (await settings(tab)).get_by_role("switch", name="Enter sends").check()
        await keys.press("Escape")
        await tab.ask("Two", "One.", "Two.")


async def test_page_chat_settings_are_set_by_commands(visit: Visit) -> None:
    async with visit(says("One."), says("Two."), agents=TWO_MODELS) as (home, tab):
        await tab.ask("Hello", "One.")
        dialog = await settings(tab)
        await expect(dialog.get_by_role("heading", name="In this chat: Hello")).to_be_visible()
        await dialog.get_by_label("Model").select_option("anthropic/claude-opus-4-6")
        await expect(tab.page.locator("#model-name")).to_have_text("claude-opus-4-6")
        await dialog.get_by_label("Thinking").select_option("high")
        await expect(tab.page.locator("#thinking-level")).to_have_text("Thinking: high")
        await dialog.get_by_role("switch", name="Show the reasoning").check()
        await expect(tab.log.get_by_text("I will show the model's reasoning above its answers.")).to_be_visible()
        await expect(dialog.get_by_role("switch", name="Show the reasoning")).to_be_focused()
        await expect(dialog.get_by_label("Model")).to_have_value("1")
        await tab.page.keyboard.press("Escape")
        await tab.ask("More", "One.", "Two.")
        await tab.has_said("Hello", "More")
        assert home.anthropic.requests[-1].body["model"] == "claude-opus-4-6"
        assert "thinking" in home.anthropic.requests[-1].body


async def test_page_notes_are_managed_in_settings(
    visit: Visit,
) -> None:
    async with visit(says("One."), says("Two."), agents=TWO_MODELS) as (home, tab):
        await tab.say("/remember I work in <b>Shanghai</b>")
        await expect(tab.answers).to_contain_text("Noted as number 1.")
        dialog = await settings(tab)
        items, field = dialog.locator(".notes li"), dialog.get_by_placeholder("Such as")
        await expect(items).to_contain_text(["I work in <b>Shanghai</b>"])
        await field.fill("Answer\nbriefly")
        await dialog.get_by_role("button", name="Add a note").dblclick()
        await expect(items).to_have_count(2)
        await expect(field).to_be_focused()
        await expect(field).to_have_value("")
        await items.first.get_by_role("button", name="Edit").click()
        await tab.page.keyboard.press("Control+a")
        await tab.page.keyboard.type("I work in Ulm")
        await dialog.get_by_role("button", name="Save").click()
        await expect(items).to_contain_text(["I work in Ulm", "Answer\nbriefly"])
        await tab.page.keyboard.press("Escape")
        await tab.say("Hello")
        await tab.is_answered("Noted", "One.")
        told = str(home.last_sent())
        assert "how to answer them (untrusted metadata)" in told
        assert "I work in Ulm" in told
        assert "Answer\\\\nbriefly" in told
        assert "Shanghai" not in told

        dialog = await settings(tab)
        await items.first.get_by_role("button", name="Delete").click()
        asked = tab.page.get_by_role("dialog", name="Delete this note?")
        await expect(asked).to_contain_text("I work in Ulm")
        await asked.get_by_role("button", name="Delete").click()
        await expect(items).to_have_count(1)
        await tab.page.keyboard.press("Escape")
        await tab.say("Again")
        await tab.is_answered("Noted", "One.", "Two.")
        assert "Ulm" not in str(home.last_sent())


async def test_a_note_in_the_making_outlives_a_change_above_it(visit: Visit) -> None:
    async with visit(agents=TWO_MODELS) as (_, tab):
        dialog = await settings(tab)
        field = dialog.get_by_placeholder("Such as")
        await field.fill("Half a no")
        await dialog.get_by_label("Text size").select_option("Large")
        await dialog.get_by_label("Model").select_option("anthropic/claude-opus-4-6")
        await expect(tab.page.locator("#model-name")).to_have_text("claude-opus-4-6")
        await expect(field).to_have_value("Half a no")


@pytest.mark.parametrize("closed", [("off", "owner"), pytest.param(("owner", "off"), marks=pytest.mark.long)])
async def test_where_the_commands_are_closed_nothing_of_the_chat_can_be_set(
    visit: Visit, closed: tuple[str, str]
) -> None:
    names = ("model", "think", "reasoning", "remember")
    each = ", ".join(f"{name}: {it}" for name, it in zip(names, cycle(closed), strict=False))
    more = f"commands: {{ {each} }}\nowners: ['feishu:ou_a']"
    async with visit(says("One."), agents=TWO_MODELS, more=more) as (_, tab):
        await tab.ask("Hello", "One.")
        dialog = await settings(tab)
        await expect(dialog.get_by_label("Theme")).to_be_visible()
        await expect(dialog.get_by_label("Model")).to_be_disabled()
        for name in ("Thinking", "Show the reasoning"):
            await expect(dialog.get_by_label(name)).to_have_count(0)
        await expect(dialog.locator(".notes")).to_have_count(0)


async def test_the_account_says_who_is_signed_in_and_signs_out(visit: Visit) -> None:
    async with visit(says("One."), more=OPEN) as (_, tab):
        await tab.ask("Hello", "One.")
        dialog = await settings(tab)
        await expect(dialog.get_by_text("Signed in as Operator")).to_be_visible()
        await dialog.get_by_role("button", name="Sign out").click()
        await expect(tab.page.get_by_role("dialog", name="Sign in")).to_be_visible()
        await expect(dialog).to_be_hidden()

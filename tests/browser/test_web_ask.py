"""A question with choices on the page: boxes and a text field, sent once, and replaced by the answer."""

from playwright.async_api import expect

from tests.browser.axe import RULES
from tests.browser.tab import Visit
from tests.emulators.models.script import calls, says
from tests.running import AGENTS

ASKING = AGENTS.replace("exec, message", "ask")
FRUIT = {"question": "Which fruit?", "options": ["Apple", "<b>Banana</b>", "樱桃"], "many": True, "free": True}


async def test_page_form_of_a_question_is_filled_and_sent(visit: Visit) -> None:
    script = (calls(("ask", FRUIT)), says("__SILENT__"), says("A good mix."))
    async with visit(*script, agents=ASKING) as (_, tab):
        await tab.say("Choose")
        form = tab.answers.locator("form")
        async for _moment in tab.at_once_and_after_a_reload():
            await expect(form.get_by_role("checkbox")).to_have_count(3)
            await expect(form.locator("label").nth(1)).to_have_text(" <b>Banana</b>")
        await form.get_by_label("樱桃").check()
        await form.get_by_label("Apple").check()
        await form.get_by_label("Your own answer").fill("figs")
        await form.get_by_role("button", name="Send").click()
        await expect(tab.log.get_by_text("A good mix.")).to_be_visible()
        await expect(form).to_have_count(0)
        await expect(tab.log.get_by_text("Apple, 樱桃, figs")).to_be_visible()


async def test_page_form_of_a_question_breaks_no_rule_of_axe(visit: Visit) -> None:
    async with visit(calls(("ask", FRUIT)), says("__SILENT__"), agents=ASKING) as (_, tab):
        await tab.say("Choose")
        await expect(tab.answers.locator("form")).to_be_visible()
        assert await tab.page.evaluate(RULES) == []

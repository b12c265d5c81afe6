"""Other versions of a message: any own one edited, any answer asked for again, and a way back to each."""

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.axe import LIST, LOOKS, Looks, wrong
from tests.browser.house import House
from tests.browser.tab import Tab, Visit
from tests.emulators.models.script import says


def said(home: House) -> list[str]:
    """Everybody's words in the last request to the model, without what the gateway puts before them."""
    messages = home.anthropic.requests[-1].body["messages"]
    parts = [it["content"] if isinstance(it["content"], list) else [{"text": it["content"]}] for it in messages]
    return [part["text"].rpartition("\n")[2].removeprefix("User: ") for it in parts for part in it if "text" in part]


def own(tab: Tab, words: str) -> Locator:
    return tab.own.filter(has=tab.page.get_by_text(words, exact=True))


async def edit(tab: Tab, before: str, now: str) -> None:
    await own(tab, before).get_by_role("button", name="Edit").click()
    field = tab.page.get_by_role("textbox", name="Other words for your message")
    await expect(field).to_have_value(before)
    await field.fill(now)
    await field.press("Enter")


def version(page: Page, at: int, count: int) -> Locator:
    return page.get_by_role("group", name=f"Version {at} of {count}")


async def test_page_edit_of_the_first_message_keeps_both_branches(visit: Visit) -> None:
    script = [says(it) for it in ("One.", "Two.", "Three.", "Other one.", "Other two.", "Four.")]
    async with visit(*script) as (home, tab):
        tab.watch.expects("Failed to load resource", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION")  # it is restarted
        for words, answers in (("a", ["One."]), ("b", ["One.", "Two."]), ("c", ["One.", "Two.", "Three."])):
            await tab.ask(words, *answers)
        await edit(tab, "a", "A")
        await tab.is_answered("Other one.")
        await tab.has_said("A")
        assert said(home) == ["A"]
        await tab.ask("B", "Other one.", "Other two.")
        assert said(home) == ["A", "Other one.", "B"]

        second = await tab.another()
        for it in (tab, second):
            await it.is_answered("Other one.", "Other two.")
            await expect(version(it.page, 2, 2)).to_have_count(1)
        await version(tab.page, 2, 2).get_by_role("button", name="Previous version").click()
        for it in (tab, second):
            await it.is_answered("One.", "Two.", "Three.")
            await it.has_said("a", "b", "c")
        await expect(version(tab.page, 1, 2).get_by_role("button", name="Next version")).to_be_focused()
        await home.down()
        await home.up()
        await tab.reload()
        await tab.is_answered("One.", "Two.", "Three.")
        await tab.ask("d", "One.", "Two.", "Three.", "Four.")
        assert said(home) == ["a", "One.", "b", "Two.", "c", "Three.", "d"]
        await version(tab.page, 1, 2).get_by_role("button", name="Next version").press("Enter")
        await tab.is_answered("Other one.", "Other two.")
        await tab.reload()
        await tab.has_said("A", "B")


async def test_an_older_answer_is_asked_for_again_with_what_came_before_it_alone(visit: Visit) -> None:
    script = [says(it) for it in ("One.", "Two.", "Three.", "Two again.", "On.")]
    async with visit(*script) as (home, tab):
        for words, answers in (("a", ["One."]), ("b", ["One.", "Two."]), ("c", ["One.", "Two.", "Three."])):
            await tab.ask(words, *answers)
        await tab.answers.nth(1).get_by_role("button", name="Answer again").click()
        await tab.is_answered("One.", "Two again.")
        await tab.has_said("a", "b")
        assert said(home) == ["a", "One.", "b"]
        await tab.ask("d", "One.", "Two again.", "On.")
        assert said(home) == ["a", "One.", "b", "Two again.", "d"]
        await version(tab.page, 2, 2).get_by_role("button", name="Previous version").click()
        await tab.is_answered("One.", "Two.", "Three.")


async def test_an_edit_stops_the_answer_that_is_under_way_and_keeps_what_it_said(visit: Visit) -> None:
    plan = {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"the plan"}
    async with visit(says("One heron lands."), says("Other.")) as (home, tab):
        await tab.attach(plan)
        home.line.hold(after_pieces=1)
        await tab.say("a")
        await expect(tab.draft).to_contain_text("One")
        home.line.hold(after_pieces=10**6)
        await edit(tab, "a", "A")
        await tab.is_answered("Other.")
        await tab.has_said("A")
        await expect(tab.own.get_by_text("plan.txt")).to_be_visible()
        assert said(home)[-1] == "A" or "plan.txt" in str(home.last_sent())
        assert "One" not in str(home.anthropic.requests[-1].body["messages"])
        await version(tab.page, 2, 2).get_by_role("button", name="Previous version").click()
        await expect(own(tab, "a")).to_be_visible()
        await expect(tab.answers.first).to_contain_text("One")


async def test_what_is_found_on_another_branch_is_opened_there(visit: Visit) -> None:
    async with visit(says("The heron lands."), says("Other.")) as (_, tab):
        await tab.ask("a", "The heron lands.")
        await edit(tab, "a", "A")
        await tab.is_answered("Other.")
        search = tab.page.get_by_role("searchbox", name="Search conversations")
        await search.fill("heron")
        await tab.page.locator("#conversations .hit").click()
        await tab.is_answered("The heron lands.")
        await expect(tab.log.locator(".sought")).to_contain_text("The heron lands.")
        await expect(version(tab.page, 1, 2)).to_have_count(1)


@pytest.mark.parametrize("looks", LOOKS)
async def test_no_rule_of_axe_is_broken_by_the_versions_and_while_one_edits(visit: Visit, looks: Looks) -> None:
    long = "heron" * 40
    async with visit(says("One."), says("Other.")) as (_, tab):
        await tab.ask(long, "One.")
        await edit(tab, long, f"{long}!")
        await tab.is_answered("Other.")
        await expect(version(tab.page, 2, 2)).to_be_visible()
        assert await wrong(tab, looks, beside=LIST) == []
        await version(tab.page, 2, 2).get_by_role("button", name="Previous version").click()
        await tab.is_answered("One.")
        await expect(version(tab.page, 1, 2)).to_be_visible()
        assert await wrong(tab, looks, beside=LIST) == []
        await own(tab, long).get_by_role("button", name="Edit").click()
        await expect(tab.page.get_by_role("textbox", name="Other words for your message")).to_be_visible()
        assert await wrong(tab, looks, beside=LIST) == []

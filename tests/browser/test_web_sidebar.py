"""The list of chats in daily use: found by their lines, pinned, put aside, chosen together, walked through by keys."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.browser.axe import DIAGONAL, OTHERS, WIDTHS, Look, wrong
from tests.browser.house import house, remembered
from tests.browser.tab import TWO_AGENTS, Tab, Visit, visitor
from tests.browser.test_web_keys import walk
from tests.browser.test_web_settings import OPEN
from tests.browser.test_web_tools import MISS
from tests.emulators.models.script import says

HOSTILE = "<img src=x onerror=alert(1)> heron"
RECORD = """
const made = (window.noticesMade = []);
window.Notification = class extends Notification {
    constructor(title, options) { super(title, options); made.push([title, options.body]); }
};
Object.defineProperty(document, "hidden", { get: () => window.looksAway === true });
"""

RING_OUTSIDE = """(it) => {
    const { outlineOffset, outlineWidth, outlineStyle } = getComputedStyle(it);
    const room = it.getBoundingClientRect().top - it.closest(".conversations").getBoundingClientRect().top;
    return outlineStyle === "none" ? 99 : parseFloat(outlineOffset) + parseFloat(outlineWidth) - room;
}"""
"""How many pixels of the focus ring are cut off at the top."""


def links(tab: Tab) -> Locator:
    return tab.page.locator("#conversations .chat-link")


def search(tab: Tab) -> Locator:
    return tab.page.get_by_role("searchbox", name="Search conversations")


async def test_page_search_hit_opens_and_marks_the_message(
    visit: Visit,
) -> None:
    async with visit() as (home, tab):
        await remembered(home, 5, chat="c_of_the_heron_1", text=HOSTILE + " {}")
        await remembered(home, 120, chat="c_of_a_long_time", text="Question no{}.")
        await tab.reload()
        await search(tab).fill("question no17.")
        hits = tab.page.locator("#conversations .hit")
        await expect(hits).to_have_text(["Question no17."])
        await expect(hits.locator("mark")).to_have_text(["Question", "no17."])
        await expect(tab.page.get_by_role("status").filter(has_text="Found in 1 chat.")).to_be_visible()
        await hits.click()
        found = tab.log.locator(".sought")
        await expect(found).to_contain_text("Question no17.")
        await expect(found).to_be_in_viewport()
        await expect(found).to_be_focused()
        assert await tab.page.evaluate("CSS.highlights.get('sought').size") == 2
        await expect(tab.own.last).to_contain_text("Question no119.")
        assert re.search(r"#c_of_a_long_time/\d+$", tab.page.url)
        await tab.reload()
        await expect(found).to_be_in_viewport()

        await search(tab).fill("HERON img")
        await expect(hits).to_have_count(3)
        await expect(hits.first).to_have_text(f"{HOSTILE} 4")
        await expect(tab.page.locator("#conversations img")).to_have_count(0)
        await search(tab).press("Escape")
        await expect(hits).to_have_count(0)


async def test_page_sidebar_pins_archives_and_bulk_deletes(visit: Visit) -> None:
    async with visit(says("Again.")) as (home, tab):
        await remembered(home, 4)
        await tab.reload()
        other = await tab.another()
        headings = tab.page.locator("#conversations").get_by_role("heading")
        await tab.choose("Question 0.", "Pin")
        for one in (tab, other):
            await expect(links(one)).to_have_text(["Question 0.", "Question 3.", "Question 2.", "Question 1."])
        await expect(headings.first).to_have_text("Pinned")
        await tab.choose("Question 3.", "Archive")
        await expect(links(tab)).to_have_text(["Question 0.", "Question 2.", "Question 1."])
        archive = tab.page.get_by_role("button", name="Archived (1)")
        await expect(other.page.get_by_role("button", name="Archived (1)")).to_be_visible()
        await search(tab).fill("question 3")
        await expect(links(tab)).to_have_text(["Question 3."])
        await search(tab).press("Escape")

        await tab.page.get_by_role("button", name="Options of the list").click()
        await tab.page.get_by_role("menuitem", name="Choose several").click()
        for name in ("Question 1.", "Question 2."):
            await tab.page.get_by_role("checkbox", name=name).check()
        await expect(tab.page.get_by_text("2 chosen")).to_be_visible()
        bulk = tab.page.get_by_role("toolbar", name="Choose several")
        await bulk.get_by_role("button", name="Archive").click()
        await expect(links(tab)).to_have_text(["Question 0."])
        await tab.reload()
        await expect(links(tab)).to_have_text(["Question 0."])
        await tab.page.get_by_role("button", name="Archived (3)").click()
        await expect(links(tab)).to_have_text(["Question 3.", "Question 2.", "Question 1."])
        await links(tab).first.click()
        await tab.has_said("Question 3.")
        await tab.ask("Back to it", "Again.")
        await expect(archive).to_be_hidden()
        await tab.page.get_by_role("button", name="All chats").click()
        await expect(links(tab)).to_have_text(["Question 0.", "Question 3."])

        await tab.page.get_by_role("button", name="Archived (2)").click()
        await tab.page.get_by_role("button", name="Options of the list").click()
        await tab.page.get_by_role("menuitem", name="Choose several").click()
        for name in ("Question 1.", "Question 2."):
            await tab.page.get_by_role("checkbox", name=name).check()
        await bulk.get_by_role("button", name="Delete").click()
        dialog = tab.page.get_by_role("dialog", name="Delete the chosen conversations?")
        await expect(dialog).to_contain_text("2 conversations")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(tab.page.get_by_text("Nothing is archived.")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="All chats")).to_be_visible()
        archived = "fetch('api/archived').then((answer) => answer.json())"
        assert await tab.page.evaluate(archived) == {"chats": [], "next": None}


async def test_page_sidebar_groups_by_agent_or_day(visit: Visit) -> None:
    async with visit(says("One."), says("Two."), agents=TWO_AGENTS) as (_, tab):
        headings = tab.page.locator("#conversations").get_by_role("heading")
        await tab.ask("To the helper", "One.")
        await expect(headings).to_have_text(["Today"])
        await tab.new_chat()
        await tab.page.get_by_role("combobox", name="Agent").select_option(label="Coder")
        await tab.ask("To the coder", "Two.")
        await expect(headings).to_have_text(["Coder", "Helper"])
        folder = tab.page.get_by_role("button", name="Helper", exact=True)
        await folder.click()
        await expect(folder).to_have_attribute("aria-expanded", "false")
        await tab.reload()
        await expect(tab.conversation("To the coder")).to_be_visible()
        await expect(tab.conversation("To the helper")).to_be_hidden()
        await tab.page.get_by_role("button", name="Options of the list").click()
        await tab.page.get_by_role("menuitem", name="Group by day").click()
        await expect(headings).to_have_text(["Today"])
        await tab.reload()
        await expect(links(tab)).to_have_text(["To the coder", "To the helper"])


async def test_page_sidebar_is_one_tab_stop_with_arrow_keys(visit: Visit) -> None:
    async with visit() as (home, tab):
        await remembered(home, 120)
        await tab.reload()
        keys = tab.page.keyboard
        await expect(links(tab)).to_have_count(50)
        await expect(tab.page.locator('#conversations [tabindex="0"]')).to_have_count(1)
        await walk(tab, search(tab), "Shift+Tab")
        assert await search(tab).evaluate(RING_OUTSIDE) <= 0
        await keys.press("ArrowDown")
        await expect(links(tab).first).to_be_focused()
        await keys.press("Tab")
        await expect(tab.page.get_by_role("button", name="Show 50 more")).to_be_focused()
        await keys.press("Enter")
        await expect(links(tab)).to_have_count(100)
        await expect(links(tab).nth(50)).to_be_focused()
        await keys.press("ArrowUp")
        await keys.press("ArrowUp")
        await expect(links(tab).nth(48)).to_be_focused()
        await keys.press("ArrowRight")
        await expect(tab.page.get_by_role("button", name="Options", exact=True).nth(48)).to_be_focused()
        await keys.press("ArrowLeft")
        await keys.press("F2")
        await keys.type("Renamed by keys")
        await keys.press("Enter")
        await expect(links(tab).nth(48)).to_have_text("Renamed by keys")
        await expect(links(tab).nth(48)).to_be_focused()
        await keys.press("Delete")
        await expect(tab.page.get_by_role("dialog", name="Delete this conversation?")).to_be_visible()
        await keys.press("Escape")
        await keys.press("End")
        await expect(links(tab).last).to_be_focused()
        await keys.press("Home")
        await keys.press("Enter")
        await tab.has_said("Question 119.")


@pytest.mark.parametrize(("count", "page"), [(200, 60), pytest.param(1_200, 500, marks=pytest.mark.long)])
async def test_page_sidebar_scrolls_and_searches_many_chats(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, count: int, page: int
) -> None:
    for module in ("gateway.store.archive", "gateway.web.chats"):
        monkeypatch.setattr(f"{module}.CONVERSATIONS_MAX", page)
    async with visit() as (home, tab):
        await remembered(home, count, text="Question no{}.")
        await tab.reload()
        for shown in range(50, count + 1, 50):
            await expect(links(tab)).to_have_count(shown)
            await links(tab).last.evaluate("(it) => it.scrollIntoView()")
        titles = await links(tab).all_inner_texts()
        assert titles == [f"Question no{number}." for number in reversed(range(count))]
        await expect(tab.page.locator("#more-chats")).to_be_hidden()

        await tab.reload()
        await search(tab).fill("Question no7.")
        await expect(tab.page.locator("#conversations .hit")).to_have_text(["Question no7."])
        await search(tab).fill("question")
        await expect(tab.page.get_by_text("These are the newest 100 of them.")).to_be_visible()
        await search(tab).press("Escape")
        await tab.page.keyboard.press("Control+k")
        await tab.page.keyboard.type("Question no31.")
        await expect(tab.page.get_by_role("option", selected=True)).to_contain_text("Question no31.")
        await tab.page.keyboard.press("Enter")
        await tab.has_said("Question no31.")
        await home.down()
        await home.up()
        async with tab.page.expect_response("**/api/chats/c_seeded_0031"):  # it may be gone
            await expect(tab.connection).to_be_empty()
        await tab.has_said("Question no31.")


async def test_page_shortcuts_search_switch_and_start_chats(visit: Visit) -> None:
    async with visit(agents=TWO_AGENTS) as (home, tab):
        await remembered(home, 3)
        await tab.reload()
        page, keys = tab.page, tab.page.keyboard
        await expect(links(tab)).to_have_count(3)
        await expect(tab.message).to_be_focused()
        await keys.type("/a?")
        await expect(tab.message).to_have_value("/a?")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await tab.message.fill("")

        palette = page.get_by_role("dialog", name="Quick switch")
        field = palette.get_by_role("combobox", name="Find a chat or a command")
        await keys.press("Control+k")
        await expect(field).to_be_focused()
        await keys.type("quest 1")
        option = palette.get_by_role("option", selected=True)
        await expect(option).to_contain_text("Question 1.")
        assert await field.get_attribute("aria-activedescendant") == await option.get_attribute("id")
        await keys.press("Enter")
        await tab.has_said("Question 1.")
        await keys.press("Control+k")
        await keys.type("coder")
        await keys.press("Enter")
        await expect(palette).to_be_hidden()
        await expect(page.get_by_role("combobox", name="Agent")).to_have_value("coder")
        await keys.press("Control+k")
        await keys.press("ArrowUp")
        await expect(option).to_contain_text("Question 0.")
        await keys.press("Control+k")
        await expect(palette).to_be_hidden()

        await links(tab).first.click()
        await tab.has_said("Question 2.")
        await keys.press("Control+Shift+O")
        await expect(tab.own).to_have_count(0)
        await expect(tab.message).to_be_focused()
        await page.get_by_role("region", name="Conversation").focus()
        await keys.press("/")
        await expect(search(tab)).to_be_focused()
        await expect(search(tab)).to_have_value("")
        await page.get_by_role("region", name="Conversation").focus()
        await keys.press("?")
        shortcuts = page.get_by_role("dialog", name="Keyboard shortcuts")
        await expect(shortcuts).to_contain_text("Quick switch")
        await keys.press("Control+k")
        await expect(palette).to_be_hidden()
        await keys.press("Escape")
        await expect(shortcuts).to_be_hidden()
        await keys.press("Control+k")
        await keys.type("中文")
        await keys.press("Enter")
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")


async def test_the_sidebar_folds_away_and_stays_so_and_a_link_skips_it(visit: Visit) -> None:
    async with visit() as (home, tab):
        await remembered(home, 2)
        await tab.reload()
        page, keys = tab.page, tab.page.keyboard
        fold, menu = page.get_by_role("button", name="Fold the sidebar"), page.get_by_role("button", name="Menu")
        await expect(menu).to_be_hidden()
        await fold.click()
        await expect(links(tab).first).to_be_hidden()
        await expect(menu).to_be_focused()
        await tab.reload()
        await expect(menu).to_be_visible()
        await expect(links(tab).first).to_be_hidden()
        await expect(tab.message).to_be_focused()  # the page listens
        await page.get_by_role("region", name="Conversation").focus()
        await keys.press("/")
        await expect(search(tab)).to_be_focused()
        await expect(links(tab).first).to_be_visible()

        await page.evaluate("document.activeElement.blur()")
        await page.locator("body").click(position={"x": 600, "y": 300})
        skip = page.get_by_role("link", name="To the conversation")
        await skip.focus()
        await expect(skip).to_be_in_viewport()
        await keys.press("Enter")
        await expect(page.get_by_role("region", name="Conversation")).to_be_focused()
        await expect(page.get_by_role("heading", level=1)).to_have_text("New chat")


async def test_at_twice_the_size_the_sidebar_begins_folded(visit: Visit) -> None:
    async with visit(viewport={"width": 760, "height": 450}) as (_, tab):
        await expect(tab.page.get_by_role("button", name="Menu")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="New chat")).to_be_hidden()
        await tab.page.get_by_role("button", name="Menu").click()
        await expect(tab.page.get_by_role("button", name="New chat")).to_be_visible()


async def test_who_looks_away_is_told_of_an_answer_once_they_asked_for_it(windowed: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says(f"Secret {it}.") for it in range(3)]) as home,
        visitor(windowed, home, permissions=["notifications"]) as tab,
    ):
        await tab.page.context.add_init_script(RECORD)
        await tab.reload()
        switch, keys = tab.page.get_by_role("switch", name="Notifications"), tab.page.keyboard
        await tab.page.evaluate("window.looksAway = true")
        await tab.ask("What is it?", "Secret 0.")
        await keys.press("Control+Comma")
        await switch.check()
        await keys.press("Escape")
        await tab.ask("And now?", "Secret 0.", "Secret 1.")
        await tab.page.evaluate("window.looksAway = false")
        await tab.ask("Here I am", "Secret 0.", "Secret 1.", "Secret 2.")
        assert await tab.page.evaluate("window.noticesMade") == [["An answer arrived", "What is it?"]]
        await tab.reload()
        await keys.press("Control+Comma")
        await expect(switch).to_be_checked()


@pytest.mark.parametrize(
    "look", [*DIAGONAL, *(pytest.param(it, marks=pytest.mark.long) for it in OTHERS)], ids="-".join
)
async def test_no_rule_of_axe_is_broken_in_the_sidebar_and_what_opens_from_it(visit: Visit, look: Look) -> None:
    script, options = [MISS, says("It lands.")], {"viewport": WIDTHS[look.width], "color_scheme": look.scheme}
    async with visit(*script, agents=TWO_AGENTS, more=OPEN, **options) as (home, tab):
        page, keys = tab.page, tab.page.keyboard
        found: dict[str, list[str]] = {}

        async def judge(view: str) -> None:
            found[view] = await wrong(tab)

        await judge("a first page")
        await remembered(home, 60, text="The heron {}")
        await tab.ask("Another", "It lands.")
        await tab.answers.locator("summary").click()
        await tab.tools(tab.answers).first.get_by_role("button").click()
        await judge("an opened tool")
        await tab.reload()
        if look.width == "phone":
            await page.get_by_role("button", name="Menu").click()
        await expect(links(tab)).to_have_count(50)
        await judge("the list")
        await tab.choose("The heron 47", "Pin") if look.width == "desk" else None
        await search(tab).fill("heron 59")
        await expect(page.locator(".hit")).to_have_count(1)
        await judge("what was found")
        await page.locator(".hit").click()
        await expect(page.locator(".sought")).to_be_visible()
        await judge("the message that was found")
        await keys.press("Control+k")
        await judge("the quick switch")
        await keys.press("Escape")
        await tab.say("/remember Ann is allergic to nuts")
        await expect(tab.log.get_by_text("Noted as number 1.")).to_be_visible()
        await keys.press("Control+Comma")
        await expect(page.locator(".notes li")).to_have_count(1)
        await judge("the settings")
        await page.locator(".notes li").get_by_role("button", name="Edit").click()
        await judge("a note that is edited")
        await page.locator(".notes li").get_by_role("button", name="Cancel").click()
        await page.locator(".notes li").get_by_role("button", name="Delete").click()
        await judge("a question")
        await keys.press("Escape")
        await keys.press("Escape")
        await page.get_by_role("region", name="Conversation").focus()
        await keys.press("?")
        await judge("the list of keys")
        await keys.press("Escape")
        await keys.press("/")
        await search(tab).fill("heron 5")
        await expect(page.locator(".hit")).to_have_count(15)
        await page.get_by_role("button", name="Options of the list").click()
        await judge("a menu")
        await page.get_by_role("menuitem", name="Choose several").click()
        await keys.press("Space")
        await judge("choosing")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("dialog", name="Sign in")).to_be_visible()
        await judge("the sign-in")
        assert {view: it for view, it in found.items() if it} == {}

"""The operator's console: what waits for a person is decided there, and what is broken is read there, by everybody."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.app.serve import Reload
from gateway.config.load import load
from tests.browser.axe import LOOKS, Looks, wrong
from tests.browser.house import TOKEN, House, house
from tests.browser.night import AGENTS, COMMAND, HOSTILE, STRANGER, night
from tests.browser.tab import Tab, visitor
from tests.browser.test_web_health import ANN, SERVER
from tests.browser.test_web_keys import UNSEEN, announced, pressed, walk
from tests.emulators.models.script import says
from tests.running import SECRETS

ROOMS = ("now", "approvals", "people", "letters", "usage", "agents", "config")
EMPTY = {
    "now": "All is well.",
    "turns": "No turn is like that.",
    "later": "Nothing is scheduled.",
    "approvals": "No call waits for a decision.",
    "people": "Nobody waits to be let in.",
    "letters": "Nothing is undelivered.",
    "usage": "No turn used a model in this time.",
}


async def go(tab: Tab, home: House, room: str) -> None:
    """To a room, as soon as its data is there."""
    await tab.page.goto(f"{home.url}/console#{room}")
    await ready(tab.page)


async def ready(page: Page) -> None:
    await expect(page.locator("#view")).to_have_attribute("aria-busy", "false")


async def test_a_call_is_read_whole_and_allowed_by_keys_and_runs_once(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        await go(tab, home, "approvals")
        card = tab.page.get_by_role("article")
        await expect(card.locator("pre > code")).to_have_text(f"{COMMAND}\n")
        await expect(card).to_contain_text("deletes")
        await card.get_by_text("Details").click()
        await expect(card.get_by_text("SHA-256")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Approvals")).to_contain_text("1")
        await pressed(tab, card.get_by_role("button", name="Allow once"))
        await announced(tab, "Allowed once.")
        await expect(tab.page.get_by_text(EMPTY["approvals"])).to_be_visible()
        await expect(tab.page.locator("#view")).to_be_focused()
        await tab.page.goto(home.url)
        await tab.conversation("Build it anew").click()
        await expect(tab.answers.filter(has_text="✓ You allowed it once")).to_have_count(1)


async def test_console_approval_needs_an_approver(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        await go(tab, home, "approvals")
        await expect(tab.page.get_by_role("button", name="Allow once")).to_be_visible()
        config = home.gateway.config
        others = config.approvals.model_copy(update={"approvers": ("telegram:123",)})
        theirs = config.model_copy(update={"approvals": others})
        await home.gateway.apply(theirs, SECRETS, home.gateway.runtime.config_state)
        tab.watch.expects("status of 403")
        await tab.page.get_by_role("button", name="Allow once").click()
        await expect(tab.page.get_by_role("alert").filter(has_text="names others as approvers")).to_be_visible()
        await expect(tab.page.get_by_text("Decided in the chat by: telegram:123")).to_be_visible()
        await expect(tab.page.locator('#rooms a[href="#approvals"] .count')).to_have_count(0)
        await expect(tab.page.get_by_role("button", name="Allow once")).to_have_count(0)
        await home.gateway.apply(config, SECRETS, home.gateway.runtime.config_state)
        await tab.page.get_by_role("button", name="Ask again now").click()
        await tab.page.get_by_role("button", name="Deny").click()
        await expect(tab.page.get_by_text(EMPTY["approvals"])).to_be_visible()
        await tab.page.goto(home.url)
        await tab.conversation("Build it anew").click()
        await expect(tab.answers.filter(has_text="✗ You denied it")).to_have_count(1)


async def test_a_stranger_with_a_hostile_name_is_let_in_by_keys_and_hears_of_it(
    browser: Browser, tmp_path: Path
) -> None:
    async with night(browser, tmp_path) as (home, tab, telegram):
        await go(tab, home, "people")
        card = tab.page.get_by_role("article")
        shown = HOSTILE.replace("\u202e", "\\u202e")
        await expect(card.locator("bdi").first).to_have_text(shown)
        await expect(tab.page.locator("#view img, #view script")).to_have_count(0)
        await pressed(tab, card.get_by_role("button"))
        await announced(tab, "may write now.")
        await expect(tab.page.get_by_text(EMPTY["people"])).to_be_visible()
        await expect(tab.page.locator("#view")).to_be_focused()
        row = tab.page.get_by_role("row").filter(has_text=f"telegram:…{str(STRANGER)[-4:]}")
        await expect(row).to_contain_text("this page")
        await home.until(lambda: any("You are in." in it.text for it in telegram.messages))


async def test_a_broken_config_is_seen_with_its_line_until_it_is_mended(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path) as home, visitor(browser, home) as tab:
        file = tmp_path / "config.yaml"
        written = file.read_text(encoding="utf-8")
        reload = Reload(home.gateway, file, SECRETS, load(file, SECRETS), applied=lambda _: None)
        home.gateway.spawn(reload.run())
        await go(tab, home, "config")
        file.write_text(written.replace("id: helper\n", "id: helper\n      nmae: Helper\n"), encoding="utf-8")
        line = 1 + written[: written.index("id: helper\n")].count("\n") + 1
        card = tab.page.get_by_role("article")
        await expect(card).to_contain_text(f"line {line}, column 7")
        await expect(card).to_contain_text("agents.list[0].nmae")
        await expect(card).to_contain_text('did you mean "name"?')
        in_force = tab.page.get_by_role("region", name="In force")
        await expect(in_force).to_contain_text("anthropic:")
        await expect(in_force).to_contain_text("apiKey: '***'")
        assert SECRETS["ANTHROPIC_API_KEY"] not in await tab.page.content()
        await tab.page.get_by_role("link", name="Now").click()
        await expect(tab.page.get_by_text("The edited config cannot be used")).to_be_visible()
        file.write_text(written, encoding="utf-8")
        await expect(tab.page.get_by_text("All is well.")).to_be_visible()


@pytest.mark.parametrize("looks", LOOKS)
async def test_no_rule_of_axe_is_broken_in_any_room_and_nothing_sticks_out(
    browser: Browser, tmp_path: Path, looks: Looks
) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        found: dict[str, list[str]] = {}
        for room in ROOMS:
            await go(tab, home, room)
            for details in await tab.page.locator("#view details").all():
                await details.evaluate("(it) => (it.open = true)")
            found[room] = await wrong(tab, looks)
        assert {room: it for room, it in found.items() if it} == {}


async def test_only_the_operator_sees_anything_and_signs_in_here(browser: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says("Here.")], more=SERVER) as home,
        visitor(browser, home, address=f"{home.url}/console#usage") as tab,
    ):
        tab.watch.expects("status of 401", "status of 403")
        await tab.sign_in(ANN)
        await expect(tab.page.get_by_text("Sign in with server.adminToken.")).to_be_visible()
        await expect(tab.page.locator("#view")).not_to_contain_text("Tokens")
        await tab.page.locator("#view").get_by_role("button", name="Sign in").click()
        await tab.sign_in(TOKEN)
        await expect(tab.page.get_by_text(EMPTY["usage"])).to_be_visible()
        await tab.page.get_by_role("button", name="Sign out").click()
        await expect(tab.page.get_by_role("dialog", name="Sign in")).to_be_visible()
        await expect(tab.page.get_by_text(EMPTY["usage"])).to_have_count(0)


async def test_an_empty_house_says_so_in_every_room(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path) as home, visitor(browser, home) as tab:
        await expect(tab.page.get_by_role("link", name="Console")).to_be_visible()
        await tab.page.get_by_role("link", name="Console").click()
        for room, words in EMPTY.items():
            await tab.page.goto(f"{home.url}/console#{room}")
            await expect(tab.page.get_by_text(words)).to_be_visible()
            assert await wrong(tab) == [], room


async def test_console_outage_is_shown_and_recovers(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        tab.watch.expects("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "Failed to load resource")
        await go(tab, home, "letters")
        row = tab.page.get_by_role("row").filter(has_text="part-")
        await expect(row).to_be_visible()
        await home.down()
        await tab.page.get_by_role("button", name="Ask again now").click()
        await expect(tab.connection).to_have_text("Connection lost. Trying again…")
        await expect(row).to_be_visible()
        await tab.page.get_by_role("link", name="Agents").click()
        await expect(tab.connection).to_have_text("The gateway cannot be reached. Trying again…")
        await home.up()
        await expect(tab.page.get_by_role("heading", name="Helper")).to_be_visible()
        await expect(tab.connection).to_have_text("")


async def test_console_dead_letter_replay_in_chinese_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path, locale="zh-CN") as (home, tab, telegram):
        await go(tab, home, "now")
        await expect(tab.page.locator("html")).to_have_attribute("lang", "zh-CN")
        await expect(tab.page.get_by_text("一切正常。")).to_be_visible()
        await walk(tab, tab.page.locator("#rooms").get_by_role("link", name="未送达"), then="Enter")
        await expect(tab.page.get_by_role("heading", name="未送达", level=1)).to_be_visible()
        row = tab.page.get_by_role("row").filter(has_text="part-")
        await expect(row).to_contain_text("Telegram refused it (400)")
        assert not any("These words are lost." in it.text for it in telegram.messages)
        await walk(tab, row.get_by_role("button"), then="Enter")
        await expect(tab.page.get_by_text("没有未送达的内容。")).to_be_visible()
        await home.until(lambda: any("These words are lost." in it.text for it in telegram.messages))
        unseen = []
        for _ in range(16):
            await tab.page.keyboard.press("Tab")
            unseen += await tab.page.evaluate(UNSEEN)
        assert unseen == []


async def test_the_tools_of_an_agent_have_their_reasons(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, agents=AGENTS) as home, visitor(browser, home) as tab:
        await go(tab, home, "agents")
        coder = tab.page.get_by_role("article").filter(has_text="代码助手")
        await coder.get_by_text("tools, with the reasons").click()
        rows = coder.get_by_role("row")
        await expect(rows.filter(has_text="process")).to_contain_text("taken away by agents.list[1].tools.profile")
        await expect(rows.filter(has_text="web_search")).to_contain_text("tools.web.search.provider is not set")
        await expect(rows.filter(has=tab.page.get_by_text("exec", exact=True))).to_contain_text(
            "a person approves each call"
        )

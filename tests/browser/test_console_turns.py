"""The turns in the console: found, opened, and read layer by layer, whatever people have written into them."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.axe import LOOKS, WIDTHS, Looks, wrong
from tests.browser.house import house
from tests.browser.night import COMMAND, FRIEND, night
from tests.browser.tab import visitor
from tests.browser.test_console import go, ready
from tests.emulators.models.script import says
from tests.emulators.models.server import Reply

LAYERS = (
    "Event as received",
    "Message context",
    "Route",
    "System prompt",
    "Tools offered",
    "Transcript",
    "Requests to the model",
    "Tool calls",
    "Reply",
)
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnitirw"
SESSIONS = 1_000
SECONDS_MAX = 2.0
SAID = """async (count) => {
    const post = (at) => {
        const id = String(at).padStart(8, "0");
        const body = JSON.stringify({ id: `m_${id}`, chat: `c_${id}`, agent: "helper", text: `Message ${id}`, files: [] });
        const headers = { "x-clawgate": "1", "content-type": "application/json" };
        return fetch("webhooks/web/default", { method: "POST", headers, body });
    };
    for (let at = 0; at < count; at += 20) await Promise.all(Array.from({ length: 20 }, (_, it) => post(at + it)));
}"""


def layer(page: Page, title: str) -> Locator:
    return page.locator("details.layer").filter(has=page.locator("summary", has_text=title)).first


async def opened(page: Page, title: str) -> Locator:
    """The layer's content, unfolded."""
    found = layer(page, title)
    await found.locator("summary").first.click()
    return found.locator(".layer-body")


async def test_a_turn_is_found_opened_and_every_layer_of_it_is_right(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        page = tab.page
        await go(tab, home, "turns")
        await page.get_by_role("link", name="Build it anew").click()
        stages = page.get_by_role("list", name="Where the time went").get_by_role("listitem")
        await expect(stages.filter(has_text="Model")).to_have_count(2)
        await expect(stages.filter(has_text="exec")).to_have_count(1)
        await expect(stages.locator("rect")).to_have_count(await stages.count())
        body = {title: await opened(page, title) for title in LAYERS}
        await expect(body["Event as received"]).to_contain_text('"text": "Build it anew"')
        await expect(body["Message context"]).to_contain_text('"channel": "web"')
        await expect(body["Route"]).to_contain_text("first of agents.list")
        await expect(body["Tools offered"].get_by_role("row")).to_have_count(6)
        await expect(body["Transcript"]).to_contain_text("trusted metadata")
        await expect(body["Requests to the model"]).to_contain_text("anthropic/claude-sonnet-4-6")
        await expect(body["Requests to the model"]).to_contain_text("tool_use")
        await expect(body["Tool calls"]).to_contain_text(COMMAND)
        await expect(body["Tool calls"]).to_contain_text("waits for approval")
        await expect(body["Reply"]).to_contain_text("It waits for you.")
        await body["System prompt"].get_by_text("Who the assistant is").click()
        await expect(body["System prompt"]).to_contain_text("You are Helper")


async def test_the_filters_are_in_the_address_and_a_list_can_be_passed_on(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        page = tab.page
        rows = page.get_by_role("row").filter(has=page.get_by_role("link"))
        await go(tab, home, "turns")
        await expect(rows).to_have_count(2)
        await page.get_by_label("Person").fill(f"telegram:{FRIEND}")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("hello")
        await expect(page.get_by_label("Person")).to_be_focused()
        await page.reload()
        await ready(page)
        await expect(rows).to_have_count(1)
        await page.get_by_label("Person").fill("alic")
        await page.get_by_label("Words or name").fill("HELLO")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Searched 2 turns for it.")).to_be_visible()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="failed").click()
        await expect(page.get_by_text("No turn is like that.")).to_be_visible()
        await expect(page.get_by_role("button", name="failed")).to_be_focused()


async def test_console_turns_are_sifted_by_rating(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        store, page = home.gateway.runtime.store, tab.page
        rated = (await store.layers.listed(before=None, only={}))[0]
        await store.chatter.react(rated.sid, rated.turn, "web:default:local", "👎", time.time())
        await go(tab, home, "turns")
        rows = page.get_by_role("row").filter(has=page.get_by_role("link"))
        await expect(rows).to_have_count(2)
        await page.get_by_role("button", name="rated bad").click()
        await expect(rows).to_have_count(1)
        await expect(page.get_by_role("button", name="rated bad")).to_be_focused()
        await page.reload()
        await ready(page)
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="rated good").click()
        await expect(page.get_by_text("No turn is like that.")).to_be_visible()


async def test_console_turn_of_another_year_and_its_timezone(browser: Browser, tmp_path: Path) -> None:
    behind = time.time() - datetime(2024, 3, 2, 9, 41, tzinfo=UTC).timestamp()
    with_clock = house(tmp_path, script=[says("Done.")], now=lambda: time.time() - behind)
    async with with_clock as home, visitor(browser, home, timezone_id="Asia/Shanghai") as tab:
        await tab.ask("Sum up the day", "Done.")
        await expect(tab.answers.locator("time")).to_have_text("Mar 2, 2024, 05:41 PM")
        await go(tab, home, "turns")
        turn = tab.page.get_by_role("row").locator("time")
        await expect(turn).to_have_text("Mar 2, 2024, 05:41 PM")
        await expect(turn).to_have_attribute("title", re.compile(r"Saturday, March 2, 2024 at 5:41:\d\d.PM GMT\+8"))


async def test_console_turn_on_a_phone_is_a_few_lines(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path, viewport=WIDTHS["phone"]) as (home, tab, _):
        await go(tab, home, "turns")
        turn = tab.page.get_by_role("row", name="Alice")
        box = await turn.bounding_box()
        assert box is not None
        assert box["height"] < 130
        await expect(turn.locator("td", has=tab.page.locator("time"))).to_have_attribute("data-label", "When")
        await go(tab, home, "now")
        channel = tab.page.get_by_role("row", name="telegram:default")
        await expect(channel.locator('[data-label="Since"]')).to_be_visible()
        await expect(channel.locator('[data-label^="What is wrong"]')).to_be_hidden()


@pytest.mark.parametrize("looks", LOOKS)
async def test_no_rule_of_axe_is_broken_in_the_turns(browser: Browser, tmp_path: Path, looks: Looks) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        found: dict[str, list[str]] = {}
        for room in ("turns", "turns/1", "turns/99"):
            tab.watch.expects("status of 404")
            await go(tab, home, room)
            for details in await tab.page.locator("#view details").all():
                await details.evaluate("(it) => (it.open = true)")
            found[room] = await wrong(tab, looks)
        assert {room: it for room, it in found.items() if it} == {}


async def test_what_people_write_is_text(browser: Browser, tmp_path: Path) -> None:
    script: list[Reply] = [says(f"Answer {NASTY}")]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        page = tab.page
        await tab.say(NASTY)
        await tab.is_answered("Answer")
        await go(tab, home, "turns")
        await page.get_by_role("row").get_by_role("link").first.click()
        for title in LAYERS:
            if await layer(page, title).count():
                await opened(page, title)
        await expect(page.locator("#view img, #view script")).to_have_count(0)
        await expect(page.locator(".asked-text")).to_contain_text("<script>alert(1)</script>")
        await expect(page.locator(".asked-text")).to_contain_text("\\u202egnitirw")


@pytest.mark.long
async def test_a_thousand_sessions_are_quick(browser: Browser, tmp_path: Path) -> None:
    script = [says("Done.")] * SESSIONS
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        await go(tab, home, "now")
        await tab.page.evaluate(SAID, SESSIONS)
        await home.until(lambda: len(home.anthropic.requests) == SESSIONS)
        took: dict[str, float] = {}
        for room in ("now", "turns", "chats", "approvals", "people", "later", "letters", "usage", "agents", "config"):
            began = time.perf_counter()
            await go(tab, home, room)
            took[room] = round(time.perf_counter() - began, 2)
        older = tab.page.get_by_role("link", name="Older turns")
        await go(tab, home, "turns")
        for page in range(1, 11):
            began = time.perf_counter()
            await older.click()
            await expect(
                tab.page.get_by_role("row").filter(has_text=f"Message {SESSIONS - 50 * page - 1:08}")
            ).to_have_count(1)
            took[f"page {page}"] = round(time.perf_counter() - began, 2)
        began = time.perf_counter()
        await tab.page.goto(f"{home.url}/console#turns/?words=Message+00000007")
        await expect(tab.page.get_by_role("row")).to_have_count(2)
        took["search"] = round(time.perf_counter() - began, 2)
        assert all(it < SECONDS_MAX for it in took.values()), took

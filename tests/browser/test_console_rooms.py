"""Every room of the console while it loads, is refused and has lost its gateway, and a hostile command in it."""

import asyncio
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Route, expect

from tests.browser.axe import DIAGONAL, OTHERS, WIDTHS, Look, Looks, wrong
from tests.browser.night import COMMAND, SCRIPT, night
from tests.browser.test_console import ready
from tests.browser.test_console_turns import opened
from tests.emulators.models.script import calls

ROOMS = ("now", "turns", "turns/1", "chats", "approvals", "people", "later", "letters", "usage", "agents", "config")
TRYING = {"en-US": "Connection lost. Trying again…", "zh-CN": "连接已断开，正在重试…"}
AGAIN = {"en-US": "Try again", "zh-CN": "重试"}
REFUSED = {"en-US": "The database is not available.", "zh-CN": "数据库暂时不可用"}


class Gate:
    """Stands before the gateway's answers."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.then: Literal["refuse", "lose", "pass"] = "pass"
        self.spares: tuple[str, ...] = ()
        self.is_open.set()

    async def __call__(self, route: Route) -> None:
        await self.is_open.wait()
        if self.then == "pass" or (self.then == "refuse" and route.request.url.endswith(self.spares)):
            await route.continue_()
        elif self.then == "lose":
            await route.abort("connectionrefused")
        else:
            await route.fulfill(status=503, json={"error": "no", "code": "unavailable"})


@pytest.mark.parametrize(
    ("locales", "looks"),
    [(("en-US", "zh-CN"), DIAGONAL), pytest.param(("zh-CN", "en-US"), OTHERS[::-1], marks=pytest.mark.long)],
    ids=["the first in English", "the first in Chinese"],
)
async def test_each_room_says_that_it_loads_is_refused_and_is_lost(
    browser: Browser, tmp_path: Path, locales: Sequence[str], looks: Looks
) -> None:
    """The rooms are in both languages, on a phone and at a desk, in turn. While one loads or is refused, it shows what the
    first ones did, which were looked at."""
    async with night(browser, tmp_path, locale=locales[0]) as (home, tab, _):
        tab.watch.expects("status of 503", "ERR_CONNECTION_REFUSED")
        gate, page, view = Gate(), tab.page, tab.page.locator("#view")
        found, seen = dict[str, list[str]](), dict[str, str]()

        async def judge(room: str, state: str, locale: str, look: Look) -> None:
            shown = await view.inner_html()
            if state == "is lost" or seen.setdefault(f"{state} {locale}", shown) != shown or room in ROOMS[:2]:
                found[f"{room} {state}"] = await wrong(tab, (look,))

        await page.route("**/api/**", gate)
        await page.goto("about:blank")
        for room, locale, look, spared in zip(
            ROOMS, cycle(locales), cycle(looks), cycle(((), ("state",))), strict=False
        ):
            gate.spares = spared
            gate.is_open.clear()
            gate.then = "refuse"
            await page.goto(f"{home.url}/console#{room}")
            await expect(page.locator(".skeleton")).to_have_role("status")
            await expect(view).to_have_attribute("aria-busy", "true")
            await judge(room, "loads", locale, look)
            gate.is_open.set()
            await expect(view).to_contain_text(REFUSED[locale])
            await judge(room, "is refused", locale, look)
            gate.then = "pass"
            await page.get_by_role("button", name=AGAIN[locale]).press("Enter")
            await expect(page.get_by_text(REFUSED[locale])).to_have_count(0)
            await ready(page)
            shown = await view.inner_text()
            gate.then = "lose"
            await page.locator("#refresh").press("Enter")
            await expect(tab.connection).to_have_text(TRYING[locale])
            assert len(await view.inner_text()) >= len(shown) * 0.9, room
            await judge(room, "is lost", locale, look)
            await page.set_viewport_size(WIDTHS["desk"])
            await page.locator("#language").click()
        assert {state: it for state, it in found.items() if it} == {}


async def test_a_room_that_was_refused_comes_back_by_itself(browser: Browser, tmp_path: Path) -> None:
    """Though it would not have been due: nothing of it is shown."""
    async with night(browser, tmp_path) as (home, tab, _):
        tab.watch.expects("status of 503")
        gate, page, view = Gate(), tab.page, tab.page.locator("#view")
        await page.route("**/api/**", gate)
        await page.clock.install()
        await page.goto("about:blank")
        await page.goto(f"{home.url}/console#agents")
        await ready(page)
        gate.then = "refuse"
        await page.locator("#refresh").press("Enter")
        await expect(view).to_contain_text(REFUSED["en-US"])
        gate.then = "pass"
        await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 6"))
        await expect(view).not_to_contain_text(REFUSED["en-US"])
        await expect(page.locator(".skeleton")).to_have_count(0)


async def test_a_hostile_command_is_read_whole_and_as_it_is(browser: Browser, tmp_path: Path) -> None:
    hostile = f"echo '<img src=x onerror=alert(1)>' \u202e; {COMMAND}"
    script = (calls(("exec", {"command": hostile})), *SCRIPT[1:])
    async with night(browser, tmp_path, script=script) as (home, tab, _):
        await tab.page.goto(f"{home.url}/console#approvals")
        await ready(tab.page)
        shown = await tab.page.get_by_role("article").locator("pre > code").first.inner_text()
        assert "<img src=x onerror=alert(1)>" in shown
        assert COMMAND in shown
        assert "\u202e" not in shown
        await expect(tab.page.locator("#view img")).to_have_count(0)
        await tab.page.goto(f"{home.url}/console#turns/1")
        body = await opened(tab.page, "Tool calls")
        await expect(body).to_contain_text(f"'<img src=x onerror=alert(1)>' \\u202e; {COMMAND}")
        assert "\u202e" not in await body.inner_text()


async def test_people_have_their_names_and_chats_their_titles_in_every_room(browser: Browser, tmp_path: Path) -> None:
    async with night(browser, tmp_path) as (home, tab, _):
        page, view = tab.page, tab.page.locator("#view")
        for room, names in {
            "turns": ("Alice", "Build it anew"),
            "turns/1": ("this page", "Build it anew"),
            "chats": ("Alice", "Build it anew"),
            "approvals": ("User", "Build it anew"),
            "letters": ("Alice",),
            "usage/?by=person": ("Alice", "this page"),
            "usage/?by=chat": ("Alice", "Build it anew"),
        }.items():
            await page.goto(f"{home.url}/console#{room}")
            await ready(page)
            for name in names:
                await expect(view).to_contain_text(name)
        await page.goto(f"{home.url}/console#approvals")
        await expect(view.get_by_text("Build it anew")).to_have_count(1)
        await expect(view.get_by_role("article")).to_contain_text("User")
        await page.goto(f"{home.url}/console#chats")
        await page.get_by_label("Words or name").fill("alice")
        await page.keyboard.press("Enter")
        rows = page.get_by_role("row").filter(has=page.get_by_role("link"))
        await expect(rows).to_have_count(1)
        await rows.get_by_role("link", name="Alice").click()
        await expect(view.locator(".prose")).to_contain_text("hello")
        await view.get_by_role("link", name="1", exact=True).click()
        await expect(page.get_by_role("link", name="hello")).to_be_visible()

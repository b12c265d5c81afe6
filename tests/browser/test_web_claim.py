"""How the bot gets its owner: the operator reads the claim code on the page until somebody has sent it, and then who owns
the bot, as long as the page is no owner."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.axe import RULES
from tests.browser.house import house
from tests.browser.tab import DESK, PHONE, visitor
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback

WORDS = {"en-US": "Nobody owns this bot yet.", "zh-CN": "机器人还没有所有者"}

GUEST = {"en-US": "This bot belongs to {}. You are a guest on this page", "zh-CN": "机器人归 {} 所有。你在此网页是访客"}


@pytest.mark.parametrize(("locale", "viewport"), [("en-US", DESK), ("zh-CN", PHONE)])
async def test_the_operator_reads_the_claim_code_until_there_is_an_owner(
    browser: Browser, tmp_path: Path, locale: str, viewport: dict[str, int]
) -> None:
    telegram = TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        channels = f', telegram: {{ botToken: "{telegram.token}", apiRoot: "{url}" }}'
        async with (
            house(tmp_path, channels=channels) as home,
            visitor(browser, home, locale=locale, viewport=viewport) as tab,
        ):
            note = tab.page.locator("#claim-note")
            await expect(note).to_contain_text(WORDS[locale])
            (code,) = re.findall(r"/claim (\S{4}-\S{4})", await note.inner_text())
            assert code == await home.gateway.claim_code()
            assert await tab.sticking_out() == []
            assert await tab.page.evaluate(RULES) == []
            alice = telegram.private()
            await telegram.push(telegram.text_update(f"/claim {code}", chat=alice))
            await expect(note).to_be_hidden()
            guest = tab.page.locator("#guest-note")
            async for _ in tab.at_once_and_after_a_reload():
                await expect(guest).to_contain_text(GUEST[locale].format(f"Alice · …{str(alice)[-4:]}"))
            assert await tab.sticking_out() == []
            assert await tab.page.evaluate(RULES) == []
            await telegram.push(telegram.text_update("/claim page", chat=alice))
            await expect(guest).to_be_hidden()


async def test_who_has_the_page_alone_reads_nothing_of_owners(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path) as home, visitor(browser, home) as tab:
        async with tab.page.expect_response("**/api/setup"):
            await tab.page.reload()
        await expect(tab.page.locator("#claim-note")).to_be_hidden()

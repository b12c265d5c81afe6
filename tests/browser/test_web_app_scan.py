"""Connect Feishu by a scan, through the real page, in both languages and on a phone."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.axe import RULES
from tests.browser.tab import DESK, PHONE, visitor
from tests.running import APP_ID, SECRETS
from tests.stories.web.test_app_scan import house

WORDS = {
    "en-US": ("Show the QR code", "QR code to create a Feishu app", "declined in Feishu", f"App {APP_ID} is connected"),
    "zh-CN": ("显示二维码", "用于创建飞书应用的二维码", "在飞书中被拒绝", f"应用 {APP_ID} 已接入"),
}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)


@pytest.mark.parametrize(("locale", "viewport"), [("en-US", DESK), ("zh-CN", PHONE)])
async def test_app_scan_on_the_page_is_declined_then_confirmed(
    browser: Browser, tmp_path: Path, locale: str, viewport: dict[str, int]
) -> None:
    show, picture, declined, connected = WORDS[locale]
    async with house(tmp_path) as (keyless, feishu), visitor(browser, keyless, locale=locale, viewport=viewport) as tab:
        page = tab.page
        button = page.get_by_role("button", name=show)
        await button.click()
        code = page.get_by_alt_text(picture)
        await expect(code).to_be_visible()
        assert await page.evaluate("() => document.querySelector('#app-scan-picture').naturalWidth > 100")
        assert feishu.registrations.link_code in str(await page.locator("#app-scan-link").get_attribute("href"))
        assert await tab.sticking_out() == []
        assert await page.evaluate(RULES) == []
        feishu.registrations.end("access_denied")
        await expect(page.get_by_text(declined)).to_be_visible()
        await expect(code).to_be_hidden()
        await button.click()
        await expect(code).to_be_visible()
        feishu.registrations.confirm(APP_ID, SECRETS["FEISHU_APP_SECRET"], "ou_scanner1")
        await expect(page.get_by_text(connected)).to_be_visible()
        await expect(code).to_be_hidden()
        assert SECRETS["FEISHU_APP_SECRET"] not in await page.content() + await tab.kept()
        await page.reload()
        await expect(page.locator("#message")).to_be_visible()
        await expect(button).to_be_hidden()

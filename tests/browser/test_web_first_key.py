"""The field for a first key, through the real page, in both languages and on a phone."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.axe import RULES
from tests.browser.tab import DESK, PHONE, visitor
from tests.keyless import KEY, MODEL, keyless

WORDS = {
    "en-US": ("Vendor", "API key", "Try and keep it", "refuses this key", f"The key is right. {MODEL} answers"),
    "zh-CN": ("厂商", "API 密钥", "试用并保存", "厂商拒绝了这个密钥", f"密钥有效，从现在起由 {MODEL} 回答"),
}


@pytest.mark.parametrize(("locale", "viewport"), [("en-US", DESK), ("zh-CN", PHONE)])
async def test_a_key_is_pasted_refused_pasted_again_and_a_real_model_answers(
    browser: Browser, tmp_path: Path, locale: str, viewport: dict[str, int]
) -> None:
    vendor, key, button, refused, taken = WORDS[locale]
    async with keyless(tmp_path) as house, visitor(browser, house, locale=locale, viewport=viewport) as tab:
        page = tab.page
        field = page.get_by_label(key, exact=True)
        await page.get_by_label(vendor, exact=True).select_option(label="DeepSeek")
        assert await tab.sticking_out() == []
        assert await page.evaluate(RULES) == []
        await field.fill("not-the-key")
        tab.watch.expects("422")
        await page.get_by_role("button", name=button).click()
        await expect(page.get_by_text(refused)).to_be_visible()
        await expect(field).to_have_attribute("aria-invalid", "true")
        await field.fill(KEY)
        await field.press("Enter")
        await expect(page.get_by_text(taken)).to_be_visible()
        await expect(field).to_be_hidden()
        assert KEY not in await page.content() + await tab.kept()
        box = page.locator("#message")
        await box.fill("Who are you?")
        await box.press("Enter")
        await expect(page.locator('article[data-author="agent"]')).to_contain_text("I am real.")
        await page.reload()
        await expect(field).to_be_hidden()

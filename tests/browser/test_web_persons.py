"""Several people and one browser: no link, and no page of another site, makes one of them another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from playwright.async_api import Browser, Page, expect

from tests.browser.house import TOKEN, house
from tests.browser.tab import visitor
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback

ANN, BOB = "canary-ann-token-9182736", "canary-bob-token-9182736"
USERS = f"server: {{ adminToken: {TOKEN}, users: {{ ann: {ANN}, bob: {BOB} }} }}"
NO_CODES = (BOB, TOKEN, "once-", f"once-{'a' * 42}", f"once-{'a' * 44}", "%6fnce-x", "")
QUESTION = {"en-US": "Sign in as another person?", "zh-CN": "要以另一身份登录吗？"}
LOCALES = tuple(QUESTION)
NO = {"en-US": "Cancel", "zh-CN": "取消"}
YES = {"en-US": "Sign in", "zh-CN": "登录"}


async def person(page: Page) -> Any:
    return await page.evaluate("fetch('/api/chats').then((it) => it.json()).then((it) => it.person ?? null)")


async def titles(page: Page, token: str) -> list[str]:
    """Whose conversations there are, without the browser's cookie."""
    ask = """(token) => fetch("/api/chats", { credentials: "omit", headers: { authorization: `Bearer ${token}` } })
        .then((it) => it.json()).then((it) => it.chats.map((chat) => chat.title))"""
    found: list[str] = await page.evaluate(ask, token)
    return found


@pytest.mark.parametrize(
    ("way", "codes"),
    [("typed", NO_CODES), ("clicked", NO_CODES[::3]), pytest.param("clicked", NO_CODES, marks=pytest.mark.long)],
    ids=["typed", "clicked", "each clicked"],
)
async def test_a_link_with_anything_but_a_code_signs_nobody_in(
    browser: Browser, tmp_path: Path, way: str, codes: Sequence[str]
) -> None:
    """It leaves the address, too: a token that somebody pasted there by mistake is not kept in the history."""
    elsewhere = FastAPI()
    async with house(tmp_path, more=USERS) as home, serve_on_loopback(elsewhere) as site:
        links = {code: f"{home.url}/#sign-in={code}" for code in codes}
        cats = "".join(f"<a href='{link}'>cat {code}.</a>" for code, link in links.items())
        elsewhere.get("/")(lambda: Response(cats, media_type="text/html"))
        async with visitor(browser, home, address=home.url) as tab:
            tab.watch.expects("status of 401", "request elsewhere", "favicon", "status of 404")
            for signed_in in (None, "ann"):
                if signed_in:
                    await tab.page.goto(home.url)
                    await tab.sign_in(ANN)
                    await expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()
                for code, link in links.items():
                    if way == "typed":
                        await tab.page.goto(link)
                    else:
                        await tab.page.goto(site)
                        await tab.page.get_by_role("link", name=f"cat {code}.", exact=True).click()
                    await expect(tab.message).to_be_visible()
                    assert await person(tab.page) == signed_in, code
                    assert "sign-in" not in tab.page.url, code


@pytest.mark.parametrize(("locale", "then"), [LOCALES, pytest.param(*LOCALES[::-1], marks=pytest.mark.long)])
async def test_page_login_link_asks_before_replacing_a_person(
    browser: Browser, tmp_path: Path, locale: str, then: str
) -> None:
    async with (
        house(tmp_path, more=USERS, script=[says("Noted."), says("Again.")]) as home,
        visitor(browser, home, address=home.url, locale=locale) as tab,
    ):
        tab.watch.expects("status of 401", "net::ERR_")
        form = tab.page.locator("#sign-in")
        await form.locator("#token").fill(ANN)
        await form.locator("#token").press("Enter")
        await expect(form).to_be_hidden()
        await expect(tab.page.locator("#sign-out")).to_be_visible()
        link = home.link()
        await tab.page.goto(link)
        question = tab.page.get_by_role("dialog", name=QUESTION[locale])
        await expect(question).to_contain_text("ann")
        await question.get_by_role("button", name=NO[locale], exact=True).click()
        await expect(question).to_be_hidden()
        assert await person(tab.page) == "ann"
        await tab.page.locator("textarea").fill("ann's plan")
        await tab.page.locator("textarea").press("Enter")
        await expect(tab.page.locator('article[data-author="agent"]')).to_contain_text("Noted.")
        await tab.page.locator("#language").click()
        await expect(tab.page.locator("html")).to_have_attribute("lang", then.removesuffix("-US"))
        await tab.page.goto(link)  # it was not used
        question = tab.page.get_by_role("dialog", name=QUESTION[then])
        await question.get_by_role("button", name=YES[then], exact=True).click()
        await expect(tab.page.locator("#all-sessions")).to_be_visible()
        assert await person(tab.page) == "local"
        await expect(tab.page.locator("main")).not_to_contain_text("ann's plan")
        assert (await titles(tab.page, ANN), await titles(tab.page, TOKEN)) == (["ann's plan"], [])


async def test_what_one_person_could_not_send_waits_for_that_person(browser: Browser, tmp_path: Path) -> None:
    """Ann's session ends while her message is unsent; bob signs in, in the same tab: it is not his, and not shown."""
    async with (
        house(tmp_path, more=USERS, script=[says("For bob."), says("For ann.")]) as home,
        visitor(browser, home, address=home.url) as tab,
    ):
        tab.watch.expects("status of 401", "net::ERR_")
        await tab.sign_in(ANN)
        await expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Thinking")).to_be_visible()  # nothing else is asked for now
        await tab.page.context.clear_cookies()
        await tab.say("ann's plan")
        await tab.sign_in(BOB)
        await expect(tab.page.get_by_role("button", name="Sign out")).to_be_visible()
        await expect(tab.own).to_have_count(0)
        await expect(tab.conversations).not_to_contain_text("ann's plan")
        await tab.ask("bob's words", "For bob.")
        assert await titles(tab.page, BOB) == ["bob's words"]
        await tab.page.get_by_role("button", name="Sign out").click()
        await tab.sign_in(ANN)
        await expect(tab.conversations.get_by_role("link", name="ann's plan")).to_be_visible()
        await home.until(lambda: len(home.anthropic.requests) == 2)
        await tab.page.get_by_role("link", name="ann's plan").click()
        await tab.is_answered("For ann.")
        assert await titles(tab.page, ANN) == ["ann's plan"]

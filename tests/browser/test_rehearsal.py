"""`make rehearsal` as a newcomer uses it: one command, a page, four people, and a gateway that is killed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, FilePayload, Locator, expect

from tests.browser.axe import RULES
from tests.browser.tab import PHONE, Tab, visitor
from tests.processes import processes_of
from tests.rehearsal.program import ROOT
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow  # it starts processes

CANARY = "canary-real-bot-token-91827"
DESK = {"width": 1440, "height": 900}
ANSWER = "I really used these tools"


@dataclass(frozen=True)
class Started:
    url: str

    def link(self) -> str:
        return self.url


@asynccontextmanager
async def rehearsal(folder: Path) -> AsyncIterator[Started]:
    """The command on a machine that has a real bot; at the end Ctrl-C, after which nothing of it is there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.rehearsal", "--demo", "--port", "0"),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "TELEGRAM_BOT_TOKEN": CANARY},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        while not (found := re.search(r"open +(http://\S+)", (await process.stdout.readline()).decode())):
            assert process.returncode is None
        yield Started(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, code = await asyncio.gather(process.stdout.read(), process.wait())
    assert code == 0
    assert [path.name for path in folder.glob("clawgate-*")] == []
    assert processes_of(str(folder)) == {}


async def types(tab: Tab, step: str) -> None:
    """Take a step of the list."""
    await tab.page.get_by_role("listitem").filter(has_text=step).get_by_role("button", name="Type it").click()
    await tab.page.keyboard.press("Enter")


def phone(tab: Tab, person: str) -> Locator:
    return tab.page.locator(f"#phone-{person}")


def said(phone: Locator) -> Locator:
    return phone.locator('[data-author="bot"]')


async def test_a_newcomer_claims_lets_in_approves_joins_a_group_and_kills_it(browser: Browser, tmp_path: Path) -> None:
    async with rehearsal(tmp_path) as place, visitor(browser, place, viewport=DESK) as tab:
        ann, ben, wang = (phone(tab, person) for person in ("ann", "ben", "wanglei"))
        await expect(tab.page.locator("#terminal .claim")).to_have_count(1)
        await types(tab, "Own the bot")
        await expect(said(ann).first).to_contain_text("is yours")

        await types(tab, "Let a stranger in")
        await expect(said(ben)).to_have_count(1)
        await ann.get_by_role("button", name="Let in").click()
        await expect(said(ben)).to_have_count(2)

        await types(tab, "Approve a command")
        await ann.get_by_role("button", name="Allow once").click()
        await expect(said(ann).last).to_contain_text("Hello! I ran on your own machine")

        await types(tab, "Kill it")
        await expect(said(ben)).to_have_count(3)
        await tab.page.get_by_role("button", name="kill -9").click()
        await expect(tab.page.get_by_role("status")).to_contain_text("killed")
        await expect(tab.page.locator("#life")).to_have_attribute("data-life", "up")
        await expect(ben.get_by_role("link", name="list_files.py")).to_be_visible()
        await expect(said(ben).filter(has_text=ANSWER)).to_have_count(1)

        await ben.get_by_role("tab", name="Tea team").click()
        await ben.get_by_role("button", name="Add the bot to this group").click()
        await ann.get_by_role("button", name="Listen here").click()
        await ben.get_by_role("textbox").fill("nobody is named")
        await tab.page.keyboard.press("Enter")
        await expect(ben).to_contain_text("the bot does not get this")
        await types(tab, "Talk in a group")
        await expect(said(ben).last).to_contain_text("demo/guide")

        await types(tab, "A reminder")
        await expect(said(ann).last).to_contain_text("Scheduled")

        await types(tab, "The other platform")
        await ann.get_by_role("button", name="Let in").click()
        await expect(said(wang)).to_have_count(2)
        await types(tab, "The other platform")
        await expect(said(wang).last).to_contain_text("demo/guide")

        await tab.page.get_by_role("button", name="kill -9").click()
        await expect(tab.page.locator("#life")).to_have_attribute("data-life", "killed")
        await wang.get_by_role("textbox").fill("现在是谁在听？")
        await tab.page.keyboard.press("Enter")
        await expect(said(wang).last.locator("q")).to_have_text("现在是谁在听？")
        note = FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"two teas")
        await ann.locator("input[type=file]").set_input_files(note)
        await expect(ann.get_by_role("link", name="notes.txt")).to_be_visible()
        assert CANARY not in await tab.page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_fits_a_phone_and_can_be_read_in_both_lights(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    async with rehearsal(tmp_path) as place, visitor(browser, place, viewport=PHONE, color_scheme=scheme) as tab:
        for panel in ("Terminal", "Try", "王磊", "Ann"):
            await tab.page.get_by_role("tab", name=panel, exact=True).click()
            assert await tab.sticking_out() == []
            assert await tab.page.evaluate(RULES) == []
        await expect(tab.page.locator("#terminal .claim")).to_have_count(1)
        await tab.page.get_by_role("tab", name="Try", exact=True).click()
        await types(tab, "Own the bot")
        await expect(said(phone(tab, "ann")).first).to_contain_text("is yours")

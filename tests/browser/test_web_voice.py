"""A spoken message: recorded by a browser with a microphone that is not there, and heard by the agent as words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import async_playwright, expect

from tests.browser.axe import DIAGONAL, LIST, OTHERS, wrong
from tests.browser.chromium import FLAGS, chromium
from tests.browser.house import House, house
from tests.browser.tab import Tab, Visit, visitor
from tests.emulators.models.script import says
from tests.emulators.speech import KEY, SpeechEmulator
from tests.loopback import serve_on_loopback

FAKE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@asynccontextmanager
async def speaker(folder: Path, speech: SpeechEmulator, *flags: str) -> AsyncIterator[tuple[House, Tab]]:
    """A person whose browser was started with these flags, in a house that hears."""
    async with serve_on_loopback(speech.app) as url, async_playwright() as playwright:
        more = f'transcription: {{ baseUrl: "{url}/v1", apiKey: {KEY}, model: whisper-1 }}'
        browser = await playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, *flags])
        try:
            async with (
                house(folder, script=[says("Tomorrow, then.")], more=more) as home,
                visitor(browser, home) as tab,
            ):
                yield home, tab
        finally:
            await browser.close()


async def test_what_is_said_is_attached_and_reaches_the_agent_as_words(visit: Visit, tmp_path: Path) -> None:
    speech = SpeechEmulator()
    async with speaker(tmp_path, speech, *FAKE) as (home, tab):
        record = tab.page.get_by_role("button", name="Record a voice message")
        await record.click()
        await expect(tab.page.get_by_role("timer")).to_have_text("0:01")
        assert await wrong(tab, DIAGONAL + OTHERS, beside=LIST) == []
        await tab.page.get_by_role("button", name="Throw the recording away").click()
        await expect(tab.page.get_by_role("timer")).to_be_hidden()
        await expect(record).to_be_focused()
        await record.click()
        await expect(tab.page.get_by_role("timer")).to_have_text("0:01")
        await tab.page.get_by_role("button", name="Attach the recording").click()
        await expect(tab.page.locator("#attachments li")).to_have_count(1)
        await tab.has_uploaded()
        await tab.send.click()
        await tab.is_answered("Tomorrow, then.")
        assert len(speech.heard) == 1
        assert speech.text in str(home.last_sent())


async def test_a_microphone_that_is_refused_is_a_sentence(visit: Visit, tmp_path: Path) -> None:
    async with speaker(tmp_path, SpeechEmulator(), FAKE[0], "--deny-permission-prompts") as (_, tab):
        await tab.page.get_by_role("button", name="Record a voice message").click()
        await expect(tab.page.get_by_role("alert").filter(has_text="may not use the microphone")).to_be_visible()
        await expect(tab.page.get_by_role("timer")).to_be_hidden()


async def test_where_nothing_is_transcribed_there_is_no_microphone(visit: Visit) -> None:
    async with visit(says("One.")) as (_, tab):
        await tab.ask("Hello", "One.")
        await expect(tab.page.locator("#voice")).to_be_hidden()

"""Files in the web chat: pictures come before the model's eyes, documents into its workspace, what it makes comes back."""

import base64
import json
from pathlib import Path

from playwright.async_api import Browser, FilePayload, Page, expect

from tests.agents.providers.requests import PIXEL
from tests.browser.house import House, house
from tests.browser.tab import visitor
from tests.emulators.models.script import calls, says

PICTURE = FilePayload(name="holiday.png", mimeType="image/png", buffer=base64.b64decode(PIXEL))
NOTES = FilePayload(name="notes.txt", mimeType="text/plain", buffer="Milk, eggs, 茶\n".encode())
HUGE = FilePayload(name="huge.bin", mimeType="application/octet-stream", buffer=bytes(2_000_001))
REPORT = "name,count\ntea,3\n茶,4\n"
SMALL_LIMIT = "limits: { fileBytes: 2000000 }"


def pictures_told(home: House) -> list[str]:
    """The pictures in the last message that the model was sent, as they stand there."""
    content = home.told()[-1]
    blocks = content if isinstance(content, list) else []
    return [block["source"]["data"] for block in blocks if block["type"] == "image"]


async def give(page: Page, event: str, carrier: str) -> None:
    """A picture dropped on the conversation or pasted into the message; a page cannot tell it from a person's."""
    await page.evaluate(
        """([event, carrier, encoded]) => {
            const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
            const carried = new DataTransfer();
            carried.items.add(new File([bytes], "holiday.png", { type: "image/png" }));
            const init = { bubbles: true, cancelable: true, [carrier]: carried };
            const made = event === "paste" ? new ClipboardEvent(event, init) : new DragEvent(event, init);
            document.getElementById("message").dispatchEvent(made);
        }""",
        [event, carrier, PIXEL],
    )


async def test_a_picture_is_shown_to_the_model_and_in_the_conversation(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("A single pixel.")]) as home, visitor(browser, home) as tab:
        await tab.attach(PICTURE)
        await expect(tab.page.get_by_role("button", name="Remove holiday.png")).to_be_visible()
        await tab.say("What is this?")
        await tab.is_answered("A single pixel.")
        assert pictures_told(home) == [PIXEL]
        assert "What is this?" in json.dumps(home.told()[-1])
        for _ in ("at once", "after a reload"):
            await expect(tab.own.get_by_role("link", name="holiday.png")).to_be_visible()
            await expect(tab.own.locator("img")).to_have_js_property("naturalWidth", 1)
            await tab.reload()
        await expect(tab.page.get_by_role("button", name="Remove holiday.png")).to_have_count(0)


async def test_a_picture_needs_no_words(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Nice.")]) as home, visitor(browser, home) as tab:
        await expect(tab.send).to_be_disabled()
        await tab.attach(PICTURE)
        await tab.send.click()
        await tab.is_answered("Nice.")
        assert pictures_told(home) == [PIXEL]


async def test_pictures_can_be_dropped_and_pasted_and_taken_out_again(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("One picture.")]) as home, visitor(browser, home) as tab:
        removal = tab.page.get_by_role("button", name="Remove holiday.png")
        await give(tab.page, "drop", "dataTransfer")
        await expect(removal).to_have_count(1)
        await give(tab.page, "paste", "clipboardData")
        await expect(removal).to_have_count(2)
        await removal.first.click()
        await expect(removal).to_have_count(1)
        await tab.has_uploaded()
        await expect(tab.page.locator("#attachments img")).to_have_count(1)
        await tab.say("How many?")
        await tab.is_answered("One picture.")
        assert pictures_told(home) == [PIXEL]


async def test_a_file_that_the_agent_made_is_downloaded_byte_for_byte(browser: Browser, tmp_path: Path) -> None:
    script = [
        calls(("write", {"file_path": "out/report.csv", "content": REPORT})),
        says("Here is your report.\n\nMEDIA: out/report.csv"),
    ]
    async with house(tmp_path, script=script) as home, visitor(browser, home) as tab:
        await tab.say("Make me a report")
        await tab.is_answered("Here is your report.")
        await expect(tab.answers).not_to_contain_text("MEDIA")
        (home.workspace() / "out" / "report.csv").write_text("changed since")
        for _ in ("at once", "after a reload"):
            async with tab.page.expect_download() as begun:
                await tab.answers.get_by_role("link", name="report.csv").click()
            download = await begun.value
            assert download.suggested_filename == "report.csv"
            assert Path(await download.path()).read_bytes() == REPORT.encode()
            await tab.reload()


async def test_a_picture_that_the_agent_made_is_shown(browser: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says("Look:\n\nMEDIA: drawing.png\nMEDIA: not-there.png")]) as home,
        visitor(browser, home) as tab,
    ):
        (home.workspace() / "drawing.png").write_bytes(PICTURE["buffer"])
        await tab.say("Draw something")
        await tab.is_answered("Look:")
        await expect(tab.answers.locator("img")).to_have_js_property("naturalWidth", 1)
        await expect(tab.answers).to_contain_text("not-there.png")


async def test_a_file_that_is_too_large_is_refused_with_a_sentence_and_nothing_is_lost(
    browser: Browser, tmp_path: Path
) -> None:
    async with house(tmp_path, script=[says("Fine.")], more=SMALL_LIMIT) as home, visitor(browser, home) as tab:
        await tab.message.fill("With a file")
        await tab.attach(HUGE)
        await expect(tab.page.get_by_text("huge.bin is larger than 2.0 MB.")).to_be_visible()
        await expect(tab.message).to_have_value("With a file")
        await tab.attach(NOTES)
        await tab.send.click()
        await tab.is_answered("Fine.")
        await expect(tab.own.get_by_role("link")).to_have_count(1)


async def test_too_much_that_waits_says_so_and_taking_something_out_makes_room(
    browser: Browser, tmp_path: Path
) -> None:
    more = f"limits: {{ uploadsBytes: {len(NOTES['buffer']) + len(PICTURE['buffer'])}, fileBytes: 1000 }}"
    async with house(tmp_path, script=[says("Two.")], more=more) as home, visitor(browser, home) as tab:
        tab.watch.expects("status of 413")
        for file in (PICTURE, NOTES):
            await tab.attach(file)
            await tab.has_uploaded()
        await tab.attach(FilePayload(name="more.txt", mimeType="text/plain", buffer=b"more"))
        await expect(tab.page.locator("#attachments")).to_contain_text("Too much waits to be sent")
        async with tab.page.expect_response(lambda answer: answer.request.method == "DELETE"):
            await tab.page.get_by_role("button", name="Remove holiday.png").click()
        await tab.page.get_by_role("button", name="Upload more.txt again").click()
        await expect(tab.page.locator("#attachments")).not_to_contain_text("Too much waits to be sent")
        await tab.say("How many?")
        await tab.is_answered("Two.")
        await expect(tab.own.get_by_role("link", name="more.txt")).to_be_visible()

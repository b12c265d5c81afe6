"""Files in the web chat: pictures come before the model's eyes, documents into its workspace, what it makes comes back."""

import base64
import json
import re
from pathlib import Path

from playwright.async_api import FilePayload, Page, expect

from tests.agents.providers.requests import PIXEL
from tests.browser.house import House
from tests.browser.tab import Visit
from tests.emulators.models.script import calls, says

PICTURE = FilePayload(name="holiday.png", mimeType="image/png", buffer=base64.b64decode(PIXEL))
NOTES = FilePayload(name="notes.txt", mimeType="text/plain", buffer="Milk, eggs, 茶\n".encode())
MORE = FilePayload(name="more.txt", mimeType="text/plain", buffer=b"more")
HUGE = FilePayload(name="huge.bin", mimeType="application/octet-stream", buffer=bytes(2_000_001))
REPORT = "name,count\ntea,3\n茶,4\n"


def pictures_sent(home: House) -> list[str]:
    """The pictures in the last message that the model was sent, as they stand there."""
    content = home.last_sent()
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


async def test_page_attaches_pictures_by_choice_drop_or_paste(visit: Visit) -> None:
    async with visit(says("Nice."), says("One picture.")) as (home, tab):
        removal = tab.page.get_by_role("button", name="Remove holiday.png")
        await expect(tab.send).to_be_disabled()
        await tab.attach(PICTURE)
        await expect(removal).to_be_visible()
        await tab.send.click()
        await tab.is_answered("Nice.")
        assert pictures_sent(home) == [PIXEL]

        await give(tab.page, "drop", "dataTransfer")
        await expect(removal).to_have_count(1)
        await give(tab.page, "paste", "clipboardData")
        await expect(removal).to_have_count(2)
        await removal.first.click()
        await expect(removal).to_have_count(1)
        await tab.has_uploaded()
        await expect(tab.page.locator("#attachments img")).to_have_count(1)
        await tab.ask("How many?", "Nice.", "One picture.")
        assert pictures_sent(home) == [PIXEL]
        assert "How many?" in json.dumps(home.last_sent())
        async for _ in tab.at_once_and_after_a_reload():
            for at in (0, 1):
                await expect(tab.own.nth(at).get_by_role("link", name="holiday.png")).to_be_visible()
                await expect(tab.own.nth(at).locator("img")).to_have_js_property("naturalWidth", 1)
        await expect(removal).to_have_count(0)


async def test_page_downloads_files_and_shows_pictures(visit: Visit) -> None:
    report = calls(("write", {"file_path": "out/report.csv", "content": REPORT}))
    answer = says("Here is your report.\n\nMEDIA: out/report.csv\nMEDIA: drawing.png\nMEDIA: not-there.png")
    async with visit(report, answer) as (home, tab):
        (home.workspace() / "drawing.png").write_bytes(PICTURE["buffer"])
        await tab.ask("Make me a report", "Here is your report.")
        await expect(tab.answers).to_contain_text("not-there.png")
        await expect(tab.answers).not_to_contain_text("MEDIA")
        await expect(tab.answers.locator("img")).to_have_js_property("naturalWidth", 1)
        (home.workspace() / "out" / "report.csv").write_text("changed since")
        async for _ in tab.at_once_and_after_a_reload():
            async with tab.page.expect_download() as begun:
                await tab.answers.get_by_role("link", name="report.csv").click()
            download = await begun.value
            assert download.suggested_filename == "report.csv"
            assert Path(await download.path()).read_bytes() == REPORT.encode()


async def test_page_upload_limit_is_a_sentence(visit: Visit) -> None:
    more = f"limits: {{ uploadsBytes: {len(NOTES['buffer']) + len(PICTURE['buffer'])}, fileBytes: 2000000 }}"
    async with visit(says("Two."), more=more) as (_, tab):
        tab.watch.expects("status of 413")
        await tab.message.fill("With files")
        await tab.attach(HUGE)
        await expect(tab.page.get_by_text("huge.bin is larger than 1.91 MiB.")).to_be_visible()
        await expect(tab.message).to_have_value("With files")
        for file in (PICTURE, NOTES, MORE):
            await tab.attach(file)
        await expect(tab.page.locator("#attachments")).to_contain_text("Too much waits to be sent")
        async with tab.page.expect_response(lambda answer: answer.request.method == "DELETE"):
            await tab.page.get_by_role("button", name="Remove holiday.png").click()
        await tab.page.get_by_role("button", name="Upload more.txt again").click()
        await expect(tab.page.locator("#attachments")).not_to_contain_text("Too much waits to be sent")
        await tab.send.click()
        await tab.is_answered("Two.")
        await expect(tab.own.get_by_role("link")).to_have_text([re.compile("notes.txt"), re.compile("more.txt")])

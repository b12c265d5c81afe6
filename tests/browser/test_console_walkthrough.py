"""The turn of the walkthrough in the console: what each layer shows is what the platform and the model really had."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Locator, expect

from tests.browser.tab import visitor
from tests.browser.test_console_turns import LAYERS, opened
from tests.demo import story
from tests.demo.play import stage
from tests.running import push
from tests.stories.operate.test_turns import TOKEN, WithConsole

CELLS = "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"


@dataclass(frozen=True)
class Staged:
    url: str

    def link(self) -> str:
        return f"{self.url}/console#turns"


async def test_every_layer_of_the_walkthrough_is_found_right(browser: Browser, tmp_path: Path) -> None:
    async with (
        stage(tmp_path, [], platform=WithConsole()) as (url, feishu, anthropic),
        visitor(browser, Staged(url)) as tab,
    ):
        tab.watch.expects("status of 401")
        event = feishu.text_event(story.ASKED, sender=story.SENDER, chat=story.CHAT, message_id=story.MESSAGE_ID)
        await push(feishu, url, event)
        (sent,) = await feishu.sent(1)
        await tab.sign_in(TOKEN)
        page = tab.page
        await page.get_by_role("link", name=story.ASKED).click()
        await expect(page.locator(".asked-text")).to_have_text(story.ASKED)
        stages = page.get_by_role("list", name="Where the time went").get_by_role("listitem")
        assert [(await it.inner_text()).split("\n")[0].split(" ")[0] for it in await stages.all()] == [
            *("Waited", "Prepared", *["Model", "Tool"] * 3, "Model", "Sent")
        ]
        body = {title: await opened(page, title) for title in LAYERS}
        received = [it.body for it in anthropic.requests]

        delivered = json.loads(await body["Event as received"].locator("pre").inner_text())
        assert (delivered["event"], delivered["header"]["token"]) == (event["event"], "***")
        context = json.loads(await body["Message context"].locator("pre").inner_text())
        assert (context["text"], context["message_id"], context["sender"]["name"]) == (
            *(story.ASKED, story.MESSAGE_ID, story.SENDER_NAME),
        )
        route = await body["Route"].locator("tbody tr").evaluate_all(CELLS)
        assert {what: value for what, value, _ in route if what in ("Agent", "Access", "Model")} == {
            "Agent": "coder",
            "Access": "allowed",
            "Model": "anthropic/claude-sonnet-4-6",
        }
        assert all(why for *_, why in route)
        assert await _prompt(body["System prompt"]) == "\n\n".join(it["text"] for it in received[0]["system"])
        assert await body["Tools offered"].locator("td code").all_inner_texts() == [
            it["name"] for it in received[0]["tools"]
        ]
        first = body["Transcript"].locator(".part").first
        texts = [await it.inner_text() for it in await first.locator("pre").all()]
        assert "\n\n".join(texts) == received[0]["messages"][0]["content"][0]["text"]
        await _requests(body["Requests to the model"], received)
        parts = body["Tool calls"].locator(".part")
        assert await parts.locator(".card-head code").all_inner_texts() == ["read", "ls", "write"]
        assert json.loads(await parts.nth(2).locator("pre").first.inner_text())["content"] == story.SCRIPT
        await expect(parts.nth(1)).to_contain_text("requirements.txt")
        await expect(body["Reply"]).to_contain_text(sent.message_id)
        await expect(body["Reply"].locator("pre")).to_have_text(story.ANSWER)


async def _prompt(layer: Locator) -> str:
    """All sections as one text, unfolded."""
    for it in await layer.locator("details").all():
        await it.evaluate("(it) => (it.open = true)")
    return "\n\n".join([await it.inner_text() for it in await layer.locator("pre").all()])


async def _requests(layer: Locator, received: list[dict[str, Any]]) -> None:
    parts = layer.locator(".part")
    await expect(parts).to_have_count(len(received))
    for at, it in enumerate(received):
        await expect(parts.nth(at)).to_contain_text(f"maxTokens: {it['max_tokens']}")
        await expect(parts.nth(at)).to_contain_text("end_turn" if at == len(received) - 1 else "tool_use")

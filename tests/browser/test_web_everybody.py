"""The web chat for everybody: on a phone, in Chinese, in the dark, with a screen reader. `test_web_keys` has no mouse."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.house import house
from tests.browser.tab import PHONE, visitor
from tests.browser.test_web_keys import TWO_AGENTS
from tests.emulators.models.script import Turn, calls, says

RULES = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
RICH = """\
## A heading

Some **bold**, *slanted* and `coded` words, a [link](https://good.example/), and ~~none~~ more.

1. one
2. two

> quoted

```python
# a comment
def answer(question: str = "why?") -> int:
    return 42
```

| a | b |
|:--|--:|
| 1 | 2 |

MEDIA: table.csv
"""
WIDE = (
    "A wide answer: "
    + "Donaudampfschifffahrtsgesellschaft" * 8
    + "\n\n```\n"
    + "x" * 300
    + "\n```\n\n"
    + ("|" + "column |" * 30 + "\n|" + "---|" * 30 + "\n|" + "value |" * 30)
)


def rich_script() -> list[Turn]:
    return [calls(("write", {"file_path": "table.csv", "content": "a,b"}), ("read", {"file_path": "no"})), says(RICH)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
async def test_every_control_has_a_name_and_every_text_can_be_read(
    browser: Browser, tmp_path: Path, scheme: str, size: str
) -> None:
    options: dict[str, Any] = {"color_scheme": scheme} | ({"viewport": PHONE} if size == "phone" else {})
    async with (
        house(tmp_path, script=rich_script(), agents=TWO_AGENTS) as home,
        visitor(browser, home, **options) as tab,
    ):
        assert await tab.page.evaluate(RULES) == []
        await tab.say("Show me everything")
        await tab.is_answered("A heading")
        await tab.answers.get_by_text("2 tools used").click()
        assert await tab.page.evaluate(RULES) == []
        if size == "phone":
            await tab.page.get_by_role("button", name="Menu").click()
        await tab.choose("Show me everything", "Delete")
        await expect(tab.page.get_by_role("dialog")).to_be_visible()
        assert await tab.page.evaluate(RULES) == []


async def test_the_rules_of_accessibility_find_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path) as home, visitor(browser, home) as tab:
        await tab.page.evaluate(
            """() => {
                const put = (name, text) => {
                    const made = Object.assign(document.createElement(name), { textContent: text });
                    document.querySelector("main").append(made);
                    return made;
                };
                put("button", "").style.width = "12px";
                put("p", "pale").style.color = "rgb(200 200 200)";
                put("p", "twice").id = "main";
            }"""
        )
        wrong = await tab.page.evaluate(RULES)
        for start in ("no name: <button", "too small to hit", "contrast 1.6", "id twice: main"):
            assert any(sentence.startswith(start) for sentence in wrong), (start, wrong)


async def test_finished_answers_are_read_aloud_and_growing_ones_are_not(browser: Browser, tmp_path: Path) -> None:
    growing = says("Growing, growing, growing, grown up at last.")
    async with house(tmp_path, script=[growing]) as home, visitor(browser, home) as tab:
        await expect(tab.log).to_have_attribute("aria-live", "polite")
        home.line.hold(after_pieces=2)
        await tab.say("Grow")
        await expect(tab.draft).to_contain_text("Growing")
        await expect(tab.draft).to_have_attribute("aria-live", "off")
        home.line.release()
        await tab.is_answered("at last")
        await expect(tab.answers).not_to_have_attribute("aria-live", "off")


async def test_a_phone_has_a_drawer_and_nothing_scrolls_sideways(browser: Browser, tmp_path: Path) -> None:
    async with (
        house(tmp_path, script=[says(WIDE), says("Two.")]) as home,
        visitor(browser, home, viewport=PHONE, has_touch=True, is_mobile=True) as tab,
    ):
        menu = tab.page.get_by_role("button", name="Menu")
        new_chat = tab.page.get_by_role("button", name="New chat")
        assert await tab.sticking_out() == []
        await expect(new_chat).not_to_be_in_viewport()
        await tab.say("Widen " + "o" * 200)
        await tab.is_answered("A wide answer")
        assert await tab.sticking_out() == []
        await expect(tab.answers.locator("pre")).to_be_in_viewport(ratio=0.01)
        await menu.tap()
        await expect(new_chat).to_be_in_viewport()
        assert await tab.sticking_out() == []
        await tab.page.keyboard.press("Escape")
        await expect(new_chat).not_to_be_in_viewport()
        await menu.tap()
        await new_chat.tap()
        await expect(new_chat).not_to_be_in_viewport()
        await tab.say("Second")
        await tab.is_answered("Two.")
        await menu.tap()
        await tab.conversations.get_by_role("link").last.tap()
        await tab.is_answered("A wide answer")
        await expect(new_chat).not_to_be_in_viewport()


async def test_a_chinese_browser_gets_a_chinese_page_and_english_is_a_click_away(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        house(tmp_path, script=[says("你好!")]) as home,
        visitor(browser, home, locale="zh-CN") as tab,
    ):
        page = tab.page
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        await page.get_by_role("textbox", name="消息", exact=True).fill("你好,世界")
        await page.get_by_role("button", name="发送").click()
        await tab.page.locator('article[data-author="agent"]').wait_for()
        await expect(page.get_by_role("button", name="新对话")).to_be_visible()
        await expect(page.get_by_role("link", name="你好,世界")).to_be_visible()
        await page.get_by_role("button", name="语言").click()
        await expect(page.locator("html")).to_have_attribute("lang", "en")
        await tab.is_answered("你好!")
        await tab.reload()
        await expect(page.get_by_role("button", name="New chat")).to_be_visible()
        await page.get_by_role("button", name="Language").click()
        await expect(page.get_by_role("button", name="新对话")).to_be_visible()


async def test_light_and_dark_follow_the_system_until_somebody_chooses(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path) as home, visitor(browser, home, color_scheme="light") as tab:
        theme, body = tab.page.get_by_role("button", name="Theme"), tab.page.locator("body")
        light = await body.evaluate("(body) => getComputedStyle(body).backgroundColor")
        await expect(body).to_have_css("background-color", light)
        await tab.page.emulate_media(color_scheme="dark")
        await expect(body).not_to_have_css("background-color", light)
        await theme.click()
        await expect(body).to_have_css("background-color", light)
        await tab.reload()
        await expect(body).to_have_css("background-color", light)
        await theme.click()
        await expect(body).not_to_have_css("background-color", light)
        await tab.page.emulate_media(color_scheme="light")
        await expect(theme).to_have_attribute("title", "Theme: dark")
        await expect(body).not_to_have_css("background-color", light)
        await theme.click()
        await expect(body).to_have_css("background-color", light)

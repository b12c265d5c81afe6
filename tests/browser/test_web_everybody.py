"""The web chat for everybody: on a phone, in Chinese, in the dark, with a screen reader. `test_web_keys` has no mouse."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import LOOKS, RULES, Looks, unreadable
from tests.browser.tab import PHONE, TWO_AGENTS, Visit
from tests.emulators.models.script import calls, says

WRONG = """() => {
    const put = (name, text) => {
        const made = Object.assign(document.createElement(name), { textContent: text });
        document.querySelector("main").append(made);
        return made;
    };
    put("button", "").style.width = "12px";
    put("p", "pale").style.color = "rgb(128 128 128 / 10%)";
    put("p", "twice").id = "main";
}"""
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
RICH_SCRIPT = [
    calls(("write", {"file_path": "table.csv", "content": "a,b"}), ("read", {"file_path": "no"})),
    says(RICH),
]
WIDE_TABLE = "\n".join("|" + cell * 30 for cell in ("column |", "---|", "value |"))
WIDE = f"A wide answer: {'Donaudampfschifffahrtsgesellschaft' * 8}\n\n```\n{'x' * 300}\n```\n\n{WIDE_TABLE}"


@pytest.mark.parametrize("looks", LOOKS)
async def test_page_is_accessible(visit: Visit, looks: Looks) -> None:
    async with visit(*RICH_SCRIPT, agents=TWO_AGENTS) as (home, tab):
        assert await unreadable(tab, looks) == []
        await expect(tab.log).to_have_attribute("aria-live", "polite")
        home.line.hold(after_pieces=2)
        await tab.say("Show me everything")
        await expect(tab.draft).to_contain_text("A heading")
        await expect(tab.draft).to_have_attribute("aria-live", "off")
        home.line.release()
        await tab.is_answered("A heading")
        await expect(tab.answers).not_to_have_attribute("aria-live", "off")
        await tab.answers.get_by_text("2 tools used").click()
        assert await unreadable(tab, looks) == []
        await tab.choose("Show me everything", "Delete")
        await expect(tab.page.get_by_role("dialog")).to_be_visible()
        assert await unreadable(tab, looks) == []

        await tab.reload()
        await tab.is_answered("A heading")
        await tab.page.evaluate(WRONG)
        found = await tab.page.evaluate(RULES)
        starts = ("no name: <button", "too small to hit", "contrast 1.", "id twice: main")
        assert [any(sentence.startswith(start) for sentence in found) for start in starts] == [True] * 4, found


async def test_a_phone_has_a_drawer_and_nothing_scrolls_sideways(visit: Visit) -> None:
    async with visit(says(WIDE), says("Two."), viewport=PHONE, has_touch=True, is_mobile=True) as (_, tab):
        menu = tab.page.get_by_role("button", name="Menu")
        new_chat = tab.page.get_by_role("button", name="New chat")
        assert await tab.sticking_out() == []
        await expect(new_chat).not_to_be_in_viewport()
        await tab.ask("Widen " + "o" * 200, "A wide answer")
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
        await tab.ask("Second", "Two.")
        await menu.tap()
        await tab.conversations.get_by_role("link").last.tap()
        await tab.is_answered("A wide answer")
        await expect(new_chat).not_to_be_in_viewport()


async def test_a_chinese_browser_gets_a_chinese_page_and_english_is_a_click_away(visit: Visit) -> None:
    async with visit(says("你好!"), locale="zh-CN") as (_, tab):
        page = tab.page
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        await page.get_by_role("textbox", name="消息", exact=True).fill("你好,世界")
        await page.get_by_role("button", name="发送").click()
        await page.locator('article[data-author="agent"]').wait_for()
        await expect(page.get_by_role("button", name="新对话")).to_be_visible()
        await expect(page.get_by_role("link", name="你好,世界")).to_be_visible()
        await page.get_by_role("button", name="语言").click()
        await expect(page.locator("html")).to_have_attribute("lang", "en")
        await tab.is_answered("你好!")
        await tab.reload()
        await expect(page.get_by_role("button", name="New chat")).to_be_visible()
        await page.get_by_role("button", name="Language").click()
        await expect(page.get_by_role("button", name="新对话")).to_be_visible()


async def test_light_and_dark_follow_the_system_until_somebody_chooses(visit: Visit) -> None:
    async with visit(color_scheme="light") as (_, tab):
        theme, body = tab.page.get_by_role("button", name="Theme"), tab.page.locator("body")
        light = await body.evaluate("(body) => getComputedStyle(body).backgroundColor")
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

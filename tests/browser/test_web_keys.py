"""The web chat without a mouse: every step by keys, the focus always to be seen, and the keys of an input method its own."""

from pathlib import Path

from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.house import house
from tests.browser.tab import visitor
from tests.emulators.models.script import Turn, calls, says

TWO_AGENTS = """
agents:
  list:
    - { id: helper, name: Helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [read, write, ls] } }
    - { id: coder, name: Coder, model: anthropic/claude-sonnet-4-6 }
"""
RICH = """\
Some **bold** words and a [link](https://good.example/).

```python
answer = 42
```

MEDIA: table.csv
"""
ENTER = {"type": "rawKeyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
"""As an input method passes it on: a key that writes nothing itself."""


def rich_script() -> list[Turn]:
    return [calls(("write", {"file_path": "table.csv", "content": "a,b"})), says(RICH)]


async def tabbed_to(page: Page, aim: Locator, key: str = "Tab") -> None:
    """Walk on with the Tab key until the focus is there."""
    for _ in range(40):
        if await aim.evaluate("(node) => node === document.activeElement"):
            return
        await page.keyboard.press(key)
    raise AssertionError(f"{key} never reaches {aim}")


async def test_everything_can_be_done_without_a_mouse(browser: Browser, tmp_path: Path) -> None:
    script = [*rich_script(), says("Second.")]
    async with house(tmp_path, script=script, agents=TWO_AGENTS) as home, visitor(browser, home) as tab:
        page, keys = tab.page, tab.page.keyboard
        await expect(tab.message).to_be_focused()
        await keys.type("First line")
        await keys.press("Shift+Enter")
        await keys.type("second line")
        await keys.press("Enter")
        await tab.is_answered("Some bold words")
        await expect(tab.own).to_contain_text("First line\nsecond line", use_inner_text=True)
        await expect(tab.message).to_be_focused()

        await tabbed_to(page, tab.answers.locator("summary"), "Shift+Tab")
        await keys.press("Enter")
        await expect(tab.tools(tab.answers).first).to_be_visible()
        await tabbed_to(page, tab.answers.get_by_role("button", name="Copy", exact=True))
        await keys.press("Enter")
        await expect(tab.answers.get_by_role("button", name="Copied")).to_be_visible()

        await tabbed_to(page, page.get_by_role("button", name="New chat"), "Shift+Tab")
        await keys.press("Enter")
        await expect(tab.message).to_be_focused()
        await tabbed_to(page, page.get_by_role("combobox", name="Agent"))
        await keys.press("ArrowDown")
        await tabbed_to(page, tab.message, "Shift+Tab")
        await keys.type("To the coder")
        await keys.press("Enter")
        await tab.is_answered("Second.")
        await expect(tab.answers).to_contain_text("Coder")

        await tabbed_to(page, tab.conversation("First line second line"), "Shift+Tab")
        await keys.press("Enter")
        await tab.is_answered("Some bold words")
        await expect(tab.message).to_be_focused()


async def test_the_menu_of_a_conversation_is_worked_with_keys_and_escape_closes_it(
    browser: Browser, tmp_path: Path
) -> None:
    async with house(tmp_path, script=[says("One.")]) as home, visitor(browser, home) as tab:
        page, keys = tab.page, tab.page.keyboard
        await tab.say("First")
        await tab.is_answered("One.")
        options = tab.conversations.get_by_role("button", name="Options")
        await tabbed_to(page, options, "Shift+Tab")
        await keys.press("Enter")
        await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        await keys.press("Escape")
        await expect(page.get_by_role("menuitem", name="Rename")).to_be_hidden()
        await expect(options).to_be_focused()
        await keys.press("Enter")
        await keys.press("ArrowDown")
        await keys.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        await keys.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(tab.conversation("First")).to_be_visible()
        await tabbed_to(page, options, "Shift+Tab")
        await keys.press("Enter")
        await keys.press("Enter")
        await keys.type("Renamed by hand")
        await keys.press("Enter")
        await expect(tab.conversation("Renamed by hand")).to_be_visible()


async def test_the_focus_can_be_seen_wherever_it_is(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=rich_script()) as home, visitor(browser, home) as tab:
        await tab.say("Show me")
        await tab.is_answered("Some bold words")
        unseen = []
        for _ in range(25):
            await tab.page.keyboard.press("Tab")
            unseen += await tab.page.evaluate(
                """() => {
                    const focused = document.activeElement;
                    if (focused === document.body || focused.tagName === "TEXTAREA") return []; // which has its caret
                    const style = getComputedStyle(focused);
                    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
                    return seen ? [] : [focused.outerHTML.slice(0, 120)];
                }"""
            )
        assert unseen == []


async def test_the_enter_that_chooses_a_chinese_word_does_not_send(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("好的。")]) as home, visitor(browser, home) as tab:
        await tab.message.click()
        keyboard = await tab.page.context.new_cdp_session(tab.page)
        composing = {"text": "nihao", "selectionStart": 5, "selectionEnd": 5}
        await keyboard.send("Input.imeSetComposition", composing)
        await keyboard.send("Input.dispatchKeyEvent", ENTER)
        await keyboard.send("Input.insertText", {"text": "你好"})
        await expect(tab.message).to_have_value("你好")
        await expect(tab.own).to_have_count(0)
        await tab.page.keyboard.press("Enter")
        await tab.has_said("你好")
        await tab.is_answered("好的。")

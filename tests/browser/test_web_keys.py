"""The web chat without a mouse: every step by keys, the focus always to be seen, and the keys of an input method its own."""

from playwright.async_api import Locator, expect

from tests.browser.tab import TWO_AGENTS, Tab, Visit
from tests.browser.test_web_everybody import RICH_SCRIPT
from tests.emulators.models.script import says

ENTER = {"type": "rawKeyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
"""As an input method passes it on: a key that writes nothing itself."""
UNSEEN = """() => {
    const focused = document.activeElement;
    if (focused === document.body || focused.tagName === "TEXTAREA") return []; // which has its caret
    const style = getComputedStyle(focused);
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return seen ? [] : [focused.outerHTML.slice(0, 120)];
}"""


async def walk(tab: Tab, aim: Locator, key: str = "Tab", then: str = "") -> None:
    """With the Tab key until the focus is there; there press `then`."""
    for _ in range(40):
        if await aim.evaluate("(node) => node === document.activeElement"):
            if then:
                await tab.page.keyboard.press(then)
            return
        await tab.page.keyboard.press(key)
    raise AssertionError(f"{key} never reaches {aim}")


async def pressed(tab: Tab, button: Locator) -> None:
    """By keys from wherever the focus is, which is to be seen."""
    await walk(tab, button)
    assert await tab.page.evaluate(UNSEEN) == []
    await tab.page.keyboard.press("Enter")


async def announced(tab: Tab, words: str) -> None:
    await expect(tab.page.get_by_role("status").filter(has_text=words)).to_be_visible()


async def test_page_works_by_keyboard_with_visible_focus(visit: Visit) -> None:
    async with visit(*RICH_SCRIPT, says("Second."), agents=TWO_AGENTS) as (_, tab):
        page, keys = tab.page, tab.page.keyboard
        await expect(tab.message).to_be_focused()
        await keys.type("First line")
        await keys.press("Shift+Enter")
        await keys.type("second line")
        await keys.press("Enter")
        await tab.is_answered("A heading")
        await expect(tab.own).to_contain_text("First line\nsecond line", use_inner_text=True)
        await expect(tab.message).to_be_focused()

        await walk(tab, tab.answers.locator("summary"), "Shift+Tab", then="Enter")
        await expect(tab.tools(tab.answers).first).to_be_visible()
        await walk(tab, tab.answers.get_by_role("button", name="Copy", exact=True), then="Enter")
        await expect(tab.answers.get_by_role("button", name="Copied")).to_be_visible()

        options = tab.conversations.get_by_role("button", name="Options")
        rename, dialog = page.get_by_role("menuitem", name="Rename"), page.get_by_role("dialog")
        listed = tab.conversations.get_by_role("link")
        await walk(tab, listed, "Shift+Tab", then="ArrowRight")
        await keys.press("Enter")
        await expect(rename).to_be_focused()
        await keys.press("Escape")
        await expect(rename).to_be_hidden()
        await expect(options).to_be_focused()
        await keys.press("Enter")
        await keys.press("End")
        await keys.press("Enter")
        await expect(dialog).to_be_visible()
        await keys.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(tab.conversation("First line second line")).to_be_visible()
        await walk(tab, listed, "Shift+Tab", then="ArrowRight")
        await keys.press("Enter")
        await keys.press("Enter")
        await keys.type("Renamed by hand")
        await keys.press("Enter")
        await expect(tab.conversation("Renamed by hand")).to_be_visible()

        await walk(tab, page.get_by_role("button", name="New chat"), "Shift+Tab", then="Enter")
        await expect(tab.message).to_be_focused()
        await walk(tab, page.get_by_role("combobox", name="Agent"), then="ArrowDown")
        await walk(tab, tab.message, "Shift+Tab")
        await keys.type("To the coder")
        await keys.press("Enter")
        await tab.is_answered("Second.")
        await expect(tab.answers).to_contain_text("Coder")

        await walk(tab, tab.conversation("Renamed by hand"), "Shift+Tab", then="Enter")
        await tab.is_answered("A heading")
        await expect(tab.message).to_be_focused()
        unseen = []
        for _ in range(25):
            await keys.press("Tab")
            unseen += await page.evaluate(UNSEEN)
        assert unseen == []


async def test_the_enter_that_chooses_a_chinese_word_does_not_send(visit: Visit) -> None:
    async with visit(says("好的。")) as (_, tab):
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

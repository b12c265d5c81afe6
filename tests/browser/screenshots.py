"""The pictures of the web chat and the console in the documentation: `make screenshots` takes them anew, into docs/images.

What they show is a real conversation with the emulated model, always the same one, so that a picture changes only when
the page does. They are no test: nobody compares pixels.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ViewportSize, async_playwright, expect

from tests.browser.chromium import FLAGS, MISSING, chromium, missing
from tests.browser.house import House, house
from tests.browser.night import SCRIPT, night
from tests.browser.tab import Tab, visitor
from tests.demo import story
from tests.emulators.models.script import Turn, calls, says

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
BYTES_MAX = 150_000
FONTS_MISSING = "no Chinese font: the pictures need one. On Debian: apt-get install fonts-noto-cjk"
DESK = {"width": 1120, "height": 940}
SMALL = {"width": 1000, "height": 760}
PHONE = {"width": 375, "height": 740}
CONSOLE: ViewportSize = {"width": 1200, "height": 780}
ROOMS = {"now": "now", "turns/15": "turn"}
"""The rooms of the console that are shown, and the names of their pictures."""
WORK_OF_DAYS = (20, 60, 45, 90, 130, 30, 10, 70, 110, 95, 150, 60, 40, 80)
MORNING = datetime(2026, 3, 2, 9, 41, tzinfo=UTC).timestamp()
"""When all of it happens, for the server and for the page."""
AGENTS = """
agents:
  list:
    - id: analyst
      name: Analyst
      description: Reads tables, and says what is in them.
      examples: ["Which tea sells best?", "Plot the sales of June"]
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, ls, exec] }
    - id: coder
      name: 代码助手
      description: Writes scripts and explains code.
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, edit, ls, exec, message] }
      skills: { allow: [create-python-script] }
tools: { exec: { mode: allow } }
"""
EARLIER = {
    "Plan the offsite in Lisbon": "Two days in May it is.",
    "把发布说明翻译成中文": "好的,译文在下面。",
    "Why was the build red last night?": "The disk of the runner was full.",
}
QUESTION = "Which of our teas sells best? The figures are in sales.csv."
SALES = "tea,month,sold\nSencha,May,412\nAssam,May,388\nJasmine,May,240\nSencha,June,455\nAssam,June,361\nJasmine,June,301\n"
SUM = "awk -F, '{ sold[$1] += $3 } END { for (tea in sold) print sold[tea], tea }' sales.csv"
BEST = "tea,sold\nSencha,867\nAssam,749\nJasmine,541\n"
ANSWER = f"""\
**Sencha** sells best: 867 packs in two months, and that is rising.

| Tea | May | June | Together |
|:--|--:|--:|--:|
| Sencha | 412 | 455 | **867** |
| Assam | 388 | 361 | 749 |
| Jasmine | 240 | 301 | 541 |

The sums come from this line, and `best-teas.csv` has them:

```sh
{SUM}
```

MEDIA: best-teas.csv
"""
MATH = r"""The mean is $\bar x = \frac{1}{n} \sum_{i=1}^n x_i$, and its error

$$
s_{\bar x} = \sqrt{\frac{1}{n(n-1)} \sum_{i=1}^n (x_i - \bar x)^2}
$$

- [x] the mean is in `mean.py`
- [ ] the error is to follow
"""


@asynccontextmanager
async def morning(
    browser: Browser, script: Sequence[Turn], agent: str, **options: Any
) -> AsyncIterator[tuple[House, Tab, Path]]:
    """A visit whose clocks begin then, and the workspace of its agent."""
    behind = time.time() - MORNING
    with tempfile.TemporaryDirectory() as folder:
        async with (
            house(Path(folder), script=script, agents=AGENTS, now=lambda: time.time() - behind) as home,
            visitor(browser, home, **options) as tab,
        ):
            await tab.page.clock.set_fixed_time(MORNING)
            home.workspace(agent).mkdir(parents=True, exist_ok=True)
            yield home, tab, home.workspace(agent)


async def take(tab: Tab, name: str) -> None:
    await tab.page.mouse.move(0, 0)
    picture = FOLDER / f"{name}.png"
    await tab.page.screenshot(path=picture, animations="disabled")
    size = picture.stat().st_size
    print(f"{picture.name}: {size:,} bytes")  # noqa: T201 - a command line
    if size > BYTES_MAX:
        sys.exit(f"{picture.name} has more than {BYTES_MAX:,} bytes.")


async def take_desk(browser: Browser) -> None:
    """A finished answer in the light, and the same one growing in the dark."""
    work = calls(
        ("read", {"file_path": "sales.csv"}),
        ("exec", {"command": SUM}),
        ("write", {"file_path": "best-teas.csv", "content": BEST}),
    )
    script = [*(says(answer) for answer in EARLIER.values()), work, says(ANSWER)]
    async with morning(browser, script, "analyst", viewport=DESK, color_scheme="dark") as (home, tab, workspace):
        (workspace / "sales.csv").write_text(SALES, encoding="utf-8")
        for text, answer in EARLIER.items():
            await tab.ask(text, answer)
            await tab.new_chat()
        home.line.hold(after_pieces=15)
        await tab.say(QUESTION)
        await expect(tab.draft).to_contain_text("749")
        await take(tab, "web-dark")
        home.line.release()
        await expect(tab.answers).to_have_count(1)
        await tab.answers.locator("details").evaluate("(details) => (details.open = true)")
        await tab.message.click()
        await tab.page.emulate_media(color_scheme="light")
        await take(tab, "web-light")


async def take_acts(browser: Browser) -> None:
    """Math, tasks and an opened tool; the agents to choose from."""
    work = calls(("write", {"file_path": "mean.py", "content": "print(sum(x) / len(x))"}))
    async with morning(browser, [work, says(MATH)], "analyst", viewport=SMALL) as (_, tab, _):
        await tab.page.get_by_role("combobox", name="Agent").click()
        await take(tab, "web-agents")
        await tab.page.keyboard.press("Escape")
        await tab.ask("What is the mean, and what its error?", "The mean")
        await tab.answers.get_by_text("1 tool used").click()
        await tab.tools(tab.answers).get_by_role("button").click()
        await tab.answers.get_by_role("button", name="Tokens and cost").click()
        await tab.page.locator("#scroller").evaluate("(scroller) => (scroller.scrollTop = 90)")
        await take(tab, "web-acts")


async def take_phone(browser: Browser) -> None:
    """The reference case on a phone, in Chinese."""
    phone: dict[str, Any] = {"viewport": PHONE, "device_scale_factor": 1.5, "has_touch": True, "is_mobile": True}
    async with morning(browser, story.model_script(), "coder", locale="zh-CN", **phone) as (_, tab, workspace):
        story.lay_out(workspace)
        await tab.page.get_by_role("combobox", name="智能体").select_option(label="代码助手")
        await tab.page.get_by_role("textbox", name="消息", exact=True).fill(story.ASKED)
        await tab.page.get_by_role("button", name="发送").tap()
        answer = tab.page.locator('article[data-author="agent"]')
        await expect(answer).to_contain_text(story.SCRIPT_NAME)
        await answer.locator("details").evaluate("(details) => (details.open = true)")
        await take(tab, "web-phone")


async def take_console(browser: Browser) -> None:
    """The console after a night, and two weeks of its usage on a phone in the dark; in both languages."""
    behind = time.time() - MORNING
    days_ago = [float(len(WORK_OF_DAYS))]

    async def work(tab: Tab) -> None:
        for day, words in enumerate(WORK_OF_DAYS):
            days_ago[0] = len(WORK_OF_DAYS) - day
            await tab.new_chat()
            await tab.ask("Sum up the day", says_of(words)[:40])
        days_ago[0] = 0
        await tab.new_chat()

    script = [*(says(says_of(words)) for words in WORK_OF_DAYS), *SCRIPT]
    now = lambda: time.time() - behind - days_ago[0] * 86_400  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        scene = night(browser, Path(folder), stranger="小红", script=script, before=work, now=now, viewport=CONSOLE)
        async with scene as (home, tab, _):
            await tab.page.clock.set_fixed_time(MORNING + 60)
            for ending in ("", "-zh"):
                await take_rooms(home, tab, ending)
                await tab.page.set_viewport_size(CONSOLE)
                await tab.page.locator("#language").click()


async def take_rooms(home: House, tab: Tab, ending: str) -> None:
    await tab.page.emulate_media(color_scheme="light")
    for room, name in ROOMS.items():
        await tab.page.goto(f"{home.url}/console#{room}")
        await expect(tab.page.locator("#view")).to_have_attribute("aria-busy", "false")
        await take(tab, f"console-{name}{ending}")
    await tab.page.set_viewport_size({"width": 390, "height": 780})
    await tab.page.emulate_media(color_scheme="dark")
    await tab.page.goto(f"{home.url}/console#usage")
    await expect(tab.page.locator(".plot").first).to_be_visible()
    await take(tab, f"console-phone{ending}")


def says_of(words: int) -> str:
    return "Done. " + "We sold tea. " * words


async def main() -> None:
    if missing():
        sys.exit(MISSING)
    fonts = shutil.which("fc-list")
    if not fonts or not subprocess.run([fonts, ":lang=zh"], capture_output=True, check=False).stdout:
        sys.exit(FONTS_MISSING)
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        await take_desk(browser)
        await take_acts(browser)
        await take_phone(browser)
        await take_console(browser)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())

"""A night for the operator: a stranger waits, a command waits for approval, and an answer could not be delivered.

The stranger's name is as hostile as a platform lets it be. The console's tests and its pictures begin here.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from tests.browser.house import House, house
from tests.browser.tab import Tab, visitor
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Script
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback

FRIEND, STRANGER = 500000011, 500000033
HOSTILE = "<img src=x onerror=alert(1)>\u202eeman"
COMMAND = "rm -rf build && make build"
AGENTS = """
agents:
  list:
    - id: helper
      name: Helper
      description: Answers everybody, and runs a command where somebody allows it.
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, ls, exec, message] }
    - { id: coder, name: 代码助手, model: anthropic/claude-sonnet-4-6, tools: { profile: coding, deny: [process] } }
tools: { exec: { mode: ask } }
"""
SCRIPT = (calls(("exec", {"command": COMMAND})), says("It waits for you."), says("These words are lost."))


@asynccontextmanager
async def night(
    browser: Browser,
    folder: Path,
    *,
    stranger: str = HOSTILE,
    script: Script = SCRIPT,
    agents: str = AGENTS,
    before: Callable[[Tab], Awaitable[None]] | None = None,
    now: Callable[[], float] = time.time,
    **options: Any,
) -> AsyncIterator[tuple[House, Tab, TelegramEmulator]]:
    """The tab of the operator, who has signed in by the link and asked for the command in the chat; `before` goes ahead."""
    telegram = TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        bot = f'botToken: "{telegram.token}", apiRoot: "{url}", mode: polling, dmPolicy: pairing, streaming: off'
        channels = f", telegram: {{ {bot}, allowFrom: ['{FRIEND}'] }}"
        async with (
            house(folder, script=script, agents=agents, channels=channels, now=now) as home,
            visitor(browser, home, **options) as tab,
        ):
            await home.until(lambda: bool(telegram.commands))
            if before is not None:
                await before(tab)
            await _happen(home, tab, telegram, stranger)
            yield home, tab, telegram


async def _happen(home: House, tab: Tab, telegram: TelegramEmulator, stranger: str) -> None:
    await tab.page.locator("#message").fill("Build it anew")
    await tab.page.locator("#message").press("Enter")
    await tab.page.locator('article[data-author="agent"]', has_text="It waits for you.").wait_for()
    telegram.private(FRIEND, "Alice")
    telegram.private(STRANGER, stranger)
    telegram.fail_next("sendMessage", status=400, description="Bad Request: message text is empty")
    await telegram.push(telegram.text_update("hello", chat=FRIEND))
    await home.until(lambda: any("sendmessage" in it.method.lower() for it in telegram.requests))
    await telegram.push(telegram.text_update("let me in", chat=STRANGER))
    await home.until(lambda: any("private bot" in it.text for it in telegram.messages))

"""One real browser for the tests of this folder, all of which run on one event loop: a browser belongs to its loop.

Where the machine has no browser they are skipped, and say so; they never pass unseen.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.chromium import FLAGS, MISSING, chromium, light, missing
from tests.browser.house import AGENTS, House, house
from tests.browser.tab import Tab, Visit, visitor
from tests.emulators.models.server import Reply

HERE = str(Path(__file__).parent)
SCOPE: Final = "package"
PATIENCE_MS = 60_000
"""A busy machine may take so long; what is there at once costs nothing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope=SCOPE), append=False)


@pytest_asyncio.fixture(scope=SCOPE, loop_scope=SCOPE)
async def browser() -> AsyncIterator[Browser]:
    if missing():
        pytest.skip(MISSING)
    expect.set_options(timeout=PATIENCE_MS)
    async with launched(light()) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope=SCOPE)
async def windowed(browser: Browser) -> AsyncIterator[Browser]:
    """A browser that can ask a person something, and show them a notice. It starts for one test."""
    async with launched(chromium()) as whole:
        yield whole


@asynccontextmanager
async def launched(path: str | None) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Visit:
    @asynccontextmanager
    async def visited(
        *script: Reply, agents: str = AGENTS, more: str = "", **options: Any
    ) -> AsyncIterator[tuple[House, Tab]]:
        async with (
            house(tmp_path, script=script, agents=agents, more=more) as home,
            visitor(browser, home, **options) as tab,
        ):
            yield home, tab

    return visited

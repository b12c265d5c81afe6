"""The gateway that most stories of the web chat begin with, and one page of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.running import Running, running
from tests.web_page import WEB, Page, opened


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Running]:
    """With Feishu and the web chat; its model echoes."""
    async with running(tmp_path, feishu=WEB) as house:
        yield house


@pytest.fixture
async def page(house: Running) -> AsyncIterator[Page]:
    async with opened(house.url) as page:
        yield page

"""What stories share: the gateway that most of the web chat begin with, one page of it, and a platform with patience."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.http import door
from tests.running import Running, running
from tests.waiting import PATIENCE_SECONDS
from tests.web_page import WEB, Page, opened


@pytest.fixture(scope="session", autouse=True)
def a_patient_platform() -> Iterator[None]:
    """A busy machine takes longer than Feishu waits. Feishu would deliver the message again, and a test does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "ACCEPT_SECONDS", PATIENCE_SECONDS)
        yield


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Running]:
    """With Feishu and the web chat; its model echoes."""
    async with running(tmp_path, feishu=WEB) as house:
        yield house


@pytest.fixture
async def page(house: Running) -> AsyncIterator[Page]:
    async with opened(house.url) as page:
        yield page

"""A few seconds of the soak, so that it can still be run."""

from pathlib import Path

import pytest

from tests.soak.__main__ import soak

pytestmark = pytest.mark.waits


@pytest.mark.slow
async def test_some_seconds_of_mixed_traffic_lose_nothing(tmp_path: Path) -> None:
    assert await soak(tmp_path, minutes=0.1, pause_seconds=2.0, seed=3)

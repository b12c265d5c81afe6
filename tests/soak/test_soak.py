"""A few seconds of the soak, so that it can still be run."""

from pathlib import Path

import pytest

from tests.browser.chromium import MISSING, missing
from tests.soak.__main__ import soak


@pytest.mark.slow
async def test_some_seconds_of_mixed_traffic_lose_nothing(tmp_path: Path) -> None:
    assert await soak(tmp_path, minutes=0.1, pause_seconds=2.0, seed=3)


@pytest.mark.slow
async def test_a_console_may_be_open_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if missing():
        pytest.skip(MISSING)
    assert await soak(tmp_path, minutes=0.2, pause_seconds=2.0, seed=3, watched=True)
    report = capsys.readouterr().out
    assert "MB of the page: " in report
    assert "bytes a turn in tables and indexes" in report

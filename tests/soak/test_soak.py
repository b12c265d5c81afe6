"""A few seconds of the soak, so that it can still be run."""

from pathlib import Path

import pytest

from tests.browser.chromium import missing
from tests.soak.__main__ import soak


@pytest.mark.slow
async def test_some_seconds_of_mixed_traffic_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the console open, where there is a browser."""
    assert await soak(tmp_path, minutes=0.2, pause_seconds=2.0, seed=3, watched=not missing())
    report = capsys.readouterr().out
    assert missing() or "MB of the page: " in report
    assert "bytes a turn in tables and indexes" in report

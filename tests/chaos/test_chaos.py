"""A short campaign against real processes: two kills at each of the points that say most. `make chaos` does the rest."""

from pathlib import Path

import pytest

from tests.chaos.campaign import campaign
from tests.chaos.points import POINTS, Point

SHORT = ("K2", "K5", "K8", "K9", "K11", "K12", "K14", "K16")


@pytest.mark.parametrize("point", [point for point in POINTS if point.name in SHORT], ids=lambda point: point.name)
async def test_killed_there_nothing_is_lost_doubled_or_run_again(point: Point, tmp_path: Path) -> None:
    result = await campaign(point, 2, tmp_path, seed=7)
    found = {kind: words for kind, words in vars(result.verdict).items() if words}
    assert found == {}, str(result)
    assert result.injected == 2

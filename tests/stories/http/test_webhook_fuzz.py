"""Some hundreds of the mutated webhook bodies; the rest by `python -m tests.fuzz_webhooks --count 100000`."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.fuzz_webhooks import fuzz


@pytest.mark.slow
async def test_no_body_of_any_shape_breaks_the_door_and_nothing_forged_is_stored(tmp_path: Path) -> None:
    found = await fuzz(tmp_path, count=30 * settings().max_examples, seed=16)
    assert found.wrong == []
    assert {status for _, status in found.statuses} <= {200, 400, 401, 403, 413, 429}
    assert {kind for kind, _ in found.statuses} == {"feishu forged", "feishu odd", "telegram forged", "telegram odd"}

"""Some hundreds of the mutated webhook bodies; the rest by `python -m tests.fuzz_webhooks --count 100000`."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.fuzz_webhooks import fuzz


@pytest.mark.slow
async def test_webhook_fuzz_breaks_nothing_and_stores_nothing_forged(tmp_path: Path) -> None:
    found = await fuzz(tmp_path, count=30 * settings().max_examples, seed=16)
    assert found.wrong == []
    assert {status for _, status in found.statuses} <= {200, 400, 401, 403, 413, 429}
    assert {kind for kind, _ in found.statuses} == {"feishu forged", "feishu odd", "telegram forged", "telegram odd"}

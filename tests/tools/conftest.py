"""The bench most tests work at: every tool, and commands allowed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.bench import Bench, bench


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    built = bench(tmp_path)
    yield built
    built.workspace.close()

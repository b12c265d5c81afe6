"""The configs of docs/examples as a person takes them: each says what it needs, passes `check`, and makes a gateway."""

import re
from pathlib import Path
from shutil import copytree

import pytest

from gateway.config.load import load
from gateway.operate.report import report
from tests.stories.test_check import DUMMY, VALUES
from tests.stories.test_process import ROOT

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))
MORE = {
    "TRACKER_URL": "https://mcp.example.com/mcp",
    "DATABASE_URL": "postgresql://user:password@127.0.0.1/clawgate",
    "ANTHROPIC_API_KEY": DUMMY,
}
GROUPS = ["no group is listened to yet"]
MEANT = {"public-bot": ["dmPolicy: open"], "family-telegram": GROUPS, "replicas": GROUPS}
"""The warnings that an example is about."""


def variables(text: str) -> set[str]:
    """The names that a config cannot do without."""
    return set(re.findall(r"\$\{([A-Z0-9_]+)\}", text))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_names_what_it_needs_and_passes_check(tmp_path: Path, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    needed = variables(text)
    head = text.partition("\n\n")[0]
    assert {name for name in needed if name not in head} == set()
    copy = tmp_path / "config.yaml"
    copy.write_text(text, encoding="utf-8")
    copytree(file.parent / "tools.d", tmp_path / "tools.d")
    env = MORE | {name: VALUES.get(name) or MORE.get(name) or f"{DUMMY}-{name}-of-48" for name in needed}
    warnings = [str(it) for it in report(load(copy, env)) if it.status == "warning"]
    assert [line for line in warnings if not any(words in line for words in MEANT.get(file.stem, ()))] == []


def test_the_cookbook_has_each_example_once_in_its_table() -> None:
    table = re.findall(
        r"^\| .* \| \[(\S+)\]\(examples/(\S+)\) \|$", (ROOT / "docs/cookbook.md").read_text("utf-8"), re.M
    )
    assert sorted(table) == [(file.name, file.name) for file in EXAMPLES]
    assert len(EXAMPLES) >= 10

"""docs/tools.md has every built-in tool, as it is."""

import re
from pathlib import Path

from tests.tools.bench import Bench

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| .* \| (\w+) \|$", re.MULTILINE)


def test_the_table_is_the_catalogue(at: Bench) -> None:
    rows = [(name, re.findall(r"`(\w+\??)`", takes), effect) for name, takes, effect in ROW.findall(DOCS.read_text())]
    specs = []
    for spec in at.toolbox.specs:
        members = [it + "?" * (it not in spec.input_schema["required"]) for it in spec.input_schema["properties"]]
        specs.append((spec.name, members, spec.effect))
    assert rows == specs

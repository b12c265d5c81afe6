"""The figures that docs/speed.md keeps, read from its first table, and how far a run is from them.

A ratio is compared with the ratio, as machines differ; a figure that no bare bot has, with the figure. An issue that makes a
turn dearer by more than `DEARER` says why in its note.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.report import Row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "speed.md"
DEARER = 0.02
SIDES = {
    "feishu, SQLite": "Feishu",
    "telegram, SQLite": "Telegram",
    "web, SQLite": "web chat",
    "feishu, PostgreSQL": "Feishu, PostgreSQL",
}
"""The columns of the table, by the title of a run."""
LINES = {
    "plain turn, CPU": "plain turn, CPU",
    "plain turn, p50": "plain turn, p50",
    "3-tool turn, p50": "3-tool turn, p50",
    "50 chats, 200 ms model": "50 chats, model latency 200 ms, turns a second",
    "50 chats, CPU of a turn": "the same, CPU of a turn",
    "50 chats, webhook ack p99": "the same, webhook ack p99",
    "cold start to ready": "start to ready, the database there",
}
"""The lines of the table, by the name of a figure."""
_RATIO = re.compile(r", ([0-9.]+)(?: ×)?(?: \(|$)")
_MEMORY = re.compile(r"([0-9]+) / ([0-9]+) MB")


class Reshaped(Exception):
    """The table in docs/speed.md is not the one that this reads: mend it, or tests/bench/kept.py."""


def kept(page: str) -> dict[tuple[str, str], float]:
    """The kept figures by the title of a run and the name of a figure. Raises Reshaped."""
    table = re.search(r"^\| \| target \|.*(?:\n\|.*)+", page, re.M)
    if table is None:
        raise Reshaped("there is no table that begins with | | target |")
    heads, _, *others = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[0].split("\n"))
    lines = {cells[0]: dict(zip(heads, cells, strict=False)) for cells in others}
    found: dict[tuple[str, str], float] = {}
    for title, side in SIDES.items():
        for name, line in LINES.items():
            found[title, name] = float(_matched(_RATIO, lines, line, side)[1])
        memory = _matched(_MEMORY, lines, "resident, idle / peak", side)
        found[title, "resident, idle after one turn"], found[title, "resident, peak"] = map(float, memory.groups())
    return found


def _matched(form: re.Pattern[str], lines: dict[str, dict[str, str]], line: str, side: str) -> re.Match[str]:
    cell = lines.get(line, {}).get(side)
    if cell is None or (match := form.search(cell)) is None:
        raise Reshaped(f"line {line!r}, column {side!r}: {cell!r}")
    return match


def differences(title: str, rows: Sequence[Row], page: str) -> Iterator[str]:
    """A line for each figure of a run that is kept. Raises Reshaped."""
    before = kept(page)
    for row in rows:
        if (then := before.get((title, row.name))) is None:
            continue
        now = row.value if row.ratio is None or row.unit == "MB" else row.ratio
        unit, change = "MB" if row.unit == "MB" else "x", now / then - 1
        dearer = row.name == "plain turn, CPU" and change > DEARER
        yield f"  {row.name}: {now:.3g} {unit}, kept {then:g}: {change:+.0%}{' DEARER: say why' if dearer else ''}"

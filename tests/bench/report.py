"""What was measured, as a table: each figure, its ratio to the floor bot in the same run, and the target beside it.

Nothing here fails a build: a machine's speed is not the code's. The targets are the project's own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.bench.load import Measured, percentile

EARLY, LATE = slice(5, 15), slice(-10, None)
"""Turns 6 to 15 of one long chat, and its last ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    at_most: float | None = None
    at_least: float | None = None

    def met(self, value: float) -> bool:
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"<= {_number(self.at_most)}" if self.at_most is not None else f">= {_number(self.at_least or 0.0)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `floor` is the same figure of the floor bot; None where it has no such thing."""

    name: str
    unit: str
    value: float
    floor: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None


@dataclass(kw_only=True)
class Figures:
    """All that is measured of one bot; the floor bot has no long chat."""

    ready_seconds: list[float] = field(default_factory=list)
    plain: Measured = field(default_factory=Measured)
    tools: Measured = field(default_factory=Measured)
    long: Measured = field(default_factory=Measured)
    crowd: Measured = field(default_factory=Measured)
    idle_mb: float = 0.0
    peak_mb: float = 0.0


def rows(bot: Figures, floor: Figures) -> list[Row]:
    """The table of one run."""
    plain, low = median(bot.plain.turns), median(floor.plain.turns)
    tools, low_tools = median(bot.tools.turns), median(floor.tools.turns)
    every = [bot.plain, bot.tools, bot.long, bot.crowd]
    return [
        Row("plain turn, p50", "ms", plain, low),
        Row("plain turn, p95", "ms", percentile(bot.plain.turns, 0.95), percentile(floor.plain.turns, 0.95)),
        Row("plain turn, own overhead p50", "ms", plain - low, target=Target(at_most=6)),
        Row("plain turn, CPU", "ms", bot.plain.cpu_ms_per_turn, floor.plain.cpu_ms_per_turn, Target(at_most=5)),
        Row("3-tool turn, p50", "ms", tools, low_tools),
        Row("3-tool turn, p95", "ms", percentile(bot.tools.turns, 0.95), percentile(floor.tools.turns, 0.95)),
        Row("3-tool turn, own overhead p50", "ms", tools - low_tools, target=Target(at_most=16)),
        Row("3-tool turn, CPU", "ms", bot.tools.cpu_ms_per_turn, floor.tools.cpu_ms_per_turn),
        Row(
            "50 chats, 200 ms model",
            "turns/s",
            bot.crowd.turns_per_second,
            floor.crowd.turns_per_second,
            Target(at_least=180),
        ),
        Row("50 chats, turn p50", "ms", median(bot.crowd.turns), median(floor.crowd.turns)),
        Row("50 chats, CPU of a turn", "ms", bot.crowd.cpu_ms_per_turn, floor.crowd.cpu_ms_per_turn),
        Row("50 chats, webhook ack p50", "ms", median(bot.crowd.acks), median(floor.crowd.acks)),
        Row(
            "50 chats, webhook ack p99",
            "ms",
            percentile(bot.crowd.acks, 0.99),
            percentile(floor.crowd.acks, 0.99),
            Target(at_most=25),
        ),
        Row("lost, in the whole run", "", sum(part.lost for part in every), target=Target(at_most=0)),
        Row("doubled, in the whole run", "", sum(part.doubled for part in every), target=Target(at_most=0)),
        Row("one chat, turns 6 to 15, p50", "ms", median(bot.long.turns[EARLY])),
        Row(f"one chat, last 10 of {len(bot.long.turns)}, p50", "ms", median(bot.long.turns[LATE])),
        Row(
            "one chat, late / early",
            "x",
            median(bot.long.turns[LATE]) / median(bot.long.turns[EARLY]),
            target=Target(at_most=1.3),
        ),
        Row("cold start to ready", "s", median(bot.ready_seconds), median(floor.ready_seconds), Target(at_most=1.0)),
        Row("resident, idle after one turn", "MB", bot.idle_mb, floor.idle_mb, Target(at_most=90)),
        Row("resident, peak", "MB", bot.peak_mb, floor.peak_mb),
        Row("the peers' own CPU, plain turn", "ms", bot.plain.peers_cpu_ms_per_turn, floor.plain.peers_cpu_ms_per_turn),
    ]


def table(facts: Mapping[str, str], runs: Mapping[str, Sequence[Row]]) -> str:
    """Plain text: one line a figure, one group of columns a database."""
    lines = [f"{name}: {value}" for name, value in facts.items()]
    for database, figures in runs.items():
        cells = [(database, "", "floor", "ratio", "target", ""), *(_cells(row) for row in figures)]
        widths = [max(len(line[column]) for line in cells) for column in range(1, 6)]
        first = max(len(row.name) for row in figures)
        lines.append("")
        for name, row in zip([database, *(row.name for row in figures)], cells, strict=True):
            rest = "  ".join(cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))
            lines.append(f"{name:<{first}}  {rest}".rstrip())
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    floor = _number(row.floor) if row.floor is not None else ""
    ratio = f"{row.ratio:.1f} x" if row.ratio is not None else ""
    target = f"{row.target}" if row.target is not None else ""
    verdict = "" if row.target is None else "met" if row.target.met(row.value) else "NOT MET"
    return row.name, f"{_number(row.value)} {row.unit}".strip(), floor, ratio, target, verdict


def document(facts: Mapping[str, str], runs: Mapping[str, Iterable[Row]]) -> str:
    """The same for programs."""
    told: dict[str, Any] = {name: [_told(row) for row in figures] for name, figures in runs.items()}
    return json.dumps({"facts": dict(facts), "databases": told}, indent=2)


def _told(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"name": row.name, "unit": row.unit, "value": row.value}
    told |= {"floor": row.floor, "ratio": row.ratio}
    if row.target is not None:
        told |= {"target": str(row.target), "met": row.target.met(row.value)}
    return told


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2f}"

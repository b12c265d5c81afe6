"""What was measured, as a table: each figure, its ratio to the floor bot in the same run, and the target beside it.

Nothing here fails a build: a machine's speed is not the code's. The targets are the project's own.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.bench.load import Measured, percentile

EARLY, LATE = slice(5, 15), slice(-10, None)
"""Turns 6 to 15 of one long chat, and its last ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """`times`: of the floor bot's figure."""

    at_most: float | None = None
    at_least: float | None = None
    times: bool = False

    def met(self, value: float) -> bool:
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        bound = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        return f"{bound} x" if self.times else bound


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

    @property
    def met(self) -> bool:
        return self.target is None or self.target.met((self.ratio or 0.0) if self.target.times else self.value)


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


GOALS: dict[str, tuple[float, ...]] = {"feishu": (5.5, 8, 7, 0.75, 9, 2), "telegram": (9, 11, 7, 0.75, 11, 2)}
"""As multiples of the floor bot's: a plain turn's p50 and CPU, p50 with tools, turns a second, CPU and acks of a crowd."""


def rows(side: str, bot: Figures, floor: Figures) -> list[Row]:
    """The table of one run."""
    plain, plain_cpu, tools, crowd, crowd_cpu, acks = (
        Target(**{"at_least" if number == 3 else "at_most": goal}, times=True)
        for number, goal in enumerate(GOALS.get(side, GOALS["feishu"]))
    )
    every = [bot.plain, bot.tools, bot.long, bot.crowd]

    def row(name: str, unit: str, figure: Callable[[Figures], float], target: Target | None = None) -> Row:
        return Row(name, unit, figure(bot), figure(floor), target)

    return [
        row("plain turn, p50", "ms", lambda it: median(it.plain.turns), plain),
        row("plain turn, p95", "ms", lambda it: percentile(it.plain.turns, 0.95)),
        row("plain turn, CPU", "ms", lambda it: it.plain.cpu_ms_per_turn, plain_cpu),
        row("3-tool turn, p50", "ms", lambda it: median(it.tools.turns), tools),
        row("3-tool turn, p95", "ms", lambda it: percentile(it.tools.turns, 0.95)),
        row("3-tool turn, CPU", "ms", lambda it: it.tools.cpu_ms_per_turn),
        row("50 chats, 200 ms model", "turns/s", lambda it: it.crowd.turns_per_second, crowd),
        row("50 chats, turn p50", "ms", lambda it: median(it.crowd.turns)),
        row("50 chats, CPU of a turn", "ms", lambda it: it.crowd.cpu_ms_per_turn, crowd_cpu),
        row("50 chats, webhook ack p50", "ms", lambda it: median(it.crowd.acks)),
        row("50 chats, webhook ack p99", "ms", lambda it: percentile(it.crowd.acks, 0.99), acks),
        Row("lost, in the whole run", "", sum(part.lost for part in every), target=Target(at_most=0)),
        Row("doubled, in the whole run", "", sum(part.doubled for part in every), target=Target(at_most=0)),
        Row("one chat, turns 6 to 15, p50", "ms", median(bot.long.turns[EARLY])),
        Row(f"one chat, last 10 of {len(bot.long.turns)}, p50", "ms", median(bot.long.turns[LATE])),
        Row(
            "one chat, late / early",
            "x",
            median(bot.long.turns[LATE]) / median(bot.long.turns[EARLY]),
            target=Target(at_most=1.1),
        ),
        row("cold start to ready", "s", lambda it: median(it.ready_seconds), Target(at_most=4, times=True)),
        row("resident, idle after one turn", "MB", lambda it: it.idle_mb, Target(at_most=130)),
        row("resident, peak", "MB", lambda it: it.peak_mb, Target(at_most=150)),
        row("the peers' own CPU, plain turn", "ms", lambda it: it.plain.peers_cpu_ms_per_turn),
    ]


def table(facts: Mapping[str, str], runs: Mapping[str, Sequence[Row]]) -> str:
    """Plain text: one line a figure, one group of lines a run."""
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
    verdict = "" if row.target is None else "met" if row.met else "NOT MET"
    return row.name, f"{_number(row.value)} {row.unit}".strip(), floor, ratio, target, verdict


def document(facts: Mapping[str, str], runs: Mapping[str, Iterable[Row]]) -> str:
    """The same for programs."""
    shown: dict[str, Any] = {name: [_shown(row) for row in figures] for name, figures in runs.items()}
    return json.dumps({"facts": dict(facts), "databases": shown}, indent=2)


def _shown(row: Row) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": row.name, "unit": row.unit, "value": row.value}
    shown |= {"floor": row.floor, "ratio": row.ratio}
    if row.target is not None:
        shown |= {"target": str(row.target), "met": row.met}
    return shown


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2f}"

"""One point of the catalogue, hurt there again and again; then the verdict.

Folder and database live through all of it, so that each round sees what the ones before it left behind.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.chaos.emulated import Emulated
from tests.chaos.injuries import INJURIES, UNDER_LOAD, load
from tests.chaos.ledger import Ledger
from tests.chaos.oracle import Verdict
from tests.chaos.points import POLLED, Point
from tests.chaos.scene import Scene, scene

TRIES = 3
"""Tries for one injury that does not always happen."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one point went. `clean` also wants every planned injury to have happened."""

    point: Point
    channel: str
    planned: int
    injected: int
    verdict: Verdict
    ledger: Ledger
    restart_max: float
    seconds: float
    seed: int

    @property
    def clean(self) -> bool:
        return self.verdict.clean and self.injected >= self.planned

    def __str__(self) -> str:
        found = self.verdict
        missed = f" MISSED={self.planned - self.injected}" if self.injected < self.planned else ""
        return (
            f"{self.point.name} on {self.channel} inj={self.injected}{missed} lost={len(found.lost)} "
            f"dup_turns={len(found.dup_turns)} dup_replies={len(found.dup_replies)} order={len(found.order)} "
            f"orphans={len(found.orphans)} reruns={len(found.reruns)} refused={len(found.refused)} "
            f"litter={len(found.litter)} hidden={len(found.hidden)} ambiguous={doubtful(self.ledger)} "
            f"restart_max={self.restart_max:.2f}s kills={self.ledger.kills} "
            f"messages={len(self.ledger.messages)} took={self.seconds:.0f}s seed={self.seed}"
        )


def doubtful(ledger: Ledger) -> str:
    """How many sends may have arrived, and what became of them: given up, seen by nobody, never even asked for."""
    shown = Counter((reply.serial, reply.take, reply.part) for reply in ledger.shown)
    doubts = list(ledger.doubts.items())
    given_up = [part for part, doubt in doubts if doubt.given_up]
    twice = sum(shown[part] > 1 for part, _ in doubts)
    unseen = sum(not shown[part] for part in given_up)
    unsent = sum(part not in ledger.asked_to_show for part in given_up)
    repeated = sum(doubt.times for _, doubt in doubts if not doubt.given_up)
    times = sum(doubt.times for _, doubt in doubts)
    return f"{times}(given_up={len(given_up)} unseen={unseen} unsent={unsent} repeated={repeated} shown_twice={twice})"


async def campaign(
    point: Point,
    planned: int,
    folder: Path,
    *,
    chat: Emulated,
    seed: int,
    database: str | None = None,
    replicas: int = 1,
) -> Result:
    """`folder` is empty; it holds the logs afterwards."""
    began = monotonic()
    point = POLLED.get(point.name, point) if chat.fetched else point
    async with scene(point, folder, chat=chat, seed=seed, database=database, replicas=replicas) as played:
        await played.subject.start()
        injected = await _injure(played, planned)
        await played.calm()
        await played.subject.close()
        verdict = await played.verdict()
    return Result(
        point=point,
        channel=chat.name,
        planned=planned,
        injected=injected,
        verdict=verdict,
        ledger=played.ledger,
        restart_max=played.subject.restart_max,
        seconds=monotonic() - began,
        seed=seed,
    )


async def _injure(played: Scene, planned: int) -> int:
    injury = INJURIES[played.point.how]
    injected = 0
    if played.point.how in UNDER_LOAD:
        async with load(played):
            for _ in range(planned):
                injected += await injury(played)
        return injected
    for _ in range(planned * TRIES):
        if injected >= planned:
            break
        injected += await injury(played)
    return injected

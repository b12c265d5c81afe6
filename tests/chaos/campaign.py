"""One point of the catalogue, hurt there again and again; then the verdict.

Folder and database live through all of it, so that each round sees what the ones before it left behind.
"""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.chaos.injuries import INJURIES, UNDER_LOAD, load
from tests.chaos.oracle import Verdict
from tests.chaos.points import Point
from tests.chaos.scene import Scene, scene

TRIES = 3
"""Tries for one injury that does not always happen."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one point went. `clean` also wants every planned injury to have happened."""

    point: Point
    planned: int
    injected: int
    verdict: Verdict
    kills: int
    messages: int
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
            f"{self.point.name} inj={self.injected}{missed} lost={len(found.lost)} dup_turns={len(found.dup_turns)} "
            f"dup_replies(feishu/telegram)={len(found.dup_replies)}/- order={len(found.order)} "
            f"orphans={len(found.orphans)} reruns={len(found.reruns)} refused={len(found.refused)} "
            f"litter={len(found.litter)} restart_max={self.restart_max:.2f}s kills={self.kills} "
            f"messages={self.messages} took={self.seconds:.0f}s seed={self.seed}"
        )


async def campaign(
    point: Point, planned: int, folder: Path, *, seed: int, database: str | None = None, replicas: int = 1
) -> Result:
    """`folder` is empty; it holds the logs afterwards."""
    began = monotonic()
    async with scene(point, folder, seed=seed, database=database, replicas=replicas) as played:
        await played.subject.start()
        injected = await _injure(played, planned)
        await played.calm()
        await played.subject.close()
        verdict = await played.verdict()
    return Result(
        point=point,
        planned=planned,
        injected=injected,
        verdict=verdict,
        kills=played.ledger.kills,
        messages=len(played.ledger.messages),
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

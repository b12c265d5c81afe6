"""One point of the catalogue, hurt there again and again; then the verdict.

Folder and database live through all of it, so that each round sees what the ones before it left behind.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.chaos.emulated import Emulated, OnFeishu
from tests.chaos.injuries import POLLED, Point, load
from tests.chaos.ledger import Ledger
from tests.chaos.oracle import Verdict
from tests.chaos.scene import Scene, scene

LOG_LINES = 300
TRIES = 3
"""Tries for one injury that does not always happen."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one point went. `clean` also wants every planned injury to have happened."""

    title: str
    planned: int
    injected: int
    verdict: Verdict
    ledger: Ledger
    restart_max: float
    seconds: float
    seed: int
    logs: str
    """The last lines of every replica's."""

    @property
    def clean(self) -> bool:
        return not any(self.verdict.values()) and self.injected >= self.planned

    def __str__(self) -> str:
        missed = f" MISSED={self.planned - self.injected}" if self.injected < self.planned else ""
        found = " ".join(f"{kind}={len(words)}" for kind, words in self.verdict.items())
        return (
            f"{self.title} inj={self.injected}{missed} {found} ambiguous={doubtful(self.ledger)} "
            f"restart_max={self.restart_max:.2f}s kills={self.ledger.kills} "
            f"messages={len(self.ledger.messages)} took={self.seconds:.0f}s seed={self.seed}"
        )

    def findings(self) -> Iterator[str]:
        return (f"{kind}: {words}" for kind, found in self.verdict.items() for words in found)


def doubtful(ledger: Ledger) -> str:
    """How many sends may have arrived, and what became of them: given up, seen by nobody, never even asked for."""
    shown = Counter(reply.key for reply in ledger.shown)
    given_up = [key for key, doubt in ledger.doubts.items() if doubt.given_up]
    times = sum(doubt.times for doubt in ledger.doubts.values())
    repeated = sum(doubt.times for doubt in ledger.doubts.values() if not doubt.given_up)
    unseen, unsent = sum(not shown[key] for key in given_up), sum(key not in ledger.sends for key in given_up)
    twice = sum(shown[key] > 1 for key in ledger.doubts)
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
    if isinstance(chat, OnFeishu):
        chat.live = point.live
    async with scene(
        point.name,
        folder,
        chat=chat,
        seed=seed,
        database=database,
        replicas=replicas,
        agent=point.agent,
        mode=point.mode,
    ) as played:
        await played.start()
        injected = await _injure(played, point, planned)
        await played.calm()
        await played.close()
        verdict = await played.verdict()
    return Result(
        title=f"{point.name} on {chat.name}",
        planned=planned,
        injected=injected,
        verdict=verdict,
        ledger=played.ledger,
        restart_max=max((seconds for replica in played.replicas for seconds in replica.restarts[1:]), default=0.0),
        seconds=monotonic() - began,
        seed=seed,
        logs="\n\n".join(replica.log(LOG_LINES) for replica in played.replicas),
    )


async def _injure(played: Scene, point: Point, planned: int) -> int:
    if point.load:
        async with load(played, point.load):
            return sum([await point.injury(played, point) for _ in range(planned)])
    injected = 0
    for _ in range(planned * TRIES):
        if injected < planned:
            injected += await point.injury(played, point)
    return injected

"""What a campaign plays on: platform, model, sender and the gateway between them, and what every injury needs of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from time import monotonic, time_ns

from tests.chaos.ledger import Ledger, Wish
from tests.chaos.model import Model
from tests.chaos.oracle import Verdict, answered, judge
from tests.chaos.platform import Platform
from tests.chaos.points import Point
from tests.chaos.sender import Sender
from tests.chaos.subject import Replica, Subject, strays

SETTLE_SECONDS = 20.0
ORPHAN_SECONDS = 3.0
QUIET_SECONDS = 0.7
"""Doubles may come late."""
POLL_SECONDS = 0.004


@dataclass(kw_only=True)
class Scene:
    """`kills` in the ledger counts all deaths, those as well that came while an earlier one was being made good."""

    point: Point
    folder: Path
    chance: random.Random
    marker: str
    model: Model
    platform: Platform
    subject: Subject
    sender: Sender
    _open: set[str] = field(default_factory=set)
    """Serials that are not answered yet."""

    @property
    def replicas(self) -> Sequence[Replica]:
        return self.subject.replicas

    @property
    def ledger(self) -> Ledger:
        return self.platform.ledger

    def write(self, wishes: Sequence[Wish]) -> None:
        """Somebody writes these, in any order."""
        self._open |= {message.serial for message in self.sender.write(self.chance.sample(wishes, len(wishes)))}

    def watch(self) -> None:
        """Count on an answer to everything in the ledger."""
        self._open |= set(self.ledger.messages)

    def unanswered(self) -> int:
        self.platform.read()
        for serial in list(self._open):
            message = self.ledger.messages[serial]
            if message.acked is not None and answered(message, self.platform.replies[serial]):
                self._open.discard(serial)
        return len(self._open)

    async def settled(self) -> bool:
        """Wait until everything has its answer, making good any death on the way. False where that takes too long."""
        give_up = monotonic() + SETTLE_SECONDS
        while self.unanswered():
            if monotonic() > give_up:
                self._open.clear()  # lost, as the verdict will say; what comes next need not wait for it
                return False
            for replica in self.replicas:
                if replica.dead:
                    await self.revive(replica)
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def calm(self) -> None:
        """Settled, and nothing more comes."""
        await self.settled()
        await self.sender.quiet()
        await asyncio.sleep(QUIET_SECONDS)

    async def revive(self, replica: Replica, kill: str = "") -> None:
        """Bury the dead, look for what outlived it, start it again. Any end but SIGKILL is the product's own fault."""
        code = await replica.ended()
        if code == -SIGKILL:
            self.ledger.kills += 1
        else:
            self.ledger.refused.append(f"a gateway ended by itself, with {code}")
        await self.look_for_orphans()
        if not await replica.start(kill):
            await self.revive(replica)

    async def look_for_orphans(self) -> None:
        """No command may outlive the gateway that started it by more than a moment."""
        alive = {replica.pid for replica in self.replicas if not replica.dead}
        give_up = monotonic() + ORPHAN_SECONDS
        while found := strays(self.marker, alive):
            if monotonic() > give_up:
                self.ledger.orphans += found.values()
                return
            await asyncio.sleep(POLL_SECONDS)

    async def verdict(self) -> Verdict:
        await self.look_for_orphans()
        await self.platform.look_at_files()
        return judge(self.platform.read())


@asynccontextmanager
async def scene(point: Point, folder: Path, *, seed: int, database: str | None, replicas: int) -> AsyncIterator[Scene]:
    """The gateway is not started yet; at the end whatever runs of it is killed."""
    chance = random.Random(f"{point.name}:{seed}")
    marker = f"chaos-{point.name}-{seed}-{time_ns()}"
    model = Model(marker, chance)
    platform = Platform(folder, model)
    async with platform.served() as (feishu, anthropic):
        subject = Subject(
            [
                Replica(number, folder, feishu_url=feishu, model_url=anthropic, database=database)
                for number in range(replicas)
            ]
        )
        async with Sender(platform, subject.url, chance) as sender:
            try:
                yield Scene(
                    point=point,
                    folder=folder,
                    chance=chance,
                    marker=marker,
                    model=model,
                    platform=platform,
                    subject=subject,
                    sender=sender,
                )
            finally:
                await subject.close()

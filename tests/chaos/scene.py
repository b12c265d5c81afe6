"""What a campaign plays on: platform, model, sender and the gateway between them, and what every injury needs of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from time import monotonic, time_ns

from tests.chaos.books import Books
from tests.chaos.emulated import Emulated
from tests.chaos.ledger import Ledger, Wish
from tests.chaos.model import Model
from tests.chaos.oracle import Verdict, answered, excused, judge
from tests.chaos.platform import Platform
from tests.chaos.points import Point
from tests.chaos.sender import Sender
from tests.chaos.subject import Replica, Subject, strays

SETTLE_SECONDS = 60.0
"""From one answer to the next."""
ORPHAN_SECONDS = 20.0
QUIET_SECONDS = 0.7
"""Doubles may come late."""
POLL_SECONDS = 0.004
BOOKS_SECONDS = 0.25
"""So often the gateway's books are looked at while an answer is waited for."""


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
    _looked: float = 0.0

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

    async def unanswered(self) -> int:
        self.platform.read()
        if self._open and monotonic() > self._looked + BOOKS_SECONDS and not self.ledger.repeats:
            await self.platform.look_at_books()
            self._looked = monotonic()
        given_up = excused(self.ledger)
        for serial in list(self._open):
            message = self.ledger.messages[serial]
            parts = [*self.platform.replies[serial], *(part for part in given_up if part.serial == serial)]
            if message.acked is not None and answered(message, parts):
                self._open.discard(serial)
        return len(self._open)

    async def settled(self) -> bool:
        """Wait until everything has its answer, making good any death on the way. False where there is none any more."""
        give_up, least = monotonic() + SETTLE_SECONDS, len(self._open)
        while left := await self.unanswered():
            if left < least:
                give_up, least = monotonic() + SETTLE_SECONDS, left
            if monotonic() > give_up:
                self._open.clear()  # lost, as the verdict will say; what comes next need not wait for it
                return False
            for replica in self.replicas:
                if replica.dead:
                    await self.revive(replica)
            await asyncio.sleep(POLL_SECONDS)
        for replica in self.replicas:
            await replica.count()
        return True

    async def calm(self) -> None:
        """Settled, and nothing more comes."""
        self.model.pause_seconds, self.model.sleep_seconds = 0.0, 0.02
        await self.settled()
        await self.sender.quiet()
        await asyncio.sleep(QUIET_SECONDS)
        await self.platform.look_at_books()
        for replica in self.replicas:
            await replica.count()

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
        await self.platform.look_at_books()
        self.ledger.counted = self.subject.counted
        return judge(self.platform.read())


@asynccontextmanager
async def scene(
    point: Point, folder: Path, *, chat: Emulated, seed: int, database: str | None, replicas: int
) -> AsyncIterator[Scene]:
    """The gateway is not started yet; at the end whatever runs of it is killed."""
    chance = random.Random(f"{point.name}:{seed}")
    marker = f"chaos-{point.name}-{seed}-{time_ns()}"
    model = Model(marker, chance)
    database = database or f"sqlite:///{folder}/data/clawgate.db"
    platform = Platform(chat, folder, model, Books(database))
    async with platform.served() as (chat_url, model_url):
        subject = Subject(
            [
                Replica(number, folder, chat=chat, chat_url=chat_url, model_url=model_url, database=database)
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

"""What a campaign plays on: platform, model, sender and the gateways between them, and what every injury needs of it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from signal import SIGKILL
from time import monotonic, time_ns

from tests.chaos.emulated import Emulated
from tests.chaos.ledger import Ledger
from tests.chaos.model import EFFECTS, Model, is_whole
from tests.chaos.oracle import Verdict, answered, excused, judge, unasked
from tests.chaos.platform import Platform, miscounted, unsent, unsettled
from tests.chaos.replica import Replica, strays
from tests.chaos.sender import Sender
from tools.config import ExecMode

SETTLE_SECONDS = 60.0
"""From one answer to the next."""
ORPHAN_SECONDS = 20.0
UNFINISHED_SECONDS = 20.0
"""For a card that grows, or a reaction, after the last answer."""
QUIET_SECONDS = 0.7
"""Doubles may come late."""
POLL_SECONDS = 0.004
BOOKS_SECONDS = 0.25
"""So often the gateway's books are read while an answer is waited for."""
HOOKED = 2
STARTS_MAX = 20
"""Starts of one gateway, one after the other, that die before it is ready."""
TEMPORARY = ".clawgate-*"


class Scene:
    """`kills` in the ledger counts all deaths, those as well that came while an earlier one was being made good."""

    def __init__(
        self, name: str, folder: Path, *, chat: Emulated, seed: int, database: str | None, mode: ExecMode
    ) -> None:
        self.chance = random.Random(f"{name}:{seed}")
        self.marker = f"chaos-{name}-{seed}-{time_ns()}"
        self.folder = folder
        self.database = database or f"sqlite:///{folder}/data/clawgate.db"
        self.model = Model(self.marker, self.chance)
        self.platform = Platform(chat, self.model)
        self.platform.ledger.decisions = {} if mode == "ask" else None
        self.replicas: list[Replica] = []
        self.sender = Sender(
            self.platform, self.url, self.chance
        )  # the first chats are those of its people: they approve
        self.hooked = [chat.chat(self.chance) for _ in range(HOOKED)]
        """The chats that hooks speak in."""
        self._deliveries = count()
        self._books_read = 0.0

    def url(self) -> str:
        """Where the next delivery goes. A balancer does not know who is dead."""
        return self.replicas[next(self._deliveries) % len(self.replicas)].url

    @property
    def ledger(self) -> Ledger:
        return self.platform.ledger

    async def unanswered(self) -> int:
        waiting = self.platform.open
        self.platform.read()
        self.sender.decide()
        if waiting and monotonic() > self._books_read + BOOKS_SECONDS and not self.ledger.repeats:
            await self.platform.read_books(self.database)
            self._books_read = monotonic()
        given_up = excused(self.ledger)
        for serial, message in list(waiting.items()):
            parts = [*self.platform.replies[serial], *(part for part in given_up if part.serial == serial)]
            if unasked(message, given_up) or (parts and message.acked is not None and answered(message, parts)):
                del waiting[serial]
        return len(waiting)

    async def notices(self) -> int:
        """What the gateway still has to send of its own accord: no message waits for that."""
        return 0 if self.ledger.decisions is None else await asyncio.to_thread(unsent, self.database)

    async def settled(self) -> None:
        """Wait until everything has its answer, or none comes any more, making good any death on the way."""
        give_up, least = monotonic() + SETTLE_SECONDS, len(self.platform.open)
        while left := await self.unanswered() or await self.notices():
            if left < least:
                give_up, least = monotonic() + SETTLE_SECONDS, left
            if monotonic() > give_up:
                for replica in self.replicas:
                    await replica.explain()
                self.platform.open.clear()  # lost, as the verdict will say; what comes next need not wait for it
                return
            for replica in self.replicas:
                if replica.dead:
                    await self.revive(replica)
            await asyncio.sleep(POLL_SECONDS * (1 + left // 100))  # reading a long backlog takes a while
        for replica in self.replicas:
            await replica.count()

    async def calm(self) -> None:
        """Settled, and nothing more comes."""
        self.model.pace()
        await self.settled()
        await self.sender.quiet()
        await asyncio.sleep(QUIET_SECONDS)
        give_up = monotonic() + UNFINISHED_SECONDS
        while self.platform.chat.unfinished() and monotonic() < give_up:
            await asyncio.sleep(POLL_SECONDS)
        await self.platform.read_books(self.database)
        for replica in self.replicas:
            await replica.count()

    async def start(self) -> None:
        """One after the other: only one may make the tables."""
        for replica in self.replicas:
            if not await replica.start():
                raise RuntimeError("the gateway does not start; see the log in its folder")

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.close()

    async def revive(self, replica: Replica, kill: str = "", *, deaths: int = 1) -> None:
        """Bury the dead, look for what outlived it, start it again. Any end but SIGKILL is the product's own fault."""
        code = await replica.ended()
        if code == -SIGKILL:
            self.ledger.kills += 1
        else:
            self.ledger.refused.append(f"a gateway ended by itself, with {code}")
        await self.look_for_orphans()
        if not await replica.start(kill):
            if deaths >= STARTS_MAX:
                raise RuntimeError("the gateway does not start; see the log in its folder")
            await self.revive(replica, deaths=deaths + 1)

    async def look_for_orphans(self) -> None:
        """No command may outlive the gateway that started it by more than a moment."""
        alive = {replica.pid for replica in self.replicas if not replica.dead}
        give_up = monotonic() + ORPHAN_SECONDS
        while found := strays(self.marker, alive):
            if monotonic() > give_up:
                self.ledger.orphans += found.values()
                return
            await asyncio.sleep(POLL_SECONDS)

    def effects(self) -> list[str]:
        """What the commands have written so far."""
        path = self._workspace / EFFECTS
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def litter(self) -> list[str]:
        notes = (path for path in self._workspace.glob("note-*.txt") if not is_whole(path.read_text(encoding="utf-8")))
        return [f"{path.name} is half written" for path in (*self._workspace.rglob(TEMPORARY), *notes)]

    @property
    def _workspace(self) -> Path:
        return self.folder / "data" / "workspaces" / "helper"

    async def verdict(self) -> Verdict:
        await self.look_for_orphans()
        await self.platform.read_books(self.database)
        ledger = self.platform.read()
        ledger.unfinished = self.platform.chat.unfinished()
        ledger.effects, ledger.litter = self.effects(), self.litter()
        ledger.miscounted = await asyncio.to_thread(miscounted, self.database)
        ledger.unsettled = await asyncio.to_thread(unsettled, self.database)
        counts = [replica.counted for replica in self.replicas]
        ledger.counted = None if None in counts else sum(count or 0 for count in counts)
        return judge(ledger)


@asynccontextmanager
async def scene(
    name: str,
    folder: Path,
    *,
    chat: Emulated,
    seed: int,
    database: str | None = None,
    replicas: int = 1,
    agent: str = "historyTurns: 8",
    mode: ExecMode = "allow",
) -> AsyncIterator[Scene]:
    """The gateway is not started yet; at the end whatever runs of it is killed."""
    played = Scene(name, folder, chat=chat, seed=seed, database=database, mode=mode)
    async with played.platform.served() as (chat_url, model_url), played.sender:
        played.replicas += [
            Replica(
                number,
                folder,
                chat=chat,
                chat_url=chat_url,
                model_url=model_url,
                database=played.database,
                agent=agent,
                mode=mode,
                hooked=played.hooked,
            )
            for number in range(replicas)
        ]
        try:
            yield played
        finally:
            await played.close()

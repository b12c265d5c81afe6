"""The ways to hurt a gateway. Each does it once and makes it good again; True where it did happen."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from time import monotonic

from tests.chaos.platform import Trap
from tests.chaos.points import BATCH, How
from tests.chaos.scene import POLL_SECONDS, SETTLE_SECONDS, Scene
from tests.chaos.subject import Replica
from tests.processes import processes_of

BATCHES_MAX = 5
"""So many batches are written before a point counts as not reached."""
LATE_SECONDS = 1.0
"""The last reply may be there a moment before the death that belongs to it."""
AGAIN_CHANCE = 0.2
"""That the next life is killed as well, at the same point, while it takes up what the last one left."""
LOAD_PER_SECOND = 5.0
ROLL_LOAD_PER_SECOND = 20.0
BACKLOG_MAX = 60
FREEZE_SECONDS = (0.5, 4.0)
FREEZE_SECONDS_REPLICAS = (20.0, 60.0)
"""Past the lease, so that another takes over."""


async def inside(scene: Scene) -> bool:
    """The victim kills itself at the n-th time that it reaches the point."""
    replica = scene.chance.choice(scene.replicas)
    await replica.arm(f"{scene.point.name}:{_which(scene)}")
    if not await _dies(scene, lambda: replica if replica.dead else None):
        await replica.arm("nothing")
        return False
    again = scene.chance.random() < AGAIN_CHANCE
    await scene.revive(replica, f"{scene.point.name}:1" if again else "")
    await scene.settled()
    if not replica.dead:
        await replica.arm("nothing")
    return True


async def outside(scene: Scene) -> bool:
    """The emulator that has the n-th request kills who made it."""
    struck: list[Replica] = []

    def strike(number: int) -> None:
        struck.append(scene.replicas[number])
        struck[0].signal(SIGKILL)

    scene.platform.trap = Trap(point=scene.point.name, left=_which(scene), strike=strike)
    died = await _dies(scene, lambda: struck[0] if struck and struck[0].dead else None)
    scene.platform.trap = None
    if not died:
        return False
    await scene.revive(struck[0])
    await scene.settled()
    return True


async def command(scene: Scene) -> bool:
    """A command has left its mark and goes on running."""
    scene.model.sleep_seconds = 20.0 if len(scene.replicas) == 1 else 8.0
    before = scene.platform.effects()
    scene.write(BATCH)
    give_up = monotonic() + SETTLE_SECONDS
    while scene.platform.effects() == before and monotonic() < give_up:
        await asyncio.sleep(POLL_SECONDS)
    scene.model.sleep_seconds = 0.02
    await asyncio.sleep(scene.chance.uniform(0, 0.05))
    owners = {parent for _, parent in processes_of(scene.marker).values()}
    replica = next((replica for replica in scene.replicas if replica.pid in owners), None)
    if replica is None:
        await scene.settled()
        return False
    replica.signal(SIGKILL)
    await scene.revive(replica)
    await scene.settled()
    return True


async def stop(scene: Scene) -> bool:
    """SIGTERM while turns run, and SIGKILL before it has come to an end."""
    scene.model.pause_seconds, scene.model.sleep_seconds = 0.03, 0.3
    scene.write(BATCH)
    await asyncio.sleep(scene.chance.uniform(0.05, 0.6))
    replica = scene.chance.choice(scene.replicas)
    replica.signal(SIGTERM)
    await asyncio.sleep(scene.chance.uniform(0, 0.3))
    replica.signal(SIGKILL)
    scene.model.pause_seconds, scene.model.sleep_seconds = 0.0, 0.02
    code = await replica.ended()
    if code == -SIGKILL:
        await scene.revive(replica)
    else:
        await replica.start()
    await scene.settled()
    return code == -SIGKILL


async def start(scene: Scene) -> bool:
    """It dies while it makes its tables, and must make the rest of them the next time."""
    (replica,) = scene.replicas
    await scene.calm()
    await replica.close()
    for path in (scene.folder / "data").glob("clawgate.db*"):
        path.unlink()
    died = not await replica.start(f"{scene.point.name}:{scene.chance.randint(1, scene.point.most)}")
    if died:
        await scene.revive(replica)
    scene.write(BATCH)
    await scene.settled()
    return died


async def anywhere(scene: Scene) -> bool:
    """At any moment."""
    scene.model.sleep_seconds = scene.chance.choice((0.02, 0.02, 0.3, 2.0))
    await asyncio.sleep(scene.chance.uniform(0.05, 2.0))
    replica = scene.chance.choice(scene.replicas)
    replica.signal(SIGKILL)
    await scene.revive(replica)
    return True


async def freeze(scene: Scene) -> bool:
    """It stands still for a while, in the middle of what it does, and does not know it."""
    scene.model.pause_seconds, scene.model.sleep_seconds = 0.3, 1.0
    await asyncio.sleep(scene.chance.uniform(0.2, 1.0))
    replica = scene.chance.choice(scene.replicas)
    replica.signal(SIGSTOP)
    scene.ledger.freezes += 1
    await asyncio.sleep(scene.chance.uniform(*(FREEZE_SECONDS_REPLICAS if len(scene.replicas) > 1 else FREEZE_SECONDS)))
    replica.signal(SIGCONT)
    scene.model.pause_seconds, scene.model.sleep_seconds = 0.0, 0.02
    return not replica.dead


async def roll(scene: Scene) -> bool:
    """Each replica is stopped as it should be, and started again."""
    for replica in scene.replicas:
        await asyncio.sleep(scene.chance.uniform(0.2, 1.0))
        replica.signal(SIGTERM)
        code = await replica.ended()
        if code != 0:
            scene.ledger.refused.append(f"a graceful stop ended with {code}")
        if not await replica.start():
            return False
    return True


INJURIES: Mapping[How, Callable[[Scene], Awaitable[bool]]] = {
    "inside": inside,
    "outside": outside,
    "command": command,
    "stop": stop,
    "start": start,
    "random": anywhere,
    "freeze": freeze,
    "roll": roll,
}
UNDER_LOAD: frozenset[How] = frozenset({"random", "freeze", "roll"})


@asynccontextmanager
async def load(scene: Scene) -> AsyncIterator[None]:
    """People write all the time, more slowly where too much waits."""
    rate = ROLL_LOAD_PER_SECOND if scene.point.how == "roll" else LOAD_PER_SECOND

    async def write() -> None:
        while True:
            if await scene.unanswered() < BACKLOG_MAX:
                scene.write([scene.chance.choice(BATCH)])
            await asyncio.sleep(scene.chance.expovariate(rate))

    writing = asyncio.create_task(write())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


def _which(scene: Scene) -> int:
    """At which time of many. Of several replicas none is sure to get there more than once."""
    return scene.chance.randint(1, scene.point.most) if len(scene.replicas) == 1 else 1


async def _dies(scene: Scene, dead: Callable[[], Replica | None]) -> bool:
    """Write batch after batch until it does. False where it does not, though everything was answered."""
    for _ in range(BATCHES_MAX):
        scene.write(BATCH)
        give_up = monotonic() + SETTLE_SECONDS
        while await scene.unanswered() and monotonic() < give_up:
            if dead() is not None:
                return True
            await asyncio.sleep(POLL_SECONDS)
        give_up = monotonic() + LATE_SECONDS
        while monotonic() < give_up:
            if dead() is not None:
                return True
            await asyncio.sleep(POLL_SECONDS)
    return False

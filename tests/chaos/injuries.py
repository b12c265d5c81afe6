"""The ways to hurt a gateway: each does it once and makes it good again; True where it did happen. At the end the
catalogue of moments at which that is done, and how often each is sure to be reached in one batch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any, TypeAlias

from tests.chaos.due import reminders
from tests.chaos.ledger import Wish
from tests.chaos.outside import hooks, sends, told
from tests.chaos.replica import Replica
from tests.chaos.scene import POLL_SECONDS, SETTLE_SECONDS, Scene
from tests.processes import processes_of
from tests.waiting import until
from tools.config import ExecMode

BATCH: tuple[Wish, ...] = ("plain", "exec", "write", "ls", "long", "exec", "write", "long", "plain")
"""What one batch asks for, in any order, over all chats."""
LIVE_BATCH: tuple[Wish, ...] = ("plain", "file", "long", "exec", "file", "long")
LIVE_PAUSE_SECONDS = 0.4
"""Before each piece of an answer, so that a card is opened."""
TASKS_BATCH: tuple[Wish, ...] = ("task", "plain", "task", "task")
COMMANDS: Mapping[Wish, int] = {"/new": 6, "/undo": 4}
"""And how many moments each has."""
BATCHES_MAX = 5
"""So many batches are written before a point counts as not reached."""
LATE_SECONDS = 1.0
"""The last reply may be there a moment before the death that belongs to it."""
AGAIN_CHANCE = 0.2
"""That the next life is killed as well, at the same point, while it takes up what the last one left."""
BACKLOG_MAX = 60
FREEZE_SECONDS = (0.5, 4.0)
FREEZE_SECONDS_REPLICAS = (20.0, 60.0)
"""Past the lease, so that another takes over."""
STORM_CHATS = 200
BEFORE_CHANCE = 0.3
"""That a process dies before what is due, and not while it begins it."""
BOTH_CHANCE = 0.4
"""That the gateway dies behind the command line."""
LEASE_SECONDS = 15.0
COPIES = 5
SIDE_BY_SIDE = 40


@dataclass(frozen=True, slots=True)
class Point:
    """`most` is how often the moment is sure to come in one batch: the kill comes at a random one of them. Of STORM and
    BACKLOG it is the number of messages. Under `load` people write so many messages a second all the while.
    `agent` is of the agent's config, `mode` that of its commands; `shared` is what `most` is for one of several replicas."""

    name: str
    about: str
    injury: "Injury"
    most: int = 1
    load: float = 0.0
    agent: str = "historyTurns: 8"
    mode: ExecMode = "allow"
    shared: int = 1
    batch: Sequence[Wish] = BATCH
    live: bool = False
    """Answers grow, more slowly than elsewhere."""
    feishu: bool = False
    """It is played on Feishu only."""


Injury: TypeAlias = Callable[[Scene, Point], Awaitable[bool]]


async def inside(scene: Scene, point: Point) -> bool:
    """The victim kills itself at the n-th time that it reaches the point."""
    replica = scene.chance.choice(scene.replicas)
    await replica.arm(f"{point.name}:{_which(scene, point)}")
    if not await _dies(scene, point, lambda: replica.dead):
        await replica.arm("nothing")
        return False
    again = scene.chance.random() < AGAIN_CHANCE
    await scene.revive(replica, f"{point.name}:1" if again else "")
    await scene.settled()
    if not replica.dead:
        await replica.arm("nothing")
    return True


async def outside(scene: Scene, point: Point) -> bool:
    """The emulator that has the n-th request kills who made it."""
    struck: list[Replica] = []
    left = _which(scene, point)

    def trap(name: str, number: int) -> bool:
        nonlocal left
        left -= name == point.name
        if name != point.name or left:
            return False
        struck.append(scene.replicas[number])
        struck[0].signal(SIGKILL)
        return True

    scene.model.pace(pause_seconds=LIVE_PAUSE_SECONDS if point.live else 0.0)
    scene.platform.trap = trap
    died = await _dies(scene, point, lambda: any(replica.dead for replica in struck))
    scene.platform.trap = None
    return died and await _revived(scene, struck[0])


async def command(scene: Scene, point: Point) -> bool:
    """A command has left its mark and goes on running."""
    scene.model.pace(sleep_seconds=20.0 if len(scene.replicas) == 1 else 8.0)
    before = scene.effects()
    scene.sender.write(point.batch)
    await _within(SETTLE_SECONDS, lambda: scene.effects() != before)
    scene.model.pace()
    await asyncio.sleep(scene.chance.uniform(0, 0.05))
    owners = {parent for _, parent in processes_of(scene.marker).values()}
    for replica in scene.replicas:
        if replica.pid in owners:
            replica.signal(SIGKILL)
            return await _revived(scene, replica)
    await scene.settled()
    return False


async def stop(scene: Scene, point: Point) -> bool:
    """SIGTERM while turns run, and SIGKILL before it has come to an end."""
    scene.model.pace(pause_seconds=0.03, sleep_seconds=0.3)
    scene.sender.write(BATCH)
    await asyncio.sleep(scene.chance.uniform(0.05, 0.6))
    replica = scene.chance.choice(scene.replicas)
    _terminate(scene, replica)
    await asyncio.sleep(scene.chance.uniform(0, 0.3))
    replica.signal(SIGKILL)
    scene.model.pace()
    if await replica.ended() == -SIGKILL:
        return await _revived(scene, replica)
    await replica.start()
    await scene.settled()
    return False


async def start(scene: Scene, point: Point) -> bool:
    """It dies while it makes its tables, and must make the rest of them the next time."""
    (replica,) = scene.replicas
    await scene.calm()
    await replica.close()
    for path in (scene.folder / "data").glob("clawgate.db*"):
        path.unlink()
    died = not await replica.start(f"{point.name}:{_which(scene, point)}")
    if died:
        await scene.revive(replica)
    scene.sender.write(BATCH)
    await scene.settled()
    return died


async def anywhere(scene: Scene, point: Point) -> bool:
    """At any moment."""
    scene.model.pace(sleep_seconds=scene.chance.choice((0.02, 0.02, 0.3, 2.0)))
    await asyncio.sleep(scene.chance.uniform(0.05, 2.0))
    replica = scene.chance.choice(scene.replicas)
    replica.signal(SIGKILL)
    await scene.revive(replica)
    return True


async def commanded(scene: Scene, point: Point) -> bool:
    """It dies at a command between two messages; what the model is then shown of the chat says how often that had effect."""
    chat, command = scene.platform.chat.chat(scene.chance), scene.chance.choice(list(COMMANDS))
    earlier = [await _said(scene, "plain", chat) for _ in range(2)]
    kills, moment = scene.ledger.kills, f"{point.name}:{scene.chance.randint(1, COMMANDS[command])}"
    for replica in scene.replicas:
        await replica.arm(moment)
    await _said(scene, command, chat)
    for replica in scene.replicas:
        if replica.dead:  # behind its reply
            await scene.revive(replica)
        await replica.arm("nothing")
    last = await _said(scene, "plain", chat)
    expected = (last,) if command == "/new" else (earlier[0], last)
    for request in scene.platform.read().requests:
        if request.serials[-1:] == (last,) and request.serials != expected:
            scene.ledger.refused.append(f"{moment} of {command}: {request.serials} was asked instead of {expected}")
    return scene.ledger.kills > kills


async def _said(scene: Scene, wish: Wish, chat: str) -> str:
    """Somebody writes it, and it is answered; its serial."""
    message = scene.platform.write(wish, chat)
    while not await scene.sender.push(message):
        for replica in scene.replicas:
            if replica.dead:
                await scene.revive(replica)
    message.acked = 0
    await scene.settled()
    return message.serial


async def come_due(scene: Scene, point: Point) -> bool:
    """Reminders and work come due, and whoever begins them dies: shortly before, while they are taken, or just behind."""
    kills, before = scene.ledger.kills, sum(sum(it.restarts) for it in scene.replicas)
    waits = await asyncio.to_thread(reminders, scene)
    if scene.chance.random() < BEFORE_CHANCE:
        await asyncio.sleep(scene.chance.uniform(0, 1.5))
        replica = scene.chance.choice(scene.replicas)
        replica.signal(SIGKILL)
        await scene.revive(replica)
        await scene.settled()
    else:
        await _struck(scene, point)
    restarting_seconds = sum(sum(it.restarts) for it in scene.replicas) - before
    for due in waits:
        due.late_seconds = LEASE_SECONDS + restarting_seconds
    return scene.ledger.kills > kills


async def called(scene: Scene, point: Point) -> bool:
    """Whoever takes a hook's event dies over it."""
    return await _struck(scene, point, hooks(scene))


async def programmed(scene: Scene, point: Point) -> bool:
    """Whoever takes a program's message dies over it."""
    return await _struck(scene, point, sends(scene))


async def typed(scene: Scene, point: Point) -> bool:
    """The command line dies, and sometimes the gateway that it has left its message to."""
    message = scene.platform.expect("say", scene.chance.choice(scene.hooked))
    died = await told(scene, message, f"{point.name}:{_which(scene, point)}")
    if died and scene.chance.random() < BOTH_CHANCE:
        replica = scene.chance.choice(scene.replicas)
        replica.signal(SIGKILL)
        await scene.revive(replica)
    if message.acked is None:
        await told(scene, message)
    await scene.settled()
    return died


async def _struck(scene: Scene, point: Point, deliveries: Coroutine[None, None, None] | None = None) -> bool:
    """Every replica is armed while something comes that no person writes."""
    kills, moment = scene.ledger.kills, f"{point.name}:{_which(scene, point)}"
    for replica in scene.replicas:
        await replica.arm(moment)
    delivering = asyncio.create_task(deliveries) if deliveries else None
    while not any(replica.dead for replica in scene.replicas):
        if not await scene.unanswered() and (delivering is None or delivering.done()):
            break
        await asyncio.sleep(POLL_SECONDS)
    await scene.settled()
    if delivering:
        await delivering
    for replica in scene.replicas:
        if not replica.dead:
            await replica.arm("nothing")
    return scene.ledger.kills > kills


async def freeze(scene: Scene, point: Point) -> bool:
    """It stands still for a while, in the middle of what it does, and does not know it."""
    scene.model.pace(pause_seconds=0.3, sleep_seconds=1.0)
    await asyncio.sleep(scene.chance.uniform(0.2, 1.0))
    replica = scene.chance.choice(scene.replicas)
    replica.signal(SIGSTOP)
    scene.ledger.freezes += 1
    await asyncio.sleep(scene.chance.uniform(*(FREEZE_SECONDS_REPLICAS if len(scene.replicas) > 1 else FREEZE_SECONDS)))
    replica.signal(SIGCONT)
    scene.model.pace()
    return not replica.dead


async def roll(scene: Scene, point: Point) -> bool:
    """Each replica is stopped as it should be, and started again."""
    for replica in scene.replicas:
        await asyncio.sleep(scene.chance.uniform(0.2, 1.0))
        _terminate(scene, replica)
        if (code := await replica.ended()) != 0:
            scene.ledger.refused.append(f"a graceful stop ended with {code}")
        if not await replica.start():
            return False
    return True


async def storm(scene: Scene, point: Point) -> bool:
    """No kill: every event of many chats delivered five times, shuffled, over all replicas."""
    await _deliver(scene, point.most, copies=COPIES)
    await scene.settled()
    return True


async def backlog(scene: Scene, point: Point) -> bool:
    """A start on an inbox in which so many wait, as processes leave it that died under the load."""
    scene.model.pace(pause_seconds=SETTLE_SECONDS * 60)
    await _deliver(scene, point.most)
    scene.model.pace()
    for replica in scene.replicas:
        replica.signal(SIGKILL)
    for replica in scene.replicas:
        await scene.revive(replica)
    await scene.settled()
    return True


@asynccontextmanager
async def load(scene: Scene, per_second: float) -> AsyncIterator[None]:
    """People write all the time, more slowly where too much waits."""

    async def write() -> None:
        while True:
            if await scene.unanswered() < BACKLOG_MAX:
                scene.sender.write([scene.chance.choice(BATCH)])
            await asyncio.sleep(scene.chance.expovariate(per_second))

    writing = asyncio.create_task(write())
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


def _which(scene: Scene, point: Point) -> int:
    """At which time of many."""
    return scene.chance.randint(1, point.most if len(scene.replicas) == 1 else point.shared)


async def _deliver(scene: Scene, count: int, copies: int = 1) -> None:
    """So many messages of many chats, until the gateway has taken each of their copies."""
    chats = [scene.platform.chat.chat(scene.chance) for _ in range(STORM_CHATS)]
    deliveries = [scene.platform.write("plain", scene.chance.choice(chats)) for _ in range(count)] * copies
    scene.chance.shuffle(deliveries)
    waiting = iter(deliveries)

    async def deliver() -> None:
        for message in waiting:
            while not await scene.sender.push(message):
                await asyncio.sleep(0.1)
            message.acked = 0

    await asyncio.gather(*(deliver() for _ in range(SIDE_BY_SIDE)))


def _terminate(scene: Scene, replica: Replica) -> None:
    scene.ledger.stops += 1
    replica.signal(SIGTERM)


async def _revived(scene: Scene, replica: Replica) -> bool:
    await scene.revive(replica)
    await scene.settled()
    return True


async def _dies(scene: Scene, point: Point, dead: Callable[[], bool]) -> bool:
    """Write batch after batch until it does. False where it does not, though everything was answered."""

    async def over() -> bool:
        return dead() or not await scene.unanswered()

    for _ in range(BATCHES_MAX):
        scene.sender.write(point.batch)
        await _within(SETTLE_SECONDS, over)
        if await _within(LATE_SECONDS, dead):
            return True
    return False


async def _within(seconds: float, condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    """Wait so long at most; whether it came about."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until(condition)
        return True
    return False


LIVE: Mapping[str, Any] = {"live": True, "feishu": True, "batch": LIVE_BATCH}
POINTS: Sequence[Point] = (
    Point("K1", "before the message is stored", inside, most=9),
    Point("K2", "stored, nobody told yet", inside, most=9),
    Point("K3", "the platform has its 200", inside, most=9),
    Point("K4", "turn claimed, model not asked yet", inside, most=18),
    Point("K5", "the model has the request", outside, most=14),
    Point("K6", "in the middle of the model's stream", outside, most=30),
    Point("K7", "answer complete, not journaled", inside, most=14),
    Point("K8", "tool calls journaled, not begun", inside, most=5),
    Point("K9", "a command is running", command),
    Point("K9w", "just before and just after a file is replaced", inside, most=4),
    Point("K10", "tool done, its result not journaled", inside, most=5),
    Point("K11", "tool result journaled", inside, most=5),
    Point("K12", "reply in the outbox", inside, most=9),
    Point("K13", "the platform has the send, not done yet", outside, most=13),
    Point("K14", "the platform has shown it, not answered yet", outside, most=13),
    Point("K15", "part 2 of 3 marked as sent", inside, most=2),
    Point("K16", "the last part marked as sent", inside, most=9),
    Point("K17", "before and after a request is stored, and told to be over", inside, most=8, mode="ask", shared=2),
    Point("K18", "before and after a decision, the spawn and its end", inside, most=8, mode="ask", shared=4),
    Point("K19", "just before and just after a summary is kept", inside, most=2, agent="contextWindow: 16000"),
    Point("K20", "before and after each step of /new or /undo", commanded),
    Point("K23", "a card is made, sent, changed or finished", outside, most=12, **LIVE),
    Point("K24", "a file is uploaded", outside, most=4, **LIVE),
    Point("K25", "a reaction is added, looked for or taken away", outside, most=12, **LIVE),
    Point("K26", "before a row comes due, while it is taken, and just behind", come_due, most=4, shared=2, feishu=True),
    Point("K27", "a task is noted, and its message stored", inside, most=12, shared=4, batch=TASKS_BATCH),
    Point("K28", "the model has a task's request, or is in mid-stream", outside, most=8, shared=8, batch=TASKS_BATCH),
    Point("K29", "a task's command is running", command, batch=TASKS_BATCH),
    Point("K30", "a task ends, and its report is taken up, kept, sent", inside, most=20, shared=7, batch=TASKS_BATCH),
    Point("K31", "a hook's event is stored, answered, taken up, sent", called, most=20, shared=7),
    Point("K32", "a program's message is stored, taken up, sent", programmed, most=15, shared=6),
    Point("K33", "the command line stores its message, or sends it", typed, most=2, shared=6),
    Point("K34", "what was due is taken up, kept, sent", come_due, most=20, shared=7, feishu=True),
    Point("SQL", "before any statement that the store sends", inside, most=90),
    Point("K21", "while the tables are made", start, most=8),
    Point("K22", "SIGTERM, and SIGKILL before it is done", stop),
    Point("RANDOM", "any moment, under load", anywhere, load=5.0),
    Point("FREEZE", "stopped for a while, then let go, under load", freeze, load=5.0),
    Point("ROLL", "stopped gracefully and started again, under load", roll, load=20.0),
    Point("STORM", "every event five times, in any order", storm, most=2_000),
    Point("BACKLOG", "a start with many messages in the inbox", backlog, most=10_000),
)

POLLED = {"K3": Point("K3", "a poll has confirmed it", outside, most=9)}
"""Points that are reached in another way where the gateway fetches its messages."""

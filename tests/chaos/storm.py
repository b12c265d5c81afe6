"""Two heavy days without a kill: every event delivered five times in any order, and a start with a long backlog."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic, time
from typing import Any

from channels.channel import Arrived
from gateway.config.root import DatabaseConfig
from gateway.queue import Inbound, inbound_json
from gateway.routing import control_session, session_key
from gateway.store.opening import open_store
from gateway.store.store import Delivery
from tests.chaos.emulated import Emulated
from tests.chaos.ledger import Message
from tests.chaos.oracle import dup_replies, dup_turns, lost
from tests.chaos.points import Point
from tests.chaos.scene import Scene, scene
from tests.chaos.sender import serials

COPIES = 5
SIDE_BY_SIDE = 40
SETTLE_SECONDS = 300.0
STORM = Point(name="STORM", about="every event five times, in any order", how="random")
BACKLOG = Point(name="BACKLOG", about="a start with many messages in the inbox", how="start")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What came of it. `clean` where every message had one turn and one reply."""

    name: str
    channel: str
    messages: int
    deliveries: int
    turns: int
    findings: list[str]
    seconds: float
    ready_seconds: float
    seed: int

    @property
    def clean(self) -> bool:
        return not self.findings and self.turns == self.messages

    def __str__(self) -> str:
        return (
            f"{self.name} on {self.channel} messages={self.messages} deliveries={self.deliveries} turns={self.turns} "
            f"findings={len(self.findings)} ready={self.ready_seconds:.2f}s took={self.seconds:.0f}s seed={self.seed}"
        )


async def storm(folder: Path, *, chat: Emulated, seed: int, events: int, database: str | None, replicas: int) -> Tally:
    """Deliver `events` messages of 200 chats, each five times, shuffled, over all replicas."""
    began = monotonic()
    async with scene(STORM, folder, chat=chat, seed=seed, database=database, replicas=replicas) as played:
        await played.subject.start()
        deliveries = [event for event in _events(played, events) for _ in range(COPIES)]
        played.chance.shuffle(deliveries)
        waiting = iter(deliveries)
        await asyncio.gather(*(_deliver(played, waiting) for _ in range(SIDE_BY_SIDE)))
        await _answered(played)
        return _tally("STORM", played, len(deliveries), began, played.subject.replicas[0].restarts[0], seed)


async def backlog(folder: Path, *, chat: Emulated, seed: int, rows: int, database: str | None) -> Tally:
    """Start on an inbox of so many rows that wait, and see them answered."""
    began = monotonic()
    async with scene(BACKLOG, folder, chat=chat, seed=seed, database=database, replicas=1) as played:
        await _fill(played, rows, database or f"sqlite:///{folder}/data/clawgate.db")
        await played.subject.start()
        ready = played.subject.replicas[0].restarts[0]
        await _answered(played)
        return _tally("BACKLOG", played, rows, began, ready, seed)


def _events(played: Scene, count: int) -> list[tuple[Message, dict[str, Any]]]:
    platform = played.platform
    chats = [platform.chat.chat(played.chance) for _ in range(200)]
    events = []
    for serial in islice(serials, count):
        chat = played.chance.choice(chats)
        written = platform.chat.write(f"{serial} plain", chat)
        message = Message(serial=serial, chat=chat, wish="plain", message_id=written.message_id)
        platform.wrote(serial, chat, message.message_id)
        played.ledger.messages[serial] = message
        events.append((message, written.event))
    return events


async def _deliver(played: Scene, waiting: Iterator[tuple[Message, dict[str, Any]]]) -> None:
    for message, event in waiting:
        while not await played.sender.deliver(event):
            await asyncio.sleep(0.1)
        message.acked = 0


async def _fill(played: Scene, rows: int, url: str) -> None:
    """As a process would have left it that died under the load: accepted, and nothing begun."""
    store = open_store(DatabaseConfig(url=url))
    await store.start(lambda _: None)
    events = _events(played, rows)

    async def put(message: Message, event: dict[str, Any]) -> None:
        arrived = played.platform.chat.receipt(event)
        assert isinstance(arrived, Arrived)
        context = arrived.context
        sid = session_key("helper", context)
        await store.accept(
            Delivery(
                sid=sid,
                control=control_session(sid),
                dedupe=tuple(f"{context.channel}:default:{key}" for key in arrived.dedupe),
                body=inbound_json.dump_json(Inbound(agent="helper", context=context)).decode(),
                at=time(),
            ),
            pending_max=rows,
            sender_max=rows,
            claim=False,
        )
        message.acked = 0

    for start in range(0, rows, 500):
        await asyncio.gather(*(put(message, event) for message, event in events[start : start + 500]))
    await store.close()


async def _answered(played: Scene) -> None:
    give_up = monotonic() + SETTLE_SECONDS
    played.watch()
    while await played.unanswered() and monotonic() < give_up:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)


def _tally(name: str, played: Scene, deliveries: int, began: float, ready: float, seed: int) -> Tally:
    ledger = played.platform.read()
    turns = Counter(asked.serials[-1] for asked in ledger.asked if asked.serials)
    doubled = [f"{serial} had {count} turns" for serial, count in turns.items() if count > 1]
    return Tally(
        name=name,
        channel=played.platform.chat.name,
        messages=len(ledger.messages),
        deliveries=deliveries,
        turns=len(turns),
        findings=[*lost(ledger), *dup_turns(ledger), *dup_replies(ledger), *doubled],
        seconds=monotonic() - began,
        ready_seconds=ready,
        seed=seed,
    )

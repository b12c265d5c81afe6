"""`python -m tests.bench.due`: a thousand reminders that are due in the same second, and what chats feel meanwhile.

Ten people write at a steady pace, first while nothing else happens, then while the reminders go out, each to another
person. A reminder is late by the time from its due moment to the arrival of its message.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import uvloop

from tests.bench import subject
from tests.bench.load import Measured, line, percentile, prepare, serial, watched
from tests.bench.peers import END, Peers, peers
from tests.bench.report import Row, Target, table
from tests.bench.sides import Feishu, Prepared
from tests.bench.subject import Subject, started
from tests.reminders import put, reminder

TITLE = "1,000 reminders at once, feishu, SQLite"
REMINDERS = 1_000
CHATS = 10
PAUSE_SECONDS = 0.5
"""Of a person, behind each reply."""
QUIET_SECONDS = 5.0
MESSAGES_MAX = 40
"""Of each person, in either part."""
AHEAD_SECONDS = 6.0
"""From the making of the reminders to their moment. A gateway learns within five of what others have put into its table."""
ALL_SECONDS = 60.0


async def measure(folder: Path) -> list[Row]:
    """Raises ExceptionGroup of a TimeoutError if a reminder does not come."""
    side = Feishu()
    async with peers() as around, started(subject.gateway(folder, side, around.urls)) as gateway:
        await serial(gateway, around, chats=CHATS, turns=3)
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(QUIET_SECONDS, over.set)
        quiet = await _chats(gateway, around, over)
        over, chats = asyncio.Event(), [side.chat() for _ in range(REMINDERS)]
        await around.know((f"om_{chat}", chat) for chat in chats)
        due = await asyncio.to_thread(_put, f"sqlite:///{folder}/data/clawgate.db", chats)
        async with asyncio.TaskGroup() as group:
            reminding = group.create_task(_arrivals(around, chats, over))
            await asyncio.sleep(due - time.monotonic() - PAUSE_SECONDS)
            busy = await _chats(gateway, around, over)
        late = [at - due for at in reminding.result()]
    return [
        Row("the first was there after", "s", min(late)),
        Row("the last was there after", "s", max(late)),
        *_felt("before", quiet),
        *_felt("meanwhile", busy),
        Row("lost, in the whole run", "", quiet.lost + busy.lost, target=Target(at_most=0)),
        Row("doubled, in the whole run", "", quiet.doubled + busy.doubled, target=Target(at_most=0)),
    ]


def _felt(when: str, chats: Measured) -> Sequence[Row]:
    return [
        Row(f"10 chats {when}, webhook ack p50", "ms", median(chats.acks)),
        Row(f"10 chats {when}, webhook ack p99", "ms", percentile(chats.acks, 0.99)),
        Row(f"10 chats {when}, turn p50", "ms", median(chats.turns)),
    ]


async def _chats(gateway: Subject, around: Peers, over: asyncio.Event) -> Measured:
    """People who write and pause until it is over."""
    prepared = await prepare(gateway.side, around, chats=CHATS, messages=MESSAGES_MAX)

    async def person(messages: Sequence[Prepared], begin_seconds: float) -> None:
        await asyncio.sleep(begin_seconds)
        async with line(gateway, around) as connection:
            for message in messages:
                if over.is_set():
                    return
                await connection.turn(message, measured)
                await asyncio.sleep(PAUSE_SECONDS)

    async with watched(gateway, around) as measured, asyncio.TaskGroup() as group:
        for number, messages in enumerate(prepared):
            group.create_task(person(messages, number * PAUSE_SECONDS / CHATS))
        await over.wait()
    return replace(measured)


def _put(database: str, chats: Sequence[str]) -> float:
    """The moment at which they are due, on the clock of arrivals."""
    due = float(int(time.time() + AHEAD_SECONDS))
    now, say = due - AHEAD_SECONDS, f"Water the plants. {END}"
    rows = [
        reminder(f"B{number}", chat, now=now, due=due, say=say, person=f"ou_{number:032x}")
        for number, chat in enumerate(chats)
    ]
    put(database, rows)
    return due - time.time() + time.monotonic()


async def _arrivals(around: Peers, chats: Sequence[str], over: asyncio.Event) -> Sequence[float]:
    try:
        async with asyncio.timeout(ALL_SECONDS):
            return await asyncio.gather(*(around.expect(chat) for chat in chats))
    finally:
        over.set()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="clawgate-due-") as folder:
        sys.stdout.write(table({}, {TITLE: uvloop.run(measure(Path(folder)))}).lstrip() + "\n")


if __name__ == "__main__":
    main()

"""`python -m tests.bench.soak`: many chats for minutes, at a steady pace that no reply can slow down.

Two thousand people write in turn, fifty messages a second, to a model that takes a second. What counts: nothing lost or
doubled, acknowledgements in time, and memory that stays where it was after the first minute.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import uvloop

from tests.bench import subject
from tests.bench.load import Line, Measured, line, percentile, prepare, serial, watched
from tests.bench.peers import peers
from tests.bench.sides import Feishu, Prepared

LINES = 96
"""Connections of the platform: more than messages are under way, fewer than the gateway takes of one address."""
LATENCY_MS = 1000.0


async def soak(folder: Path, *, chats: int, per_second: float, seconds: float, database: str | None) -> str:
    """The report of one run."""
    async with peers() as around:
        side = Feishu()
        command = subject.gateway(folder, side, around.urls, database=database)
        async with subject.started(command) as gateway:
            await serial(gateway, around, chats=1, turns=3)
            count = int(per_second * seconds)
            prepared = await prepare(side, around, chats=chats, messages=-(-count // chats))
            messages = [of_chat[turn] for turn in range(len(prepared[0])) for of_chat in prepared][:count]
            await around.set(latency_ms=LATENCY_MS)
            memory: list[float] = []
            async with AsyncExitStack() as stack, watched(gateway, around) as measured:
                lines: asyncio.Queue[Line] = asyncio.Queue()
                for _ in range(LINES):
                    lines.put_nowait(await stack.enter_async_context(line(gateway, around)))
                await _pace(messages, lines, measured, per_second, lambda: memory.append(gateway.resident_mb()))
            first, last = memory[len(memory) // 5], memory[-1]
            return (
                f"{count} messages of {chats} chats, {measured.seconds:.0f} s: {measured.turns_per_second:.1f} turns/s, "
                f"lost {measured.lost}, doubled {measured.doubled}\n"
                f"ack p50 {median(measured.acks):.1f} ms, p99 {percentile(measured.acks, 0.99):.1f} ms; "
                f"turn p50 {median(measured.turns):.0f} ms, p99 {percentile(measured.turns, 0.99):.0f} ms; "
                f"CPU {measured.cpu_ms_per_turn:.2f} ms a turn\n"
                f"resident {first:.0f} MB after a fifth, {last:.0f} MB at the end, {gateway.peak_mb():.0f} MB at its highest"
            )


async def _pace(
    messages: Sequence[Prepared],
    lines: "asyncio.Queue[Line]",
    measured: Measured,
    per_second: float,
    sample: Callable[[], None],
) -> None:
    began = time.monotonic()

    async def one(message: Prepared) -> None:
        free = await lines.get()
        await free.turn(message, measured)
        lines.put_nowait(free)

    async with asyncio.TaskGroup() as group:
        for number, message in enumerate(messages):
            await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
            group.create_task(one(message))
            if number % int(per_second * 5) == 0:
                sample()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--chats", type=int, default=2000)
    parser.add_argument("--per-second", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--database", metavar="URL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clawgate-soak-") as name:
        report = uvloop.run(
            soak(
                Path(name),
                chats=options.chats,
                per_second=options.per_second,
                seconds=options.seconds,
                database=options.database,
            )
        )
    sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()

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
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from statistics import median

import uvloop

from tests.bench import subject
from tests.bench.load import Line, Measured, line, percentile, prepare, serial, watched
from tests.bench.peers import peers
from tests.bench.sides import Feishu, Prepared
from tests.bench.subject import Subject
from tests.postgres import postgres_server

LINES = 96
"""Connections of the platform: more than messages are under way, fewer than the gateway takes of one address."""


async def soak(
    folder: Path,
    *,
    chats: int,
    per_second: float,
    seconds: float,
    latency_ms: float,
    database: str | None,
    replicas: int,
) -> str:
    """The report of one run. Memory and processor time are the first replica's."""
    async with peers() as around, AsyncExitStack() as stack:
        side = Feishu()
        gateways: list[Subject] = []
        for number in range(replicas):
            command = subject.gateway(folder / str(number), side, around.urls, database=database)
            gateways.append(await stack.enter_async_context(subject.started(command)))
            await serial(gateways[-1], around, chats=1, turns=3)
        count = int(per_second * seconds)
        prepared = await prepare(side, around, chats=chats, messages=-(-count // chats))
        messages = [of_chat[turn] for turn in range(len(prepared[0])) for of_chat in prepared][:count]
        await around.set(latency_ms=latency_ms)
        memory: list[float] = []
        async with watched(gateways[0], around) as measured:
            lines: asyncio.Queue[Line] = asyncio.Queue()
            for number in range(LINES):
                lines.put_nowait(await stack.enter_async_context(line(gateways[number % replicas], around)))
            await _pace(messages, lines, measured, per_second, lambda: memory.append(gateways[0].resident_mb()))
        shown = ", ".join(f"{mb:.0f}" for mb in memory[:: max(1, len(memory) // 10)])
        return (
            f"{count} messages of {chats} chats, {measured.seconds:.0f} s: {measured.turns_per_second:.1f} turns/s, "
            f"lost {measured.lost}, doubled {measured.doubled}\n"
            f"ack p50 {median(measured.acks):.1f} ms, p99 {percentile(measured.acks, 0.99):.1f} ms; "
            f"turn p50 {median(measured.turns):.0f} ms, p99 {percentile(measured.turns, 0.99):.0f} ms; "
            f"CPU {measured.cpu_ms_per_turn:.2f} ms a turn\n"
            f"resident, over the run: {shown} MB; {gateways[0].peak_mb():.0f} MB at its highest"
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
    parser.add_argument("--latency-ms", type=float, default=1000.0)
    parser.add_argument("--postgres", action="store_true", help="on a throw-away PostgreSQL")
    parser.add_argument("--replicas", type=int, default=1, help="as many gateways, on PostgreSQL")
    options = parser.parse_args()
    server_or_none = postgres_server() if options.postgres else nullcontext()
    with tempfile.TemporaryDirectory(prefix="clawgate-soak-") as name, server_or_none as server:
        run = soak(
            Path(name),
            chats=options.chats,
            per_second=options.per_second,
            seconds=options.seconds,
            latency_ms=options.latency_ms,
            database=server.new_database() if server else None,
            replicas=options.replicas,
        )
        sys.stdout.write(uvloop.run(run) + "\n")


if __name__ == "__main__":
    main()

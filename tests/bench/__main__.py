"""`make bench`: measure the gateway against the floor bot on this machine, now, offline.

The two take turns in short blocks, so that whatever else the machine does falls on both. The floor bot has neither the
long chat nor a database. Feishu, Telegram and the web chat are measured on SQLite, and Feishu on a throw-away PostgreSQL.
Behind them a thousand reminders come due in the same second, on Feishu with SQLite, and chats are measured meanwhile.
"""

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.bench import due, subject
from tests.bench.kept import PAGE, Reshaped, differences
from tests.bench.load import crowd, serial
from tests.bench.peers import Peers, peers
from tests.bench.report import Figures, Row, document, rows, table
from tests.bench.sides import SIDES, Side
from tests.bench.subject import Subject, started
from tests.postgres import postgres_server

CROWD = 50
LATENCY_MS = 200.0
IDLE_SECONDS = 1.0
FSYNCS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much is measured. A block is ten new chats with `depth` turns each, a crowd fifty with `crowd` each."""

    passes: int = 3
    blocks: int = 1
    depth: int = 3
    tool_depth: int = 1
    long: int = 150
    crowd: int = 7


LONG = Size(blocks=3, depth=5, tool_depth=2, long=500, crowd=20)
"""Three times as much."""


async def measure(folder: Path, size: Size, side: Side, database: str | None, *, sdk: bool) -> list[Row]:
    """One run on one database. Every pass has new processes: two of the same code can differ by a quarter in speed."""
    figures, floor_figures = Figures(), Figures()
    for number in range(1, size.passes + 1):
        async with peers() as around:
            here = folder / str(number)
            ours = subject.gateway(here, side, around.urls, database=database)
            async with started(ours):
                pass  # its database is there from now on, as that of a gateway that is started again
            async with started(ours) as gateway, started(subject.floor(here, side, around.urls, sdk=sdk)) as floor:
                await _pass([(gateway, figures), (floor, floor_figures)], around, size)
                if number == size.passes:
                    figures.long = await serial(gateway, around, chats=1, turns=size.long)
                    figures.peak_mb = max(figures.peak_mb, gateway.peak_mb())
    return rows(side.name, figures, floor_figures)


async def _pass(bots: Sequence[tuple[Subject, Figures]], around: Peers, size: Size) -> None:
    for bot, its in bots:
        its.ready_seconds.append(bot.ready_seconds)
        await serial(bot, around, chats=1, turns=1)
        await asyncio.sleep(IDLE_SECONDS)
        its.idle_mb = max(its.idle_mb, bot.resident_mb())
        await serial(bot, around, chats=10, turns=3)
    for _ in range(size.blocks):
        for bot, its in bots:
            its.plain.add(await serial(bot, around, chats=10, turns=size.depth))
    await around.set(scenario="tools")
    for _ in range(size.blocks):
        for bot, its in bots:
            its.tools.add(await serial(bot, around, chats=10, turns=size.tool_depth))
    await around.set()
    for bot, its in bots:
        await crowd(bot, around, chats=CROWD, turns=2)  # without latency, until every connection is there
        await around.set(latency_ms=LATENCY_MS)
        its.crowd.add(await crowd(bot, around, chats=CROWD, turns=size.crowd))
        await around.set()
        its.peak_mb = max(its.peak_mb, bot.peak_mb())


def fsync_ms(folder: Path) -> float:
    """What this disk takes for one durable write of a page: every step of a turn waits for one."""
    took = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def facts(folder: Path, size: Size) -> dict[str, str]:
    chats = size.passes * size.blocks * 10
    return {
        "machine": f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {platform.machine()}",
        "disk": f"{fsync_ms(folder):.2f} ms for one fsync",
        "turns": f"{chats * size.depth} plain, {chats * size.tool_depth} with 3 tools, {size.long} in one chat, "
        f"{size.passes} x {CROWD} chats x {size.crowd} at the same time",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--long", action="store_true", help="three times as many turns")
    parser.add_argument("--sdk", action="store_true", help="a bare bot that asks the model through its SDK, streaming")
    parser.add_argument("--json", action="store_true", help="one JSON document for programs")
    parser.add_argument("--side", action="append", choices=list(SIDES), help="only this one; may be repeated")
    parser.add_argument("--database", metavar="URL", help="only on this database")
    parser.add_argument("--no-postgres", action="store_true", help="only SQLite")
    options = parser.parse_args()
    size = LONG if options.long else Size()
    sides: list[str] = options.side or list(SIDES)
    runs: dict[str, list[Row]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="clawgate-bench-") as name:
        folder = Path(name)
        own = options.database is None and not options.no_postgres and "feishu" in sides
        with postgres_server() if own else nullcontext() as server:
            measured = facts(folder, size)
            plans: list[tuple[str, str, str | None]] = [("SQLite", side, options.database) for side in sides]
            if server is not None:
                plans.append(("PostgreSQL", "feishu", server.new_database()))
            for database, side, url in plans:
                title = f"{side}, {url.partition(':')[0] if url and not server else database}"
                try:
                    runs[title] = uvloop.run(measure(folder / title, size, SIDES[side](), url, sdk=options.sdk))
                except RuntimeError as error:
                    failures.append(f"{title}: {error}")
        if "feishu" in sides and options.database is None:
            try:
                runs[due.TITLE] = uvloop.run(due.measure(folder / "due"))
            except (RuntimeError, ExceptionGroup) as error:
                failures.append(f"{due.TITLE}: {error!r}")
    sys.stdout.write((document if options.json else table)(measured, runs) + "\n")
    try:
        lines = [it for title in runs for it in (title, *differences(title, runs[title], PAGE.read_text("utf-8")))]
        sys.stderr.write("\n".join(("", "beside the figures kept in docs/speed.md", *lines, "")))
    except Reshaped as error:
        failures.append(f"{Reshaped.__doc__} {error}")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()

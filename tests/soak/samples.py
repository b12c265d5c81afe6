"""What a soak measures: the gateway at one moment, as the kernel and its own loop have it, and what its turns store."""

import asyncio
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.subject import Subject

COUNTED = "tasks"
PAGES = """
SELECT coalesce(sum(pgsize), 0) FROM dbstat
WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name IN ('layer', 'layer_text'))
"""
"""The bytes of the layers' tables and of their indexes, whole pages."""
EVENTS = "SELECT coalesce(sum(length(CAST(json_extract(body, '$.event') AS BLOB))), 0) FROM inbox"
"""The bytes of the events as received, which the inbox keeps for the layers alone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The gateway at one moment."""

    minutes: float
    resident_mb: float
    files: int
    threads: int
    tasks: int
    cpu: float
    """Of one core, in percent, since the sample before."""
    cpu_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.minutes:5.1f} min  {self.resident_mb:6.1f} MB  {self.files:3d} files  {self.threads:2d} threads  "
            f"{self.tasks:3d} tasks  {self.cpu:4.1f} % of a core"
        )


async def sampled(subject: Subject, folder: Path, began: float, before: Sample | None) -> Sample:
    process, file = Path(f"/proc/{subject.pid}"), folder / COUNTED
    file.unlink(missing_ok=True)
    os.kill(subject.pid, signal.SIGUSR1)
    while not file.exists():
        await asyncio.sleep(0.1)
    minutes, cpu = (time.monotonic() - began) / 60, subject.cpu_seconds()
    (threads,) = re.findall(r"^Threads:\s+(\d+)$", (process / "status").read_text(), re.M)
    share = 100 * (cpu - before.cpu_seconds) / (minutes - before.minutes) / 60 if before else 0.0
    files = len(list((process / "fd").iterdir()))
    return Sample(minutes, subject.resident_mb(), files, int(threads), int(file.read_text()), share, cpu)


def observed(config: str) -> None:
    """The gateway as `serve` runs it; on SIGUSR1 it writes down how many tasks it has."""
    file = Path(config).with_name(COUNTED)

    def count_up(*_: object) -> None:
        file.with_suffix(".new").write_text(str(len(asyncio.all_tasks())))
        file.with_suffix(".new").replace(file)

    signal.signal(signal.SIGUSR1, count_up)
    sys.argv = ["gateway", "serve", "--config", config, "--port", "0"]
    from gateway.__main__ import main as serve

    serve()


def growth(values: Sequence[float]) -> tuple[float, float, float]:
    """The medians of the second quarter and of the last one, and the second of them by the first; 1 if there are too few."""
    quarter = len(values) // 4
    if not quarter:
        return 0.0, 0.0, 1.0
    second, last = median(values[quarter : 2 * quarter]), median(values[-quarter:])
    return second, last, last / second


def stored(folder: Path) -> str:
    """What the layers of a turn add to the database, once the gateway has stopped."""
    (file,) = folder.rglob("*.db")
    with closing(sqlite3.connect(file)) as database:
        turns, texts, shared = database.execute(
            "SELECT (SELECT count(*) FROM layer), count(*), coalesce(sum(length(CAST(content AS BLOB))), 0) FROM layer_text"
        ).fetchone()
        pages, events = (database.execute(statement).fetchone()[0] for statement in (PAGES, EVENTS))
    each = max(turns, 1)
    return (
        f"layers of {turns} turns: {pages / each:,.0f} bytes a turn in tables and indexes, {events / each:,.0f} for events, "
        f"of {file.stat().st_size / each:,.0f} in the database; {texts} texts of {shared:,} bytes are shared"
    )

"""`python -m tests.bench.growth`: whether a turn costs more where the database is large.

Two gateways take turns in blocks: one on a new database, one on a database with a million transcript rows of a hundred
thousand sessions, all of them finished.
"""

import argparse
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import uvloop
from sqlalchemy import create_engine, text

from tests.bench import subject
from tests.bench.load import Measured, serial
from tests.bench.peers import peers
from tests.bench.sides import Feishu
from tests.bench.subject import started
from tests.postgres import postgres_server

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
FILL = (
    f"INSERT INTO session (id, epoch, pending) {NUMBERS} SELECT 'old:' || i, 1, 0 FROM n",
    f"INSERT INTO inbox (dedupe, sid, body, at, status, attempts) {NUMBERS} "
    "SELECT 'old:' || i, 'old:' || i, '{{}}', 0, 1, 0 FROM n",
    f"INSERT INTO transcript (sid, seq, turn, kind, content) {NUMBERS} "
    "SELECT s.id, n.i, 0, CASE WHEN n.i % 3 = 1 THEN 'user' WHEN n.i % 3 = 2 THEN 'assistant' ELSE 'final' END, :content "
    "FROM n CROSS JOIN session s",
    f"INSERT INTO outbox (sid, turn, part, key, payload, status, attempts, next_at, created) {NUMBERS} "
    "SELECT 'old:' || i, -i, 0, 'old:' || i, '{{}}', 1, 0, 0, 0 FROM n",
)
CONTENT = '{"role": "user", "content": [{"type": "text", "text": "' + "How will the weather be? " * 8 + '"}]}'


def fill(url: str, *, sessions: int, rows: int) -> None:
    """Raises what SQLAlchemy raises where a column is new."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for number, statement in enumerate(FILL):
            count = rows // sessions if number == 2 else sessions
            connection.execute(text(statement.format(count)), {"content": CONTENT} if number == 2 else {})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


async def measure(folder: Path, urls: dict[str, str | None], *, sessions: int, rows: int, blocks: int) -> str:
    side, found = Feishu(), {name: Measured() for name in urls}
    async with peers() as around:
        commands = {name: subject.gateway(folder / name, side, around.urls, database=url) for name, url in urls.items()}
        for name, command in commands.items():
            async with started(command):
                pass
            if name == "large":
                file = next((folder / name).rglob("*.db"), None)
                fill(urls[name] or f"sqlite:///{file}", sessions=sessions, rows=rows)
        async with started(commands["new"]) as new, started(commands["large"]) as large:
            bots = {"new": new, "large": large}
            for bot in bots.values():
                await serial(bot, around, chats=1, turns=1)
                await serial(bot, around, chats=10, turns=3)
            for _ in range(blocks):
                for name, bot in bots.items():
                    found[name].add(await serial(bot, around, chats=10, turns=5))
    lines = [
        f"{name}: p50 {median(it.turns):.2f} ms, CPU {it.cpu_ms_per_turn:.2f} ms, lost {it.lost}, doubled {it.doubled}"
        for name, it in found.items()
    ]
    p50 = median(found["large"].turns) / median(found["new"].turns)
    cpu = found["large"].cpu_ms_per_turn / found["new"].cpu_ms_per_turn
    return "\n".join([*lines, f"large / new: p50 {p50:.2f}, CPU {cpu:.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--postgres", action="store_true", help="on a throw-away PostgreSQL")
    options = parser.parse_args()
    server_or_none = postgres_server() if options.postgres else nullcontext()
    with tempfile.TemporaryDirectory(prefix="clawgate-growth-") as folder, server_or_none as server:
        urls = {name: server.new_database() if server else None for name in ("new", "large")}
        run = measure(Path(folder), urls, sessions=options.sessions, rows=options.rows, blocks=options.blocks)
        report = uvloop.run(run)
    sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()

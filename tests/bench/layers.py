"""`python -m tests.bench.layers`: what it costs to keep the layers of turns: processor time of a turn with them against
without, and the bytes that a turn adds to the database."""

import argparse
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import uvloop

from tests.bench import subject
from tests.bench.load import Measured, serial
from tests.bench.peers import peers
from tests.bench.sides import Feishu
from tests.bench.subject import started

SIZES = {
    "row": "SELECT avg(length(CAST(content AS BLOB)) + length(sid) + length(prompt) + length(tools) + length(route) "
    "+ length(agent) + length(channel) + length(person) + length(outcome) + 16) FROM layer",
    "event in the inbox": "SELECT avg(length(CAST(json_extract(body, '$.event') AS BLOB))) FROM inbox",
    "shared texts": "SELECT sum(length(CAST(content AS BLOB))) FROM layer_text",
}


async def measure(folder: Path, blocks: int) -> list[str]:
    side, found = Feishu(), {name: Measured() for name in ("without", "with")}
    async with peers() as around:
        commands = {
            name: subject.gateway(folder / name, side, around.urls, more=f"console: {{ keepDays: {days} }}")
            for name, days in (("without", 0), ("with", 7))
        }
        async with started(commands["without"]) as without, started(commands["with"]) as kept:
            bots = {"without": without, "with": kept}
            for bot in bots.values():
                await serial(bot, around, chats=10, turns=3)
            for number in range(blocks):
                for name in sorted(bots, reverse=bool(number % 2)):
                    found[name].add(await serial(bots[name], around, chats=10, turns=5))
    cpu = {name: it.cpu_ms_per_turn for name, it in found.items()}
    lines = [f"{name}: CPU {it:.3f} ms a turn" for name, it in cpu.items()]
    with closing(sqlite3.connect(next((folder / "with").rglob("*.db")))) as database:
        sizes = {name: database.execute(statement).fetchone()[0] or 0 for name, statement in SIZES.items()}
    lines += [f"{name}: {size:,.0f} bytes" for name, size in sizes.items()]
    return [*lines, f"with / without: CPU {cpu['with'] / cpu['without']:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.layers", description=__doc__)
    parser.add_argument("--blocks", type=int, default=10)
    with tempfile.TemporaryDirectory(prefix="clawgate-layers-") as folder:
        lines = uvloop.run(measure(Path(folder), parser.parse_args().blocks))
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()

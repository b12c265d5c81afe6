"""`make chaos`: kill the gateway at every point of the catalogue, and count what that cost anybody.

    python -m tests.chaos [--channel feishu|telegram] [--kills 20] [--random 100] [--points K1,K2] [--seed N] [--quick]
                          [--postgres | --database URL] [--replicas N]

`--postgres` starts a PostgreSQL server for the run, with two replicas on a new database for each point.
A platform is played in each way of being connected to it: `telegram-polling` and `telegram-webhook`, where what may
have arrived is given up, and `telegram-resend`, polled, where it is repeated. Two replicas do not poll.

One line a point and channel; exit code 1 if anything was lost, doubled, out of order, run again, left behind or hidden,
or if the process was killed less often than planned. The folder of a point that failed is kept, with the logs in it.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.chaos.campaign import Result, campaign
from tests.chaos.emulated import EMULATED, Emulated
from tests.chaos.points import POINTS, Point
from tests.chaos.storm import backlog, storm
from tests.postgres import PostgresServer, postgres_server

WORDS_MAX = 10
"""Of each failed point, so many findings are told."""


def main() -> None:
    arguments = _arguments()
    names = arguments.points.split(",") if arguments.points else [*(point.name for point in POINTS), "STORM", "BACKLOG"]
    points = [point for point in POINTS if point.name in names]
    unknown = set(names) - {point.name for point in POINTS} - {"STORM", "BACKLOG"}
    if unknown:
        sys.exit(f"no such point: {', '.join(sorted(unknown))}")
    failed = False
    with postgres_server() if arguments.postgres else nullcontext() as server:
        for made in [made for name, made in EMULATED.items() if name.startswith(arguments.channel)]:
            failed |= not _play_all(made, points, names, arguments, server)
    sys.exit(1 if failed else 0)


def _play_all(
    made: Callable[[], Emulated],
    points: Sequence[Point],
    names: Sequence[str],
    arguments: argparse.Namespace,
    server: PostgresServer | None,
) -> bool:
    """Everything that was asked for, on one channel; a platform of its own for each point."""
    channel, clean = made(), True
    if channel.fetched and arguments.replicas > 1:
        _say(f"{channel.name} not run: replicas do not poll")
        return True
    for point in points:
        if point.how == "start" and (server or arguments.database):
            _say(f"{point.name} not run: it needs a file that can be deleted; tests/gateway/store/test_migrate.py")
            continue
        database = server.new_database() if server else arguments.database
        clean &= _play(point, made(), arguments, database)
    for name in () if channel.fetched else ("STORM", "BACKLOG"):
        if name in names:
            database = server.new_database() if server else arguments.database
            clean &= _heavy(name, made(), arguments, database)
    return clean


def _play(point: Point, chat: Emulated, arguments: argparse.Namespace, database: str | None) -> bool:
    planned = {"random": arguments.random, "freeze": arguments.freezes, "roll": arguments.freezes}.get(
        point.how, arguments.kills
    )
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{point.name}-"))
    folder.chmod(0o711)
    result: Result = asyncio.run(
        campaign(point, planned, folder, chat=chat, seed=arguments.seed, database=database, replicas=arguments.replicas)
    )
    _say(str(result))
    if result.clean:
        shutil.rmtree(folder)
        return True
    found = list(result.verdict.lines())
    for line in found[:WORDS_MAX]:
        _say(f"    {line}")
    if len(found) > WORDS_MAX:
        _say(f"    and {len(found) - WORDS_MAX} more")
    _say(f"    logs in {folder}")
    return False


def _heavy(name: str, chat: Emulated, arguments: argparse.Namespace, database: str | None) -> bool:
    with tempfile.TemporaryDirectory(prefix=f"chaos-{name}-") as folder:
        Path(folder).chmod(0o711)
        seed, replicas = arguments.seed, arguments.replicas
        if name == "STORM":
            played = storm(
                Path(folder), chat=chat, seed=seed, events=arguments.events, database=database, replicas=replicas
            )
        else:
            played = backlog(Path(folder), chat=chat, seed=seed, rows=arguments.events * 5, database=database)
        tally = asyncio.run(played)
    _say(str(tally))
    for line in tally.findings[:WORDS_MAX]:
        _say(f"    {line}")
    return tally.clean


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--channel", default="", help="only this, such as feishu, telegram or telegram-webhook")
    parser.add_argument("--kills", type=int, default=20, help="at each point")
    parser.add_argument("--random", type=int, default=100, help="kills at random moments")
    parser.add_argument("--freezes", type=int, default=10, help="freezes, and graceful restarts, under load")
    parser.add_argument("--events", type=int, default=2000, help="of STORM; BACKLOG has five times as many")
    parser.add_argument("--points", default="", help="only these, such as K1,K9w,RANDOM")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--quick", action="store_true", help="3 kills a point, 10 at random")
    parser.add_argument("--database", help="a URL, instead of a SQLite file in a folder of its own")
    parser.add_argument("--postgres", action="store_true", help="a server for this run, and two replicas")
    parser.add_argument("--replicas", type=int, help="gateways on one database")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.kills, arguments.random, arguments.freezes, arguments.events = 3, 10, 3, 200
    arguments.replicas = arguments.replicas or (2 if arguments.postgres else 1)
    if not any(name.startswith(arguments.channel) for name in EMULATED):
        parser.error(f"no such channel: there is {', '.join(EMULATED)}")
    if arguments.replicas > 1 and not (arguments.database or arguments.postgres):
        parser.error("several replicas need a --database that they can share")
    return arguments


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

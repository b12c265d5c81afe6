"""`python -m tests.bench.lengths`: whether a turn costs more in a long chat, and where many long chats alternate.

One gateway on Feishu with SQLite. Its database is filled with finished turns while it is stopped. Then short and long chats
take turns in blocks, so that whatever else the machine does falls on both. The ratios are of the gateway's processor time.
"""

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import uvloop

from tests.bench import subject
from tests.bench.load import Measured, line, watched
from tests.bench.peers import Peers, peers
from tests.bench.sides import Feishu
from tests.bench.subject import Subject, started

SHORT_TURNS = 20


def fill(database: Path, chat: str, turns: int) -> None:
    """Repeats the first turn of a chat until it has so many."""
    with sqlite3.connect(database) as connection:
        named = "SELECT sid, kind, content FROM transcript WHERE sid LIKE ? ORDER BY seq"
        rows = connection.execute(named, (f"%{chat}",)).fetchall()
        (turn,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'inbox'").fetchone()
        seq = len(rows)
        for _ in range(turns - 1):
            turn += 1
            for sid, kind, content in rows:
                seq += 1
                connection.execute("INSERT INTO transcript VALUES (?, ?, ?, ?, ?)", (sid, seq, turn, kind, content))
        connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'inbox'", (turn,))


async def talk(bot: Subject, around: Peers, chats: Sequence[str], turns: int = 1) -> Measured:
    """One turn at a time, going round these chats."""
    prepared = [[bot.side.message(chat, f"And what about day {turn}?") for turn in range(turns)] for chat in chats]
    await around.know(message.fact for of_chat in prepared for message in of_chat)
    async with line(bot, around) as connection, watched(bot, around) as measured:
        for number in range(turns):
            for messages in prepared:
                await connection.turn(messages[number], measured)
    return measured


async def measure(folder: Path, *, turns: int, chats: int, chat_turns: int, blocks: int) -> str:
    side, lines = Feishu(), list[str]()
    lengths = {"short": SHORT_TURNS, "long": turns, **{f"of many, {it}": chat_turns for it in range(chats)}}
    names = {name: side.chat() for name in lengths} | {f"short, {it}": side.chat() for it in range(chats)}
    async with peers() as around:
        command = subject.gateway(folder, side, around.urls)
        async with started(command) as bot:
            await talk(bot, around, [*names.values()])
        file = next(folder.rglob("*.db"))
        for name, chat in names.items():
            fill(file, chat, lengths.get(name, SHORT_TURNS))
        async with started(command) as bot:
            before = bot.resident_mb()
            for title, one, other, each in (
                (f"a chat of {turns:,} turns / of {SHORT_TURNS}", [names["short"]], [names["long"]], 20),
                (
                    f"{chats} chats of {chat_turns} turns that alternate / of {SHORT_TURNS}",
                    [it for name, it in names.items() if name.startswith("short, ")],
                    [it for name, it in names.items() if name.startswith("of many")],
                    1,
                ),
            ):
                both = {"short": one, "long": other}
                for of_kind in both.values():
                    await talk(bot, around, of_kind, 2)
                cpu = {name: list[float]() for name in both}
                for _ in range(blocks):
                    for name, of_kind in both.items():
                        cpu[name].append((await talk(bot, around, of_kind, each)).cpu_ms_per_turn)
                short, long = median(cpu["short"]), median(cpu["long"])
                pairs = [b / a for a, b in zip(cpu["short"], cpu["long"], strict=True)]
                lines.append(
                    f"{title}: {long:.1f} / {short:.1f} ms of CPU, {median(pairs):.2f} x "
                    f"({min(pairs):.2f}-{max(pairs):.2f}); resident {before:.0f} MB at first, {bot.resident_mb():.0f} now"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lengths", description=__doc__)
    parser.add_argument("--turns", type=int, default=5_000)
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--chat-turns", type=int, default=500)
    parser.add_argument("--blocks", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clawgate-lengths-") as folder:
        sizes = {name: getattr(options, name) for name in ("turns", "chats", "chat_turns", "blocks")}
        report = uvloop.run(measure(Path(folder), **sizes))
    sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()

"""Tasks under kills and stops: in a task's request to its model, in its tool, between its end and the report.

Each task is begun once, and its result is read once, or it was stopped and nothing of it is read.
"""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.chaos.test_steps import House, house
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.stories.at_work import results, text_of, users
from tests.waiting import until

POINTS = {
    "K7": "before an answer or an end is journaled",
    "K8": "behind an answer",
    "K10": "before a tool's result",
    "K11": "behind it",
    "K12": "behind an end, and before its report is taken up",
    "K1": "before a task's message is stored",
    "K2": "behind it",
    "K14": "in a send",
    "K20": "in a stop",
    "K27": "before and behind a task's row",
    "K30": "at its end, and at each step of its report",
}
NUMBER = re.compile(r"\bT(\d+)\b")
STOPPED = 5
"""Every so many tasks one is stopped."""


def script(body: dict[str, Any]) -> Reply:
    (*_, last) = users(body)
    number = NUMBER.findall(last)[-1]
    answered = text_of(body["messages"][-1]) == "" and results(body)
    if "This is the task" in last:
        if answered:
            return says(f"result of T{number}.")
        return calls(("write", {"file_path": f"t{number}.txt", "content": number}))
    if answered:
        return says("handed over")
    return calls(("task", {"action": "start", "title": f"T{number}", "prompt": f"work on T{number}"}))


def tasks(database: str) -> list[Any]:
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)
    with engine.begin() as connection:
        return list(connection.execute(text("SELECT id, title, state, ended FROM task")))


async def reached(opened: House, found: Callable[[], int], goal: int) -> None:
    """Waits as patiently for each one more as `until` does for all."""
    while (before := found()) < goal:

        async def more(before: int = before) -> bool:
            await opened.alive()
            return found() > before

        await until(more)


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize(
    "count", [8, pytest.param(50, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.long)]
)
async def test_each_task_is_begun_once_and_its_result_is_read_once(
    count: int, tmp_path: Path, database_url: str
) -> None:
    chance, kills = random.Random(7), Counter[str]()
    async with house(tmp_path, database_url, script) as opened:

        async def armed() -> None:
            """A life that ends at some moment of its own."""
            if opened.replica.dead:
                await opened.replica.ended()
                point = chance.choice([*POINTS])
                kills[point] += 1
                await opened.replica.start(f"{point}:{chance.randint(3, 30)}" if point else "")

        opened.alive = armed  # type: ignore[method-assign]
        await opened.replica.arm("K2:3")
        for number in range(count):
            await opened.write(f"please hand over T{number}")
            if number % STOPPED == STOPPED - 1:
                rows = {row.title: row.id for row in tasks(database_url) if row.ended is None}
                for id_ in rows.values():
                    await opened.write(f"/stop {id_}")

        await reached(opened, lambda: sum(row.ended is not None for row in tasks(database_url)), count)
        ended = {row.title for row in tasks(database_url) if row.state == "ended"}

        def read() -> Counter[str]:
            said = (re.fullmatch(r"Task .*\n\nresult of (T\d+)\.", it.text) for it in opened.chat.emulator.messages)
            return Counter(it[1] for it in said if it)

        await reached(opened, lambda: len({*read()} & ended), len(ended))
        assert Counter(row.title for row in tasks(database_url)) == Counter(f"T{it}" for it in range(count))
        assert read() == Counter(ended)
        print(  # noqa: T201
            f"{count} tasks, {len(ended)} ended, {count - len(ended)} stopped, {sum(kills.values())} kills: {dict(kills)}"
        )

"""Killed at each stage of a turn: what the operator reads of it then, and when the next process has ended it."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from tests.chaos.platform import unsent
from tests.chaos.test_steps import POSTGRESQL, SQLITE, House, bills, house
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.running import SECRETS
from tests.waiting import until

Killed: TypeAlias = tuple[str, int, list[str]]
STAGES: tuple[tuple[str, Killed | None, list[str]], ...] = (
    ("K1:1", None, []),  # before it is accepted
    ("K2:1", ("waiting", 0, []), []),
    ("K4:2", ("running", 0, []), ["resumed"]),  # its message is in the journal
    ("K7:2", ("running", 1, ["done"]), ["resumed"]),  # before the second answer is
    ("K8:2", ("running", 2, ["done", "running"]), ["resumed"]),
    ("K10:1", ("running", 1, ["running"]), ["resumed"]),  # before the first result is
    ("K11:2", ("running", 2, ["done", "done"]), ["resumed"]),
    ("K12:1", ("replied", 3, ["done", "done"]), []),  # ended, and not sent
    ("K16:1", ("replied", 3, ["done", "done"]), []),
)
"""By the moment of `tests.chaos.victim`: outcome, requests and the states of calls while nothing runs, and what the turn
lacks in the end."""


def script(body: dict[str, Any]) -> Reply:
    """Two tools, one after the other, and the answer."""
    asked, last = [{"content": []}, *body["messages"]][-2:]
    if not any(it["type"] == "tool_result" for it in last["content"]):
        return calls(("write", {"file_path": "a.txt", "content": "a"}))
    is_first = any(it.get("name") == "write" for it in asked["content"])
    return calls(("ls", {"path": "."})) if is_first else says("heard")


def told(opened: House, *words: str) -> Any:
    """The JSON of the command line, which needs no gateway."""

    def run() -> Any:
        config = str(opened.replica.config)
        done = CliRunner().invoke(app, ["turns", *words, "--json", "--config", config], env=SECRETS)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    with ThreadPoolExecutor() as pool:  # a loop of its own
        return pool.submit(run).result()


@pytest.mark.parametrize(
    ("database_url", "stages"),
    [*SQLITE(len(STAGES)), *POSTGRESQL(3)],
    indirect=["database_url"],
    ids=["sqlite", "postgresql"],
)
async def test_a_turn_is_shown_once_and_whole_wherever_its_process_dies(
    stages: int, tmp_path: Path, database_url: str
) -> None:
    async with house(tmp_path, database_url, script) as opened:
        for number, (moment, killed, missing) in enumerate(STAGES[:stages], start=1):
            await opened.replica.arm(moment)
            with opened.left_dead():
                writing = asyncio.create_task(opened.write(f"question {number}"))
                await until(lambda: opened.replica.dead)
                _is_read(told(opened, "list"), opened, killed, moment)
            await writing
            await _sent(opened, number, database_url)
            _is_whole(_newest(opened), missing, moment)
        listed = told(opened, "list")
    assert len(listed) == len({it["id"] for it in listed}) == stages
    assert [it["cost"] for it in listed] == [it["cost"] for it in bills(database_url)]


def _newest(opened: House) -> dict[str, Any]:
    return dict(told(opened, "show", str(told(opened, "list")[-1]["id"])))


async def _sent(opened: House, number: int, database: str) -> None:
    await opened.read(lambda texts: len(texts) == number)
    await until(lambda: not unsent(database))


def _is_read(listed: list[dict[str, Any]], opened: House, killed: Killed | None, moment: str) -> None:
    """The turn is in the list while nothing runs, if it was accepted, and the earlier ones are as they were."""
    assert [it["outcome"] for it in listed if it["outcome"] != "replied"] == [
        it[0] for it in (killed,) if it and it[0] != "replied"
    ], moment
    if killed is not None:
        shown = _newest(opened)
        states = [it["state"] for it in shown["calls"]]
        assert (listed[-1]["outcome"], len(shown["requests"]), states) == killed, moment
        assert shown["missing"] == ([] if killed[0] == "replied" else ["running"]), moment


def _is_whole(shown: dict[str, Any], missing: list[str], moment: str) -> None:
    """Each row is there once, however many processes wrote them, and the prices of the requests are the turn's."""
    assert shown["missing"] == missing, moment
    assert [it["role"] for it in shown["steps"]] == ["user", *["assistant", "toolResult"] * 2, "assistant"], moment
    assert [(it["tool"], it["state"]) for it in shown["calls"]] == [("write", "done"), ("ls", "done")], moment
    assert [it["state"] for it in shown["requests"]] == ["answered"] * 3, moment
    assert sum(it["response"]["cost"] for it in shown["requests"]) == pytest.approx(shown["turn"]["cost"]), moment
    assert len({it["response"]["id"] for it in shown["requests"]}) == 3, moment
    assert [(it["text"], it["state"]) for it in shown["reply"]] == [("heard", "sent")], moment

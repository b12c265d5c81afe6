"""Background commands through the door: asked for in later turns, after an edit and a restart, by another replica."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.operate.sessions import erase
from tests.emulators.models.script import calls, says
from tests.processes import processes_of
from tests.running import AGENTS, ALICE, BOB, BOB_CHAT, SECRETS, running
from tests.stories.at_work import RUNS, results, works
from tests.stories.test_process import platforms, say, started
from tests.stories.test_replicas import two
from tests.waiting import until

pytestmark = pytest.mark.waits

WITH_PROCESS = AGENTS.replace("exec,", "exec, process,")
GO = "echo begun; until [ -e go ]; do sleep 0.02; done; echo done"
POLL_SECONDS = 20


def process(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "process", {"action": action, **more}


def id_in(text: str) -> str:
    return text.split()[2].rstrip(";")


async def test_started_in_one_turn_it_is_polled_in_the_next_and_no_other_chat_has_it(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        (begun,) = await works(house, process("start", command=GO))
        id_ = id_in(begun)
        nothing, refused = await works(
            house, process("list"), process("kill", id=id_), sender=BOB, chat=BOB_CHAT, text="what runs?"
        )
        assert nothing == "(no processes)"
        assert json.loads(refused)["error_code"] == "NOT_FOUND"
        (first,) = await works(house, process("poll", id=id_, wait_seconds=POLL_SECONDS))
        assert first.startswith("begun\n[running, ")
        (house.workspace() / "go").touch()
        poll = process("poll", id=id_, wait_seconds=POLL_SECONDS)
        output, end = await works(house, poll, poll)  # what it writes last may be seen before its end
        assert output.startswith("done\n")
        assert end.startswith("[ended after ")


async def test_an_edit_of_the_config_leaves_it_running_and_ends_what_may_be_started(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        (begun,) = await works(house, process("start", command=f"cat; : {tmp_path}"))
        file = tmp_path / "config.yaml"
        file.write_text(file.read_text().replace("mode: allow", "mode: deny"))
        settled = load(file, SECRETS)
        await house.gateway.apply(settled.config, SECRETS, house.gateway.runtime.config_state)
        wanted = [process("list"), process("start", command="touch ran"), process("write", id=id_in(begun), text="x")]
        listed, *refused = await works(house, *wanted, process("kill", id=id_in(begun)))
        assert "running" in listed
        assert [json.loads(it)["error_code"] for it in refused[:2]] == ["EXEC_DENIED"] * 2
        assert "killed" in refused[2]
        assert not (house.workspace() / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_after_a_restart_the_agent_learns_what_became_of_it(tmp_path: Path, number: signal.Signals) -> None:
    async with platforms(tmp_path, more=RUNS) as (feishu, anthropic, config):
        config.write_text(config.read_text().replace("exec,", "exec, process,"))
        command = f"echo begun; sleep 300; : {tmp_path}"
        anthropic.script = [calls(process("start", command=command)), says("started")]
        async with started(config) as run:
            await say(run, feishu, "start it")
            await feishu.sent(1)
            await until(lambda: processes_of(command))
            await run.end(number)
            await until(lambda: not processes_of(command))
        anthropic.script = [calls(process("list")), says("it was interrupted")]
        async with started(config) as run:
            await say(run, feishu, "how far is it?")
            assert [reply.text for reply in await feishu.sent(2)][1] == "it was interrupted"
        (listed,) = results(anthropic.requests[-1].body)[-1:]
        assert "interrupted: the gateway restarted" in listed
        assert "echo begun" in listed


async def test_another_replica_says_where_it_runs_and_ends_it(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], RUNS, agents=WITH_PROCESS) as (one, other):
        command = f"sleep 300; : {tmp_path}"
        (begun,) = await works(one, process("start", command=command))
        await one.idle()
        listed, ended = await works(other, process("list"), process("kill", id=id_in(begun)))
        assert "running at another replica" in listed
        assert "killed" in ended
        await until(lambda: not processes_of(command))


async def test_who_is_erased_leaves_no_process_and_no_record(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        command = f"echo trace-81723; sleep 300; : {tmp_path}"
        await works(house, process("start", command=command))
        await until(lambda: processes_of(command))
        await asyncio.to_thread(erase, house.gateway.config, person=("feishu", ALICE))
        await until(lambda: not processes_of(command))
        await until(lambda: not list((tmp_path / "data" / "uploads").rglob("*")))

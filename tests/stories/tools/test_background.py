"""Background commands through the door: asked for in later turns, after an edit and a restart, by another replica."""

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.operate.sessions import erase
from tests.emulators.feishu.emulator import Sent
from tests.emulators.models.script import calls, says
from tests.processes import processes_of
from tests.running import AGENTS, ALICE, BOB, BOB_CHAT, SECRETS, Running, running
from tests.stories.at_work import RUNS, results, works
from tests.stories.process.test_process import platforms, say, started
from tests.stories.store.test_replicas import two
from tests.waiting import until

WITH_PROCESS = AGENTS.replace("exec,", "exec, process,")
GO = "echo begun; until [ -e go ]; do sleep 0.02; done; echo done"
POLL_SECONDS = 20


def process(action: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "process", {"action": action, **more}


def id_in(text: str) -> str:
    return text.split()[2].rstrip(";")


async def test_background_command_is_polled_in_later_turns_of_its_chat(tmp_path: Path) -> None:
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


async def test_background_command_survives_a_config_edit(tmp_path: Path) -> None:
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
async def test_background_command_outcome_is_known_after_a_restart(tmp_path: Path, number: signal.Signals) -> None:
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
        anthropic.script = [calls(process("list")), says("I was interrupted")]
        async with started(config) as run:
            await say(run, feishu, "how far is it?")
            assert [reply.text for reply in await feishu.sent(2)][1] == "I was interrupted"
        (listed,) = results(anthropic.requests[-1].body)[-1:]
        assert "interrupted: the gateway restarted" in listed
        assert "echo begun" in listed


async def test_background_command_is_seen_and_ended_by_another_replica(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], RUNS, agents=WITH_PROCESS) as (one, other):
        command = f"sleep 300; : {tmp_path}"
        (begun,) = await works(one, process("start", command=command))
        await one.idle()
        listed, ended = await works(other, process("list"), process("kill", id=id_in(begun)))
        assert "running at another replica" in listed
        assert "killed" in ended
        await until(lambda: not processes_of(command))


async def test_erased_person_leaves_no_background_command(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        command = f"echo trace-81723; sleep 300; : {tmp_path}"
        await works(house, process("start", command=command))
        await until(lambda: processes_of(command))
        await asyncio.to_thread(erase, house.gateway.config, person=("feishu", ALICE))
        await until(lambda: not processes_of(command))
        await until(lambda: not list((tmp_path / "data" / "uploads").rglob("*")))


def reports(house: Running) -> list[Sent]:
    return [it for it in house.feishu.messages if it.text.startswith("Command ")]


async def _reported(house: Running) -> bool:
    return bool(reports(house))


async def _settled(house: Running) -> bool:
    """No command's end is waited for any more."""
    return not [it for it in await house.gateway.runtime.store.later.every() if it.state == "active"]


async def test_background_command_end_is_reported_once(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=f'{RUNS}\ndatabase: {{ url: "{database_url}" }}') as house:
        (begun,) = await works(house, process("start", command=f"{GO}; exit 3", notify=True))
        id_ = id_in(begun)
        assert begun.endswith("Its end is sent to the chat by itself.")
        assert not reports(house)
        (house.workspace() / "go").touch()
        await house.until(lambda: _reported(house))
        await house.idle()
        (report,) = reports(house)
        head, _, output = report.text.partition("\n\n")
        assert head.startswith(f"Command {id_}, `echo begun; until")
        assert re.search(r"has ended after \d+ s: exit code 3$", head)
        assert output == "```\nbegun\ndone\n```"
        assert report.reply_to == house.feishu.messages[0].reply_to
        listed = (await works(house, process("list"), text="and?"))[0]
        assert "exit code 3" in listed
        told = results(house.anthropic.requests[-1].body)[-2]
        assert re.fullmatch(r"begun\ndone\n\[ended after \d+ s: exit code 3\]", told)
        assert "The background command " in str(house.anthropic.requests[-1].body)
        assert len(reports(house)) == 1
        assert await _settled(house)


async def test_background_command_end_is_not_reported_when_seen_or_unwanted(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        (begun,) = await works(house, process("start", command="echo quiet"))
        await works(house, process("poll", id=id_in(begun), wait_seconds=POLL_SECONDS))
        assert await house.gateway.runtime.store.later.every() == []
        (begun,) = await works(house, process("start", command="cat", notify=True))
        (killed,) = await works(house, process("kill", id=id_in(begun)))
        assert "killed" in killed
        await house.until(lambda: _settled(house))
        await house.idle()
        assert not reports(house)


async def test_background_command_timeout_is_reported_to_allowed_people_only(tmp_path: Path) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        await works(house, process("start", command="echo on; sleep 300", timeout_seconds=0.5, notify=True))
        await house.until(lambda: _reported(house))
        assert "EXEC_TIMEOUT: stopped after 0.5 seconds" in reports(house)[0].text
        await works(house, process("start", command="cat; : later", notify=True))
        file = tmp_path / "config.yaml"
        file.write_text(file.read_text().replace("dmPolicy: open", f"dmPolicy: allowlist\n    allowFrom: [{BOB}]"))
        await house.gateway.apply(load(file, SECRETS).config, SECRETS, house.gateway.runtime.config_state)
        processes = house.gateway.runtime.setup.processes
        for it in list(processes._running.values()):
            it.ask_to_end()
        await house.until(lambda: _settled(house))
        await house.idle()
        assert len(reports(house)) == 1


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_stop_ends_a_background_command_unreported(tmp_path: Path, command: str) -> None:
    async with running(tmp_path, agents=WITH_PROCESS, more=RUNS) as house:
        waited, other = f"sleep 300; : a {tmp_path}", f"sleep 300; : b {tmp_path}"
        begun, _ = await works(house, process("start", command=waited, notify=True), process("start", command=other))
        await until(lambda: processes_of(waited) and processes_of(other))
        await house.say(command)
        said = (await house.replies(2))[1]
        assert f"These commands were stopped too:\n- `{id_in(begun)}` `sleep 300; : a " in said
        assert " : b " not in said
        await until(lambda: not processes_of(waited))
        assert processes_of(other)
        await house.until(lambda: _settled(house))
        await house.idle()
        assert not reports(house)
        await works(house, process("list"), text="/stop it all")  # words to the agent, as ever
        assert len(house.feishu.messages) == 3


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_background_command_lost_with_its_gateway_is_reported_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with platforms(tmp_path, more=RUNS) as (feishu, anthropic, config):
        config.write_text(config.read_text().replace("exec,", "exec, process,"))
        command = f"echo begun; sleep 300; : {tmp_path}"
        anthropic.script = [calls(process("start", command=command, notify=True)), says("started")]
        async with started(config) as run:
            await say(run, feishu, "start it")
            await feishu.sent(1)
            await until(lambda: processes_of(command))
            await run.end(number)
            await until(lambda: not processes_of(command))
        for _ in range(2):
            async with started(config) as run:
                lost = (await feishu.sent(2))[1]
                assert re.match(
                    r"Command \w{6}, `echo begun; sleep 300; .*`, was lost: the gateway restarted", lost.text
                )
                await run.end(signal.SIGTERM)
        assert len(feishu.messages) == 2

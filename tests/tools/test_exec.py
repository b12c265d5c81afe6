"""exec with real processes: what it gives, what it withholds, and that nothing of it stays behind."""

import asyncio
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.processes import processes_of
from tests.tools.bench import WAIT_FOR_GO, Bench, bench, text_of
from tests.waiting import until
from tools.command import CommandLimit
from tools.exec import STOPPED
from tools.sandbox.sandbox import Sandbox

NAP = f"sleep {7_000_000 + os.getpid()}"
"""A command that no other run of this suite has."""


def test_every_limit_says_why_it_stopped_a_command() -> None:
    assert set(STOPPED) == set(get_args(CommandLimit))


async def test_exec_runs_in_the_workspace_with_output_and_exit_code(at: Bench) -> None:
    await at.text("write", file_path="a.txt", content="one\n")
    assert await at.output("cat a.txt; echo two >&2") == "one\ntwo"
    assert await at.text("exec", command="true") == "[exit code 0]"
    for command, code, shown in (
        ("echo why; exit 3", 3, "why\n[exit code 3]"),
        ("kill -9 $$", 137, "[exit code 137: ended by signal 9 (SIGKILL)]"),
        ("head -c 10 /dev/zero | cat >/dev/null; echo x >&2; false", 1, "x\n[exit code 1]"),
    ):
        failed = await at.call("exec", command=command)
        assert (failed.is_error, text_of(failed), failed.details["exitCode"]) == (True, shown, code)


async def test_files_of_commands_and_of_tools_can_be_shared_both_ways(at: Bench) -> None:
    await at.output("mkdir made; echo hi > made/by-command")
    assert await at.text("read", file_path="made/by-command") == "hi\n"
    await at.text("edit", file_path="made/by-command", old_text="hi", new_text="ho")
    await at.text("write", file_path="made/by-tool", content="x")
    assert await at.output("echo y >> made/by-tool; cat made/by-command made/by-tool") == "ho\nxy"


async def test_the_environment_holds_nothing_of_ours(at: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-91827")
    result = await at.call(
        "exec", command="env; cat /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'"
    )
    assert "canary" not in text_of(result)


async def test_a_command_is_not_root_and_has_no_input_and_no_terminal(at: Bench) -> None:
    assert await at.output("test $(id -u) = 0 && echo root; cat; test -t 0 || echo none") == "none"


@pytest.mark.parametrize("command", ["NAP", "trap '' TERM; NAP & while :; do :; done", "kill -STOP $$; NAP"])
async def test_what_does_not_end_is_ended_with_all_it_started(at: Bench, command: str) -> None:
    result = await at.call("exec", command=command.replace("NAP", NAP), timeout_seconds=0.3)
    assert "EXEC_TIMEOUT" in text_of(result)
    assert result.details["timedOut"] is True
    assert processes_of(NAP) == {}


@pytest.mark.parametrize("command", ["NAP & echo done", "(setsid sh -c 'NAP & NAP' &) ; echo done"])
async def test_exec_kills_what_is_left_in_the_background(at: Bench, command: str) -> None:
    assert await at.output(command.replace("NAP", NAP)) == "done"
    assert processes_of(NAP) == {}


async def test_a_call_that_is_cancelled_takes_its_command_with_it(at: Bench) -> None:
    task = asyncio.create_task(at.call("exec", command=NAP))
    await until(lambda: processes_of(NAP))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_of(NAP) == {}


async def test_control_characters_do_not_reach_the_model(at: Bench) -> None:
    shown = r"a\x1b[31mb\x00c\x7f\x9b2J" + "\tz"
    assert await at.output(r"printf 'a\033[31mb\000c\177\302\2332J\tz'") == shown


async def test_one_more_than_may_run_at_a_time_is_told_to_wait(tmp_path: Path) -> None:
    at = bench(tmp_path, exec_={"parallel": 1})
    slow = asyncio.create_task(at.call("exec", command=WAIT_FOR_GO))
    await until((at.root / "ready").exists)
    assert await at.code("exec", command="true") == "EXEC_BUSY"
    (at.root / "go").touch()
    await slow
    assert await at.output("echo again") == "again"
    at.workspace.close()


async def test_eight_commands_of_all_agents_run_at_a_time(tmp_path: Path) -> None:
    sandbox = Sandbox()
    agents = [bench(tmp_path / name, sandbox=sandbox) for name in ("one", "two", "three")]
    waiting = [asyncio.create_task(at.call("exec", command=WAIT_FOR_GO)) for at in agents[:2] for _ in range(4)]
    await until(sandbox.slots.locked)
    assert await agents[2].code("exec", command="true") == "EXEC_BUSY"
    await until(lambda: all((at.root / "ready").exists() for at in agents[:2]))
    for at in agents[:2]:
        (at.root / "go").touch()
    await asyncio.gather(*waiting)
    assert await agents[2].output("echo again") == "again"
    for at in agents:
        at.workspace.close()


@pytest.mark.parametrize(("mode", "code"), [("deny", "EXEC_DENIED"), ("ask", "NO_APPROVER")])
async def test_where_it_is_not_allowed_nothing_runs_and_the_model_is_told_why(
    tmp_path: Path, mode: str, code: str
) -> None:
    at = bench(tmp_path, mode=mode)
    assert "exec" in [spec.name for spec in at.toolbox.specs]
    result = await at.call("exec", command="touch ran")
    assert code in text_of(result)
    assert os.listdir(at.root) == []
    at.workspace.close()


async def test_a_command_that_begins_with_a_dash_is_a_command(at: Bench) -> None:
    assert "not found" in text_of(await at.call("exec", command="-n"))


async def test_the_end_of_one_command_leaves_another_ones_background_alone(at: Bench) -> None:
    command = f"(sleep 300 >/dev/null 2>&1 & echo $! > pid); {WAIT_FOR_GO}; kill -0 $(cat pid) && echo alive"
    first = asyncio.create_task(at.output("until [ -e ready ]; do sleep 0.02; done"))
    second = asyncio.create_task(at.output(command))
    await first
    (at.root / "go").touch()
    assert await second == "alive"


PR_GET_DUMPABLE = 3
SIGNAL_SCOPE_SINCE = 6
"""The version of Landlock that knows borders for signals: Linux 6.12."""


@pytest.mark.skipif(ctypes.CDLL(None).syscall(444, None, 0, 1) < SIGNAL_SCOPE_SINCE, reason="needs Linux 6.12")
async def test_a_command_cannot_signal_another_one_of_the_same_user(tmp_path: Path) -> None:
    at = bench(tmp_path, exec_={"sandbox": "off"})
    first = asyncio.create_task(at.output(f"echo $$ > shell; {WAIT_FOR_GO}; echo alive"))
    await until((at.root / "ready").exists)
    output = await at.output("kill -9 $(cat shell) 2>&1; sleep 30 & kill $! && echo own")
    (at.root / "go").touch()
    assert "not permitted" in output
    assert output.splitlines()[-1].startswith("own")
    assert await first == "alive"
    at.workspace.close()


async def test_the_gateways_other_children_are_nobodys_business(at: Bench) -> None:
    running = asyncio.create_task(at.output(WAIT_FOR_GO))
    await until((at.root / "ready").exists)
    with subprocess.Popen(["sleep", "300"]) as child:
        (at.root / "go").touch()
        await running
        assert child.poll() is None
        child.kill()


async def test_our_environment_cannot_be_read_by_a_command_of_our_own_user(at: Bench) -> None:
    await at.call("exec", command="true")
    assert ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


async def test_the_shell_starts_with_six_names_and_no_way_to_more_rights(at: Bench) -> None:
    names = await at.output("tr '\\0' '\\n' </proc/$$/environ | cut -d= -f1 | sort | tr '\\n' ' '")
    assert names.split() == ["HOME", "LANG", "PATH", "TERM", "TMPDIR", "TZ"]
    assert await at.output("grep NoNewPrivs /proc/self/status") == "NoNewPrivs:\t1"


async def test_memory_and_files_have_an_end(at: Bench) -> None:
    hog = f"{sys.executable if os.geteuid() else 'python3'} -c 'bytearray(3 << 30)' 2>&1 | grep -o MemoryError"
    assert await at.output(hog) == "MemoryError"
    await at.call("exec", command="head -c 70000000 /dev/zero > big")
    assert (at.root / "big").stat().st_size == 64 * 1024 * 1024

"""exec with real processes: what it gives, what it withholds, and that nothing of it stays behind."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.tools.bench import Bench, bench, text_of

NAP = f"sleep {7_000_000 + os.getpid()}"
"""A command that no other run of this suite has."""


def running(mark: str) -> list[str]:
    """The processes whose command line holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if mark in line and state != "Z":
                found.append(line)
    return found


async def test_a_command_runs_in_the_workspace_and_gives_its_output_and_exit_code(at: Bench) -> None:
    await at.text("write", file_path="a.txt", content="one\n")
    assert await at.output("cat a.txt; echo two >&2") == "one\ntwo"
    assert await at.text("exec", command="true") == "[exit code 0]"
    failed = await at.call("exec", command="echo why; exit 3")
    assert failed.is_error
    assert text_of(failed) == "why\n[exit code 3]"
    assert failed.details["exitCode"] == 3


async def test_files_of_commands_and_of_tools_can_be_shared_both_ways(at: Bench) -> None:
    await at.output("mkdir made; echo hi > made/by-command")
    assert await at.text("read", file_path="made/by-command") == "hi\n"
    await at.text("edit", file_path="made/by-command", old_text="hi", new_text="ho")
    await at.text("write", file_path="made/by-tool", content="x")
    assert await at.output("echo y >> made/by-tool; cat made/by-command made/by-tool") == "ho\nxy"


async def test_the_environment_is_six_names_and_holds_nothing_of_ours(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-91827")
    environment = dict(line.split("=", 1) for line in (await at.output("/usr/bin/env")).splitlines())
    assert set(environment) - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ"}
    result = await at.call("exec", command="cat /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "canary" not in text_of(result)


async def test_a_command_never_runs_as_root(at: Bench) -> None:
    assert await at.output("id -u") != "0"


async def test_it_has_no_input_and_no_terminal(at: Bench) -> None:
    assert await at.output("cat; test -t 0 || echo none") == "none"


@pytest.mark.parametrize("command", ["NAP", "trap '' TERM; NAP & while :; do :; done", "kill -STOP $$; NAP"])
async def test_what_does_not_end_is_ended_with_all_it_started(at: Bench, command: str) -> None:
    result = await at.call("exec", command=command.replace("NAP", NAP), timeout_seconds=0.3)
    assert "EXEC_TIMEOUT" in text_of(result)
    assert result.details["timedOut"] is True
    assert running(NAP) == []


@pytest.mark.parametrize(
    "command",
    [
        "NAP & echo done",
        "setsid NAP & echo done",
        "(setsid sh -c 'NAP & NAP' &) ; echo done",
    ],
)
async def test_what_is_left_in_the_background_does_not_hold_the_call_and_does_not_stay(at: Bench, command: str) -> None:
    assert await at.output(command.replace("NAP", NAP)) == "done"
    assert running(NAP) == []


async def test_a_call_that_is_cancelled_takes_its_command_with_it(at: Bench) -> None:
    task = asyncio.create_task(at.call("exec", command=NAP))
    while not running(NAP):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(NAP) == []


async def test_endless_output_is_stopped_and_its_two_ends_are_kept(tmp_path: Path) -> None:
    at = bench(tmp_path, exec_={"outputBytes": 2048})
    result = await at.call("exec", command="echo first; yes | head -c 100000; echo last")
    assert text_of(result).startswith("first\n")
    assert text_of(result).endswith("last\n[exit code 0]")
    assert "bytes of output are left out" in text_of(result)
    assert len(text_of(result)) < 2300
    assert "EXEC_OUTPUT_LIMIT" in text_of(await at.call("exec", command="yes"))
    at.workspace.close()


async def test_control_characters_do_not_reach_the_model(at: Bench) -> None:
    assert await at.output(r"printf 'a\033[31mb\000c\177\tz'") == r"a\x1b[31mb\x00c\x7f" + "\tz"


async def test_one_more_than_may_run_at_a_time_is_told_to_wait(tmp_path: Path) -> None:
    at = bench(tmp_path, exec_={"parallel": 1})
    slow = asyncio.create_task(at.call("exec", command=NAP, timeout_seconds=1))
    while not running(NAP):
        await asyncio.sleep(0.01)
    assert await at.code("exec", command="true") == "EXEC_BUSY"
    await slow
    assert await at.output("echo again") == "again"
    at.workspace.close()


@pytest.mark.parametrize(("mode", "code"), [("deny", "EXEC_DENIED"), ("ask", "NO_APPROVER")])
async def test_where_it_is_not_allowed_nothing_runs_and_the_model_is_told_why(
    tmp_path: Path, mode: str, code: str
) -> None:
    at = bench(tmp_path, mode=mode)
    assert "exec" in [spec.name for spec in at.toolbox.specs]
    result = await at.call("exec", command="touch ran")
    assert code in text_of(result)
    assert "tools.exec.mode" in text_of(result)
    assert os.listdir(at.root) == []
    at.workspace.close()

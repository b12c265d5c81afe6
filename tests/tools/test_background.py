"""`process` with real processes: what it shows, what it ends, who sees it, and what is known when a gateway has died."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.channels.contexts import Clock
from tests.processes import processes_of
from tests.tools.bench import Bench, bench, text_of
from tests.waiting import until
from tools import process as module
from tools.config import ProcessConfig
from tools.output import Output
from tools.process import BackgroundCommand, EndReport, Processes
from tools.sandbox.sandbox import ProbeReport, Sandbox, Wall
from tools.tool import Call
from tools.workspace import folder_of, forget_session

NAP = f"sleep {9_000_000 + os.getpid()}"
"""A command that no other run of this suite has."""


@pytest.fixture
async def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Bench]]:
    """A bench for each name of a session, and for each name of a gateway a registry of its own."""
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.05)
    gateways: dict[str, Processes] = {}
    benches: list[Bench] = []

    def build(session: str = "a", gateway: str = "one", workspace: str = "", **more: Any) -> Bench:
        config = ProcessConfig.model_validate(more.pop("process", {}))
        processes = gateways.setdefault(gateway, Processes(config, more.pop("now", time.time)))
        built = bench(tmp_path / workspace, uploads=tmp_path / "uploads" / session, processes=processes, **more)
        benches.append(built)
        return built

    yield build
    for processes in gateways.values():
        await processes.close()
    for built in benches:
        built.workspace.close()
    assert processes_of(NAP) == {}


async def start(at: Bench, command: str, **more: Any) -> str:
    return str((await at.call("process", action="start", command=command, **more)).details["id"])


async def polled(at: Bench, id_: str, seconds: float = 20) -> str:
    return await at.text("process", action="poll", id=id_, wait_seconds=seconds)


async def ended(at: Bench, id_: str) -> str:
    """All its output, and how it ended."""
    output = ""
    while True:
        text, _, state = (await polled(at, id_)).rpartition("[")
        output += text
        if not state.startswith("running"):
            return f"{output}[{state}"


async def test_what_is_started_is_polled_piece_by_piece_and_its_log_keeps_all(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    id_ = await start(at, "echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 3")
    assert (await polled(at, id_)).startswith("one\n[running, ")
    assert (await polled(at, id_, 0)).startswith("[running, ")
    assert f"{id_} running, " in await at.text("process", action="list")
    (at.root / "go").touch()
    output = await ended(at, id_)
    assert output.startswith("two\n[ended after ")
    assert output.endswith("exit code 3]")
    assert (await polled(at, id_)).startswith("[ended after ")
    assert await at.text("process", action="log", id=id_) == "one\ntwo\n"
    assert await at.text("process", action="log", id=id_, offset=-1) == "two\n"
    assert f"{id_} ended after" in await at.text("process", action="list")
    quick = await start(at, "echo quick")

    async def over() -> bool:
        return f"{quick} ended after" in await at.text("process", action="list")

    await until(over)
    assert (await polled(at, quick)).startswith("quick\n[ended after ")
    assert (await polled(at, quick)).startswith("[ended after ")


async def test_what_is_written_is_read_until_its_end(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    id_ = await start(at, "read first; echo got $first; cat")
    assert "Wrote 4 bytes" in await at.text("process", action="write", id=id_, text="abc", key="enter")
    assert (await polled(at, id_)).startswith("got abc\n")
    await at.text("process", action="write", id=id_, text="def", key="ctrl-d")
    assert (await ended(at, id_)).startswith("def\n[ended")
    assert await at.code("process", action="write", id=id_, text="more") == "NOT_RUNNING"
    assert await at.code("process", action="write", id=id_) == "INVALID_ARGUMENT"


async def test_a_terminal_is_one_and_a_key_in_it_is_a_signal(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    command = "stty size; test -t 0 && test -t 1 && echo tty >/dev/tty; trap 'echo caught; exit 7' INT; cat"
    id_ = await start(at, command, pty=True)
    output = ""
    while "tty" not in output:
        output += await polled(at, id_)
    assert output.startswith("24 80\n")
    await at.text("process", action="write", id=id_, text="hello", key="enter")
    output = ""
    while "hello" not in output:  # a terminal drops what it still holds when a signal comes
        output += await polled(at, id_)
    await at.text("process", action="write", id=id_, key="ctrl-c")
    output = await ended(at, id_)
    assert "caught" in output
    assert output.endswith("exit code 7]")
    assert "\x1b" not in output
    assert await at.code("process", action="write", id=await start(at, "cat"), key="ctrl-c") == "INVALID_ARGUMENT"
    long = await start(at, "cat", pty=True)
    assert await at.code("process", action="write", id=long, text="x" * 5_000) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("pty", [False, True])
async def test_it_is_killed_with_all_it_started(sessions: Callable[..., Bench], pty: bool) -> None:
    at = sessions()
    id_ = await start(
        at, f"(setsid sh -c '{NAP} & {NAP}' &); trap '' TERM HUP; {NAP} & while :; do sleep 1; done", pty=pty
    )
    await until(lambda: processes_of(NAP))
    assert "killed; exit code" in await at.text("process", action="kill", id=id_)
    assert processes_of(NAP) == {}
    assert "killed; exit code" in await at.text("process", action="kill", id=id_)


async def test_background_process_loses_protected_names_repeatedly(
    sessions: Callable[..., Bench],
) -> None:
    """A background command may run for days, and an instruction file is read in each turn."""
    at = sessions()
    make = "[ -e AGENTS.md ] || { echo bad > AGENTS.md; echo made; }"
    id_ = await start(at, f"until [ -e go ]; do {make}; sleep 0.02; done; echo done")
    await until(lambda: len([*at.root.glob("refused-*-AGENTS.md")]) > 1)
    (at.root / "go").touch()
    assert "refused-…" in await ended(at, id_)
    assert not (at.root / "AGENTS.md").exists()


async def test_background_process_start_failure_probes_the_sandbox_again(
    tmp_path: Path, sessions: Callable[..., Bench]
) -> None:
    sandbox = Sandbox()
    await sandbox.probe()
    sandbox.report = ProbeReport(wall=Wall(kind="bubblewrap", binary=str(tmp_path / "gone")), failures={})
    at = sessions(sandbox=sandbox)
    assert "EXEC_SANDBOX_UNAVAILABLE" in await ended(at, await start(at, "touch ran"))
    assert not (at.root / "ran").exists()
    assert (await ended(at, await start(at, "echo again"))).startswith("again")


async def test_time_and_idleness_end_it(sessions: Callable[..., Bench]) -> None:
    at = sessions(process={"idleSeconds": 0.5, "timeoutSeconds": 30})
    assert "EXEC_TIMEOUT" in await ended(at, await start(at, NAP, timeout_seconds=0.2))
    idle = await start(at, NAP)
    await until(lambda: not processes_of(NAP))
    assert "nobody asked for it" in await ended(at, idle)


async def test_background_process_that_is_polled_is_not_idle(sessions: Callable[..., Bench]) -> None:
    clock = Clock()
    at = sessions(process={"idleSeconds": 100}, now=clock)
    id_ = await start(at, NAP)
    for _ in range(4):
        clock.now += 60
        assert "[running" in await polled(at, id_, 0)
        await asyncio.sleep(3 * module.KEEP_SECONDS)
    clock.now += 101
    await until(lambda: processes_of(NAP) == {})  # a poll before the watch looks would count as activity
    assert "nobody asked for it" in await ended(at, id_)


async def test_another_session_and_another_workspace_see_and_reach_nothing_of_it(
    sessions: Callable[..., Bench],
) -> None:
    own, other, elsewhere = sessions("a"), sessions("b"), sessions("a", workspace="sub")
    id_ = await start(own, NAP)
    for at in (other, elsewhere):
        assert await at.text("process", action="list") == "(no processes)"
        for action in ("poll", "log", "write", "kill"):
            assert await at.code("process", action=action, id=id_, text="x") == "NOT_FOUND"
    for bad in ("../b", "", "*", f"{id_}.kill", id_.upper() + "x"):
        assert await own.code("process", action="poll", id=bad) in ("NOT_FOUND", "INVALID_ARGUMENT")


async def test_one_more_than_may_run_is_refused(sessions: Callable[..., Bench]) -> None:
    limits = {"parallel": 2, "parallelTotal": 3}
    at, other = sessions("a", process=limits), sessions("b")
    results = await asyncio.gather(*(at.call("process", action="start", command=NAP) for _ in range(3)))
    assert ["PROCESS_BUSY" in text_of(it) for it in results] == [False, False, True]
    await start(other, NAP)
    assert await other.code("process", action="start", command=NAP) == "PROCESS_BUSY"


@pytest.mark.parametrize(("mode", "code"), [("deny", "EXEC_DENIED"), ("ask", "NO_APPROVER")])
async def test_background_process_needs_exec_to_be_allowed(
    sessions: Callable[..., Bench], mode: str, code: str
) -> None:
    id_ = await start(sessions(), "cat")
    at = sessions(mode=mode)
    assert await at.code("process", action="start", command="touch ran") == code
    assert await at.code("process", action="write", id=id_, text="x\n") == code
    assert os.listdir(at.root) == []
    assert "killed" in await at.text("process", action="kill", id=id_)


async def test_another_replica_says_where_it_runs_and_can_end_it(sessions: Callable[..., Bench]) -> None:
    at, replica = sessions(), sessions(gateway="two")
    id_ = await start(at, f"echo here; {NAP}")
    await until(lambda: processes_of(NAP))
    assert (await polled(at, id_)).startswith("here\n")

    async def snapshot() -> bool:
        return "here\n" in text_of(await replica.call("process", action="log", id=id_))

    await until(snapshot)
    assert "[running at another replica (" in await polled(replica, id_, 0)
    assert await replica.code("process", action="write", id=id_, text="x") == "NOT_RUNNING"
    assert "killed" in await replica.text("process", action="kill", id=id_)
    assert processes_of(NAP) == {}


async def test_background_process_leaves_no_kill_request_behind(
    tmp_path: Path, sessions: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is left if another replica asks for it just then: with the record it goes, too."""
    monkeypatch.setattr(module, "RECORDS_MAX", 2)
    at, replica = sessions(), sessions(gateway="two")
    id_ = await start(at, NAP)
    await until(lambda: processes_of(NAP))
    await replica.call("process", action="kill", id=id_)
    assert "killed" in await ended(at, id_)
    assert [*(tmp_path / "uploads").rglob("*.kill")] == []
    next((tmp_path / "uploads").rglob(id_)).with_suffix(".kill").touch()
    for _ in range(2):
        await ended(at, await start(at, "true"))
    assert [*(tmp_path / "uploads").rglob(f"{id_}*")] == []


class Reported:
    """What a conversation is told, by number only."""

    def __init__(self) -> None:
        self.count = 0

    async def expect(self, record: BackgroundCommand, call: Call) -> EndReport:
        return self.report

    async def report(self) -> None:
        self.count += 1


async def test_background_process_with_notify_is_never_idle(sessions: Callable[..., Bench]) -> None:
    """The chat waits for its end, so nothing has to ask for it."""
    clock = Clock()
    at, quiet = sessions(process={"idleSeconds": 100}, now=clock), "read line; echo done"
    at.processes.reports = reported = Reported()
    id_, idle = await start(at, quiet, notify=True), await start(at, NAP)
    await until(lambda: processes_of(NAP))
    clock.now += 101
    await until(lambda: processes_of(NAP) == {})
    assert "nobody asked for it" in await ended(at, idle)
    await at.text("process", action="write", id=id_, text="x\n")
    assert (await ended(at, id_)).startswith("done")
    await until(lambda: reported.count)


async def test_background_process_that_cannot_start_is_reported_to_notify(sessions: Callable[..., Bench]) -> None:
    """What expects its end is stored before it starts, and finds no record then."""
    at = sessions(process={"parallel": 1})
    at.processes.reports = reported = Reported()
    await start(at, NAP)
    assert await at.code("process", action="start", command="true", notify=True) == "PROCESS_BUSY"
    assert reported.count == 1


async def test_background_process_keeps_the_first_reason_of_its_stop(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    id_ = await start(at, f"trap '' TERM; {NAP} & while :; do sleep 0.1; done")
    await until(lambda: processes_of(NAP))
    (record,) = at.processes._running.values()
    assert record.running
    record.running.command.stop("killed")
    record.running.command.stop("idle")
    assert "killed; " in (end := await ended(at, id_))
    assert "nobody asked for it" not in end


async def test_a_gateway_that_ends_takes_them_along_and_the_next_one_says_so(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    id_ = await start(at, f"echo begun; {NAP}")
    assert (await polled(at, id_)).startswith("begun")
    await at.processes.close()
    assert processes_of(NAP) == {}
    after = sessions(gateway="two")
    assert f"{id_} interrupted: the gateway restarted" in await after.text("process", action="list")
    assert (await polled(after, id_)).startswith("[interrupted")
    assert await after.text("process", action="log", id=id_) == "begun\n"


async def test_one_that_is_just_starting_ends_too_and_none_starts_afterwards(sessions: Callable[..., Bench]) -> None:
    at = sessions()
    starting = asyncio.create_task(at.call("process", action="start", command=NAP))
    while not at.processes._starting.locked():  # that is soon over
        await asyncio.sleep(0)
    await at.processes.close()
    await starting
    assert processes_of(NAP) == {}
    assert await at.code("process", action="start", command=NAP) == "PROCESS_UNAVAILABLE"


KILLED = """
import asyncio, os, signal, sys, time
from pathlib import Path
from tests.tools.bench import bench
from tests.tools.test_background import polled, start
from tools.config import ProcessConfig
from tools.process import Processes
from tools.sandbox.sandbox import ProbeReport, Sandbox, Wall

async def main():
    folder = Path(sys.argv[1])
    at = bench(folder, uploads=folder / "uploads" / "a", processes=Processes(ProcessConfig(), time.time))
    for pty in (False, True):
        await polled(at, await start(at, f"echo begun; {sys.argv[2]}", pty=pty))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_background_process_dies_with_a_killed_gateway(tmp_path: Path, sessions: Callable[..., Bench]) -> None:
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(tmp_path), NAP)
    assert await killed.wait() == -signal.SIGKILL
    await until(lambda: not processes_of(NAP))
    listed = await sessions().text("process", action="list")
    assert listed.count("interrupted: the gateway restarted") == 2


async def test_a_session_that_is_erased_ends_its_processes_and_leaves_no_record(
    tmp_path: Path, sessions: Callable[..., Bench]
) -> None:
    base = tmp_path / "uploads"
    at = sessions(folder_of(base, "session").name)
    await start(at, NAP)
    await until(lambda: processes_of(NAP))
    forget_session(base, "session")
    await until(lambda: not processes_of(NAP))
    assert await at.text("process", action="list") == "(no processes)"
    assert [*base.iterdir()] == []


async def test_no_more_records_are_kept_than_a_list_shows(
    sessions: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = sessions()
    monkeypatch.setattr(module, "RECORDS_MAX", 4)
    for number in range(module.RECORDS_MAX + 3):
        await ended(at, await start(at, f"echo {number}"))
    listed = (await at.text("process", action="list")).splitlines()
    assert len(listed) == module.RECORDS_MAX
    assert listed[-1].endswith(f"echo {module.RECORDS_MAX + 2}")


async def test_background_process_that_ends_during_a_poll_is_polled_whole(
    sessions: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end and the poll both store its record, on a slow disk at the same time. Neither may close what the other has."""

    def slowly(call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any) -> Any:
            time.sleep(0.05)
            return call(*arguments)

        return slow

    monkeypatch.setattr(Output, "shown", slowly(Output.shown))
    monkeypatch.setattr(os, "fsync", slowly(os.fsync))
    at = sessions(process={"parallel": 8, "parallelTotal": 8})

    async def lived(number: int) -> str:
        return await ended(at, await start(at, f"sleep 0.{number}; echo one; sleep 0.02; echo two"))

    for output in await asyncio.gather(*(lived(number) for number in range(8))):
        assert output.startswith("one\ntwo\n[ended")

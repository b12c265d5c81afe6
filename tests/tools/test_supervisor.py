"""What a command starts is ended with it, and nothing else is."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.bench import WAIT_FOR_GO, Bench
from tests.waiting import until

_PR_GET_DUMPABLE = 3

GATEWAY = """
import asyncio, os, sys
from tools.config import ExecConfig
from tools.process import run
folder = os.open(sys.argv[1], os.O_PATH)
command = "(setsid sleep 300 & echo $! > pid; mv pid daemon); exec sleep 300"
asyncio.run(run(command, folder=folder, owner=None, environment={"PATH": os.environ["PATH"]},
                bounds=ExecConfig(timeoutSeconds=300, outputBytes=1024, freeBytes=0)))
"""


async def test_the_end_of_one_command_leaves_another_ones_background_alone(at: Bench) -> None:
    command = f"(sleep 300 >/dev/null 2>&1 & echo $! > pid); {WAIT_FOR_GO}; kill -0 $(cat pid) && echo alive"
    first = asyncio.create_task(at.output("until [ -e ready ]; do sleep 0.02; done"))
    second = asyncio.create_task(at.output(command))
    await first
    (at.root / "go").touch()
    assert await second == "alive"


SIGNAL_SCOPE_SINCE = 6
"""The version of Landlock that knows borders for signals: Linux 6.12."""


@pytest.mark.skipif(ctypes.CDLL(None).syscall(444, None, 0, 1) < SIGNAL_SCOPE_SINCE, reason="needs Linux 6.12")
async def test_a_command_cannot_signal_another_one_of_the_same_user(at: Bench) -> None:
    first = asyncio.create_task(at.output(f"echo $$ > shell; {WAIT_FOR_GO}; echo alive"))
    await until((at.root / "ready").exists)
    output = await at.output("kill -9 $(cat shell) 2>&1; sleep 30 & kill $! && echo own")
    (at.root / "go").touch()
    assert "not permitted" in output
    assert output.splitlines()[-1].startswith("own")
    assert await first == "alive"


async def test_the_gateways_other_children_are_nobodys_business(at: Bench) -> None:
    running = asyncio.create_task(at.output(WAIT_FOR_GO))
    await until((at.root / "ready").exists)
    with subprocess.Popen(["sleep", "300"]) as child:
        (at.root / "go").touch()
        await running
        assert child.poll() is None
        child.kill()


async def test_a_gateway_that_is_killed_takes_its_commands_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(tmp_path)], env={**os.environ, "PYTHONPATH": "."}
    ) as ours:
        await until((tmp_path / "daemon").exists)
        daemon = Path("/proc", (tmp_path / "daemon").read_text().strip())
        assert daemon.exists()
        ours.send_signal(signal.SIGKILL)
    await until(lambda: not daemon.exists())


async def test_our_environment_cannot_be_read_by_a_command_of_our_own_user(at: Bench) -> None:
    await at.call("exec", command="true")
    assert ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


async def test_the_shell_starts_with_six_names_and_no_way_to_more_rights(at: Bench) -> None:
    names = await at.output("tr '\\0' '\\n' </proc/$$/environ | cut -d= -f1 | sort | tr '\\n' ' '")
    assert names.split() == ["HOME", "LANG", "PATH", "TERM", "TMPDIR", "TZ"]
    assert await at.output("grep NoNewPrivs /proc/self/status") == "NoNewPrivs:\t1"


async def test_memory_and_files_have_an_end(at: Bench) -> None:
    hog = f"{sys.executable if os.geteuid() else 'python3'} -c 'bytearray(3 << 30)' 2>&1 | grep -o MemoryError"
    assert await at.output(hog) == "MemoryError"
    await at.call("exec", command="head -c 70000000 /dev/zero > big")
    assert (at.root / "big").stat().st_size == 64 * 1024 * 1024

"""Commands in one kind of sandbox, as one user: a process of its own, since a process gives root up for good.

python -m tests.tools.confined KIND UID FOLDER MOUNT COMMANDS CONFIG: the results of the JSON list, as one. CONFIG is of
`tools.exec`. A text is a command for `exec`; an object is what `process` starts, and gives all its output; with `until` it
is killed once it has written
that, by `process`, or, where `dies` is true, by the death of this process.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - before the interpreter's own folder is out of reach
import encodings.idna
import encodings.unicode_escape  # noqa: F401
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx  # noqa: F401

from tests.tools.bench import Bench, bench, text_of
from tools import process as processes
from tools.config import ProcessConfig
from tools.process import Processes
from tools.sandbox.sandbox import KINDS, Sandbox

SYSTEM_PYTHON = "/usr/bin/python3"


async def run(kind: str, uid: str, folder: str, shared: str, commands: str, config: str) -> None:
    if int(uid) != os.geteuid():
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
        sys.executable = SYSTEM_PYTHON if not os.access(sys.executable, os.X_OK) else sys.executable
    processes.KEEP_SECONDS = 0.05
    at = bench(
        Path(folder),
        mounts={"skills/greet": Path(shared)},
        uploads=Path(folder) / "uploads/a",
        exec_={"timeoutSeconds": 20, **json.loads(config)},
        processes=Processes(ProcessConfig.model_validate({"idleSeconds": 3.0}), time.time),
        sandbox=(sandbox := Sandbox(kinds=[it for it in KINDS if it == kind])),
    )
    results: list[object] = [str(await sandbox.probe())]
    if sandbox.status == kind:
        for it in json.loads(commands):
            results.append(await _started(at, results, **it) if isinstance(it, dict) else await _run(at, it))
    sys.stdout.write(json.dumps(results))


async def _run(at: Bench, command: str) -> str:
    return text_of(await at.call("exec", command=command))


async def _started(at: Bench, results: list[object], *, until: str = "", dies: bool = False, **arguments: Any) -> str:
    begun = await at.call("process", action="start", **arguments)
    assert not begun.is_error, text_of(begun)
    id_, output = str(begun.details["id"]), ""
    while until not in output:
        output += await at.text("process", action="poll", id=id_, wait_seconds=1)
    if dies:
        sys.stdout.write(json.dumps([*results, output]))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    while not until and f"{id_} running" in await at.text("process", action="list"):  # which keeps none alive
        await asyncio.sleep(0.05)
    action = "kill" if until else "poll"
    return output + text_of(await at.call("process", action=action, id=id_))


def main() -> None:
    asyncio.run(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()

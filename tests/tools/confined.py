"""Commands in one kind of sandbox, as one user: run as a script, since a process gives root up for good.

python -m tests.tools.confined KIND UID FOLDER MOUNT COMMANDS: the results of the JSON list, as one.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - before the interpreter's own folder is out of reach
import encodings.idna  # noqa: F401
import json
import os
import sys
from pathlib import Path

from tests.tools.bench import bench, text_of
from tools.sandbox.sandbox import KINDS, Sandbox

SYSTEM_PYTHON = "/usr/bin/python3"


async def main(kind: str, uid: str, folder: str, shared: str, commands: str) -> None:
    if int(uid) != os.geteuid():
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
        sys.executable = SYSTEM_PYTHON if not os.access(sys.executable, os.X_OK) else sys.executable
    sandbox = Sandbox(kinds=[it for it in KINDS if it == kind])
    at = bench(Path(folder), mounts={"skills/greet": Path(shared)}, exec_={"timeoutSeconds": 20}, sandbox=sandbox)
    results: list[object] = [str(await sandbox.probe())]
    if sandbox.standing == kind:
        results += [text_of(await at.call("exec", command=it)) for it in json.loads(commands)]
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

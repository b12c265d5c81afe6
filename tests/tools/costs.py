"""What `true` through `exec` takes in each kind of sandbox that this machine has: python -m tests.tools.costs"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median

from tests.tools.bench import bench
from tools.sandbox.sandbox import KINDS, Sandbox

TIMES = 41


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        for kind in (None, *KINDS):
            sandbox = Sandbox(kinds=[kind] if kind else [])
            began = time.monotonic()
            found = await sandbox.probe()
            probe = time.monotonic() - began
            if kind and found.wall is None:
                sys.stdout.write(f"{kind}: {found}\n")
                continue
            at = bench(Path(folder), sandbox=sandbox, exec_={} if kind else {"sandbox": "off"})
            took = sorted([await _took(at.output("true")) for _ in range(TIMES)])
            at.workspace.close()
            numbers = f"median {median(took):.1f} ms, fastest {took[0]:.1f}, probe {1000 * probe:.0f}"
            sys.stdout.write(f"{kind or 'no sandbox'}: {numbers}\n")


async def _took(work: Awaitable[str]) -> float:
    began = time.monotonic()
    await work
    return 1000 * (time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main())

"""The gateway of a rehearsal: `clawgate serve` as a process, what it prints, and how it is killed and started again.

Run as `python -m tests.rehearsal.program serve …` it is that process: the product as it is, with the demo model of
`tests.rehearsal.model`.
"""

import asyncio
import os
import re
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from tests.rehearsal.model import PacedDemo

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 300
DOWN_SECONDS = 1.5
"""How long it is seen dead before it starts again."""
GRACE_SECONDS = 30.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Life: TypeAlias = Literal["starting", "up", "killed", "ended"]


class Program:
    """One gateway after another at one address. `lines` is its terminal."""

    def __init__(self, config: Path, env: Mapping[str, str], *, port: int = 0) -> None:
        self.config = config
        self.life: Life = "starting"
        self.lines: list[str] = []
        self.kills = 0
        self._env = env
        self._port = port or _free_port()
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def claim(self) -> str:
        """The code that the last start printed."""
        start = max((at for at, line in enumerate(self.lines) if line.startswith("$ ")), default=0)
        found = re.findall(r"/claim (\w{4}-\w{4})", "\n".join(self.lines[start:]))
        return found[-1] if found else ""

    async def start(self) -> None:
        self.life = "starting"
        self._write("$ clawgate")
        words = ("serve", "--config", str(self.config), "--host", "127.0.0.1", "--port", str(self._port))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rehearsal.program", *words),
            cwd=ROOT,
            env=dict(self._env),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def kill(self) -> None:
        """`kill -9`, and a new start. Where it has ended, just the start."""
        process = self._process
        if process is not None and process.returncode is None:
            self.kills += 1
            process.kill()
            await self._over(process)
            self.life = "killed"
            self._write("Killed")
            await asyncio.sleep(DOWN_SECONDS)
        await self.start()

    async def close(self) -> None:
        """Stop it as Ctrl-C does, and everything that it started."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._over(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await self._over(process)

    async def _over(self, process: Process) -> None:
        await process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._write(_COLOURS.sub("", line.decode(errors="replace")).rstrip())
            if "listens on" in self.lines[-1]:
                self.life = "up"
        code = await process.wait()
        if code != -signal.SIGKILL:
            self.life = "ended"
            self._write(f"(ended with code {code})")

    def _write(self, line: str) -> None:
        self.lines.append(line)
        del self.lines[:-LINES_MAX]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main() -> None:
    """Serve until told to end, or until the rehearsal is gone and with it our standard input."""
    from agents.providers import catalog
    from gateway.cli import app

    vars(catalog)["DemoProvider"] = PacedDemo
    threading.Thread(target=_end_with_input, daemon=True).start()
    app()


def _end_with_input() -> None:
    while os.read(0, 1):  # not by way of sys.stdin, whose lock an end of the process would meet
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

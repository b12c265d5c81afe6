"""What is killed: one gateway process, or several replicas on one database, each behind a port of its own.

A replica keeps its port and its config file over all its lives. Its base URLs carry its number, so that the emulators
know who asks.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import httpx

from tests.chaos.emulated import Emulated
from tests.processes import parent, processes_of
from tests.running import SECRETS

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 60.0
PORTS = range(18_000, 28_000)
"""Below those that the system gives to clients: one of those could take the port while its gateway is down."""
ADMIN_TOKEN = "chaos-looks-at-the-metrics"
CONFIG = f"""
logging: {{ level: warning }}
server: {{ publicUrl: https://bot.example.com, adminToken: {ADMIN_TOKEN} }}
tools: {{ exec: {{ mode: allow, parallel: 16 }} }}
limits: {{ pendingPerSession: 1000, pendingPerSender: 1000 }}
queue: {{ mode: followup }}
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      historyTurns: 8
      tools: {{ allow: [read, write, edit, ls, exec, message] }}
"""


class Replica:
    """One gateway and all its lives."""

    def __init__(
        self, number: int, folder: Path, *, chat: Emulated, chat_url: str, model_url: str, database: str
    ) -> None:
        self.number = number
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.restarts: list[float] = []
        """How long each start took to be ready, in seconds."""
        self._config = folder / f"replica{number}.yaml"
        self._log = folder / f"replica{number}.log"
        provider = f'{{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{model_url}/replica{number}" }}'
        sections = (
            f'database: {{ url: "{database}" }}',
            f"providers:\n  anthropic: {provider}",
            f"channels:\n{chat.config(f'{chat_url}/replica{number}')}",
        )
        self._config.write_text("\n".join((CONFIG, *sections)), encoding="utf-8")
        self._process: asyncio.subprocess.Process | None = None
        self._metric = f'clawgate_send_ambiguous_total{{channel="{chat.channel}"}} '
        self._shared = not database.startswith("sqlite")
        self._counts: list[int | None] = []
        """Sends in doubt as the metric of each life has them; None where it ended before it was asked."""

    async def start(self, kill: str = "") -> bool:
        """Until it is ready; False where it died before. `kill` arms it from the first moment."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = await self._spawn(log, kill)
        self._counts.append(None if self._counts or self._shared else 0)  # a first life has nothing to take up
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            while self._process.returncode is None:
                with suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        self.restarts.append(time.monotonic() - began)
                        return True
                await asyncio.sleep(0.01)
        await self._bury()
        return False

    async def _spawn(self, log: IO[bytes], kill: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.victim", "--config", str(self._config), "--port", str(self.port),
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(self._config.parent), "CLAWGATE_KILL": kill, **SECRETS},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )  # fmt: skip

    async def count(self) -> None:
        """Read the metric of this life, while it lasts."""
        headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(trust_env=False, timeout=START_SECONDS, headers=headers) as client:
            with suppress(httpx.TransportError):
                lines = (await client.get(f"{self.url}/metrics")).raise_for_status().text.splitlines()
                found = [line.removeprefix(self._metric) for line in lines if line.startswith(self._metric)]
                self._counts[-1] = int(float(found[0])) if found else 0

    @property
    def counted(self) -> int | None:
        """Over all lives."""
        return None if None in self._counts else sum(count or 0 for count in self._counts)

    async def arm(self, kill: str) -> None:
        """`K8:3`: from now on."""
        process = self._alive()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"arm {kill}\n".encode())
        async with asyncio.timeout(START_SECONDS):
            while (line := await process.stdout.readline()) and line.decode().strip() != f"armed {kill}":
                pass

    @property
    def pid(self) -> int:
        return self._alive().pid

    @property
    def dead(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def signal(self, number: signal.Signals) -> None:
        if not self.dead:
            with suppress(ProcessLookupError):
                self._alive().send_signal(number)

    async def ended(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end; the exit code. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            code = await self._alive().wait()
        await self._bury()
        return code

    async def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            await self.ended()

    async def _bury(self) -> None:
        """Read its pipes to the end, so that nothing of it is left open."""
        process = self._alive()
        if process.stdin is not None:
            process.stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):
                await process.stdin.wait_closed()
        if process.stdout is not None:
            await process.stdout.read()

    def _alive(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process


class Subject:
    """All replicas, and where the platform delivers to: to one after the other."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = replicas
        self._turn = 0

    async def start(self) -> None:
        for replica in self.replicas:  # one after the other: only one may make the tables
            if not await replica.start():
                raise RuntimeError("the gateway does not start; see the log in its folder")

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.close()

    def url(self) -> str:
        """Where the next delivery goes. A balancer does not know who is dead."""
        self._turn += 1
        return self.replicas[self._turn % len(self.replicas)].url

    @property
    def counted(self) -> int | None:
        counts = [replica.counted for replica in self.replicas]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def restart_max(self) -> float:
        return max((seconds for replica in self.replicas for seconds in replica.restarts[1:]), default=0.0)


def strays(marker: str, alive: set[int]) -> dict[int, str]:
    """Those of them that none of the living gateways looks after."""
    return {pid: line for pid, (line, _) in processes_of(marker).items() if not alive.intersection(_above(pid))}


def _above(pid: int) -> Iterator[int]:
    with suppress(OSError):
        while pid > 1:
            pid = parent(pid)
            yield pid


def free_port() -> int:
    start = os.getpid() * 7 + time.monotonic_ns() // 1000
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")

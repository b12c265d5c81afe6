"""What is killed: one gateway process behind a port of its own, alone or beside others on one database.

A replica keeps its port and its config file over all its lives. Its base URLs carry its number, so that the emulators
know who asks.
"""

import asyncio
import os
import signal
import socket
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from tests import warm
from tests.chaos.emulated import FIRST_PERSON, Emulated
from tests.processes import parent, processes_of
from tests.running import ALICE, SECRETS
from tools.config import ExecMode

START_SECONDS = 60.0
STOP_SECONDS = 60.0
CHATS = 3
"""Of those who may decide, in the chats that a sender writes in."""
PORTS = range(18_000, 28_000)
"""Below those that the system gives to clients: one of those could take the port while its gateway is down."""
ADMIN_TOKEN = "chaos-looks-at-the-metrics"
API_TOKEN = "chaos-has-messages-sent"
HOOK_SECRET = "chaos-is-another-system"
PEOPLE = (f"feishu:{ALICE}", *(f"telegram:{FIRST_PERSON + number}" for number in range(CHATS)))
CONFIG = f"""
logging: {{ level: warning }}
server:
  port: PORT
  publicUrl: https://bot.example.com
  adminToken: {ADMIN_TOKEN}
  api: {{ tokens: {{ ci: {{ token: {API_TOKEN}, send: true }} }} }}
tools: {{ exec: {{ mode: MODE, parallel: 16 }} }}
approvals: {{ approvers: [{", ".join(f'"{it}"' for it in PEOPLE)}] }}
limits: {{ pendingPerSession: 1000, pendingPerSender: 20000, tasksPerChat: 1000 }}
queue: {{ mode: followup }}
budgets: {{ agent: {{ tokensPerDay: 1000000000 }}, sender: {{ tokensPerDay: 1000000000 }} }}
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      AGENT
      tools: {{ allow: [read, write, edit, ls, exec, message, task] }}
"""


class Replica:
    """One gateway and all its lives."""

    def __init__(
        self,
        number: int,
        folder: Path,
        *,
        chat: Emulated,
        chat_url: str,
        model_url: str,
        database: str,
        agent: str,
        mode: ExecMode = "allow",
        hooked: Sequence[str] = (),
    ) -> None:
        """`hooked`: the chats that hooks speak in, `say0` and `task0` in the first of them."""
        self.restarts: list[float] = []
        """How long each start took to be ready, in seconds."""
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.config = folder / f"replica{number}.yaml"
        self.config.write_text(
            f"""{CONFIG.replace("AGENT", agent).replace("MODE", mode).replace("PORT", str(self._port))}
hooks:{"".join(_hooks(number, f"{chat.channel}:{it}") for number, it in enumerate(hooked)) or " {}"}
database: {{ url: "{database}" }}
providers: {{ anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{model_url}/{number}" }} }}
channels:
{chat.config(f"{chat_url}/{number}")}""",
            encoding="utf-8",
        )
        self._process: warm.Child | None = None
        self._metric = f'clawgate_send_ambiguous_total{{channel="{chat.channel}"}} '
        self._shared = not database.startswith("sqlite")
        self._counts: list[int | None] = []
        """Sends in doubt as the metric of each life has them; None where it ended before it was read."""

    async def start(self, kill: str = "") -> bool:
        """Until it is ready; False where it died before. `kill` arms it from the first moment."""
        began = time.monotonic()
        with self.config.with_suffix(".log").open("ab") as log:
            words = ("--config", str(self.config), "--port", str(self._port))
            env = {"PATH": os.environ["PATH"], "HOME": str(self.config.parent), "CLAWGATE_KILL": kill, **SECRETS}
            process = self._process = await warm.start(
                "tests.chaos.victim", *words, env=env, stdin=PIPE, stdout=PIPE, stderr=log
            )
        self._counts.append(None if self._counts or self._shared else 0)  # a first life has nothing to take up
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            while process.returncode is None:
                with suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        self.restarts.append(time.monotonic() - began)
                        return True
                await asyncio.sleep(0.01)
        await self._bury()
        return False

    async def count(self) -> None:
        """Read the metric of this life, while it lasts."""
        headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(trust_env=False, timeout=START_SECONDS, headers=headers) as client:
            with suppress(httpx.TransportError):
                text = (await client.get(f"{self.url}/metrics")).raise_for_status().text
                self._counts[-1] = int(float(text.partition(f"\n{self._metric}")[2].partition("\n")[0] or 0))

    @property
    def counted(self) -> int | None:
        """Over all lives."""
        return None if None in self._counts else sum(count or 0 for count in self._counts)

    async def arm(self, kill: str) -> None:
        """`K8:3`: from now on."""
        orders, answers = self._pipes()
        orders.write(f"{kill}\n".encode())
        async with asyncio.timeout(START_SECONDS):
            while (line := await answers.readline()) and line.decode() != f"{kill}\n":
                pass

    async def explain(self) -> None:
        """Have it say in its log what it is doing."""
        if not self.dead:
            with suppress(TimeoutError, ConnectionResetError):
                await self.arm("where")

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def dead(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def log(self, lines: int) -> str:
        """The last of what its lives have logged."""
        path = self.config.with_suffix(".log")
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        if not self.dead:
            with suppress(ProcessLookupError):
                self._running().send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; the exit code. Raises TimeoutError."""
        async with asyncio.timeout(STOP_SECONDS):
            code = await self._running().wait()
        await self._bury()
        return code

    async def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            await self.ended()

    async def _bury(self) -> None:
        """Read its pipes to the end, so that nothing of it is left open."""
        orders, answers = self._pipes()
        orders.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await orders.wait_closed()
        await answers.read()

    def _pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        return process.stdin, process.stdout

    def _running(self) -> warm.Child:
        assert self._process is not None
        return self._process


def _hooks(number: int, place: str) -> str:
    proof = f'verify: hmac, secret: {HOOK_SECRET}, rate: 1000/1s, to: "{place}"'
    return f"""
  say{number}: {{ {proof}, say: "R {{{{ body.serial }}}} n1 p1/1" }}
  task{number}: {{ {proof}, task: "{{{{ body.words }}}}" }}"""


def strays(marker: str, alive: set[int]) -> dict[int, str]:
    """Command lines that hold the marker and that none of the living gateways looks after, by process id."""
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

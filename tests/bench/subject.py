"""A bot under test as a process: started cold, watched from outside, stopped.

What it costs is read from the kernel (`/proc`), never asked of the bot: processor time of all its threads, memory now
and at its highest. A database server's own processor time is not in it.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.sides import Side
from tests.running import APP_ID, SECRETS

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 30.0
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, ls] }
"""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Command:
    """How a bot is started, for which side, and in which folder it keeps what it keeps."""

    name: str
    arguments: Sequence[str]
    folder: Path
    side: Side


@dataclass
class Subject:
    """A bot that is up. `ready_seconds` is the time from its start to the first good answer of `/readyz`."""

    name: str
    side: Side
    url: str
    ready_seconds: float
    _process: asyncio.subprocess.Process
    output: list[str] = field(default_factory=list)
    seen: int = 0
    """The last message that the web chat's page was told."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_mb(self) -> float:
        return self._status_mb("VmRSS")

    def peak_mb(self) -> float:
        return self._status_mb("VmHWM")

    def _status_mb(self, name: str) -> float:
        """The kernel's KiB as MB of a million bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (found,) = re.findall(rf"^{name}:\s+(\d+) kB$", status, re.M)
        return int(found) * 1024 / 1e6


@asynccontextmanager
async def started(command: Command) -> AsyncIterator[Subject]:
    """The bot, for the length of a `with`. Raises RuntimeError with what it wrote if it does not get ready."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command.arguments,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(command.folder), "FEISHU_APP_ID": APP_ID, **SECRETS},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output: list[str] = []
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(_read(process, output, where))
    try:
        try:
            async with asyncio.timeout(START_SECONDS):
                url = await where
                await _ready(url)
        except (TimeoutError, OSError, EOFError) as error:
            raise RuntimeError(f"{command.name} did not get ready:\n{''.join(output)}") from error
        yield Subject(command.name, command.side, url, time.monotonic() - began, process, output)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
        await reading


async def _read(process: asyncio.subprocess.Process, output: list[str], where: asyncio.Future[str]) -> None:
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        output.append(line)
        if (found := re.search(r"listens on (http://\S+)", line)) and not where.done():
            where.set_result(found[1])
    if not where.done():
        where.set_exception(EOFError("it ended"))


async def _ready(url: str) -> None:
    """The port is open before anybody answers on it: the first answer is the moment."""
    host, port = address(url)
    while True:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
        status = (await reader.read()).split(b" ", 2)[1]
        writer.close()
        if status == b"200":
            return
        await asyncio.sleep(0.005)


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def floor(folder: Path, side: Side, urls: Mapping[str, str], *, sdk: bool = False) -> Command:
    platform = urls.get(side.name, urls["feishu"])
    arguments = ["tests.bench.floor", "--port", "0", "--platform", platform, "--anthropic", urls["anthropic"]]
    return Command("floor", [*arguments, "--sdk"] if sdk else arguments, folder, side)


def gateway(
    folder: Path, side: Side, urls: Mapping[str, str], *, database: str | None = None, more: str = ""
) -> Command:
    """Clawgate with a real config file in `folder`, which ends with `more`; on SQLite in that folder unless `database`
    names another."""
    text = f"""
logging: {{ level: warning }}
providers:
  anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{urls["anthropic"]}" }}
channels:
{side.channels(urls.get(side.name, ""))}
{AGENTS}
{more}
"""
    if database is not None:
        text += f"database: {{ url: {json.dumps(database.replace('${', '$${'))} }}\n"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(text, encoding="utf-8")
    workspace = folder / "data" / "workspaces" / "helper"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "notes.txt").write_text("Water the plants on Monday.\n" * 20, encoding="utf-8")
    return Command("gateway", ("gateway", "serve", "--config", str(config), "--port", "0"), folder, side)

"""Background commands: each belongs to one session's work in one workspace, and has a record outside of every workspace.

They end with the gateway, even if it is killed. A record is a file beside the session's uploads, which the process's
own gateway keeps locked: a free lock on a record without an end says that the gateway is gone, and the process with it.
So a restart and every replica know its outcome, and a session that is erased takes its processes along.
"""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import structlog

from tools.config import ProcessConfig
from tools.exec import Exec
from tools.output import Output
from tools.process import Supervised
from tools.replacement import is_locked, replacing
from tools.tool import Call, Held, ToolError
from tools.uploads import make_folder

KEEP_SECONDS = 2.0
"""Seconds after which a running process's record takes up what is new, and wishes of others for it are noticed."""
KILLS_LOOKED_FOR = 40
RECORDS_MAX = 20
"""Ended processes that a session's list still shows."""
_ID = re.compile(r"[0-9a-f]{6}")

ProcessState: TypeAlias = Literal["running", "elsewhere", "ended", "interrupted"]

log = structlog.get_logger()


@dataclass(kw_only=True)
class Record:
    """`where` is the host that runs it; `note` says how it ended; polls have shown `polled` bytes; `state` is as found."""

    folder: Path
    id: str = field(default_factory=lambda: secrets.token_hex(3))
    command: str
    workspace: str
    where: str
    terminal: bool
    started: float
    ended: float | None = None
    code: int | None = None
    note: str = ""
    polled: int = 0
    output: Output
    state: ProcessState = "running"

    @property
    def path(self) -> Path:
        return self.folder / self.id

    @property
    def kill_path(self) -> Path:
        """The path of a file by which another gateway asks for its end."""
        return self.path.with_suffix(".kill")

    def write(self, output: Output) -> int:
        """Replaces the file; returns its descriptor, which holds a lock. Raises OSError."""
        members = {it.name: getattr(self, it.name) for it in fields(Record) if it.name != "folder"}
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with replacing(folder, self.id) as fd:
                with open(fd, "wb", closefd=False) as file:
                    file.write(json.dumps({**members, "output": output.dump()}).encode())
                os.fsync(fd)
        finally:
            os.close(folder)
        return fd

    def keep_polled(self) -> None:
        """Stores how much was shown of an ended process. Blocking."""
        with suppress(OSError):
            if self.path.exists():
                os.close(self.write(self.output))

    def ask_to_end(self) -> None:
        """Has it end soon, wherever it runs."""
        self.kill_path.touch()

    async def kill(self) -> None:
        """Asks for its end, and returns when it has ended or will not soon."""
        self.ask_to_end()
        for _ in range(KILLS_LOOKED_FOR):
            found = await asyncio.to_thread(read_record, self.folder, self.id)
            if found is None or found.state != "elsewhere":
                return
            await asyncio.sleep(KEEP_SECONDS / 4)

    def remove(self) -> None:
        for path in (self.path, self.kill_path):
            path.unlink(missing_ok=True)


@dataclass(kw_only=True)
class Running(Record):
    """A process of this gateway. `file` is the descriptor that holds the lock on its record; `report` is called once it
    has ended."""

    supervised: Supervised
    file: int
    touched: float
    report: Callable[[], Awaitable[None]]
    task: "asyncio.Task[None]" = field(init=False)

    def save(self, output: Output) -> None:
        """Replaces the record's file by its new state. An erased record is not written again."""
        if os.fstat(self.file).st_nlink:
            with suppress(OSError):  # no space: the old state stays
                new = self.write(output)
                os.close(self.file)
                self.file = new

    def ask_to_end(self) -> None:
        self.supervised.stop("killed")

    async def kill(self) -> None:
        self.ask_to_end()
        await asyncio.wait([self.task])

    def finish(self) -> None:
        self.save(self.output)
        os.close(self.file)
        self.kill_path.unlink(missing_ok=True)


class EndReports(Protocol):
    """The port by which the end of a command reaches the conversation that started it; the gateway supplies it."""

    async def expect(self, record: Record, call: Call) -> Callable[[], Awaitable[None]]:
        """Keeps durably that the end of this command is to be reported, before it starts. The result has its record looked
        at, now; it raises nothing. Raises ToolError."""


async def untold() -> None:
    """Reports nothing."""


@dataclass
class Processes:
    """Background commands of all agents, kept over reloads; `config` is in force. `folder` holds a session's records.
    Without `reports` no end can be reported."""

    config: ProcessConfig
    now: Callable[[], float]
    reports: EndReports | None = None
    _running: dict[Path, Running] = field(default_factory=dict)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closed: bool = False

    async def start(
        self, record: Record, shell: Exec, seconds: float, held: Held | None, report: Callable[[], Awaitable[None]]
    ) -> None:
        """Runs a command in the background; the caller shields it, as it must not be cut short. Raises ToolError and
        OSError; then nothing runs."""
        size = (self.config.terminal_rows, self.config.terminal_columns)
        async with self._starting:
            if self._is_closed:
                raise ToolError(
                    "PROCESS_UNAVAILABLE", "the gateway is stopping; start it again in a moment", retryable=True
                )
            own = sum(it.folder == record.folder for it in self._running.values())
            if own >= self.config.parallel or len(self._running) >= self.config.parallel_total:
                raise ToolError("PROCESS_BUSY", "too many background processes run already; kill one", retryable=True)
            # The record first: if the gateway is killed from here on, the process is known.
            file = await asyncio.to_thread(_begin, record)
            try:
                supervised = await shell.begin(record.command, seconds, size if record.terminal else "pipe", held)
            except BaseException:
                record.remove()
                os.close(file)
                raise
            running = Running(**vars(record), supervised=supervised, file=file, touched=self.now(), report=report)
            self._running[record.path] = running
            running.task = asyncio.create_task(self._attend(running, shell, seconds))
            await asyncio.sleep(0)  # a task that is cancelled before its first step ends nothing

    def records(self, folder: Path, workspace: str | None = None) -> list[Record]:
        """All of a session's, in that workspace if it is given, oldest first. Blocking."""
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        found = (self.record(folder, workspace, name) for name in names)
        return sorted((it for it in found if it is not None), key=lambda it: it.started)

    def record(self, folder: Path, workspace: str | None, id_: str) -> Record | None:
        """The record as it is now: from memory if the process runs here. Blocking."""
        record = self._running.get(folder / id_) or read_record(folder, id_)
        return record if record is not None and workspace in (None, record.workspace) else None

    async def close(self) -> None:
        """Ends all processes, also one that is just starting; their records say that the gateway ended."""
        async with self._starting:
            self._is_closed = True
            tasks = [it.task for it in self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, it: Running, shell: Exec, seconds: float) -> None:
        keeping = asyncio.create_task(self._keep(it))
        try:
            finished = await it.supervised.attend(it.output, seconds)
            it.code, it.note = finished.code, shell.note(finished, seconds)
            it.ended, it.state = self.now(), "ended"
        except OSError as error:
            failure = shell.not_started(error)
            it.note = f"[{failure.code}: {failure.message}]"
            it.ended, it.state = self.now(), "ended"
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await it.supervised.leave()
            await asyncio.shield(asyncio.to_thread(it.finish))
            del self._running[it.path]
        await it.report()

    async def _keep(self, it: Running) -> None:
        """The record up to date, and the process within its idle time and its session."""
        saved = active = it.output.total
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if active != (active := it.output.total):
                it.touched = self.now()
            if it.report is untold and self.now() - it.touched > self.config.idle_seconds:
                it.supervised.stop("idle")
            if not os.fstat(it.file).st_nlink or it.kill_path.exists():
                it.supervised.stop("killed")
            elif saved != it.output.total:
                saved = it.output.total
                saving = asyncio.ensure_future(asyncio.to_thread(it.save, it.output.since(0)))
                try:
                    await asyncio.shield(saving)
                finally:
                    await saving  # it replaces the descriptor that `finish` writes by


def _begin(record: Record) -> int:
    """Writes a new record, as `write`. The oldest that have ended go. Raises OSError."""
    os.close(make_folder(record.folder))
    known = (read_record(record.folder, path.name) for path in record.folder.iterdir())
    ended = sorted((it for it in known if it and it.state != "elsewhere"), key=lambda it: it.started)
    for old in ended[: -RECORDS_MAX + 1]:
        old.remove()
    return record.write(record.output)


def read_record(folder: Path, id_: str) -> Record | None:
    """The record with its state as of now: what runs counts as `elsewhere`. None without any. Blocking."""
    if not _ID.fullmatch(id_):
        return None
    try:
        with folder.joinpath(id_).open("rb") as file:
            locked = is_locked(file.fileno())
            members = json.loads(file.read())
        record = Record(**{**members, "folder": folder, "output": Output.load(*members["output"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("process_record_unreadable", error=type(error).__name__)
        return None
    if record.state == "running":
        record.state = "elsewhere" if locked else "interrupted"
    return record

"""Background commands: each belongs to one session's work in one workspace, and has a record outside of every workspace.

They end with the gateway, even if it is killed. A record is a file beside the session's uploads, which the process's
own gateway keeps locked: a free lock on a record without an end says that the gateway is gone, and the process with it.
So a restart and every replica know what became of it, and a session that is erased takes its processes along.
"""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
_KILL = ".kill"

State: TypeAlias = Literal["running", "elsewhere", "ended", "interrupted"]

log = structlog.get_logger()


@dataclass(kw_only=True)
class Record:
    """`where` is the host that runs it; `note` says how it ended; polls have shown `polled` bytes; `state` is as found."""

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
    state: State = "running"

    def dump(self) -> bytes:
        return json.dumps({**vars(self), "output": self.output.dump()}).encode()

    @classmethod
    def load(cls, data: bytes) -> "Record":
        members = json.loads(data)
        return cls(**{**members, "output": Output.load(*members["output"])})


class EndReports(Protocol):
    """The port by which the end of a command reaches the conversation that started it; the gateway supplies it."""

    async def expect(self, folder: Path, record: Record, call: Call) -> Callable[[], Awaitable[None]]:
        """Keeps durably that the end of this command is to be reported, before it starts. The result has its record looked
        at, now; it raises nothing. Raises ToolError."""


async def untold() -> None:
    """Reports nothing."""


@dataclass(eq=False)
class Running:
    """A process of this gateway. `file` is the descriptor that holds the lock on its record; `report` is called once it
    has ended."""

    folder: Path
    record: Record
    supervised: Supervised
    file: int
    touched: float
    report: Callable[[], Awaitable[None]] = untold
    task: "asyncio.Task[None]" = field(init=False)


@dataclass
class Processes:
    """Background commands of all agents, kept over reloads; `config` is in force. `folder` holds a session's records.
    Without `reports` no end can be reported."""

    config: ProcessConfig
    now: Callable[[], float]
    reports: EndReports | None = None
    _running: dict[str, Running] = field(default_factory=dict)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(
        self,
        folder: Path,
        record: Record,
        shell: Exec,
        seconds: float,
        held: Held | None,
        report: Callable[[], Awaitable[None]] = untold,
    ) -> None:
        """Runs a command in the background; the caller shields it, as it must not be cut short. Raises ToolError and
        OSError; then nothing runs."""
        size = (self.config.terminal_rows, self.config.terminal_columns)
        async with self._starting:
            own = sum(it.folder == folder for it in self._running.values())
            if own >= self.config.parallel or len(self._running) >= self.config.parallel_total:
                raise ToolError("PROCESS_BUSY", "too many background processes run already; kill one", retryable=True)
            # The record first: if the gateway is killed from here on, the process is known.
            file = await asyncio.to_thread(_begin, folder, record)
            try:
                supervised = await shell.begin(record.command, seconds, size if record.terminal else "pipe", held)
            except BaseException:
                _remove(folder, record.id)
                os.close(file)
                raise
            running = self._running[record.id] = Running(folder, record, supervised, file, self.now(), report)
            running.task = asyncio.create_task(self._attend(running, shell, seconds))

    def running(self, folder: Path, id_: str) -> Running | None:
        found = self._running.get(id_)
        return found if found is not None and found.folder == folder else None

    def records(self, folder: Path, workspace: str | None = None) -> list[Record]:
        """All of a session's, in that workspace if it is given, oldest first. Blocking."""
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        found = (self.record(folder, workspace, name) for name in names)
        return sorted((it for it in found if it is not None), key=lambda it: it.started)

    def record(self, folder: Path, workspace: str | None, id_: str) -> Record | None:
        """The record as it is now: from memory if the process runs here. Blocking."""
        running = self.running(folder, id_)
        record = running.record if running else read_record(folder, id_)
        return record if record is not None and workspace in (None, record.workspace) else None

    def ask_to_end(self, folder: Path, record: Record) -> None:
        """Has it end soon, wherever it runs."""
        if running := self.running(folder, record.id):
            running.supervised.stop("killed")
        else:
            (folder / record.id).with_suffix(_KILL).touch()

    async def kill(self, folder: Path, record: Record) -> None:
        """Ask for its end, wherever it runs, and return when it has ended or will not soon."""
        running = self.running(folder, record.id)
        self.ask_to_end(folder, record)
        if running:
            await asyncio.wait([running.task])
            return
        for _ in range(KILLS_LOOKED_FOR):
            found = await asyncio.to_thread(read_record, folder, record.id)
            if found is None or found.state != "elsewhere":
                return
            await asyncio.sleep(KEEP_SECONDS / 4)

    async def close(self) -> None:
        """Ends all processes; their records say that the gateway ended."""
        tasks = [it.task for it in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, it: Running, shell: Exec, seconds: float) -> None:
        keeping = asyncio.create_task(self._keep(it))
        try:
            finished = await it.supervised.attend(it.record.output, seconds)
            it.record.code, it.record.note = finished.code, shell.note(finished, seconds)
            it.record.ended, it.record.state = self.now(), "ended"
        except OSError as error:
            failure = shell.not_started(error)
            it.record.note = f"[{failure.code}: {failure.message}]"
            it.record.ended, it.record.state = self.now(), "ended"
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await it.supervised.leave()
            await asyncio.shield(asyncio.to_thread(_finish, it))
            del self._running[it.record.id]
        await it.report()

    async def _keep(self, it: Running) -> None:
        """The record up to date, and the process within its idle time and its session."""
        saved = active = it.record.output.total
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if active != (active := it.record.output.total):
                it.touched = self.now()
            if it.report is untold and self.now() - it.touched > self.config.idle_seconds:
                it.supervised.stop("idle")
            if not os.fstat(it.file).st_nlink or it.folder.joinpath(it.record.id).with_suffix(_KILL).exists():
                it.supervised.stop("killed")
            elif saved != it.record.output.total:
                saved = it.record.output.total
                snapshot = replace(it.record, output=it.record.output.since(0))
                saving = asyncio.ensure_future(asyncio.to_thread(_save, it, snapshot))
                try:
                    await asyncio.shield(saving)
                finally:
                    await saving  # it replaces the descriptor that `_finish` writes by


def polled(folder: Path, record: Record) -> None:
    """Stores how much was shown of an ended process. Blocking."""
    with suppress(OSError):
        if folder.joinpath(record.id).exists():
            os.close(_written(folder, record))


def _begin(folder: Path, record: Record) -> int:
    """A descriptor of the new record, locked. The oldest that have ended go. Raises OSError."""
    os.close(make_folder(folder))
    ended = [
        it
        for path in folder.iterdir()
        if (it := read_record(folder, path.name)) is not None and it.state != "elsewhere"
    ]
    for old in sorted(ended, key=lambda it: it.started)[: -RECORDS_MAX + 1]:
        _remove(folder, old.id)
    return _written(folder, record)


def _written(folder: Path, record: Record) -> int:
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with replacing(parent, record.id) as fd:
            with open(fd, "wb", closefd=False) as file:
                file.write(record.dump())
            os.fsync(fd)
    finally:
        os.close(parent)
    return fd


def _save(it: Running, record: Record) -> None:
    """Replaces the record's file by its new state. An erased record is not written again."""
    if os.fstat(it.file).st_nlink:
        with suppress(OSError):  # no space: the old state stays
            new = _written(it.folder, record)
            os.close(it.file)
            it.file = new


def _finish(it: Running) -> None:
    _save(it, it.record)
    os.close(it.file)
    it.folder.joinpath(it.record.id).with_suffix(_KILL).unlink(missing_ok=True)


def read_record(folder: Path, id_: str) -> Record | None:
    """The record with its state as of now: what runs counts as `elsewhere`. None if there is none. Blocking."""
    if not _ID.fullmatch(id_):
        return None
    try:
        with folder.joinpath(id_).open("rb") as file:
            locked = is_locked(file.fileno())
            record = Record.load(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("process_record_unreadable", error=type(error).__name__)
        return None
    if record.state == "running":
        record.state = "elsewhere" if locked else "interrupted"
    return record


def _remove(folder: Path, id_: str) -> None:
    for path in (folder / id_, (folder / id_).with_suffix(_KILL)):
        path.unlink(missing_ok=True)

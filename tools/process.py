"""`process`: background commands that outlive a turn, under the rules of `exec`.

Each command belongs to one session and one workspace; its record lies outside every workspace. A shell may run what
`write` sends, so input needs the same approval as a command.

Commands end with the gateway, even if it is killed. A record is a file next to the session's uploads, locked by the
gateway that runs the process. An unlocked record without an end means that this gateway is gone, and the process with
it. So a restarted gateway and every replica know the outcome, and erasing a session ends its processes.
"""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from platform import node
from typing import Literal, Protocol, TypeAlias

import structlog
from pydantic import Field

from tools.command import ShellCommand
from tools.config import ProcessConfig
from tools.exec import Exec, ExecArguments
from tools.lines import text_page
from tools.output import Output
from tools.search import shown
from tools.tool import Arguments, Call, Held, Subject, ToolError, ToolResult
from tools.workspace import is_locked, make_folder, processes_of, replacing

log = structlog.get_logger()


KEEP_SECONDS = 2.0
"""Seconds between updates of a running process's record, which also check for kill requests."""
KILLS_LOOKED_FOR = 40
RECORDS_MAX = 20
"""Ended processes that a session still lists."""
_ID = re.compile(r"[0-9a-f]{6}")

EndReport: TypeAlias = Callable[[], Awaitable[None]]
ProcessState: TypeAlias = Literal["running", "elsewhere", "ended", "interrupted"]


@dataclass(kw_only=True)
class BackgroundCommand:
    """A command and its record. `where` is the host that runs it; `note` says how it ended; polls have shown `polled`
    bytes."""

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
    running: "_Running | None" = None
    """Set while this gateway runs it."""

    @property
    def path(self) -> Path:
        return self.folder / self.id

    @property
    def kill_path(self) -> Path:
        """Marker file by which another gateway requests the end of this process."""
        return self.path.with_suffix(".kill")

    def write(self, output: Output) -> int:
        """Replace the record file and return its descriptor, which holds the lock. Raises OSError."""
        members = {it.name: getattr(self, it.name) for it in fields(self) if it.name not in ("folder", "running")}
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with replacing(folder, self.id) as fd:
                with open(fd, "wb", closefd=False) as file:
                    file.write(json.dumps({**members, "output": output.dump()}).encode())
                os.fsync(fd)
        finally:
            os.close(folder)
        return fd

    def save(self, output: Output) -> None:
        """Update the record file, unless the record was erased. Blocking."""
        with suppress(OSError):  # no space: the old state stays
            if self.running is None and self.path.exists():
                os.close(self.write(output))
            elif self.running is not None and os.fstat(self.running.file).st_nlink:
                new = self.write(output)
                os.close(self.running.file)
                self.running.file = new

    def ask_to_end(self) -> None:
        """Request the end of the process, wherever it runs."""
        if self.running is not None:
            self.running.command.stop("killed")
        else:
            self.kill_path.touch()

    async def kill(self) -> None:
        """Request the end and wait for it; for a process of another gateway, at most 20 seconds."""
        self.ask_to_end()
        if self.running is not None:
            await asyncio.wait([self.running.task])
            return
        for _ in range(KILLS_LOOKED_FOR):
            found = await asyncio.to_thread(read_record, self.folder, self.id)
            if found is None or found.state != "elsewhere":
                return
            await asyncio.sleep(KEEP_SECONDS / 4)

    def finish(self) -> None:
        """Store the final state of a process that ran here. Blocking."""
        self.save(self.output)
        if self.running is not None:
            os.close(self.running.file)
        self.kill_path.unlink(missing_ok=True)

    def remove(self) -> None:
        for path in (self.path, self.kill_path):
            path.unlink(missing_ok=True)


@dataclass
class _Running:
    command: ShellCommand
    file: int  # holds the lock on the record
    touched: float  # time of the last activity
    report: EndReport | None  # called after the end
    task: "asyncio.Task[None]" = field(init=False)


class EndReports(Protocol):
    """The port that reports a command's end to the conversation that started it; the gateway supplies it."""

    async def expect(self, record: BackgroundCommand, call: Call) -> EndReport:
        """Store durably that the end of this command must be reported, before it starts. Return a callback that has the
        record checked immediately and raises nothing. Raises ToolError."""


@dataclass
class Processes:
    """All background commands of this gateway, kept over reloads. `folder` holds a session's records. Without `reports`
    no end can be reported."""

    config: ProcessConfig
    now: Callable[[], float]
    reports: EndReports | None = None
    _running: dict[Path, BackgroundCommand] = field(default_factory=dict)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closed: bool = False

    async def start(
        self, record: BackgroundCommand, shell: Exec, seconds: float, held: Held | None, report: EndReport | None
    ) -> None:
        """Run a command in the background. The caller must shield it from cancellation. Raises ToolError and OSError;
        then nothing runs."""
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
                command = await shell.begin(record.command, seconds, size if record.terminal else "pipe", held)
            except BaseException:
                record.remove()
                os.close(file)
                raise
            record.running = running = _Running(command, file, self.now(), report)
            self._running[record.path] = record
            running.task = asyncio.create_task(self._attend(record, running, shell))
            await asyncio.sleep(0)  # a task that is cancelled before its first step ends nothing

    def records(self, folder: Path, workspace: str | None = None) -> list[BackgroundCommand]:
        """List a session's records, oldest first; only those of `workspace` if it is given. Blocking."""
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        found = (self.record(folder, workspace, name) for name in names)
        return sorted((it for it in found if it is not None), key=lambda it: it.started)

    def record(self, folder: Path, workspace: str | None, id_: str) -> BackgroundCommand | None:
        """Return the current record, from memory if the process runs here. Blocking."""
        record = self._running.get(folder / id_) or read_record(folder, id_)
        return record if record is not None and workspace in (None, record.workspace) else None

    async def close(self) -> None:
        """End all processes, including one that is just starting; their records then read as interrupted."""
        async with self._starting:
            self._is_closed = True
            tasks = [it.running.task for it in self._running.values() if it.running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, record: BackgroundCommand, running: _Running, shell: Exec) -> None:
        keeping = asyncio.create_task(self._keep(record, running))
        try:
            await running.command.attend(record.output)
            record.code, record.note = running.command.code, shell.note(running.command)
            record.ended, record.state = self.now(), "ended"
        except OSError as error:
            failure = shell.not_started(error)
            record.note = f"[{failure.code}: {failure.message}]"
            record.ended, record.state = self.now(), "ended"
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await running.command.leave()
            await asyncio.shield(asyncio.to_thread(record.finish))
            record.running = None  # on the event loop, where it is read
            del self._running[record.path]
        if running.report is not None:
            await running.report()

    async def _keep(self, record: BackgroundCommand, running: _Running) -> None:
        saved = active = record.output.total
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if active != (active := record.output.total):
                running.touched = self.now()
            if running.report is None and self.now() - running.touched > self.config.idle_seconds:
                running.command.stop("idle")
            if not os.fstat(running.file).st_nlink or record.kill_path.exists():
                running.command.stop("killed")
            elif saved != record.output.total:
                saved = record.output.total
                saving = asyncio.ensure_future(asyncio.to_thread(record.save, record.output.since(0)))
                try:
                    await asyncio.shield(saving)
                finally:
                    await saving  # record replaces the descriptor that `finish` writes by


def _begin(record: BackgroundCommand) -> int:
    os.close(make_folder(record.folder))
    known = (read_record(record.folder, path.name) for path in record.folder.iterdir())
    ended = sorted((it for it in known if it and it.state != "elsewhere"), key=lambda it: it.started)
    for old in ended[: -RECORDS_MAX + 1]:
        old.remove()
    return record.write(record.output)


def read_record(folder: Path, id_: str) -> BackgroundCommand | None:
    """Read a record. One that runs is `elsewhere` if it is locked, else `interrupted`. None without a record.
    Blocking."""
    if not _ID.fullmatch(id_):
        return None
    try:
        with folder.joinpath(id_).open("rb") as file:
            locked = is_locked(file.fileno())
            members = json.loads(file.read())
        record = BackgroundCommand(**{**members, "folder": folder, "output": Output.load(*members["output"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("process_record_unreadable", error=type(error).__name__)
        return None
    if record.state == "running":
        record.state = "elsewhere" if locked else "interrupted"
    return record


WAIT_SECONDS_MAX = 60
LOOK_SECONDS = 0.05
COMMAND_CHARS = 100
LINE_BYTES_MAX = 4_095
"""Longest line that a terminal accepts; it drops the rest."""
KeyName: TypeAlias = Literal[
    "enter", "tab", "escape", "backspace", "up", "down", "right", "left", "ctrl-c", "ctrl-d", "ctrl-z"
]
KEYS: Mapping[KeyName, str] = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "ctrl-c": "\x03",
    "ctrl-d": "\x04",
    "ctrl-z": "\x1a",
}


class ProcessArguments(Arguments):
    action: Literal["start", "list", "poll", "log", "write", "kill"] = Field(description="What to do.")
    id: str | None = Field(default=None, description="Which process: as `start` and `list` say. Not for these two.")
    command: str | None = Field(default=None, min_length=1, description="For `start`: the command, as for `exec`.")
    timeout_seconds: float | None = Field(default=None, gt=0, description="For `start`: seconds it may run.")
    pty: bool | None = Field(default=None, description="For `start`: give it a terminal; only if a program needs one.")
    notify: bool | None = Field(
        default=None, description="For `start`: have its end sent to the chat, if a person waits for it."
    )
    wait_seconds: float | None = Field(
        default=None, ge=0, le=WAIT_SECONDS_MAX, description="For `poll`: seconds to wait for new output or its end."
    )
    offset: int | None = Field(default=None, description="For `log`: the first line, from 1; negative: from the end.")
    limit: int | None = Field(default=None, ge=1, description="For `log`: how many lines.")
    text: str | None = Field(default=None, description="For `write`: what it reads; end a line with a line break.")
    key: KeyName | None = Field(
        default=None,
        description="For `write`: a key to press, after the text. Without a terminal only enter, and ctrl-d: end of input.",
    )


@dataclass
class Process:
    spec = ProcessArguments.spec(
        "process",
        summary="run commands in the background: start, list, poll, log, write, kill",
        description=(
            "Run a shell command in the background, for what takes longer than `exec` allows or waits for input. `start` "
            "gives an id; `poll` the output since the last poll and the state, `log` pages of all that is kept, `write` "
            "sends input, `kill` ends it with all it started. With `notify: true` its end is sent to the chat by itself, as "
            "a reply to the current message, and you then find it in the conversation; otherwise nobody is told: poll, or "
            "`list` later. Everything ends when the gateway does; `list` says so, and what has `notify` is reported."
        ),
        effect="once",
    )
    parse = staticmethod(ProcessArguments.parse)

    shell: Exec
    processes: Processes

    async def run(self, arguments: ProcessArguments, call: Call) -> ToolResult:
        self.shell.workspace.shows_uploads()
        match arguments.action:
            case "start":
                return await self._start(arguments, call)
            case "list":
                root = str(self.shell.workspace.root)
                records = await asyncio.to_thread(self.processes.records, self._folder, root)
                lines = [f"{it.id} {state_of(it, self.processes.now())}: {short(it.command)}" for it in records]
                states = {it.id: it.state for it in records}
                return ToolResult(content=("\n".join(lines) or "(no processes)",), details={"processes": states})
            case "poll":
                return await self._poll(await self._named(arguments), arguments.wait_seconds or 0)
            case "log":
                return await self._log(await self._named(arguments), arguments)
            case "write":
                return await self._write(await self._named(arguments), arguments)
            case "kill":
                record = await self._named(arguments)
                if record.state in ("running", "elsewhere"):
                    await record.kill()
                    record = await asyncio.to_thread(self._record, record.id)
                return await self._poll(record, 0)

    def subject(self, arguments: ProcessArguments, call: Call) -> Subject | None:
        """Return the command that `start` runs, or the input that `write` sends: a shell may run that."""
        if arguments.action not in ("start", "write"):
            return None
        record = self._record(_given(arguments.id, "id", "write")) if arguments.action == "write" else None
        command = record.command if record else _given(arguments.command, "command", "start")
        subject = self.shell.subject(ExecArguments(command=command), call)
        if subject is None:
            return None
        facts = dict(subject.facts)
        if record is None:
            facts |= {"timeout": f"{self._seconds(arguments):g} s", "background": True, "terminal": bool(arguments.pty)}
            return replace(subject, facts=facts)
        facts |= {"process": record.id, "command": command, "terminal": record.terminal}
        identity = {"process": record.id, "started": str(record.started)}
        return Subject(text=_input(arguments, record), facts=facts, identity=identity)

    @property
    def _folder(self) -> Path:
        if self.shell.workspace.uploads is None:
            raise ToolError("PROCESS_UNAVAILABLE", "there is no session here that could keep a process")
        return processes_of(self.shell.workspace.uploads)

    def _seconds(self, arguments: ProcessArguments) -> float:
        most = self.processes.config.timeout_seconds
        return min(arguments.timeout_seconds or most, most)

    async def _named(self, arguments: ProcessArguments) -> BackgroundCommand:
        record = await asyncio.to_thread(self._record, _given(arguments.id, "id", arguments.action))
        if record.running is not None:
            record.running.touched = self.processes.now()
        return record

    def _record(self, id_: str) -> BackgroundCommand:
        record = self.processes.record(self._folder, str(self.shell.workspace.root), id_)
        if record is None:
            raise ToolError("NOT_FOUND", f"this session has no process {id_[:64]!r}; `list` shows those it has")
        return record

    async def _start(self, arguments: ProcessArguments, call: Call) -> ToolResult:
        command = _given(arguments.command, "command", "start")
        seconds = self._seconds(arguments)
        record = BackgroundCommand(
            folder=self._folder,
            command=command,
            workspace=str(self.shell.workspace.root),
            where=node(),
            terminal=bool(arguments.pty),
            started=self.processes.now(),
            output=Output(self.shell.config.output_bytes),
        )
        report = None
        if arguments.notify:
            if self.processes.reports is None:
                raise ToolError("UNSUPPORTED", "nobody can be told of its end here; start it without notify, and poll")
            report = await self.processes.reports.expect(record, call)  # if it cannot start, that finds no record
        try:
            await asyncio.shield(self.processes.start(record, self.shell, seconds, call.held, report))
        except (OSError, ToolError) as error:
            if report is not None:
                await report()
            raise self.shell.not_started(error) if isinstance(error, OSError) else error from error
        text = f"Started process {record.id}; it may run for {seconds:g} seconds. `poll` shows its output."
        if arguments.notify:
            text += " Its end is sent to the chat by itself."
        return ToolResult(content=(text,), details={"id": record.id})

    async def _poll(self, record: BackgroundCommand, wait_seconds: float) -> ToolResult:
        running = record.running
        for _ in range(int(wait_seconds / LOOK_SECONDS)):
            if running is None or running.task.done() or record.output.total > record.polled:
                break
            await asyncio.sleep(LOOK_SECONDS)
        note, new = f"[{state_of(record, self.processes.now())}]", record.output.since(record.polled)
        text = await asyncio.to_thread(new.shown, self.shell.result_chars - len(note) - 1)
        record.polled += new.total
        if running and record.ended is not None:
            await asyncio.wait([running.task])  # `finish` has written the record and closed its descriptor
        if record.state in ("ended", "interrupted") and new.total:
            await asyncio.to_thread(record.save, record.output)
        return ToolResult(content=(f"{text.rstrip(chr(10))}\n{note}".lstrip("\n"),), details=details_of(record))

    async def _log(self, record: BackgroundCommand, arguments: ProcessArguments) -> ToolResult:
        printed = record.output.since(0)

        def page() -> ToolResult:
            text = printed.shown(8 * self.shell.config.output_bytes)
            return text_page(text, arguments.offset or 1, arguments.limit, self.shell.result_chars)

        return await asyncio.to_thread(page)

    async def _write(self, record: BackgroundCommand, arguments: ProcessArguments) -> ToolResult:
        data = _input(arguments, record).encode(errors="replace")
        if record.running is None:
            state = state_of(record, self.processes.now())
            raise ToolError("NOT_RUNNING", f"process {record.id} takes no input here: {state}")
        if record.terminal and any(len(line) > LINE_BYTES_MAX for line in data.splitlines()):
            raise ToolError("INVALID_ARGUMENT", f"a terminal takes no line longer than {LINE_BYTES_MAX} bytes")
        ends = not record.terminal and arguments.key == "ctrl-d"
        try:
            taken = record.running.command.write(data) if data else 0
            if ends and taken == len(data):
                record.running.command.end_input()
        except OSError:
            raise ToolError("NOT_RUNNING", f"process {record.id} reads no input any more") from None
        if taken < len(data):
            message = f"it took {taken} of {len(data)} bytes and reads no more now; write the rest when it does"
            raise ToolError("PROCESS_BUSY", message, retryable=True)
        return ToolResult(content=(f"Wrote {taken} bytes to process {record.id}",), details=details_of(record))


def state_of(record: BackgroundCommand, now: float) -> str:
    """Describe the state of a background command to a model."""
    age = f"{max(0.0, (record.ended or now) - record.started):.0f} s"
    match record.state:
        case "running":
            return f"running, {age}"
        case "elsewhere":
            return f"running at another replica ({shown(record.where)}), {age}; what it wrote is some seconds old"
        case "ended":
            return f"ended after {age}: {record.note[1:-1]}"
        case "interrupted":
            return "interrupted: the gateway restarted, which ended it; what it wrote last may be missing"


def _given(value: str | None, name: str, action: str) -> str:
    if not value:
        raise ToolError("INVALID_ARGUMENT", f"{name!r} is required for {action}")
    return value


def _input(arguments: ProcessArguments, record: BackgroundCommand) -> str:
    text, key = arguments.text or "", arguments.key
    if not text and key is None:
        raise ToolError("INVALID_ARGUMENT", "'text' or 'key' is required for write")
    if record.terminal:
        return text + (KEYS[key] if key else "")
    if key not in (None, "enter", "ctrl-d"):
        raise ToolError("INVALID_ARGUMENT", f"'key': {key} needs a terminal; start the command with pty: true")
    return text + ("\n" if key == "enter" else "")


def details_of(record: BackgroundCommand) -> dict[str, str | int | None]:
    return {"id": record.id, "state": record.state, "exitCode": record.code}


def short(command: str) -> str:
    """Return the beginning of a command, on one line."""
    line = shown(command)
    return line if len(line) <= COMMAND_CHARS else line[:COMMAND_CHARS] + "…"

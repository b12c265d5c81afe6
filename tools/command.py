"""Run one shell command with limits on time, output, processes and files, and leave nothing of it running.

A supervisor (`tools.supervisor`) between the gateway and the command sets the limits and reaps all that the command
starts, so that detached processes are found and killed, and no others. This module has the clock and the pipes; the
sandbox is the launch's (`tools.sandbox`). `exec` and `process` run the same commands: one without input, the other with
a pipe or a terminal. If gateway and command share a uid, the gateway at least hides its own environment and memory.
Protected names that are new since a command began are kept from prompts until it has ended (`is_absent`): the
supervisor renames them a tenth of a second later, and a command could make them again.
"""

import asyncio
import contextlib
import ctypes
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Collection
from contextlib import suppress
from typing import Literal, TypeAlias

from tools.config import ExecConfig
from tools.output import Output
from tools.paths import names_in
from tools.sandbox.launch import Launch, program

KILL_AFTER_SECONDS = 2.0
DRAIN_SECONDS = 0.5
GONE_SECONDS_MAX = 8.0
"""Timeout for a supervisor to end; its own, for processes that will not die, is shorter."""
_PR_SET_DUMPABLE = 4
_prctl = ctypes.CDLL(None).prctl
_CODE = re.compile(rb"-?\d+|!")

CommandLimit: TypeAlias = Literal["time", "output", "written", "free", "memory", "processes", "idle", "killed"]
Input: TypeAlias = Literal["none", "pipe"] | tuple[int, int]
"""Input of a command: nothing, a pipe, or a terminal with these rows and columns."""
Errors: TypeAlias = Literal["with output", "apart"]
_LIMITS: dict[str, CommandLimit] = {"W": "written", "F": "free", "M": "memory", "N": "processes"}

OUTPUT_BYTES_MAX = 16 * 1024 * 1024


class ShellCommand:
    """A command, its supervisor and the pipes to it. Raises OSError if that cannot be started. `errors` says where its
    error output goes; `limit` is why it was stopped. After the end, `code` is the shell's exit code, or minus the
    signal that ended it. `read_only`: the disk was too full to let it write. `refused`: it made files with protected
    names, which were renamed."""

    code = 0
    limit: CommandLimit | None = None
    read_only = False
    refused = False
    output: Output

    def __init__(
        self, launch: Launch, folder: int, bounds: ExecConfig, stdin: Input = "none", *, errors: Errors = "with output"
    ) -> None:
        # A command with our uid could read our secrets in /proc if we were dumpable.
        _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        self._control: int | None
        self._unwanted = asyncio.Event()
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            theirs.callback(launch.close)
            self._absent = Absent(folder, launch.plan.get("protected", ()))
            ours.callback(self._absent.end)
            self._proxy = launch.proxy
            if self._proxy is not None:
                ours.callback(self._proxy.close)
            control, self._control = _pipe(theirs, ours)
            status, self._status = _pipe(theirs, ours, reads=True)
            self._input: int | None = None
            if isinstance(stdin, tuple):
                reads, self._output = _terminal(theirs, ours, stdin, launch.owner)
                writes, self._input = reads, os.dup(self._output)
                ours.callback(os.close, self._input)
            else:
                writes, self._output = _pipe(theirs, ours, reads=True)
                reads, self._input = _pipe(theirs, ours) if stdin == "pipe" else (subprocess.DEVNULL, None)
            complains, self._errors = subprocess.STDOUT, None
            if errors == "apart":
                complains, self._errors = _pipe(theirs, ours, reads=True)
            self.seconds = bounds.timeout_seconds
            limits = (int(self.seconds), bounds.written_bytes, bounds.free_bytes)
            numbers = (control, status, folder, *(launch.owner or (-1, -1)), *limits)
            self._process = subprocess.Popen(
                [*program("tools.supervisor", "-I", "-S"), *map(str, numbers), *launch.arguments],
                stdin=reads,
                stdout=writes,
                stderr=complains,
                env=dict(launch.env),
                pass_fds=(control, status, folder, *launch.pass_fds),
                start_new_session=True,
            )
            ours.pop_all()
        if self._proxy is not None:
            self._proxy.begin()
        for fd in (self._output, self._input, self._errors):
            if fd is not None:
                os.set_blocking(fd, False)

    async def attend(self, output: Output, errors: Output | None = None) -> None:
        """Wait for the end. `errors` gets the error output if it is apart. Raises OSError if the command did not
        start."""
        self.output = output
        loop = asyncio.get_running_loop()
        exited, ended, stopped, gone = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        pipes = {self._output: output} | ({self._errors: errors} if self._errors and errors else {})
        status, report = self._status, bytearray()

        def read(pipe: int, into: Output) -> None:
            try:
                data = os.read(pipe, 65_536)
            except BlockingIOError:
                return
            except OSError:  # the other side of a terminal is closed
                data = b""
            into.feed(data)
            if not data:
                loop.remove_reader(pipe)
            if into is output and not data:
                ended.set()
            elif into is output and output.total > OUTPUT_BYTES_MAX:
                self.limit = self.limit or "output"
                stopped.set()

        def listen() -> None:
            text = os.read(status, 32)
            report.extend(text)
            if letter := _LIMITS.keys() & text.decode():
                self.limit = self.limit or _LIMITS[letter.pop()]
                stopped.set()
            if not text or _CODE.search(report):
                exited.set()
            if not text:
                loop.remove_reader(status)
                gone.set()

        loop.add_reader(status, listen)
        for pipe, into in pipes.items():
            loop.add_reader(pipe, read, pipe, into)
        try:
            await self._until_over(exited, ended, stopped)
            await _first(GONE_SECONDS_MAX, gone)
        finally:
            for fd in (status, *pipes):
                loop.remove_reader(fd)
        if b"!" in report and self.limit is None:
            raise OSError(
                output.shown(500).strip() or "it could not become the workspace's owner, or there is no shell"
            )
        reported = _CODE.search(report)
        self.code = int(reported[0]) if reported and reported[0] != b"!" else -signal.SIGKILL
        self.read_only, self.refused = b"L" in report, b"P" in report

    async def _until_over(self, exited: asyncio.Event, ended: asyncio.Event, stopped: asyncio.Event) -> None:
        if not await _first(self.seconds, exited, stopped, self._unwanted):
            self.stop("time")
        if self._unwanted.is_set() and not exited.is_set():
            if self._control is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._control, b"T")  # asks it to end
            await _first(KILL_AFTER_SECONDS, exited, stopped)
        if exited.is_set():
            # Background children may keep the pipe open: do not wait for them.
            await _first(DRAIN_SECONDS, ended, stopped)
        self._let_go()

    def stop(self, limit: CommandLimit) -> None:
        """Ask the command to end, and kill it soon after; `attend` then returns."""
        self.limit = self.limit or limit
        self._unwanted.set()

    def write(self, data: bytes) -> int:
        """Write without blocking; return how many bytes were taken. Raises OSError if the command reads no more."""
        if self._input is None:
            raise BrokenPipeError
        with contextlib.suppress(BlockingIOError):
            return os.write(self._input, data)
        return 0

    async def send(self, data: bytes) -> None:
        """Write everything, as fast as the command reads. Raises OSError if the command reads no more."""
        loop = asyncio.get_running_loop()
        while data := data[self.write(data) :]:
            assert self._input is not None
            writable = asyncio.Event()
            loop.add_writer(self._input, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(self._input)

    def end_input(self) -> None:
        """Close the command's input, for a pipe only."""
        if self._input is not None:
            os.close(self._input)
            self._input = None

    async def __aenter__(self) -> "ShellCommand":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """End all that the command started, also if `attend` was interrupted. Does not block the loop."""
        if self._proxy is not None:
            self._proxy.close()
        self._let_go()
        # Not `to_thread`: a task that is cancelled before its first step would end nothing.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._end))

    def _end(self) -> None:
        try:
            self._process.wait(GONE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._absent.end()
        self.end_input()
        os.close(self._output)
        os.close(self._status)
        if self._errors is not None:
            os.close(self._errors)

    def _let_go(self) -> None:
        if self._control is not None:
            os.close(self._control)
            self._control = None
            self._process.send_signal(signal.SIGCONT)  # the command may have stopped it


def _pipe(theirs: contextlib.ExitStack, ours: contextlib.ExitStack, *, reads: bool = False) -> tuple[int, int]:
    """Return the child's end and ours; `reads`: we read."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    their, our = (writing, reading) if reads else (reading, writing)
    theirs.callback(os.close, their)
    ours.callback(os.close, our)
    return their, our


def _terminal(
    theirs: contextlib.ExitStack, ours: contextlib.ExitStack, size: tuple[int, int], owner: tuple[int, int] | None
) -> tuple[int, int]:
    our, their = pty.openpty()
    theirs.callback(os.close, their)
    ours.callback(os.close, our)
    termios.tcsetwinsize(their, size)
    if owner is not None:
        os.fchown(their, *owner)
    return their, our


async def _first(seconds: float, *events: asyncio.Event) -> bool:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


_at_work: list["Absent"] = []


class Absent:
    """Protected names that were absent when a command began, until `end`. `names` are in lower case."""

    def __init__(self, folder: int, names: Collection[str]) -> None:
        self._folder, self._names, there = os.fstat(folder), names, list[str]()
        for place, inside in ((".", ""), ("skills", "skills/")):
            with suppress(OSError):
                there += [f"{inside}{it}" for it in names_in(folder, place)]
        self._there = {it for it in there if not is_absent(folder, it)}
        _at_work.append(self)

    def end(self) -> None:
        with suppress(ValueError):
            _at_work.remove(self)

    def holds(self, folder: os.stat_result, name: str) -> bool:
        is_guarded = name.casefold() in self._names or (bool(self._names) and name.startswith("skills/"))
        return is_guarded and name not in self._there and os.path.samestat(folder, self._folder)


def is_absent(folder: int, name: str) -> bool:
    """Return whether a command running in that folder may have made the name. Call it after reading the file."""
    status = os.fstat(folder)
    return any(it.holds(status, name) for it in tuple(_at_work))

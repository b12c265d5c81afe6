"""Run one shell command under bounds: time, output, processes, files; and leave nothing of it behind.

A supervisor (`tools.supervisor`) stands between the gateway and the command: it sets the limits and is the reaper of
all that the command starts, so that what detaches itself is found and killed, and nobody else is. Here is the clock and
the pipe. This is a seat belt, not a wall: there is no sandbox here. Where gateway and command share a uid, the gateway
at least hides its own environment and memory from it.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KILL_AFTER_SECONDS = 2.0
DRAIN_SECONDS = 0.5
GONE_SECONDS_MAX = 8.0
"""How long a supervisor may take to end; its own patience with what will not die is shorter."""
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """`code` is negative where a signal ended it. `cut_bytes` is what is missing between `head` and `tail`."""

    code: int
    head: bytes
    tail: bytes
    cut_bytes: int
    timed_out: bool
    flooded: bool


class Output:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, keep_bytes: int) -> None:
        self._half = keep_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def parts(self) -> tuple[bytes, bytes, int]:
        """Head, tail, and how many bytes are missing between them."""
        tail = bytes(self._tail[-self._half :])
        return bytes(self._head), tail, self.total - len(self._head) - len(tail)


async def run(
    command: str, *, folder: int, owner: tuple[int, int] | None, environment: Mapping[str, str],
    timeout_seconds: float, keep_bytes: int,
) -> Finished:  # fmt: skip
    """Run `command` in the folder of that descriptor, as `owner` (uid, gid) where that is not None. Raises OSError."""
    supervised = _Supervised(command, folder, owner, environment, timeout_seconds)
    try:
        return await supervised.attend(Output(keep_bytes), timeout_seconds)
    finally:
        supervised.end()


class _Supervised:
    """The supervisor's process, with the three pipes to it."""

    def __init__(
        self, command: str, folder: int, owner: tuple[int, int] | None, environment: Mapping[str, str], seconds: float
    ) -> None:
        _hide()
        self._wishes: int | None
        with contextlib.ExitStack() as theirs:
            control, self._wishes = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, control)
            self._status, status = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, status)
            numbers = (control, status, folder, *(owner or (-1, -1)), int(seconds))
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), *map(str, numbers), command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=(control, status, folder),
                    start_new_session=True,
                )
            except (OSError, ValueError):
                os.close(self._wishes)
                os.close(self._status)
                raise
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)

    async def attend(self, output: Output, timeout_seconds: float) -> Finished:
        """Raises OSError where the command could not be started."""
        loop = asyncio.get_running_loop()
        exited, ended, flooded, gone = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        pipe, status, said = self._stdout.fileno(), self._status, bytearray()

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(pipe, 65_536)
                output.feed(data)
                if not data:
                    loop.remove_reader(pipe)
                    ended.set()
                elif output.total > OUTPUT_BYTES_MAX:
                    flooded.set()

        def listen() -> None:
            text = os.read(status, 32)
            said.extend(text)
            exited.set()
            if not text:
                loop.remove_reader(status)
                gone.set()

        loop.add_reader(status, listen)
        loop.add_reader(pipe, read)
        timed_out = False
        try:
            if not await _first(timeout_seconds, exited, flooded):
                timed_out = True
                self._ask_to_end()
                await _first(KILL_AFTER_SECONDS, exited, flooded)
            if exited.is_set():
                # What the command left in the background holds the pipe open: it does not hold us.
                await _first(DRAIN_SECONDS, ended, flooded)
            self._let_go()
            await _first(GONE_SECONDS_MAX, gone)
        finally:
            loop.remove_reader(status)
            loop.remove_reader(pipe)
        head, tail, cut = output.parts()
        code = _exit_code(bytes(said))
        return Finished(code=code, head=head, tail=tail, cut_bytes=cut, timed_out=timed_out, flooded=flooded.is_set())

    def end(self) -> None:
        """Where `attend` was cut short, everything the command started dies here, in milliseconds."""
        self._let_go()
        try:
            self._process.wait(GONE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        os.close(self._status)

    def _ask_to_end(self) -> None:
        if self._wishes is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._wishes, b"T")

    def _let_go(self) -> None:
        if self._wishes is not None:
            os.close(self._wishes)
            self._wishes = None
            self._process.send_signal(signal.SIGCONT)  # where a command could stop it, it did not end it


def _exit_code(said: bytes) -> int:
    """What the supervisor said; killed where it said nothing. Raises OSError."""
    if said.startswith(b"!"):
        raise OSError("the command could not become the workspace's owner, or there is no /bin/sh")
    return int(said) if said else -9


async def _first(seconds: float, *events: asyncio.Event) -> bool:
    """Wait for any of them; False where none came in time."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


def _hide() -> None:
    """A command of our own uid could read our secrets in /proc; not from a process that may not be dumped."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

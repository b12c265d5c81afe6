"""Starts of the gateway that cost milliseconds: a warm parent has imported it once, and forks what a test starts.

`start("gateway.__main__", "serve", …)` gives what `python -m gateway serve …` gives: a process with its own pid, session,
environment and streams, without the second of processor time that its imports take. Signals, kill -9 and the exit code
mean the same; only the command line in /proc is the parent's. A few tests still start a real Python.
The parent itself is in `tests/warm_parent.py`.
"""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.warm_parent import Order

ROOT = Path(__file__).resolve().parents[1]


class Child:
    """A forked process, with the surface of `asyncio.subprocess.Process`."""

    def __init__(self, streams: dict[str, int]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._streams = streams
        self._watch: asyncio.Task[None] | None = None

    async def begin(self, line: socket.socket) -> None:
        """The parent writes the pid on the line, and at the end the exit code."""
        for name, fd in self._streams.items():
            setattr(self, name, await (_writer(fd) if name == "stdin" else _reader(fd)))
        reader, writer = await asyncio.open_connection(sock=line)
        self.pid = int(await reader.readline())
        self._watch = asyncio.create_task(self._until_it_ends(reader, writer))

    async def _until_it_ends(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.returncode = int(await reader.readline())
        writer.close()

    async def wait(self) -> int:
        assert self._watch is not None
        await asyncio.shield(self._watch)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def communicate(self, typed: bytes | None = None) -> tuple[bytes, bytes]:
        if self.stdin is not None:
            self.stdin.write(typed or b"")
            self.stdin.close()
        output, errors = await asyncio.gather(_all_of(self.stdout), _all_of(self.stderr))
        await self.wait()
        return output, errors


async def start(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | IO[bytes] | None = None,
    terminal: bool = False,
) -> Child:
    """Runs `python -m module` in a session of its own, whose terminal is its standard input if `terminal`. `env` is its
    whole environment."""
    line, theirs = socket.socketpair()
    ours: dict[str, int] = {}
    given: list[int] = []
    for standard, (name, wish) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
        if wish == PIPE:
            reads, writes = os.pipe()
            ours[name], fd = (writes, reads) if name == "stdin" else (reads, writes)
        elif wish == STDOUT:
            fd = os.dup(given[1])
        elif wish is None:
            fd = os.dup(standard)
        else:
            fd = os.dup(wish if isinstance(wish, int) else wish.fileno())
        given.append(fd)
    order = Order(module=module, arguments=arguments, env=dict(env), terminal=terminal)
    try:
        socket.send_fds(_parent(), [order.encoded()], [theirs.fileno(), *given])
    finally:
        theirs.close()
        for fd in given:
            os.close(fd)
    child = Child(ours)
    await child.begin(line)
    return child


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(fd, "rb", 0))
    return reader


async def _writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)


_controls: list[socket.socket] = []
_started: list[subprocess.Popen[bytes]] = []


def _parent() -> socket.socket:
    """The socket that a parent takes orders from. Each process of tests has its own parent, and all of a run have one
    grandparent, which imports the gateway: the first that needs it starts it, and it ends with the run."""
    if not _controls:
        run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        place = Path(tempfile.gettempdir(), f"clawgate-warm-{run}")
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                control.connect(str(place))
            except OSError:
                _start_at(place, run)
                control.connect(str(place))
        _controls.append(control)
    return _controls[0]


def _start_at(place: Path, run: int) -> None:
    place.unlink(missing_ok=True)
    env = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PYTHON")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        fd = listener.fileno()
        command = [sys.executable, "-m", "tests.warm_parent", str(fd), str(run)]
        _started.append(subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[fd]))


def close() -> None:
    """Ends the parent, and with it whatever it has forked. The grandparent ends with the run, which may go on."""
    for it in _started:
        it.returncode = 0  # or Python warns that it still runs
    while _controls:
        with _controls.pop() as control:
            control.shutdown(socket.SHUT_WR)
            control.recv(1)

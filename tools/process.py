"""Run one shell command under bounds: time, output, processes, files; and leave nothing of it behind.

The command's own group is killed, then every descendant there is. The gateway declares itself the reaper of orphans, so
that what detaches itself twice comes back to us and is found among our children; nothing is ever matched by name. The
shell sets its own limits before it becomes the command's. This is a seat belt, not a wall: there is no sandbox here.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILL_AFTER_SECONDS = 2.0
DRAIN_SECONDS = 0.5
OUTPUT_BYTES_MAX = 16 * 1024 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_MAX = 256
PROCESSES_MAX = 128
CPU_SECONDS_EXTRA = 10
KILL_ROUNDS_MAX = 20
_PR_SET_CHILD_SUBREAPER = 36
ULIMIT_BLOCK_BYTES = 512


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
    _become_reaper()
    before = frozenset(_children(os.getpid()))
    process = _spawn(command, folder, owner, environment, timeout_seconds)
    output = Output(keep_bytes)
    _running.add(process.pid)
    try:
        return await _attend(process, output, timeout_seconds, before)
    finally:
        _kill_all(process.pid, before)
        process.wait()
        _running.discard(process.pid)
        if process.stdout:
            process.stdout.close()


_running: set[int] = set()
"""The shells of the commands at work: our only children that are not somebody's orphans."""


async def _attend(
    process: subprocess.Popen[bytes], output: Output, timeout_seconds: float, before: frozenset[int]
) -> Finished:
    loop = asyncio.get_running_loop()
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    exited, ended, flooded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(pipe, 65_536)
            output.feed(data)
            if not data:
                loop.remove_reader(pipe)
                ended.set()
            elif output.total > OUTPUT_BYTES_MAX:
                flooded.set()

    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, exited.set)
    loop.add_reader(pipe, read)
    timed_out = False
    try:
        if not await _first(timeout_seconds, exited, flooded):
            timed_out = True
        if not exited.is_set():
            _signal_group(process.pid, signal.SIGTERM)
            if flooded.is_set() or not await _first(KILL_AFTER_SECONDS, exited):
                _kill_all(process.pid, before)
                await exited.wait()
        # What the command left in the background holds the pipe open: it does not hold us.
        await _first(DRAIN_SECONDS, ended, flooded)
    finally:
        loop.remove_reader(pidfd)
        loop.remove_reader(pipe)
        os.close(pidfd)
    code = process.wait()
    head, tail, cut = output.parts()
    return Finished(code=code, head=head, tail=tail, cut_bytes=cut, timed_out=timed_out, flooded=flooded.is_set())


async def _first(seconds: float, *events: asyncio.Event) -> bool:
    """Wait for any of them; False where none came in time."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


def _spawn(
    command: str, folder: int, owner: tuple[int, int] | None, environment: Mapping[str, str], timeout_seconds: float
) -> subprocess.Popen[bytes]:
    identity: dict[str, Any] = {} if owner is None else {"user": owner[0], "group": owner[1], "extra_groups": []}
    limits = f"ulimit -c 0; ulimit -n {FILES_MAX}; ulimit -f {FILE_BYTES_MAX // ULIMIT_BLOCK_BYTES}; "
    limits += f"ulimit -t {int(timeout_seconds) + CPU_SECONDS_EXTRA}; "
    if owner is not None:  # it counts everything of that uid, so not where the uid is a person's
        limits += f"ulimit -u {PROCESSES_MAX} || ulimit -p {PROCESSES_MAX}; "
    return subprocess.Popen(
        ["/bin/sh", "-c", "{ " + limits + '} 2>/dev/null; exec /bin/sh -c "$0"', command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=f"/proc/self/fd/{folder}",  # by descriptor: nobody can move the folder in between
        env=dict(environment),
        start_new_session=True,
        umask=0o022,
        **identity,
    )


def _become_reaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_all(shell: int, before: frozenset[int]) -> None:
    """The shell's group, its descendants, and the orphans that have come to us; round by round until nobody is left."""
    _signal_group(shell, signal.SIGKILL)
    for _ in range(KILL_ROUNDS_MAX):
        victims = [*_descendants(shell), *_orphans(before)]
        if not victims:
            return
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # ours: it is dead or dying. A grandchild is not ours yet: ChildProcessError


def _orphans(before: frozenset[int]) -> list[int]:
    """Our children that came since the command began and are no running command's shell, with all below them."""
    found: list[int] = []
    for pid in _children(os.getpid()):
        if pid not in before and pid not in _running:
            found += [pid, *_descendants(pid)]
    return found


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        for child in _children(pending.pop()):
            found.append(child)
            pending.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (task / "children").read_text(encoding="ascii").split())
    return children


def _signal_group(shell: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(shell, number)

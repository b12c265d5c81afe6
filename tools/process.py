"""Run one shell command under bounds: time, output, processes, files; and leave nothing of it behind.

A supervisor (`tools.supervisor`) stands between the gateway and the command: it sets the limits and is the reaper of
all that the command starts, so that what detaches itself is found and killed, and nobody else is. Here is the clock and
the pipe; the wall around the command is the launch's (`tools.sandbox`). Where gateway and command share a uid, the gateway
at least hides its own environment and memory from it.
"""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeAlias

from tools.config import ExecConfig
from tools.sandbox.launch import Launch

KILL_AFTER_SECONDS = 2.0
DRAIN_SECONDS = 0.5
GONE_SECONDS_MAX = 8.0
"""How long a supervisor may take to end; its own patience with what will not die is shorter."""
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PR_SET_DUMPABLE = 4
_CODE = re.compile(rb"-?\d+|!")

Limit: TypeAlias = Literal["time", "output", "written", "free", "memory", "processes"]
_LIMITS: dict[str, Limit] = {"W": "written", "F": "free", "M": "memory", "N": "processes"}

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
TAIL_SHARE = 0.3
TAIL_CHARS_MAX = 4_000
"""The end's part of what is shown, as wherever a result is cut (`agents.truncate`)."""
GAP_CHARS = 64
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_PIECE = re.compile(r"\r\n|.", re.DOTALL)
_SHOWN = {
    "\r\n": "\n",
    # What terminals take from U+0080 on, they also take for the start of a sequence.
    **{chr(code): f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"},
    **{chr(code): "\ufffd" for code in range(0xDC80, 0xDD00)},
}
"""What stands for a piece that must reach no prompt, chat or terminal; the last row are bytes that are no UTF-8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """`code` is that of the shell, or minus the signal that ended it; `limit` is what it was stopped for. `read_only`: the
    disk was too full to let it write at all. `refused`: it made files of protected names, which were renamed."""

    code: int
    output: "Output"
    limit: Limit | None
    read_only: bool
    refused: bool


async def run(launch: Launch, *, folder: int, bounds: ExecConfig) -> Finished:
    """Run it in the folder of that descriptor. Raises OSError."""
    supervised = _Supervised(launch, folder, bounds)
    try:
        return await supervised.attend(Output(bounds.output_bytes), bounds.timeout_seconds)
    finally:
        # Where `attend` was cut short, everything the command started dies from here on; nobody waits for it on the loop.
        supervised.let_go()
        await asyncio.shield(asyncio.to_thread(supervised.end))


class _Supervised:
    """The supervisor's process, with the three pipes to it."""

    def __init__(self, launch: Launch, folder: int, bounds: ExecConfig) -> None:
        # A command of our own uid could read our secrets in /proc; not from a process that may not be dumped.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        self._control: int | None
        with contextlib.ExitStack() as theirs:
            theirs.callback(launch.close)
            control, self._control = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, control)
            self._status, status = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, status)
            limits = (int(bounds.timeout_seconds), bounds.written_bytes, bounds.free_bytes)
            numbers = (control, status, folder, *(launch.owner or (-1, -1)), *limits)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), *map(str, numbers), *launch.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(launch.env),
                    pass_fds=(control, status, folder, *launch.pass_fds),
                    start_new_session=True,
                )
            except (OSError, ValueError):
                os.close(self._control)
                os.close(self._status)
                raise
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)

    async def attend(self, output: "Output", timeout_seconds: float) -> Finished:
        """Raises OSError where the command could not be started."""
        loop = asyncio.get_running_loop()
        exited, ended, stopped, gone = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        pipe, status, report = self._stdout.fileno(), self._status, bytearray()
        limit: Limit | None = None

        def read() -> None:
            nonlocal limit
            with contextlib.suppress(BlockingIOError):
                data = os.read(pipe, 65_536)
                output.feed(data)
                if not data:
                    loop.remove_reader(pipe)
                    ended.set()
                elif output.total > OUTPUT_BYTES_MAX:
                    limit = limit or "output"
                    stopped.set()

        def listen() -> None:
            nonlocal limit
            text = os.read(status, 32)
            report.extend(text)
            if letter := _LIMITS.keys() & text.decode():
                limit = limit or _LIMITS[letter.pop()]
                stopped.set()
            if not text or _CODE.search(report):
                exited.set()
            if not text:
                loop.remove_reader(status)
                gone.set()

        loop.add_reader(status, listen)
        loop.add_reader(pipe, read)
        try:
            if not await _first(timeout_seconds, exited, stopped):
                limit = limit or "time"
                self._ask_to_end()
                await _first(KILL_AFTER_SECONDS, exited, stopped)
            if exited.is_set():
                # What the command left in the background holds the pipe open: it does not hold us.
                await _first(DRAIN_SECONDS, ended, stopped)
            self.let_go()
            await _first(GONE_SECONDS_MAX, gone)
        finally:
            loop.remove_reader(status)
            loop.remove_reader(pipe)
        if b"!" in report:
            raise OSError(
                output.shown(500).strip() or "it could not become the workspace's owner, or there is no shell"
            )
        reported = _CODE.search(report)
        code = int(reported[0]) if reported else -signal.SIGKILL
        return Finished(code=code, output=output, limit=limit, read_only=b"L" in report, refused=b"P" in report)

    def end(self) -> None:
        """Wait until nothing of it is left. Blocking, mostly for milliseconds."""
        try:
            self._process.wait(GONE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        os.close(self._status)

    def _ask_to_end(self) -> None:
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, b"T")

    def let_go(self) -> None:
        if self._control is not None:
            os.close(self._control)
            self._control = None
            self._process.send_signal(signal.SIGCONT)  # where a command could stop it, it did not end it


async def _first(seconds: float, *events: asyncio.Event) -> bool:
    """Wait for any of them; False on a timeout."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


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

    def shown(self, chars_max: int) -> str:
        """The output, printable; where it is longer than that, its two ends and how many bytes are not shown."""
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        if len(head) + len(tail) == self.total:
            head = tail = head + tail
            text, shown_bytes = _printed(head, chars_max, keep="beginning")
            if shown_bytes == self.total:
                return text
        room = chars_max - GAP_CHARS
        tail_chars = min(int(room * TAIL_SHARE), TAIL_CHARS_MAX)
        beginning, beginning_bytes = _printed(head, room - tail_chars, keep="beginning")
        end, end_bytes = _printed(tail, tail_chars, keep="end")
        left = self.total - beginning_bytes - end_bytes
        return f"{beginning}\n[… {left:,} bytes of output are left out …]\n{end}"


def _printed(raw: bytes, chars: int, *, keep: Literal["beginning", "end"]) -> tuple[str, int]:
    """As much of it as is printed in so many characters, and how many of its bytes that is."""
    step = 1 if keep == "beginning" else -1
    text = (raw[: 4 * chars] if step > 0 else raw[-4 * chars :]).decode("utf-8", errors="surrogateescape")
    text = text[:chars] if step > 0 else text[-chars:]
    if len(text) <= chars and not _UNSAFE.search(text):
        return text, _bytes(text)
    pieces = _PIECE.findall(text)[::step]
    shown = [_SHOWN.get(piece, piece) for piece in pieces]
    shown = shown[: bisect_right(list(accumulate(map(len, shown))), chars)]
    return "".join(shown[::step]), _bytes("".join(pieces[: len(shown)]))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="surrogateescape"))

"""The warm parents of `tests/warm.py`: a process imports the gateway once, and forks a parent for each process of tests,
which forks a child for each order.

    python -m tests.warm_parent FD PID

FD is a listening socket; who connects has a parent. An order comes over the connection with four descriptors: the child's
line, on which the parent writes its pid and its exit code, and its three standard streams. Whoever closes the line ends the
child; whoever closes the connection ends them all. PID is the run of tests, with which all ends.
"""

import asyncio
import atexit
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from io import StringIO
from typing import NoReturn, TextIO

ORDER_BYTES = 1 << 16
DESCRIPTORS = 4
PRELOADED = (
    *("gateway.app.serve", "gateway.cli.terminal", "gateway.operate.doctor"),
    *("tests.chaos.poisoned", "tests.tools.confined"),
    *("aiohttp", "alembic.command", "psycopg", "sqlalchemy.dialects.sqlite", "uvicorn.protocols.http.h11_impl"),
)
"""The last line is what a life of the gateway loads when it needs it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The process that is wanted."""

    module: str
    arguments: tuple[str, ...]
    env: dict[str, str]
    terminal: bool

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class WarmParent:
    """Holds the line of each living child."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lines: dict[int, socket.socket] = {}
        self._deaths, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._deaths, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> Order | None:
        """Returns twice over: in each child its order, and in the parent None when the tests have ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._deaths:
                    self._deaths.recv(ORDER_BYTES)
                    self._bury()
                elif key.fileobj is not self._control:
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
                else:
                    text, fds, _, _ = socket.recv_fds(self._control, ORDER_BYTES, DESCRIPTORS)
                    if not text:
                        self._end()
                        return None
                    if order := self._fork(text, fds):
                        return order

    def _fork(self, text: bytes, fds: list[int]) -> Order | None:
        pid = os.fork()
        if pid == 0:
            self._let_go()
            order = Order(**json.loads(text))
            become(order, fds)
            return order
        line = self._lines[pid] = socket.socket(fileno=fds[0])
        self._selector.register(line, selectors.EVENT_READ, pid)
        line.sendall(f"{pid}\n".encode())
        for fd in fds[1:]:
            os.close(fd)
        return None

    def _bury(self) -> None:
        for pid in list(self._lines):
            dead, status = os.waitpid(pid, os.WNOHANG)
            if dead:
                with self._lines.pop(pid) as line, suppress(BrokenPipeError, KeyError):
                    line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                    self._selector.unregister(line)

    def _end(self) -> None:
        for pid in self._lines:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _let_go(self) -> None:
        """A child holds nothing of its parent's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for it in (self._control, self._deaths, self._wakeup, *self._lines.values()):
            it.close()


def become(order: Order, fds: list[int]) -> None:
    """Gives a child what a new Python has: streams, session, environment."""
    line, *streams = fds
    os.close(line)
    for standard, fd in enumerate(streams):
        os.dup2(fd, standard)
        os.close(fd)
    if order.terminal:
        os.login_tty(os.dup(0))
    else:
        os.setsid()
    os.environ.clear()
    os.environ.update(order.env)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = stream(0), stream(1), stream(2)


def stream(fd: int) -> TextIO:
    """Python's own, in UTF-8 mode."""
    buffering, errors = (1, "backslashreplace") if fd == 2 else (-1, "surrogateescape")
    return open(fd, "w" if fd else "r", buffering, errors=errors, closefd=False)


def preload() -> None:
    """As a start of the gateway imports it, then the rest."""
    sys.argv = ["gateway", "--version"]
    with redirect_stdout(StringIO()), suppress(SystemExit):
        import_module("gateway.__main__").main()
    for name in PRELOADED:
        import_module(name)
    from agents.providers.catalog import _anthropic_client, _openai_client  # like all the rest, after a start's guards
    from agents.providers.config import ProviderConfig
    from tests.sandboxes import shared

    for build in (_anthropic_client, _openai_client):
        build(ProviderConfig(), "http://127.0.0.1:9")  # loads of an SDK what a request needs
    asyncio.run(shared().probe())  # for the victims of `tests.chaos`: what `python -m gateway` runs makes its own
    gc.collect()
    gc.freeze()  # no child walks this heap again, not even when it ends


def connected(listener: socket.socket, run: int) -> socket.socket | None:
    """Returns many times over: in each parent its connection, and at the end None."""
    place, ended = listener.getsockname(), os.pidfd_open(run)
    with listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in selector.select()):
            control, _ = listener.accept()
            if os.fork() == 0:
                os.close(ended)
                return control
            control.close()
    for it in (place, f"{place}.lock"):
        with suppress(OSError):
            os.unlink(it)
    return None


def main() -> None:
    listener, run = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then close the connection
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a parent
    control = connected(listener, run)
    order = WarmParent(control).run() if control else None
    if order is None:
        return
    module = sys.modules["__main__"] = import_module(order.module)
    sys.argv = [str(module.__file__), *order.arguments]
    code: str | int | None = None
    try:
        module.main()
    except SystemExit as error:
        code = error.code
    leave(code)


def leave(code: str | int | None) -> NoReturn:
    """Ends as Python does, but takes no module apart: a child would copy all of its parent's memory for that."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    for it in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            it.flush()
    os._exit(1 if isinstance(code, str) else code or 0)


if __name__ == "__main__":
    main()

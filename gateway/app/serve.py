"""`serve`: the gateway under uvicorn, and its signals.

The first SIGTERM or SIGINT fails readiness and lets turns reach a step border; only then does the port close, so deliveries
are still stored for the next start. A second signal, at least a second later, exits immediately. A graceful stop exits with
0. SIGHUP reloads the config. Connections get the files that turns and the database leave.

When the config file, or a file that it names, changes, a valid config is applied between two steps of the event loop; an
invalid one changes nothing and is reported.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn
import uvloop

from agents.language import Language
from channels.bilingual import Bilingual
from gateway.app.gateway import Gateway
from gateway.app.setup import changes, loaded_over, restart_keys, version_of
from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.config.load import ConfigFile, Loaded, load
from gateway.config.problems import ConfigErrors, Problem
from gateway.config.root import Config
from gateway.config.serving import ServingFile
from gateway.observe.logs import logged
from gateway.observe.secrets import redacted
from gateway.observe.terminal import print_text
from gateway.operate.status import start_lines
from gateway.program import OperatorError
from gateway.state.runtime import ConfigState
from tools.catalog import own_tools

log = structlog.get_logger()

LOOK_SECONDS = 0.4
"""Poll interval; a change is read once two polls see the same."""


_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(eq=False)
class Reload:
    """`applied` is called with a new config before it is in force, so that the log learns its secrets first."""

    gateway: Gateway
    path: Path
    environment: Mapping[str, str]
    loaded: Loaded
    """The config and its files at the start."""
    applied: Callable[[Config], None]
    record: ServingFile | None = None

    def __post_init__(self) -> None:
        self.gateway.runtime.config_file = ConfigFile(path=self.path, environment=self.environment)
        self._files = self.loaded.files
        self._requested = asyncio.Event()
        self._tools = own_tools(self.loaded.config.tools).digest
        """Digest of the operator's tools in force."""
        self._loaded = self._stamp()
        """Taken before anything starts, so that an edit during the start is noticed."""

    def request(self) -> None:
        """Reload the config now, even if it is unchanged."""
        self._requested.set()

    async def run(self) -> None:
        read = seen = self._loaded
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._requested.wait()
            with logged("config_not_looked_at"):
                before, seen = seen, self._stamp()
                if self._requested.is_set() or (seen == before and seen != read):
                    self._requested.clear()
                    await self._read()
                    read = seen

    async def _read(self) -> None:
        state = self.gateway.runtime.config_state
        try:
            loaded = await asyncio.to_thread(load, self.path, self.environment)
            self._files = loaded.files
            await self._swap(loaded)
            problems: tuple[Problem, ...] = ()
        except ConfigErrors as errors:
            problems = errors.problems
            log.error("config_refused", problem=str(problems[0]), problems=len(problems), in_force=state.version)
        except OSError as failure:
            problems = self._problem(f"{failure.filename}: {failure.strerror}")
            log.error("config_refused", problem=str(problems[0]), in_force=state.version)
        except Exception as failure:  # keep watching: the next edit may work
            problems = self._problem(f"it could not be put in force ({type(failure).__name__}); the log has the place")
            log.error("config_not_applied", exc_info=failure, in_force=state.version)
        state = replace(self.gateway.runtime.config_state, problems=problems)
        self.gateway.report(state)
        if state.error is not None:
            await self.gateway.tell_owners(self._refusal(state.error))

    def _problem(self, message: str) -> tuple[Problem, ...]:
        return (Problem(str(self.path), 1, 1, "", message),)

    def _refusal(self, error: str) -> Notice:
        where = value(error.replace(str(self.path), self.path.name))
        return Notice(
            cause="config",
            en=f"An edit of the config was refused, and the one before still holds: {where}",
            zh=f"配置修改未被接受，仍使用之前的配置：{where}",
        )

    async def _swap(self, loaded: Loaded) -> None:
        running = self.gateway.config
        config = loaded_over(loaded.config, running)
        if reason := config.server.exposure:
            raise ConfigErrors((Problem(str(self.path), 1, 1, "", reason.message, reason.fix),))
        restart = restart_keys(loaded.config, self.loaded.config)
        state = ConfigState(version=version_of(config), restart=restart)
        if restart:
            log.warning("config_wants_restart", keys=restart)
        was_refused = self.gateway.runtime.config_state.error is not None
        differing, tools = changes(config, running), own_tools(config.tools)
        if tools.digest != self._tools and "tools" not in differing:
            differing.append("tools.directories")
        if differing:
            self.applied(config)
            await self.gateway.apply(config, loaded.environment, state)
            self._tools = tools.digest
            for fault in tools.faults:
                log.warning("tool_refused", problem=str(fault))
        else:
            self.gateway.runtime.config_state = state
        if self.record is not None:
            self.record.update(loaded.source, state.version)
        if differing or was_refused:
            log.info("config_reloaded", changed=differing, version=state.version)

    def _stamp(self) -> _Stamp:
        return tuple(_stamps([self.path, *sorted(self._files)]))


def _stamps(files: Iterable[Path]) -> Iterable[tuple[int, int, int] | None]:
    for file in files:
        try:
            status = file.stat()
            yield status.st_mtime_ns, status.st_size, status.st_ino
        except OSError:
            yield None


UNREAD_SECONDS = 60
"""Seconds after which the kernel disconnects a peer that does not read."""
SAME_SIGNAL_SECONDS = 1.0
"""A supervisor may signal both `make` and us; count that once."""
BACKLOG = 2048
"""Connections that the kernel accepts while the event loop is busy."""
_PR_SET_DUMPABLE = 4
FILES_MAX = 1 << 20
"""The limit on open files if the system sets none."""
FILES_KEPT = 64
"""Files reserved for the log, the database, the channels' clients and the interpreter."""
FILES_PER_TURN = 4
"""The connection to a model, and the pipes of a command."""
GC_THRESHOLDS = (10_000, 5, 5)
"""A turn creates thousands of objects and hardly any cycles."""
CLAIM = Bilingual(
    "  claim      nobody owns this bot yet: send it /claim {} in a direct chat, and it is yours (within a day)\n",
    "  认领       机器人还没有所有者：在私聊中发送 /claim {} 即可认领（一天内有效）\n",
)
STOPPING = Bilingual(
    "\nStopping: running turns end at their next step, after at most {:g} seconds. Ctrl-C again stops at once.\n",
    "\n正在停止：进行中的回答会在下一步结束，最多等待 {:g} 秒。再按一次 Ctrl-C 立即停止。\n",
)
"""Text for the operator at the terminal; the log has its own line."""


class AddressInUse(OperatorError):
    """Choose another: `server.port` (CLAWGATE_PORT with the shipped config), or `serve --port`."""


class Server(uvicorn.Server):
    """uvicorn with our signal handling: its own closes the port first and exits with the signal's code."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises AddressInUse with the system's reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":  # inherited by every connection
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        return listener
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressInUse(f"cannot listen on {host}:{port} ({reason}). {AddressInUse.__doc__}") from error


async def serve(gateway: Gateway, listener: socket.socket, reload: Reload | None, language: Language) -> None:
    files = raise_files()
    backlog = min(BACKLOG, files // 8)
    room = connections_of(files - backlog, gateway.config)
    if room < gateway.connections.maximum:
        log.warning("connections_limited", maximum=room, configured=gateway.connections.maximum, files=files)
    gateway.connections.files = room
    server = Server(_settings(gateway, backlog))
    stopping: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_signal(number: int) -> None:
        if stopping.done():
            if time.monotonic() - stopping.result() > SAME_SIGNAL_SECONDS:
                os._exit(1)
            return
        stopping.set_result(time.monotonic())
        if number == signal.SIGINT and sys.stderr.isatty():
            print_text(STOPPING(language).format(gateway.config.limits.grace_seconds), err=True, nl=False)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)

    await gateway.start()
    gateway.spawn(_say_states(gateway, language))
    if code := await gateway.claim_code():
        print_text(CLAIM(language).format(code), err=True, nl=False)
    if reload is not None:
        gateway.spawn(reload.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.request)
    gateway.warming.add_done_callback(lambda _: freeze_heap())
    await _until(stopping, gateway, server, listener)


async def _say_states(gateway: Gateway, language: Language) -> None:
    for line in start_lines(await gateway.health.known(), language):
        print_text(redacted(line), err=True)


async def serve_one(gateway: Gateway, listener: socket.socket, ready: Callable[[Callable[[], object]], object]) -> None:
    """Serve one person at this machine, in any thread. `ready` gets the function that stops it. Raises StoreUnavailable."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    await gateway.start_for_one()
    ready(lambda: loop.call_soon_threadsafe(stopping.set))
    await _until(asyncio.create_task(stopping.wait()), gateway, Server(_settings(gateway, BACKLOG)), listener)


def _settings(gateway: Gateway, backlog: int) -> uvicorn.Config:
    return uvicorn.Config(
        gateway.app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        http=cast(Any, gateway.connections.protocol),
        ws="none",
        backlog=backlog,
        proxy_headers=False,
    )


async def _until(
    stopping: asyncio.Future[Any], gateway: Gateway, server: uvicorn.Server, listener: socket.socket
) -> None:
    serving: asyncio.Future[Any] = asyncio.create_task(server.serve(sockets=[listener]))
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    await gateway.drain()
    server.should_exit = True
    await serving
    await gateway.close()


def harden() -> None:
    """Make new files private to their owner and forbid core dumps. Under root, commands run as another user, which may
    still traverse folders to a workspace."""
    os.umask(0o066 if os.geteuid() == 0 else 0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # RLIMIT_CORE does not apply to dumps piped to a program
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def freeze_heap() -> None:
    """Exempt loaded modules from garbage collection: an SDK leaves 250,000 objects that every full collection would
    walk."""
    gc.collect()
    gc.freeze()
    # Python runs a full collection once the heap has grown by a quarter since the last: reset that baseline.
    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)


def raise_files() -> int:
    """Raise the limit on open files to the hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else FILES_MAX


def connections_of(files: int, config: Config) -> int:
    """Return the number of files that connections may use; at least a quarter."""
    kept = FILES_KEPT + FILES_PER_TURN * config.limits.parallel_turns + config.database.connections
    return max(files // 4, files - kept)


def run(gateway: Gateway, listener: socket.socket, reload: Reload | None = None, *, language: Language = "en") -> None:
    uvloop.run(serve(gateway, listener, reload, language))

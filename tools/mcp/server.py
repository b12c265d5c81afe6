"""Running MCP servers: started, listed, called, and restarted after they have ended.

Owners review what a server says of its tools. The first listing is accepted, since the operator has just named the
server; later, a new or changed tool is withheld until an owner accepts it. So known tools can be offered before the
server is up, and a call waits for it.

A server's program runs in the sandbox of commands, with its own folder. It is seldom one file: a link leads to a
script, and the script's first line names an interpreter, which is a link in a Python environment. All of it is resolved
here, and mounted in the sandbox under each name that leads there. The first server that starts imports the SDK
(`tools.mcp.client`).
"""

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from channels.marks import NOTE
from channels.section import ToolLists
from tools.command import ShellCommand
from tools.config import ExecConfig, FetchConfig
from tools.exec import PATH
from tools.identity import Identities
from tools.mcp.config import McpConfig, McpServerConfig, sandbox_hint
from tools.mcp.definition import Definition, ProgramEnd, ServerGone
from tools.mcp.person import PersonCalls, PersonTool
from tools.paths import FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER
from tools.policy import foreign
from tools.sandbox.sandbox import SYSTEM, TOP, Sandbox
from tools.tool import Call, Tool, ToolError, ToolResult, ToolSpec
from tools.web.client import WebClient
from tools.workspace import Workspace

if TYPE_CHECKING:
    from tools.mcp.client import McpSession

log = structlog.get_logger()


PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS = 1.0, 60.0
STEADY_SECONDS = 60.0
"""Seconds that a server must have run to be restarted without a longer backoff."""
LIST_PAUSE_SECONDS = 0.5
REVIEW_SECONDS = 2.0
CALLS_MAX = 8
"""Concurrent calls of one server; more wait."""
TIMEOUTS_MAX = 3
"""Consecutive timeouts after which the server is restarted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Review:
    """A tool as an owner has accepted it, and as it waits for review; empty for nothing. Each is a
    `Definition.text`."""

    accepted: str = ""
    pending: str = ""


class Reviews(Protocol):
    """The store of what owners have reviewed."""

    async def of(self, server: str) -> Mapping[str, Review]:
        """Return the server's reviews, by the tool's name there."""

    async def record(self, server: str, listed: Mapping[str, str], at: float) -> Mapping[str, Review]:
        """Store what a server lists, and return its reviews."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Shared by all servers. `path` is where programs are looked for."""

    sandbox: Sandbox
    path: str
    web: FetchConfig
    reviews: Reviews
    identities: Identities
    version: str
    now: Callable[[], float]


@dataclass(eq=False)
class McpServer:
    name: str
    config: McpServerConfig
    environment: Environment
    fault: str = "it is starting"
    """Reason that calls are refused; empty if the server is up."""
    since: float = 0.0
    """Time when the server last went up or down."""
    known: Mapping[str, Review] = field(default_factory=dict)
    listed: Sequence[Definition] | None = None
    """Its tools, as far as the config allows them; None before the first listing."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason for each unusable tool, by its name on the server."""
    _connection: "McpSession | None" = None
    _task: asyncio.Task[None] | None = None
    _tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first start has succeeded or failed."""
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _timeouts: int = 0

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self.person = PersonCalls(self, self.environment.identities)
        self.since = self.environment.now()
        self.is_closed = False

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self.is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.person.close()
        self._is_down("it was taken out of the config, or the gateway ends")

    @property
    def offered(self) -> list[Definition]:
        """The tools that an owner has accepted unchanged, by name."""
        if self.listed is None:
            seen = {tool: it.accepted for tool, it in self.known.items() if it.accepted and self.config.takes(tool)}
            return sorted((Definition(self.name, *it) for it in seen.items()), key=lambda it: it.name)
        return [it for it in self.listed if self._is_accepted(it)]

    @property
    def withheld(self) -> list[Definition]:
        return [it for it in self.listed or () if not self._is_accepted(it)]

    def _is_accepted(self, tool: Definition) -> bool:
        review = self.known.get(tool.tool)
        return review is not None and review.accepted == tool.text

    async def call(self, tool: Definition, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        """Call a tool. Raises ToolError."""
        acts = bool(self.config.account)
        connection = None if acts else await self._ready()
        if not any(it == tool for it in self.offered):
            raise self._unavailable("the server no longer has this tool as it was")
        async with self._slots:
            if connection is None:
                return self._explained(await self.person.call(tool.tool, arguments, call))
            try:
                result = self._explained(await self.within(connection, tool.tool, arguments, call))
            except ToolError as error:
                self._timeouts = self._timeouts + 1 if error.code == "TOOL_TIMEOUT" else 0
                if self._timeouts >= TIMEOUTS_MAX:
                    log.warning("mcp_server_hangs", server=self.name)
                    self._gone.set()
                raise
            except ServerGone as error:
                self._gone.set()
                words = "the server ended during the call; it may have done it, or not"
                raise self._unavailable(f"{words}{self._hint(connection.ended.reason)}") from error
        self._timeouts = 0
        return result

    async def within(self, connection: "McpSession", tool: str, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        """Call a tool with the timeout of calls. Raises ServerGone and ToolError."""
        seconds = self.config.call_seconds
        try:
            async with asyncio.timeout(seconds + 1):  # the SDK's limits each silence only
                return await connection.call(tool, arguments, seconds=seconds, tell=call.progress)
        except TimeoutError:
            message = "the server did not answer in time; it may still be at work on it"
            raise ToolError("TOOL_TIMEOUT", message, retryable=self.config.effect_of(tool) == "safe") from None

    async def _ready(self) -> "McpSession":
        if self._connection is None and self._task is not None and not self._tried.is_set():  # its first start
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.start_seconds):
                    await self._tried.wait()
        if self._connection is None:
            raise self._unavailable(f"the server {self.name!r} cannot be reached; it is tried again by itself")
        return self._connection

    def _explained(self, result: ToolResult) -> ToolResult:
        texts = [it for it in result.content if isinstance(it, str)]
        hint = self._hint("\n".join(texts)) if result.is_error else ""
        if not hint:
            return result
        log.warning("mcp_call_met_the_sandbox", server=self.name, hint=hint.strip())
        return replace(result, note=f"{NOTE}:{hint})")

    def _hint(self, words: str) -> str:
        return sandbox_hint(self.config, self.name, words)

    def _unavailable(self, message: str) -> ToolError:
        return ToolError("TOOL_UNAVAILABLE", message, retryable=True)

    async def _run(self) -> None:
        with suppress(Exception):
            self.known = await self.environment.reviews.of(self.name)
        pause = 0.0
        while True:
            began = time.monotonic()
            try:
                reason = await self._serve() or "it has ended"
                self._is_down(f"{reason}{self._hint(reason)}")
            except ToolError as error:
                self._is_down(error.message)
            except Exception as error:  # noqa: BLE001 - a server's edge: whatever it does, it is tried again
                self._is_down(reason_of(error), error)
            finally:
                self._connection = None
                self._tried.set()
            if self.is_closed:  # the SDK may swallow the cancellation, and `close` waits for this task
                return
            pause = pause_after(pause, time.monotonic() - began)
            await asyncio.sleep(pause)

    async def _serve(self) -> str:
        """Serve until the server has ended; return how, if that is known."""
        self._gone.clear()
        self._timeouts = 0
        async with self.connected() as connection:
            self.listed = await self.listed_by(connection)
            self._connection, self.fault, self.since = connection, "", self.environment.now()
            self._tried.set()
            log.info("mcp_server_ready", server=self.name, tools=len(self.offered), withheld=len(self.withheld))
            while not self._gone.is_set():
                changed = await self._wait(connection)
                if changed:
                    connection.changed.clear()
                    self.listed = await self.listed_by(connection)
                    await asyncio.sleep(LIST_PAUSE_SECONDS)
                elif self.withheld:
                    self.known = await self.environment.reviews.of(self.name)
            return connection.ended.reason

    async def _wait(self, connection: "McpSession") -> bool:
        waits = [asyncio.ensure_future(it.wait()) for it in (connection.changed, self._gone, connection.ended)]
        try:
            seconds = REVIEW_SECONDS if self.withheld else None
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for it in waits:
                it.cancel()
        if connection.ended.is_set():
            self._gone.set()
        return connection.changed.is_set() and not self._gone.is_set()

    @asynccontextmanager
    async def connected(self, token: str = "") -> AsyncIterator["McpSession"]:
        """Connect to a server that answers within its start timeout; with the `token` of a person or the app, or to list
        its tools. Raises ToolError, and what the transport raises."""
        starting, ended = asyncio.timeout(self.config.start_seconds), ProgramEnd()
        try:
            async with starting:
                await asyncio.to_thread(import_module, "tools.mcp.client")  # off the loop: the SDK takes a second
                from tools.mcp import client

                transport = await self._transport(ended, token)
                version, seconds = self.environment.version, self.config.start_seconds
                mode = "legacy" if self.config.feishu else "auto"
                async with client.connected(
                    self.name, transport, version=version, seconds=seconds, ended=ended, mode=mode
                ) as connection:
                    starting.reschedule(None)
                    yield connection
        except TimeoutError:
            if not starting.expired():
                raise
            message = f"it did not answer within {self.config.start_seconds:g} s"
            raise ToolError("TOOL_UNAVAILABLE", f"{message}{self._hint('timeout')}") from None
        except (Exception, BaseExceptionGroup) as error:
            if ended.is_set() and starting.when() is not None:
                raise ToolError("TOOL_UNAVAILABLE", f"{ended.reason}{self._hint(ended.reason)}") from error
            inner = innermost(error)  # the SDK's tasks wrap what is raised among them
            raise client.explained(inner) from error

    async def _transport(self, ended: ProgramEnd, token: str) -> AbstractAsyncContextManager[Any]:
        from tools.mcp import client

        config, web = self.config, self.environment.web
        if not config.command:
            judged = WebClient(web.but(allow_private=config.allow_private))
            is_app = config.acts_as == "app" or not token
            if config.feishu and not token:
                token = await self.environment.identities.app_token(config.feishu)
            return client.http(self.person.url, config.headers_with(token, app=is_app), judged)
        if token:
            return self._of_person(ended, token)
        return client.pipes(await self._program(config), ended)

    @asynccontextmanager
    async def _of_person(self, ended: ProgramEnd, token: str) -> AsyncIterator[Any]:
        from tools.mcp import client

        config = self.config.but(readable=(*self.config.readable, str(_folder(self.config.cwd).root)))
        with TemporaryDirectory() as folder:
            command = await self._program(config, _folder(folder), token)
            async with client.pipes(command, ended, token) as streams:
                yield streams

    async def _program(
        self, config: McpServerConfig, workspace: Workspace | None = None, token: str = ""
    ) -> ShellCommand:
        network = WebClient(self.environment.web) if config.network else None
        sandbox, path = self.environment.sandbox, self.environment.path
        return await started(config, sandbox, path, network, token=token, workspace=workspace)

    async def listed_by(self, connection: "McpSession") -> list[Definition]:
        """Return the tools that the config allows, by name, each once; `known` then has their reviews."""
        tools, left_out = await connection.listed()
        found = {it.name: it for it in tools if self.config.takes(it.tool)}
        if left_out != self.left_out:
            for tool, reason in left_out.items():
                log.warning("mcp_tool_left_out", server=self.name, tool=tool, reason=reason)
        self.left_out = left_out
        texts = {it.tool: it.text for it in found.values()}
        self.known = await self.environment.reviews.record(self.name, texts, self.environment.now())
        return [found[name] for name in sorted(found)]

    def _is_down(self, fault: str, error: Exception | None = None) -> None:
        if not self.fault or self.fault != fault:
            log.warning("mcp_server_down", server=self.name, reason=fault, exc_info=error)
        if not self.fault:
            self.since = self.environment.now()
        self.fault = fault


def pause_after(pause: float, ran_seconds: float) -> float:
    """Return the backoff before the next start: it doubles while starts fail or do not last."""
    return min(2 * pause, PAUSE_MAX_SECONDS) if pause and ran_seconds <= STEADY_SECONDS else PAUSE_FIRST_SECONDS


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: Exception) -> str:
    return f"it cannot be reached ({type(error).__name__})"


@dataclass(frozen=True)
class McpTool:
    server: McpServer
    definition: Definition
    spec: ToolSpec

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.definition.parse(raw)

    async def run(self, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return await self.server.call(self.definition, arguments, call)


class McpServers:
    """All servers and their tools. Servers of `before` with an unchanged config are reused. `harmless` makes untrusted
    text safe for a prompt."""

    def __init__(
        self,
        config: McpConfig,
        environment: Environment,
        harmless: Callable[[str], str],
        before: "McpServers | None" = None,
    ) -> None:
        servers = before.servers if before else {}
        self.servers: dict[str, McpServer] = {
            name: servers[name]
            if name in servers and (servers[name].config, servers[name].environment.web) == (it, environment.web)
            else McpServer(name, it, environment)
            for name, it in config.servers.items()
        }
        self._harmless = harmless
        self._specs: dict[tuple[str, str], ToolSpec] = {}

    def start(self) -> None:
        for server in self.servers.values():
            server.start()

    def tools(self, lists: ToolLists) -> Sequence[Tool]:
        """Return the tools that an agent's lists name, in a stable order: it is part of the prompt's cached prefix."""
        there = {it.name: (server, it) for server in self.servers.values() for it in server.offered}
        return [self._tool(*there[name]) for name in foreign(lists, tuple(there))]

    def _tool(self, server: McpServer, definition: Definition) -> Tool:
        kind = PersonTool if server.config.account else McpTool
        return kind(server, definition, self._spec(server, definition))

    @property
    def names(self) -> dict[str, list[str]]:
        """The offered tools of each server that has any."""
        return {name: [it.name for it in server.offered] for name, server in self.servers.items() if server.offered}

    def _spec(self, server: McpServer, tool: Definition) -> ToolSpec:
        key = tool.name, tool.digest
        if key not in self._specs:
            self._specs[key] = tool.spec(server.config.effect_of(tool.tool), self._harmless)
        return self._specs[key]

    async def close(self) -> None:
        await asyncio.gather(*(it.close() for it in self.servers.values()))

    async def close_all_but(self, others: "McpServers") -> None:
        """Close the servers that the newer ones did not reuse."""
        gone = [it for it in self.servers.values() if it not in others.servers.values()]
        await asyncio.gather(*(it.close() for it in gone))


LIFE_SECONDS = 7 * 86_400
LINKS_MAX = 40
FIRST_LINE_BYTES = 512


def _folder(path: str) -> Workspace:
    # The gateway reads nothing there, so names that are forbidden in a workspace are writable.
    return Workspace(root=Path(path), writable=(*FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER))


async def started(
    config: McpServerConfig,
    sandbox: Sandbox,
    path: str,
    network: WebClient | None,
    *,
    token: str = "",
    workspace: Workspace | None = None,
    besides: Mapping[str, str] | None = None,
) -> ShellCommand:
    """Start a server's program; `path` is where programs are looked for. It writes in `workspace`, by default in the
    server's own folder; `besides` are more environment variables. Raises OSError, and ToolError without a sandbox or a
    program."""
    name, *arguments = config.command
    program = shutil.which(name, path=path)
    if program is None:
        raise ToolError("TOOL_UNAVAILABLE", f"there is no program {name!r} in the PATH of the gateway")
    whole = Path(program) if program.startswith("/") else Path.cwd() / program
    parts, folders = parts_of(whole, path)
    own = _folder(config.cwd) if not workspace else None
    folder = workspace or own
    assert folder is not None
    launch = await sandbox.launch(
        f"exec {shlex.join((str(whole), *arguments))}",
        workspace=folder,
        environment={
            "PATH": ":".join((*folders, PATH)),
            "HOME": str(folder.root),
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            **(besides or {}),
            **config.env_with(token),
        },
        config=ExecConfig(sandbox=config.sandbox),
        network=network,
        readable=[*map(Path, config.readable), *parts],
    )
    try:
        bounds = ExecConfig().but(timeout_seconds=LIFE_SECONDS)
        return ShellCommand(launch, folder.fd, bounds, "pipe", errors="apart")
    finally:
        if own is not None:
            own.close()


def parts_of(program: Path, path: str) -> tuple[list[Path], list[str]]:
    """Return the files and folders of a program, except the system's, and the folders of its PATH. An interpreter is
    looked for next to the program, then in `path`."""
    paths: dict[Path, None] = {}
    folders, seen, waiting = [str(program.parent)], set(), [program]
    while waiting:
        for name in _names(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            paths |= {} if any(map(name.is_relative_to, (*SYSTEM, *TOP))) else {name: None}
            waiting += _surroundings(name)
            if interpreter := _interpreter(name, f"{program.parent}:{path}"):
                waiting.append(interpreter)
                folders.append(str(interpreter.parent))
    whole = [it for it in paths if it.exists() and not any(parent in paths for parent in it.parents)]
    return whole, list(dict.fromkeys(folders))


def _names(path: Path) -> Iterator[Path]:
    """Yield the path, and its form after each link in it is followed."""
    for _ in range(LINKS_MAX):
        yield path
        link = next((it for it in (*reversed(path.parents), path) if it.is_symlink()), None)
        if link is None:
            return
        path = Path(os.path.normpath(link.parent / link.readlink())) / path.relative_to(link)


def _surroundings(name: Path) -> Iterator[Path]:
    if not name.is_file():
        return
    prefix = name.parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield prefix
        for line in settings.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                yield Path(value.strip()) / "python3"
    elif name.name.startswith("python"):
        yield from (it for it in (prefix / "lib", prefix / "lib64") if any(it.glob("python3*")))
    if "node_modules" in name.parts:
        yield Path(*name.parts[: name.parts.index("node_modules") + 1])


def _interpreter(name: Path, path: str) -> Path | None:
    try:
        with name.open("rb") as file:
            first, _, _ = file.read(FIRST_LINE_BYTES).partition(b"\n")
    except OSError:
        return None
    words = first.removeprefix(b"#!").decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        names = [it for it in words[1:] if not it.startswith("-") and "=" not in it]
        return Path(found) if names and (found := shutil.which(names[0], path=path)) else None
    return Path(words[0]) if words and words[0].startswith("/") else None

"""One MCP server while it is in use: started, listed, called, and started again when it has ended.

An owner sees what a server says of its tools: what it said first is taken as seen, since the operator has just named the
server; from then on a tool that is new or says something else is withheld until an owner has accepted it. So the tools that
are known may be offered before the server is up, and a call waits for it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from channels.marks import NOTE
from tools.mcp.config import McpServerConfig, sandbox_hint
from tools.mcp.definition import Definition, ProgramEnd, ServerGone
from tools.sandbox.sandbox import Sandbox
from tools.tool import Call, ToolError, ToolResult
from tools.web.client import WebClient
from tools.web.config import FetchConfig

if TYPE_CHECKING:
    from tools.mcp.client import McpSession

log = structlog.get_logger()

PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS = 1.0, 60.0
STEADY_SECONDS = 60.0
"""Seconds that a server must have run to be started again soon."""
LIST_PAUSE_SECONDS = 0.5
REVIEW_SECONDS = 2.0
CALLS_MAX = 8
"""Calls of one server at the same time; more wait."""
TIMEOUTS_MAX = 3
"""Calls in a row without an answer, after which the server is started again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Review:
    """A tool as an owner has accepted it, and as it waits for that; empty for nothing. Each is a `Definition.text`."""

    accepted: str = ""
    pending: str = ""


class Reviews(Protocol):
    """The memory of what owners have seen."""

    async def of(self, server: str) -> Mapping[str, Review]:
        """The server's reviews, keyed by the tool's name there."""

    async def record(self, server: str, listed: Mapping[str, str], at: float) -> Mapping[str, Review]:
        """Keeps what a server lists, and returns what is known then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The parts that all servers share. `path` is where programs are looked for."""

    sandbox: Sandbox
    path: str
    web: FetchConfig
    reviews: Reviews
    version: str
    now: Callable[[], float]


@dataclass(eq=False)
class McpServer:
    name: str
    config: McpServerConfig
    environment: Environment
    fault: str = "it is starting"
    """The reason that it cannot be called; empty if it can."""
    since: float = 0.0
    """The time of its last change between the two."""
    known: Mapping[str, Review] = field(default_factory=dict)
    listed: Sequence[Definition] | None = None
    """The tools that it has, as far as the config takes them; None before it has said so."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reason for each of its tools that cannot be used, by its name there."""
    _connection: "McpSession | None" = None
    _task: asyncio.Task[None] | None = None
    _tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first start has succeeded or failed."""
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _timeouts: int = 0

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(CALLS_MAX)
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
        self._is_down("it was taken out of the config, or the gateway ends")

    @property
    def offered(self) -> list[Definition]:
        """The tools that an owner has seen as they are, by name."""
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
        """Raises ToolError."""
        connection = await self._ready()
        if not any(it == tool for it in self.offered):
            raise self._unavailable("the server no longer has this tool as it was")
        async with self._slots:
            try:
                result = self._explained(await self._within(connection, tool, arguments, call))
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

    async def _within(
        self, connection: "McpSession", tool: Definition, arguments: Mapping[str, Any], call: Call
    ) -> ToolResult:
        seconds = self.config.call_seconds
        try:
            async with asyncio.timeout(seconds + 1):  # the SDK's own is that of one silence
                return await connection.call(tool.tool, arguments, seconds=seconds, tell=call.progress)
        except TimeoutError:
            message = "the server did not answer in time; it may still be at work on it"
            raise ToolError("TOOL_TIMEOUT", message, retryable=self.config.effect == "safe") from None

    async def _ready(self) -> "McpSession":
        """The connection; while the server starts for the first time, a call waits for it."""
        if self._connection is None and self._task is not None and not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.start_seconds):
                    await self._tried.wait()
        if self._connection is None:
            raise self._unavailable(f"the server {self.name!r} cannot be reached; it is tried again by itself")
        return self._connection

    def _explained(self, result: ToolResult) -> ToolResult:
        """The result; of a failure that the sandbox may have caused, with the setting that would change it."""
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
        """Serves until the server has ended; returns how, if that is known. Raises what it fails by."""
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
        """True if the server's tools have changed. Returns too if it is gone, or once a review may have been made."""
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
    async def connected(self) -> AsyncIterator["McpSession"]:
        """A connection to a server that has answered within its time to start."""
        starting, ended = asyncio.timeout(self.config.start_seconds), ProgramEnd()
        try:
            async with starting:
                await asyncio.to_thread(_load)
                from tools.mcp import client

                transport = await self._transport(ended)
                environment, seconds = self.environment, self.config.start_seconds
                async with client.connected(
                    self.name, transport, version=environment.version, seconds=seconds, ended=ended
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
            raise innermost(error) from error  # the SDK's tasks wrap what is raised among them

    async def _transport(self, ended: ProgramEnd) -> AbstractAsyncContextManager[Any]:
        from tools.mcp import client, program, stdio

        config, web = self.config, self.environment.web
        if config.url:
            judged = WebClient(web.but(allow_private=config.allow_private))
            headers = {name: value.get_secret_value() for name, value in config.headers.items()}
            return client.http(config.url, headers, judged)
        network = WebClient(web) if config.network else None
        supervised = await program.start(config, self.environment.sandbox, self.environment.path, network)
        return stdio.pipes(supervised, ended)

    async def listed_by(self, connection: "McpSession") -> list[Definition]:
        """The tools that the config takes, by name, each once; `known` is then what owners have seen of them."""
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
    """The pause before the next start, by the one before: it doubles while starts fail or do not last."""
    return min(2 * pause, PAUSE_MAX_SECONDS) if pause and ran_seconds <= STEADY_SECONDS else PAUSE_FIRST_SECONDS


def _load() -> None:
    """Imports the SDK, which takes a second, off the event loop."""
    from tools.mcp import client, program  # noqa: F401


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: Exception) -> str:
    """The reason of a failure, in a line."""
    return f"it cannot be reached ({type(error).__name__})"

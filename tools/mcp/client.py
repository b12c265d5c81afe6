"""One connection to an MCP server, by the protocol's own SDK. Nothing else imports it, so that it is loaded only if a
server is configured.

The server is not believed: what it lists has an end, its schemas of results are not compiled here, and it may ask us for
nothing (no sampling, no elicitation, no roots).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import mcp.types as types
from mcp import Client
from mcp.client import Transport
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from tools.mcp.definition import Definition, ProgramEnd, ServerGone, UnusableTool
from tools.mcp.http import guarded_client
from tools.mcp.result import refusal_of, result_of
from tools.mcp.stdio import MESSAGE_BYTES_MAX
from tools.tool import ToolError, ToolResult
from tools.web.client import WebClient

PAGES_MAX = 50
TOOLS_MAX = 1_000
READ_SECONDS = 900.0
"""Seconds that a server may be silent in the middle of an answer: calls have their own, shorter time."""
_GONE = ("Session terminated", "Server returned an error response")
"""The SDK's words for a session that the server no longer knows, and for a server that answers with an error."""


def http(url: str, headers: Mapping[str, str], web: WebClient) -> Transport:
    @asynccontextmanager
    async def streams() -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(guarded_client(web, headers, READ_SECONDS))
            speaking = streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX)
            yield await stack.enter_async_context(speaking)

    return streams()


@dataclass
class _Judge:
    """Reads the tools of `tools/list` itself: the SDK refuses a whole page for one unsound tool, so it is shown none. It
    looks at answers only while a list is asked for, and at no more pages once it has enough: a server may send any."""

    server: str
    found: list[Definition] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    is_listing: bool = False

    @contextmanager
    def listing(self) -> Iterator[None]:
        self.found.clear()
        self.left_out.clear()
        self.is_listing = True
        try:
            yield
        finally:
            self.is_listing = False

    @asynccontextmanager
    async def judged(self, transport: Transport) -> AsyncIterator[Any]:
        """Wrap the transport: each answer is judged on its way to the SDK."""
        to_session, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        async with transport as (read, write), anyio.create_task_group() as tasks:

            async def pass_on() -> None:
                async with to_session:
                    async for message in read:
                        with suppress(anyio.BrokenResourceError):  # the session is gone
                            await to_session.send(self._sound(message))

            tasks.start_soon(pass_on)
            async with received:
                yield received, write
            tasks.cancel_scope.cancel()

    def _sound(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        answer = message.message if self.is_listing and isinstance(message, SessionMessage) else None
        if not isinstance(answer, types.JSONRPCResponse) or not isinstance(answer.result.get("tools"), list):
            return message
        has_enough = len(self.found) + len(self.left_out) > TOOLS_MAX
        for entry in () if has_enough else answer.result["tools"]:
            try:
                self.found.append(Definition.listed(self.server, entry))
            except UnusableTool as error:
                self.left_out[error.tool] = str(error)
        page = answer.model_copy(update={"result": answer.result | {"tools": []}})
        return replace(message, message=page) if isinstance(message, SessionMessage) else message


class McpSession:
    """`changed` is set when the server's tools are to be listed again, `ended` when its program has ended."""

    def __init__(self, client: Client, judge: _Judge, changed: asyncio.Event, ended: ProgramEnd) -> None:
        self._client = client
        self._judge = judge
        self._server = judge.server
        self.changed = changed
        self.ended = ended

    async def listed(self) -> tuple[list[Definition], Mapping[str, str]]:
        """List the server's tools, each judged by itself, and the reason for each that is left out, by its name there.
        Raises ServerGone and ToolError."""
        judge, cursor = self._judge, None
        with judge.listing():
            for _ in range(PAGES_MAX):
                parameters = types.PaginatedRequestParams(cursor=cursor)
                try:
                    page = await self._client.session.list_tools(params=parameters)
                except (MCPError, ValidationError, RuntimeError) as error:
                    raise _failure(error) from error
                if page.next_cursor is None or page.next_cursor == cursor or len(judge.found) >= TOOLS_MAX:
                    break
                cursor = page.next_cursor
        too_many = {it.tool: f"a server may have {TOOLS_MAX:,} tools" for it in judge.found[TOOLS_MAX:]}
        return judge.found[:TOOLS_MAX], {**judge.left_out, **too_many}

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, seconds: float, tell: Callable[[str], None]
    ) -> ToolResult:
        """Raises ServerGone and ToolError. A cancelled call is cancelled there, too."""

        async def advanced(progress: float, total: float | None, message: str | None) -> None:
            of = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            tell(f"{of} {message}" if message else of)

        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)))
        try:
            answer = await self._client.session.send_request(
                request, types.CallToolResult, request_read_timeout_seconds=seconds, progress_callback=advanced
            )
        except (MCPError, ValidationError, RuntimeError) as error:
            failure = _failure(error)
            if isinstance(error, MCPError) and isinstance(failure, ToolError) and failure.code == "TOOL_FAILED":
                return refusal_of(error.error, self._server)
            raise failure from error
        return await asyncio.to_thread(result_of, answer, self._server)

    async def listen(self) -> None:
        """Follows the server's changes, as the newer protocol has them; the older one tells of them by itself."""
        tools = self._client.server_capabilities.tools
        if self._client.protocol_version < "2026" or tools is None or not tools.list_changed:
            return
        async with self._client.listen(tools_list_changed=True) as events:
            async for _ in events:
                self.changed.set()


@asynccontextmanager
async def connected(
    server: str, transport: Transport, *, version: str, seconds: float, ended: ProgramEnd
) -> AsyncIterator[McpSession]:
    """`seconds` are those of a request about the server's tools. Raises what the transport raises if the server does
    not answer."""
    changed = asyncio.Event()

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    info = types.Implementation(name="clawgate", version=version)
    judge = _Judge(server)
    judged = judge.judged(transport)
    client = Client(judged, client_info=info, message_handler=heard, read_timeout_seconds=seconds, cache=None)
    async with client:
        connection = McpSession(client, judge, changed, ended)
        listening = asyncio.create_task(connection.listen())
        try:
            yield connection
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await listening


def _failure(error: Exception) -> Exception:
    if isinstance(error, MCPError):
        if error.code == types.CONNECTION_CLOSED or error.message in _GONE:
            return ServerGone("the connection to the server was lost")
        if error.code == types.REQUEST_TIMEOUT:
            return ToolError("TOOL_TIMEOUT", "the server did not answer in time; it may still be at work on it")
        return ToolError("TOOL_FAILED", f"the server refuses the request (code {error.code})")
    if isinstance(error, ValidationError):
        return ToolError("TOOL_FAILED", "the server's answer is not what the protocol wants")
    return ServerGone("the connection to the server was lost")

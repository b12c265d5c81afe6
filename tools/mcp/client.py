"""One connection to an MCP server, by the protocol's own SDK. Only this module imports the SDK, so that it is loaded
only if a server is configured.

The server is untrusted: its lists are bounded, its result schemas are not compiled here, and it may request nothing
from us (no sampling, elicitation or roots). Connections to a URL follow the rules of `web_fetch`: each address is
checked first. A program that we started speaks over its pipes, one JSON message per line; the length of a line and of
all waiting messages is limited. In a burst, progress and log notifications are dropped; output that is not JSON is
ignored.
"""

import asyncio
import base64
import binascii
import json
import math
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

import anyio
import httpcore2
import httpx2
import mcp.types as types
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.client import Transport
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

from tools.command import ShellCommand
from tools.mcp.definition import Definition, ProgramEnd, ServerGone, UnusableTool
from tools.output import Output
from tools.picture import fitted, unshown
from tools.tool import Image, ToolError, ToolResult
from tools.web.client import Blocked, WebClient

log = structlog.get_logger()


PAGES_MAX = 50
TOOLS_MAX = 1_000
READ_SECONDS = 900.0
"""Seconds of silence allowed within an answer: calls have their own, shorter timeout."""
_GONE = ("Session terminated", "Server returned an error response")
"""SDK messages for a session that the server no longer knows, and for an error response."""


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
    """Reads the tools of `tools/list` and hides them from the SDK, which rejects a whole page for one invalid tool.
    Active only while a list is requested, and only until it has enough tools."""

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
        """Wrap the transport: each answer is checked on its way to the SDK."""
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
        message = _opened(message)
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


def _opened(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Unwrap a result in a second envelope, as some gateways before Feishu's server send it."""
    if not isinstance(message, SessionMessage) or not isinstance(answer := message.message, types.JSONRPCResponse):
        return message
    inner = answer.result.get("result") if "jsonrpc" in answer.result else None
    return replace(message, message=answer.model_copy(update={"result": inner})) if isinstance(inner, dict) else message


class McpSession:
    """`changed` is set when the server's tools must be listed again, `ended` when its program has ended."""

    def __init__(self, client: Client, judge: _Judge, changed: asyncio.Event, ended: ProgramEnd) -> None:
        self._client = client
        self._judge = judge
        self._server = judge.server
        self.changed = changed
        self.ended = ended

    async def listed(self) -> tuple[list[Definition], Mapping[str, str]]:
        """List the server's tools, and the reason for each that is left out, by its name on the server. Raises
        ServerGone and ToolError."""
        judge, cursor = self._judge, None
        with judge.listing():
            for _ in range(PAGES_MAX):
                parameters = types.PaginatedRequestParams(cursor=cursor)
                try:
                    page = await self._client.session.list_tools(params=parameters)
                except (MCPError, ValidationError, RuntimeError) as error:
                    raise failure_of(error) from error
                if page.next_cursor is None or page.next_cursor == cursor or len(judge.found) >= TOOLS_MAX:
                    break
                cursor = page.next_cursor
        too_many = {it.tool: f"a server may have {TOOLS_MAX:,} tools" for it in judge.found[TOOLS_MAX:]}
        return judge.found[:TOOLS_MAX], {**judge.left_out, **too_many}

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, seconds: float, tell: Callable[[str], None]
    ) -> ToolResult:
        """Call a tool. Cancelling cancels the call on the server, too. Raises ServerGone and ToolError."""

        async def advanced(progress: float, total: float | None, message: str | None) -> None:
            of = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            tell(f"{of} {message}" if message else of)

        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)))
        try:
            answer = await self._client.session.send_request(
                request, types.CallToolResult, request_read_timeout_seconds=seconds, progress_callback=advanced
            )
        except (MCPError, ValidationError, RuntimeError) as error:
            failure = failure_of(error)
            if isinstance(error, MCPError) and isinstance(failure, ToolError) and failure.code == "TOOL_FAILED":
                return refusal_of(error.error, self._server)
            raise failure from error
        return await asyncio.to_thread(result_of, answer, self._server)

    async def listen(self) -> None:
        """Subscribe to changes of the tools, as newer protocols require; older servers send them unasked."""
        tools = self._client.server_capabilities.tools
        if self._client.protocol_version < "2026" or tools is None or not tools.list_changed:
            return
        async with self._client.listen(tools_list_changed=True) as events:
            async for _ in events:
                self.changed.set()


@asynccontextmanager
async def connected(
    server: str, transport: Transport, *, version: str, seconds: float, ended: ProgramEnd, mode: str = "auto"
) -> AsyncIterator[McpSession]:
    """Connect to a server. `seconds` is the timeout of requests about its tools, `legacy` the mode that asks for no newer
    protocol. Raises what the transport raises if the server does not answer."""
    changed = asyncio.Event()

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    info = types.Implementation(name="clawgate", version=version)
    judge = _Judge(server)
    judged = judge.judged(transport)
    client = Client(
        judged, client_info=info, message_handler=heard, read_timeout_seconds=seconds, cache=None, mode=mode
    )
    async with client:
        connection = McpSession(client, judge, changed, ended)
        listening = asyncio.create_task(connection.listen())
        try:
            yield connection
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await listening


def explained(error: BaseException) -> BaseException:
    """Return the error of a connection: what a server refused is for the model."""
    return failure_of(error) if isinstance(error, MCPError) else error


def failure_of(error: Exception) -> Exception:
    if isinstance(error, MCPError):
        if error.code == types.CONNECTION_CLOSED or error.message in _GONE:
            return ServerGone("the connection to the server was lost")
        if error.code == types.REQUEST_TIMEOUT:
            return ToolError("TOOL_TIMEOUT", "the server did not answer in time; it may still be at work on it")
        return ToolError("TOOL_FAILED", f"the server refuses the request (code {error.code})", refused=error.code)
    if isinstance(error, ValidationError):
        return ToolError("TOOL_FAILED", "the server's answer is not what the protocol wants")
    return ServerGone("the connection to the server was lost")


ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of an answer that is no event stream; answers are not compressed."""
CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 20


def guarded_client(web: WebClient, headers: Mapping[str, str], seconds: float) -> httpx2.AsyncClient:
    """Build an HTTP client. `seconds` is the timeout between two pieces of an answer."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(web),
        headers={"user-agent": "Clawgate (mcp)", **headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=seconds),
        trust_env=False,
    )


class _JudgedNetwork(httpcore2.AsyncNetworkBackend):
    def __init__(self, web: WebClient) -> None:
        self._web = web
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._web.addresses(host.strip("[]"), port)
        except (Blocked, OSError) as error:  # a TimeoutError, too
            raise httpcore2.ConnectError(str(error) or "the name server did not answer in time") from None
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class GuardedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, web: WebClient) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_certificates(), max_connections=CONNECTIONS_MAX, network_backend=_JudgedNetwork(web)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(asked)
        except httpcore2.TimeoutException as error:
            raise httpx2.ConnectTimeout(str(error), request=request) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        streams = any(name.lower() == b"content-type" and b"event-stream" in value for name, value in answer.headers)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Pieces(answer, None if streams else ANSWER_BYTES_MAX),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response, bytes_max: int | None) -> None:
        self._answer = answer
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            async for piece in self._answer.aiter_stream():
                received += len(piece)
                if self._bytes_max is not None and received > self._bytes_max:
                    raise httpx2.ReadError(f"the answer is longer than {self._bytes_max:,} bytes")
                yield piece
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        await self._answer.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of a message."""
WAITING_MAX = 1_000
"""Messages that wait to be processed; beyond this, droppable notifications are dropped. Ten times as many end the
server."""
WAITING_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
DROPPABLE = ("notifications/progress", "notifications/message")
REASON_CHARS = 200
ERRORS_BYTES = 4_096
Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


class MessageLines(Output):
    """Splits the server's output into messages. `total` is the length of the unfinished line; too much ends the
    server."""

    def __init__(self, messages: MemoryObjectSendStream[Incoming]) -> None:
        super().__init__(0)
        self._messages = messages
        self._begun = bytearray()
        self._waiting: deque[int] = deque()
        """Sizes of the messages that are not processed yet."""
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        if self.total > MESSAGE_BYTES_MAX:
            return  # it is being stopped: ignore the rest
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._begun) + line if self._begun else line
            self._begun.clear()
            self._receive(whole)
        self._begun += rest
        self.total = max(self.total, len(self._begun)) if self.total > MESSAGE_BYTES_MAX else len(self._begun)

    def _receive(self, line: bytes) -> None:
        if not line.lstrip().startswith(b"{"):
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            log.warning("mcp_message_unreadable", bytes=len(line))
            return
        waiting = self._messages.statistics().current_buffer_used
        while len(self._waiting) > waiting:
            self._waiting.popleft()
        if waiting >= WAITING_MAX and getattr(message, "method", "") in DROPPABLE:
            self._dropped += 1
            if self._dropped.bit_count() == 1:  # the first, second, fourth, eighth …
                log.info("mcp_notifications_dropped", count=self._dropped)
            return
        if waiting >= WAITING_MAX * 10 or sum(self._waiting) + len(line) > WAITING_BYTES_MAX:
            self.total = sys.maxsize
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is gone
            self._messages.send_nowait(SessionMessage(message))
            self._waiting.append(len(line))


@asynccontextmanager
async def pipes(command: ShellCommand, ended: ProgramEnd, secret: str = "") -> AsyncIterator[Streams]:
    """Yield the streams for the SDK's session. The program ends with them, and they with the program: `ended` then says
    how, without the `secret` that the program was given."""
    to_session, received = anyio.create_memory_object_stream[Incoming](math.inf)
    sent, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    errors = Output(ERRORS_BYTES)

    async def read() -> None:
        with to_session:
            await command.attend(MessageLines(to_session), errors)
            error_output = errors.shown(ERRORS_BYTES)
            error_output = error_output.replace(secret, "***") if secret else error_output
            ended.reason = reason_of_end(command, error_output)
            ended.set()
            log.info("mcp_server_ended", code=command.code, limit=command.limit, errors=error_output)

    async def write() -> None:
        with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await command.send(f"{text}\n".encode())
                except OSError:
                    return  # it reads no more: requests fail when the connection ends

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            with received, sent:
                yield received, sent
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await command.leave()


def reason_of_end(command: ShellCommand, errors: str) -> str:
    """Return the program's exit code, or the limit that it reached, with its last line of error output."""
    how = f"code {command.code}" if command.limit is None else f"it reached the limit of {command.limit}"
    last = next((it.strip() for it in reversed(errors.splitlines()) if it.strip()), "")
    return f"its program has ended ({how}){last and ': ' + last[-REASON_CHARS:]}"


IMAGES_MAX = 8
PARTS_MAX = 200
NAME_CHARS_MAX = 300


def result_of(answer: types.CallToolResult, server: str) -> ToolResult:
    parts = [part for block in answer.content[:PARTS_MAX] for part in _parts(block)]
    if not any(isinstance(it, str) for it in parts) and answer.structured_content is not None:
        parts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    texts = "\n".join(it for it in parts if isinstance(it, str))
    images = [it for it in parts if isinstance(it, Image)]
    if len(images) > IMAGES_MAX:
        texts += f"\n[{len(images) - IMAGES_MAX} more pictures are left out]"
    return _result(server, texts or "(no text)", *images[:IMAGES_MAX], is_error=answer.is_error)


def refusal_of(error: types.ErrorData, server: str) -> ToolResult:
    result = _result(server, f"The server refuses the call: {error.message}", is_error=True)
    return replace(result, details={**result.details, "refused": error.code})


def _result(server: str, *content: str | Image, is_error: bool) -> ToolResult:
    return ToolResult(content=content, details={"url": f"mcp:{server}"}, is_error=is_error, external=True)


def _parts(block: types.ContentBlock) -> Iterator[str | Image]:
    match block:
        case types.TextContent(text=text):
            yield text
        case types.ImageContent(data=data):
            yield _picture(data, "picture")
        case types.AudioContent(data=data):
            yield f"[audio, {len(data) * 3 // 4:,} bytes: not shown]"
        case types.ResourceLink(uri=uri, name=name):
            yield f"[resource {_short(uri)}: {_short(name)}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            yield f"[resource {_short(uri)}]\n{text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=blob)):
            yield _picture(blob, f"resource {_short(uri)}")


def _picture(data: str, what: str) -> str | Image:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}: not shown, it is damaged]"
    picture = fitted(raw)
    if picture is None:
        return f"[{what}, {len(raw):,} bytes: not shown, {unshown(raw)}]"
    return Image(media_type=picture.type, data=base64.b64encode(picture.data).decode())


def _short(text: str) -> str:
    return " ".join(text[:NAME_CHARS_MAX].split())

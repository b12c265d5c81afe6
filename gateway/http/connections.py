"""HTTP connections: limits on their number, on the size of a request's header, and on idle time.

uvicorn has no header limits and no header timeout. `Connection` counts bytes while they arrive, so a header over its limit
is refused before it is kept. Idle connections are evicted first; connections with a request in flight are never dropped. A
trusted proxy's connections are not counted by address; each of their requests is, by its forwarded address.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn

import httptools
import structlog
from starlette.responses import Response
from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.config.server import ServerConfig
from gateway.http.request import Peers, network_of
from gateway.observe.metrics import Metrics

log = structlog.get_logger()

RETRY_SECONDS = 5
"""The `retry-after` of a 503."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` is for the log and the metrics, `sentence` for the sender of the request."""

    reason: str
    status: HTTPStatus
    sentence: str

    @property
    def answer(self) -> bytes:
        body = self.sentence.encode()
        lines = [
            b"HTTP/1.1 %d %b" % (self.status.value, self.status.phrase.encode()),
            b"content-type: text/plain; charset=utf-8",
            b"content-length: %d" % len(body),
            *([b"retry-after: %d" % RETRY_SECONDS] if self.status == HTTPStatus.SERVICE_UNAVAILABLE else ()),
            b"connection: close",
        ]
        return b"\r\n".join((*lines, b"", body))


_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
FIELD = Refusal(
    "header field too large", _TOO_LARGE, "A header field of this request is too large (server.maxHeaderFieldBytes)."
)
HEADER = Refusal("header too large", _TOO_LARGE, "The header of this request is too large (server.maxHeaderBytes).")
FIELDS = Refusal(
    "too many header fields", _TOO_LARGE, "This request has too many header fields (server.maxHeaderFields)."
)
TRAILER = Refusal("trailer", _TOO_LARGE, "Header fields behind a body (trailers) are not taken here.")
ADDRESS = Refusal(
    "address too long", HTTPStatus.REQUEST_URI_TOO_LONG, "The address of this request is too long (server.maxUrlBytes)."
)
MALFORMED = Refusal("malformed", HTTPStatus.BAD_REQUEST, "This is not a request that HTTP/1.1 knows.")
PIPELINED = Refusal(
    "too many requests in a row", HTTPStatus.BAD_REQUEST, "Too many requests wait for an answer on this connection."
)
LATE = Refusal(
    "late",
    HTTPStatus.REQUEST_TIMEOUT,
    "The header of this request took too long to arrive (server.connectionTimeoutSeconds).",
)
BUSY = Refusal(
    "too many connections",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "There are too many connections (server.maxConnections). Try again in a moment.",
)
BUSY_ADDRESS = Refusal(
    "too many connections of one address",
    HTTPStatus.SERVICE_UNAVAILABLE,
    "There are too many connections from your address (server.maxConnectionsPerAddress). Try again in a moment.",
)


def with_retry(send: Send) -> Send:
    """Add `retry-after` to each 503 that does not have one."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
            headers = list(message["headers"])
            if all(name.lower() != b"retry-after" for name, _ in headers):
                message["headers"] = [*headers, (b"retry-after", b"%d" % RETRY_SECONDS)]
        await send(message)

    return sending


PIPELINED_MAX = 32
"""Maximum pipelined requests; hardly any client pipelines."""
FIELD_EXTRA_BYTES = 4
"""A colon, a space and the end of the line."""
SWEEP_SECONDS = 0.5
FILES_MAX = 1 << 20
"""The default limit on open files."""


class Connection(HttpToolsProtocol):
    def __init__(self, owner: "Connections", **given: Any) -> None:
        super().__init__(**given)
        self._owner = owner
        self._limits = owner.limits
        self._unseen_bytes = 0
        """Bytes received since the parser's last callback."""
        self._header_bytes = 0
        self._unsent_bytes = 0
        self.in_header = self._in_body = False
        self._refusal: Refusal | None = None
        self._discarding_input = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding_input:
            return
        self._unset_keepalive_if_required()
        self._unseen_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # answer as a plain request, then close
        except httptools.HttpParserError:
            self._refusal = self._refusal or MALFORMED
        if self._unseen_bytes > self._limits.max_header_field_bytes + FIELD_EXTRA_BYTES:
            self._refusal = self._refusal or FIELD
        if self._refusal is not None:
            self.refuse(self._refusal)
        elif self._in_body and self.cycle and not self.cycle.response_complete:
            self.flow.pause_reading()  # until the door reads more: unread data is in no budget

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes, self.in_header = 0, True

    def on_url(self, url: bytes) -> None:
        self._unseen_bytes = 0
        self._header_bytes += len(url)
        if self._header_bytes > self._limits.max_url_bytes:
            self._stop(ADDRESS)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value)
        self._unseen_bytes = 0
        self._header_bytes += size + FIELD_EXTRA_BYTES
        if self._in_body:
            self._stop(TRAILER)
        if size > self._limits.max_header_field_bytes:
            self._stop(FIELD)
        if self._header_bytes > self._limits.max_header_bytes:
            self._stop(HEADER)
        if len(self.headers) >= self._limits.max_header_fields:
            self._stop(FIELDS)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unseen_bytes = 0
        self.in_header, self._in_body = False, True
        if len(self.pipeline) == PIPELINED_MAX:
            self._stop(PIPELINED)
        super().on_headers_complete()
        if not self.flow.write_paused:
            self._owner.stop_waiting(self)

    def on_body(self, body: bytes) -> None:
        self._unseen_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unseen_bytes = 0
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait_for_peer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_peer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.cycle.response_complete:
            self._owner.stop_waiting(self)

    def refuse(self, refusal: Refusal) -> None:
        """Stop reading and close the connection. Send the refusal unless an earlier request still waits for its answer."""
        self._discarding_input = True
        self._owner.refused(refusal)
        if self.cycle is None or self.cycle.response_complete:
            if self._in_body:
                self.transport.close()
                return
            self.transport.write(refusal.answer)
            self.transport.write_eof()  # discard further input: a reset could lose the response
            self._wait_for_peer()
        elif self._in_body and not self.pipeline and not self.cycle.response_started:
            self.cycle.disconnected = True
            self.transport.write(refusal.answer)
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def give_up(self) -> None:
        """Close a timed-out connection: its peer sent no request, or did not read the response."""
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent_bytes:
            self._wait_for_peer()
        elif unsent or self.transport.is_closing():
            self.transport.abort()
        elif self.in_header and not self._discarding_input:
            self.refuse(LATE)
        else:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight and nothing is left to send."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.get_write_buffer_size()

    def _wait_for_peer(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._owner.wait_for_peer(self)

    def _stop(self, refusal: Refusal) -> NoReturn:
        self._refusal = refusal
        raise httptools.HttpParserError(refusal.reason)


class Connections:
    """All connections of a gateway. `files` may be lowered to the number of connections that the file limit allows."""

    def __init__(self, limits: ServerConfig, peers: Peers, metrics: Metrics) -> None:
        self.files = FILES_MAX
        self._metrics = metrics
        self.adopt(limits, peers)
        self._open: dict[Connection, str | None] = {}
        """Open connections, each with the network that it counts for."""
        self._waiting: dict[Connection, float] = {}
        """Start times of idle timeouts, oldest first."""
        self._by_network: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None

    def adopt(self, limits: ServerConfig, peers: Peers) -> None:
        """Set the limits for new connections."""
        self.limits, self._peers = limits, peers

    @property
    def maximum(self) -> int:
        return min(self.limits.max_connections, self.files)

    def protocol(self, **given: Any) -> Connection:
        return Connection(self, **given)

    def opened(self, connection: Connection) -> None:
        if not self._sweeping:
            self._sweeping = connection.loop.call_later(SWEEP_SECONDS, self._sweep, connection.loop)
        address = connection.client[0] if connection.client else ""
        proxied, network = self._peers.trusts(address), network_of(address)
        counted = not proxied and (self._enter(network) or (self._makes_room(network) and self._enter(network)))
        self._open[connection] = network if counted else None
        if proxied:
            connection.app = self._by_request(connection.app)
        elif not counted:
            _turn_away(connection, BUSY_ADDRESS)
            return
        if len(self._open) > self.maximum:
            if not self._waiting:
                _turn_away(connection, BUSY)
                return
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self.refused(BUSY)
            oldest.transport.abort()
        self.wait_for_peer(connection)

    def closed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if (network := self._open.pop(connection)) is not None:
            self._leave(network)

    def wait_for_peer(self, connection: Connection) -> None:
        """Start the idle timeout: the peer must send a request or read an answer."""
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._waiting[connection] = connection.loop.time()

    def stop_waiting(self, connection: Connection) -> None:
        """Clear the idle timeout: the next step is ours."""
        self._waiting.pop(connection, None)

    def refused(self, refusal: Refusal) -> None:
        self._refused[refusal.reason] += 1
        self._metrics.refused.labels(refusal.reason).inc()

    def _by_request(self, app: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            network = network_of(self._peers.of(scope).address)
            if not self._enter(network):
                busy = BUSY_ADDRESS
                self.refused(busy)
                response = Response(busy.sentence, busy.status, media_type="text/plain")
                return await response(scope, receive, with_retry(send))
            try:
                await app(scope, receive, send)
            finally:
                self._leave(network)

        return counted

    def _enter(self, network: str) -> bool:
        if self._by_network[network] >= self.limits.max_connections_per_address:
            return False
        self._by_network[network] += 1
        return True

    def _makes_room(self, network: str) -> bool:
        waiting = [it for it, count_for in self._open.items() if count_for == network and it in self._waiting]
        idle = sorted((it for it in waiting if it.is_idle), key=self._waiting.__getitem__)
        if not idle:
            return False
        oldest = next((it for it in idle if not it.in_header), idle[0])
        del self._waiting[oldest]
        self._open[oldest] = None
        self._leave(network)
        self.refused(BUSY_ADDRESS)
        oldest.transport.close()
        return True

    def _leave(self, network: str) -> None:
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        latest = loop.time() - self.limits.connection_timeout_seconds
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if since > latest:
                break
            del self._waiting[connection]
            connection.give_up()
        if self._refused:
            log.warning("connections_refused", **{reason.replace(" ", "_"): n for reason, n in self._refused.items()})
            self._refused.clear()
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep, loop) if self._open else None


def _turn_away(connection: Connection, refusal: Refusal) -> None:
    connection.refuse(refusal)
    connection.transport.close()

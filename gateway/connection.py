"""One connection of the door, down to its bytes: what the header of a request may hold, and how a connection is ended.

uvicorn's protocol keeps every header that it is sent and waits for it for ever. This one counts while the bytes arrive:
a field, the fields, the whole header and the address have a cap each, and trailers are refused, before any of it is kept.
How many connections there may be, and for how long each may keep us waiting, is `gateway.connections`.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.config.server import ServerConfig


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the door answers before there is a request for the app. `reason` is for the log and the metrics, `sentence` for
    whoever sent the request."""

    reason: str
    status: HTTPStatus
    sentence: str

    @property
    def answer(self) -> bytes:
        body = self.sentence.encode()
        return (
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (self.status.value, self.status.phrase.encode(), len(body), body)
        )


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

PIPELINED_MAX = 32
"""Requests that wait behind the one being answered: hardly any client sends a second one before its answer."""
FIELD_EXTRA_BYTES = 4
"""A colon, a space and the end of the line."""


class Owner(Protocol):
    """Who counts the connections, and times whose turn it is to do something."""

    limits: ServerConfig

    def opened(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection") -> None: ...

    def owes(self, connection: "Connection") -> None:
        """The peer is to do something, from now on: to send a request, or to take an answer."""

    def owed(self, connection: "Connection") -> None:
        """We are."""

    def refused(self, refusal: Refusal) -> None: ...


class Connection(HttpToolsProtocol):
    """uvicorn's protocol under caps."""

    def __init__(self, owner: Owner, **given: Any) -> None:
        super().__init__(**given)
        self._owner = owner
        limits = owner.limits
        self._url_bytes_max = limits.max_url_bytes
        self._field_bytes_max = limits.max_header_field_bytes
        self._header_bytes_max = limits.max_header_bytes
        self._fields_max = limits.max_header_fields
        self._unseen_bytes = 0
        """Received since the parser last found something: it holds them, or throws them away."""
        self._header_bytes = 0
        self._unsent_bytes = 0
        self._in_header = self._in_body = False
        self._refusal: Refusal | None = None
        self._deaf = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._unseen_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # answered as if it were no upgrade, and nothing can follow
        except httptools.HttpParserError:
            self._refusal = self._refusal or MALFORMED
        if self._unseen_bytes > self._field_bytes_max + FIELD_EXTRA_BYTES:
            self._refusal = self._refusal or FIELD
        if self._refusal is not None:
            self.refuse(self._refusal)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes, self._in_header = 0, True

    def on_url(self, url: bytes) -> None:
        self._unseen_bytes = 0
        self._header_bytes += len(url)
        if self._header_bytes > self._url_bytes_max:
            self._stop(ADDRESS)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value)
        self._unseen_bytes = 0
        self._header_bytes += size + FIELD_EXTRA_BYTES
        if (
            size > self._field_bytes_max
            or self._header_bytes > self._header_bytes_max
            or len(self.headers) >= self._fields_max
            or self._in_body
        ):
            self._stop(self._too_much(size))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unseen_bytes = 0
        self._in_header, self._in_body = False, True
        if len(self.pipeline) == PIPELINED_MAX:
            self._stop(PIPELINED)
        super().on_headers_complete()
        if not self.flow.write_paused:
            self._owner.owed(self)

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
            self._owe()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._owe()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.cycle.response_complete:
            self._owner.owed(self)

    def refuse(self, refusal: Refusal) -> None:
        """Read nothing more, and end the connection: with the refusal where it cannot be taken for another answer."""
        self._deaf = True
        self._owner.refused(refusal)
        if self.cycle is None or self.cycle.response_complete:
            if self._in_body:
                self.transport.close()
                return
            self.transport.write(refusal.answer)
            self.transport.write_eof()  # and throw away what is still to come: a reset would take the answer with it
            self._owe()
        elif self._in_body and not self.pipeline and not self.cycle.response_started:
            self.cycle.disconnected = True
            self.transport.write(refusal.answer)
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def give_up(self) -> None:
        """The peer had its time: to send a request, or to take something of an answer."""
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent_bytes:
            self._owe()
        elif unsent or self.transport.is_closing():
            self.transport.abort()
        elif self._in_header and not self._deaf:
            self.refuse(LATE)
        else:
            self.transport.close()

    def _too_much(self, size: int) -> Refusal:
        if self._in_body:
            return TRAILER
        if size > self._field_bytes_max:
            return FIELD
        return HEADER if self._header_bytes > self._header_bytes_max else FIELDS

    def _owe(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._owner.owes(self)

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Out of a callback of the parser."""
        self._refusal = refusal
        raise httptools.HttpParserError(refusal.reason)

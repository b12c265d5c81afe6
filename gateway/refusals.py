"""What the door answers by itself, before there is a request that the app could be given."""

from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """`reason` is for the log and the metrics, `sentence` for whoever sent the request."""

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


FIELD = Refusal(
    reason="header field too large",
    status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    sentence="A header field of this request is too large (server.maxHeaderFieldBytes).",
)
HEADER = Refusal(
    reason="header too large",
    status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    sentence="The header of this request is too large (server.maxHeaderBytes).",
)
FIELDS = Refusal(
    reason="too many header fields",
    status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    sentence="This request has too many header fields (server.maxHeaderFields).",
)
TRAILER = Refusal(
    reason="trailer",
    status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    sentence="Header fields behind a body (trailers) are not taken here.",
)
ADDRESS = Refusal(
    reason="address too long",
    status=HTTPStatus.REQUEST_URI_TOO_LONG,
    sentence="The address of this request is too long (server.maxUrlBytes).",
)
MALFORMED = Refusal(
    reason="malformed",
    status=HTTPStatus.BAD_REQUEST,
    sentence="This is not a request that HTTP/1.1 knows.",
)
PIPELINED = Refusal(
    reason="too many requests in a row",
    status=HTTPStatus.BAD_REQUEST,
    sentence="Too many requests wait for an answer on this connection.",
)
LATE = Refusal(
    reason="late",
    status=HTTPStatus.REQUEST_TIMEOUT,
    sentence="The header of this request took too long to arrive (server.connectionTimeoutSeconds).",
)
BUSY = Refusal(
    reason="too many connections",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    sentence="There are too many connections (server.maxConnections). Try again in a moment.",
)
BUSY_ADDRESS = Refusal(
    reason="too many connections of one address",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    sentence="There are too many connections from your address (server.maxConnectionsPerAddress). Try again in a moment.",
)

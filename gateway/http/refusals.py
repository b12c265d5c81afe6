"""The door's answers before there is a request for the app."""

from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class Refusal:
    """`reason` is for the log and the metrics, `sentence` for the sender of the request."""

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

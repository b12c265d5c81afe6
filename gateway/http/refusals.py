"""The door's answers before there is a request for the app, and the rule for every 503: it says when to try again."""

from dataclasses import dataclass
from http import HTTPStatus

from starlette.types import Message, Send

RETRY_SECONDS = 5
"""Seconds after which to try again what was answered with a 503."""


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
    """Adds `retry-after` to each 503 that does not have one."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
            headers = list(message["headers"])
            if all(name.lower() != b"retry-after" for name, _ in headers):
                message["headers"] = [*headers, (b"retry-after", b"%d" % RETRY_SECONDS)]
        await send(message)

    return sending

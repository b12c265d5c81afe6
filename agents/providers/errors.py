"""The failures of an attempt: the exceptions on the way from a server to the final message."""

from collections.abc import Mapping

from agents.messages import ModelError, StopReason


class BadStream(Exception):
    """The answer could not be read, or ended before its end."""


class RequestRefused(Exception):
    """The server answered with an error instead of a stream. `body` is the parsed JSON, or None."""

    def __init__(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body
        self.headers = headers


class AttemptFailed(Exception):
    """An attempt that failed for a known reason: an error reported inside a stream, or a content filter."""

    def __init__(self, error: ModelError, reason: StopReason = "error") -> None:
        super().__init__(error.summary)
        self.error = error
        self.reason = reason

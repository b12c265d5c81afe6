"""What every vendor's refusals have in common: our error kinds by status, how long to wait, and too long a conversation.

Kinds are found by status, type and code, never by prose. The exception is a conversation that is too long: there the
vendors leave no choice. A summary is for the log: numbers and names in a safe alphabet, nothing the provider wrote for
people.
"""

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from agents.messages import ErrorKind, ModelError, StopReason

RETRYABLE: frozenset[ErrorKind] = frozenset(
    {"rate_limited", "overloaded", "server", "network", "timeout", "incomplete"}
)
WORDS_CHARS_MAX = 300
_BY_STATUS: dict[int, ErrorKind] = {
    401: "auth",
    402: "billing",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "too_large",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
_OVERFLOW = re.compile(
    r"prompt is too long|exceed context limit|maximum context length|exceeds the context window|input token count"
    r"|too large for model with|exceeded model token limit|range of input length|exceeds max length"
    r"|exceeds the available context size|exceeded max context length|greater than the context length"
    r"|context window exceeds|maximum prompt length|input is too long",
    re.IGNORECASE,
)
_NOT_OVERFLOW = re.compile(
    r"rate.?limit|too many (?:requests|tokens)|please wait|number of output tokens", re.IGNORECASE
)


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


def kind_of_status(status: int) -> ErrorKind:
    return _BY_STATUS.get(status, "server" if status >= 500 else "invalid")


def failure(kind: ErrorKind, summary: str, headers: Mapping[str, str], now: float) -> ModelError:
    """The error of one refusal. `headers` have a say in whether and when to try again (`x-should-retry` overrides the
    kind); `now` is wall time in seconds, for a Retry-After that names a date."""
    should_retry = headers.get("x-should-retry", "").lower()
    return ModelError(
        kind=kind,
        summary=summary,
        retryable=should_retry == "true" or (should_retry != "false" and kind in RETRYABLE),
        retry_after_seconds=retry_after(headers, now),
    )


def overflows(message: str) -> bool:
    """Whether a refusal says that the conversation does not fit. Ask only on status 400, 413, 422 or in a stream."""
    return bool(_OVERFLOW.search(message)) and not _NOT_OVERFLOW.search(message)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks us to wait; None where it says nothing, nonsense, or a moment that has passed."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) / scale
        except ValueError:
            seconds = _until(text, now)
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    return None


def _until(date: str, now: float) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        return math.nan


def error_of(body: object) -> Mapping[str, Any]:
    """The member `error` of a body, where both are objects."""
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def message_of(error: Mapping[str, Any]) -> str:
    message = error.get("message")
    return message[:2000] if isinstance(message, str) else ""


def words_of(body: object) -> str:
    """What a refusal says to people, on one line. Some put it beside the error object, or the whole into a list."""
    body = body[0] if isinstance(body, list) and body else body
    outer = body if isinstance(body, dict) else {}
    candidates = (error_of(body).get("message"), *(outer.get(name) for name in ("message", "detail", "error")))
    found = next((it for it in candidates if isinstance(it, str)), "")
    return " ".join(found[:2000].split())[:WORDS_CHARS_MAX]


def word(value: object) -> str:
    """A name fit for a log line; whatever else a server may put there is not repeated."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", value) else "none"

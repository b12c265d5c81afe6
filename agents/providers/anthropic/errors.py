"""What went wrong at Anthropic, as one of our error kinds: by status, `type` and code, never by prose.

The two exceptions are those where the vendors leave no choice: a conversation that is too long, and a spent balance.
The summary is for the log: numbers and names in a safe alphabet, nothing the provider wrote for people.
"""

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from agents.messages import ErrorKind, ModelError

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
_BY_TYPE: dict[str, ErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "billing",
    "invalid_request_error": "invalid",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limited",
    "overloaded_error": "overloaded",
    "api_error": "server",
    "timeout_error": "timeout",
    "conflict_error": "server",
}
RETRYABLE: frozenset[ErrorKind] = frozenset(
    {"rate_limited", "overloaded", "server", "network", "timeout", "incomplete"}
)
_SPENT = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})

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


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    """A refusal with an HTTP status. `now` is wall time in seconds, for a Retry-After that names a date."""
    error = _error_of(body)
    kind = _kind(status, error)
    spent = kind == "rate_limited" and _code(error) in _SPENT
    kind = "billing" if spent else kind
    told = headers.get("x-should-retry", "").lower()
    return ModelError(
        kind=kind,
        summary=f"status={status} type={_word(error.get('type'))} request_id={_word(headers.get('request-id'))}",
        retryable=told == "true" or (told != "false" and kind in RETRYABLE),
        retry_after_seconds=retry_after(headers, now),
    )


def from_event(event: object, request_id: str | None) -> ModelError:
    """An `error` event in the middle of a stream that began with 200."""
    error = _error_of(event)
    kind = _BY_TYPE.get(str(error.get("type")), "server")
    if kind == "invalid" and _overflows(error):
        kind = "too_large"
    summary = f"status=200 type={_word(error.get('type'))} request_id={_word(request_id)}"
    return ModelError(kind=kind, summary=summary, retryable=kind in RETRYABLE)


def output_blocked(status: int, body: object) -> bool:
    """A content filter's refusal of what the model wrote; it has no type of its own."""
    return status == 400 and "output blocked by content filtering" in _message(_error_of(body)).lower()


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    if status in (400, 413, 422) and _overflows(error):
        return "too_large"
    if status == 400:
        if "credit balance is too low" in _message(error).lower():
            return "billing"
        return _BY_TYPE.get(str(error.get("type")), "invalid")
    return _BY_STATUS.get(status, "server" if status >= 500 else "invalid")


def _overflows(error: Mapping[str, Any]) -> bool:
    text = _message(error)
    return bool(_OVERFLOW.search(text)) and not _NOT_OVERFLOW.search(text)


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


def _error_of(body: object) -> Mapping[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _message(error: Mapping[str, Any]) -> str:
    message = error.get("message")
    return message[:2000] if isinstance(message, str) else ""


def _code(error: Mapping[str, Any]) -> object:
    details = error.get("details")
    return details.get("error_code") if isinstance(details, dict) else None


def _word(value: object) -> str:
    """A name fit for a log line; whatever else a server may put there is not repeated."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", value) else "none"

"""What went wrong at Gemini, as one of our error kinds: by status, by the name of the status, and by the details.

A refused key and a malformed request share status 400; the details tell them apart, and they hold how long to wait.
Wording decides only where Google leaves no choice: a conversation that is too long, and a thought signature that is
missing or not taken back.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from agents.messages import ErrorKind, ModelError
from agents.providers.errors import error_of, failure, kind_of_status, message_of, overflows, word

_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_BY_STATUS: dict[int, ErrorKind] = {499: "server", 504: "timeout"}
_SIGNATURE = re.compile(r"thought.?signature", re.IGNORECASE)
_PAYLOAD = re.compile(r"request payload size exceeds", re.IGNORECASE)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    """A refusal with an HTTP status. `now` is wall time in seconds."""
    error = error_of(body[0] if isinstance(body, list) and body else body)
    summary = f"status={status} type={word(error.get('status'))}"
    failed = failure(_kind(status, error), summary, headers, now)
    return (
        failed if failed.retry_after_seconds is not None else replace(failed, retry_after_seconds=_retry_delay(error))
    )


def from_event(event: object) -> ModelError:
    """An error in the middle of a stream that began with 200."""
    error = error_of(event)
    name, code = error.get("status"), error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else _CODES.get(str(name), 500)
    failed = failure(_kind(status, error), f"status=200 type={word(name)}", {}, 0.0)
    return replace(failed, retry_after_seconds=_retry_delay(error))


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    message = message_of(error)
    if status in (400, 413, 422) and (overflows(message) or _PAYLOAD.search(message)):
        return "too_large"
    if status == 400:
        if any(str(detail.get("reason")).startswith("API_KEY_") for detail in _details(error)):
            return "auth"
        if error.get("status") == "FAILED_PRECONDITION":
            return "auth"  # the account, or the place it asks from: nothing that another wording would cure
        return "stale_thinking" if _SIGNATURE.search(message) else "invalid"
    if status == 429 and any("PerDay" in quota for quota in _quotas(error)):
        return "billing"
    return _BY_STATUS.get(status) or kind_of_status(status)


def _details(error: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    details = error.get("details")
    return (detail for detail in (details if isinstance(details, list) else ()) if isinstance(detail, dict))


def _quotas(error: Mapping[str, Any]) -> Iterator[str]:
    for detail in _details(error):
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict):
                yield str(violation.get("quotaId"))


def _retry_delay(error: Mapping[str, Any]) -> float | None:
    """Seconds, from `RetryInfo`."""
    for detail in _details(error):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (match := _DELAY.fullmatch(delay)) and float(match[1]) > 0:
            return float(match[1])
    return None

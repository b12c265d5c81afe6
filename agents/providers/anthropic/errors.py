"""What went wrong at Anthropic, as one of our error kinds: by status, `type` and code.

Where Anthropic leaves no choice its wording decides: a spent balance, and thinking that it does not take back.
"""

from collections.abc import Mapping
from typing import Any

from agents.messages import ErrorKind, ModelError
from agents.providers.errors import RETRYABLE, error_of, failure, kind_of_status, message_of, overflows, word

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
_SPENT = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    """A refusal with an HTTP status. `now` is wall time in seconds."""
    error = error_of(body)
    kind = _kind(status, error)
    if kind == "rate_limited" and _code(error) in _SPENT:
        kind = "billing"
    summary = f"status={status} type={word(error.get('type'))} request_id={word(headers.get('request-id'))}"
    return failure(kind, summary, headers, now)


def from_event(event: object, request_id: str | None) -> ModelError:
    """An `error` event in the middle of a stream that began with 200."""
    error = error_of(event)
    kind = _BY_TYPE.get(str(error.get("type")), "server")
    if kind == "invalid" and overflows(message_of(error)):
        kind = "too_large"
    summary = f"status=200 type={word(error.get('type'))} request_id={word(request_id)}"
    return ModelError(kind=kind, summary=summary, retryable=kind in RETRYABLE)


def output_blocked(status: int, body: object) -> bool:
    """A content filter's refusal of what the model wrote; it has no type of its own."""
    return status == 400 and "output blocked by content filtering" in message_of(error_of(body)).lower()


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    message = message_of(error)
    if status in (400, 413, 422) and overflows(message):
        return "too_large"
    if status != 400:
        return kind_of_status(status)
    if "credit balance is too low" in message.lower():
        return "billing"
    if "thinking` block" in message or "thinking`, but found" in message:
        return "stale_thinking"
    return _BY_TYPE.get(str(error.get("type")), "invalid")


def _code(error: Mapping[str, Any]) -> object:
    details = error.get("details")
    return details.get("error_code") if isinstance(details, dict) else None

"""What went wrong at Mistral, as one of our error kinds: by status, `type` and code.

It speaks in four forms: `{"object": "error", "message", "type", "code"}`, the gateway's bare `{"message"}`, the
validator's `{"detail": [{"type", "loc", "msg"}]}` and `{"detail": "…"}`. Wording decides only where there is nothing
else: a conversation that is too long, and thinking that is not taken back.
"""

import re
from collections.abc import Mapping
from typing import Any

from agents.messages import ErrorKind, ModelError
from agents.providers.errors import RETRYABLE, failure, kind_of_status, overflows, word

_BY_WORD: tuple[tuple[str, ErrorKind], ...] = (
    ("credit", "billing"),
    ("billing", "billing"),
    ("quota", "billing"),
    ("rate_limit", "rate_limited"),
    ("overload", "overloaded"),
    ("capacity", "overloaded"),
    ("auth", "auth"),
    ("permission", "auth"),
    ("invalid_model", "not_found"),
    ("not_found", "not_found"),
    ("invalid", "invalid"),
    ("timeout", "timeout"),
)
"""Parts of a `type` or `code`, the first that fits: for errors that are told inside a stream, without a status."""
_STALE_THINKING = re.compile(r"thinking chunk|thinking signature|`signature`", re.IGNORECASE)
_TEXT_CHARS_MAX = 2000


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    """A refusal with an HTTP status. `now` is wall time in seconds."""
    error = _error_of(body)
    request_id = headers.get("mistral-correlation-id") or headers.get("x-request-id")
    summary = f"{_summary(status, error)} request_id={word(request_id)}"
    return failure(_kind(status, error), summary, headers, now)


def from_event(event: Mapping[str, Any]) -> ModelError | None:
    """An error that is told in the middle of a stream that began with 200; None where it is none."""
    reported = event.get("object") == "error" or isinstance(event.get("error"), dict | str)
    if not reported and not ("detail" in event and "choices" not in event):
        return None
    error = _error_of(event)
    kind = _kind_of_words(error) or "server"
    if kind == "invalid":
        kind = _kind(400, error)
    return ModelError(kind=kind, summary=_summary(200, error), retryable=kind in RETRYABLE)


def _error_of(body: object) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    if isinstance(inner, dict):
        return inner
    return {"message": inner} if isinstance(inner, str) else body


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    if status in (400, 402, 403, 429) and _kind_of_words(error) == "billing":
        return "billing"
    if status not in (400, 413, 422):
        return kind_of_status(status)
    text = _text_of(error)
    if overflows(text):
        return "too_large"
    if _STALE_THINKING.search(text) or _about_thinking(error.get("detail")):
        return "stale_thinking"
    if _kind_of_words(error) == "not_found":
        return "not_found"
    return kind_of_status(status)


def _kind_of_words(error: Mapping[str, Any]) -> ErrorKind | None:
    words = f"{error.get('type')} {error.get('code')}".lower()
    return next((kind for part, kind in _BY_WORD if part in words), None)


def _text_of(error: Mapping[str, Any]) -> str:
    """The prose of a refusal, wherever it is: `message` may be text, or an object with `detail`."""
    message = error.get("message", error.get("detail"))
    if isinstance(message, dict):
        message = message.get("detail")
    if isinstance(message, list):
        message = "; ".join(str(item.get("msg")) for item in message if isinstance(item, dict))
    return message[:_TEXT_CHARS_MAX] if isinstance(message, str) else ""


def _about_thinking(detail: object) -> bool:
    """Whether the validator points at a thinking chunk."""
    places = [item.get("loc") for item in detail if isinstance(item, dict)] if isinstance(detail, list) else []
    return any(isinstance(place, list) and "thinking" in place for place in places)


def _summary(status: int, error: Mapping[str, Any]) -> str:
    code = error.get("code")
    code = str(code) if isinstance(code, int) else code
    return f"status={status} type={word(error.get('type'))} code={word(code)}"

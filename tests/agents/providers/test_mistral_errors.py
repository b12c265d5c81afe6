"""What Mistral's refusals mean, in each of the forms in which it speaks."""

from typing import Any

import pytest

from agents.messages import ErrorKind
from agents.providers.mistral.response import from_event, from_status


def error(message: Any, type_: str | None = None, code: object = None) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": type_, "param": None, "code": code}


_LONG = "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
_ORDER = "Unexpected role 'user' after role 'tool'"
_STALE = {"detail": [{"type": "x", "loc": ["body", "messages", 1, "assistant", "content", 0, "thinking"], "msg": "no"}]}
_EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}

REFUSALS: list[tuple[int, object, ErrorKind, bool]] = [
    (400, error(_ORDER, "invalid_request_message_order", "3230"), "invalid", False),
    (400, error(_ORDER, "invalid_request_message_order", 3230), "invalid", False),
    (400, error(_LONG, "invalid_request_error", "3051"), "too_large", False),
    (400, error({"detail": [{"msg": _LONG}]}), "too_large", False),
    (400, error("Invalid model: x", "invalid_model", "1500"), "not_found", False),
    (400, error("Invalid `signature` in thinking chunk", "invalid_assistant_message"), "stale_thinking", False),
    (400, error("You have no credits", "insufficient_credits"), "billing", False),
    (400, None, "invalid", False),
    (401, {"detail": "Unauthorized"}, "auth", False),
    (401, {"message": "Unauthorized", "request_id": "x"}, "auth", False),
    (402, error("Pay first"), "billing", False),
    (403, error("no"), "auth", False),
    (404, error("no"), "not_found", False),
    (413, None, "too_large", False),
    (422, _EXTRA, "invalid", False),
    (422, _STALE, "stale_thinking", False),
    (422, {"detail": [{"msg": _LONG}]}, "too_large", False),
    (429, error("Rate limit exceeded", "rate_limited", "1300"), "rate_limited", True),
    (429, {"message": "Requests rate limit exceeded"}, "rate_limited", True),
    (429, error("too many tokens, too large for model with", "rate_limited"), "rate_limited", True),
    (429, error("No credits left", "invalid_request_error", "insufficient_credits"), "billing", False),
    (500, error("Internal server error", "internal_server_error", "1000"), "server", True),
    (502, None, "server", True),
    (503, error("Service unavailable"), "overloaded", True),
    (307, None, "invalid", False),
    (400, ["no", "object"], "invalid", False),
    (400, {"message": {"detail": 7}, "type": ["x"], "code": {}}, "invalid", False),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), REFUSALS)
def test_refusals(status: int, body: object, kind: ErrorKind, retryable: bool) -> None:
    failure = from_status(status, body, {}, 0.0)
    assert (failure.kind, failure.retryable) == (kind, retryable)


def test_the_log_gets_ids_and_codes_and_the_wait() -> None:
    headers = {"mistral-correlation-id": "01-ab", "retry-after": "7"}
    failure = from_status(429, error("张三 wrote too much", "rate_limited", 1300), headers, 0.0)
    assert failure.summary == "status=429 type=rate_limited code=1300 request_id=01-ab"
    assert failure.retry_after_seconds == 7.0
    assert "none" in from_status(400, error("x", "张三 wrote"), {}, 0.0).summary


@pytest.mark.parametrize(
    ("event", "kind", "retryable"),
    [
        (error("Overloaded", "overloaded_error"), "overloaded", True),
        (error("Service tier capacity exceeded", "service_tier_capacity_exceeded", "3505"), "overloaded", True),
        (error("x", "rate_limit_error"), "rate_limited", True),
        (error("x", "authentication_error"), "auth", False),
        (error(_LONG, "invalid_request_error"), "too_large", False),
        (error("x", "something_new"), "server", True),
        (error("x"), "server", True),
        ({"error": "broken"}, "server", True),
        ({"detail": "broken"}, "server", True),
    ],
)
def test_errors_inside_a_stream(event: dict[str, Any], kind: ErrorKind, retryable: bool) -> None:
    failure = from_event(event)
    assert failure is not None
    assert (failure.kind, failure.retryable) == (kind, retryable)


@pytest.mark.parametrize("event", [{}, {"choices": []}, {"object": "chat.completion.chunk", "error": None}])
def test_an_answer_is_no_error(event: dict[str, Any]) -> None:
    assert from_event(event) is None

"""Errors by status, type and code; Retry-After in all its spellings."""

import pytest

from agents.messages import ErrorKind
from agents.providers.anthropic.response import from_event, from_status, output_blocked
from agents.providers.errors import retry_after

NOW = 1_790_000_000.0


def body(type_: str = "invalid_request_error", message: str = "", code: str | None = None) -> dict[str, object]:
    error: dict[str, object] = {"type": type_, "message": message}
    return {"type": "error", "error": error | ({"details": {"error_code": code}} if code else {})}


@pytest.mark.parametrize(
    ("status", "sent", "kind", "retryable"),
    [
        (400, body(message="messages: at least one message is required"), "invalid", False),
        (400, body(message="Your credit balance is too low to access the API"), "billing", False),
        (400, body("billing_error"), "billing", False),
        (400, body(message="prompt is too long: 210000 tokens > 200000 maximum"), "too_large", False),
        (
            400,
            body(message="input length and `max_tokens` exceed context limit: 1 + 2 > 2, decrease input length"),
            "too_large",
            False,
        ),
        (422, body(message="This model's maximum context length is 4096 tokens."), "too_large", False),
        (
            400,
            body(message="max_tokens: 9 > 8, which is the maximum allowed number of output tokens for m"),
            "invalid",
            False,
        ),
        (
            429,
            body("rate_limit_error", "too many tokens, prompt is too long for now, please wait"),
            "rate_limited",
            True,
        ),
        (401, None, "auth", False),
        (403, "forbidden", "auth", False),
        (404, body("not_found_error"), "not_found", False),
        (408, None, "timeout", True),
        (409, body("conflict_error"), "server", True),
        (413, body("request_too_large"), "too_large", False),
        (422, body(), "invalid", False),
        (429, body("rate_limit_error"), "rate_limited", True),
        (429, body("rate_limit_error", code="ramp_limit_exceeded"), "rate_limited", True),
        (429, body("rate_limit_error", code="enforced_spend_limit_reached"), "billing", False),
        (500, [], "server", True),
        (503, None, "overloaded", True),
        (504, "<html>", "server", True),
        (529, body("overloaded_error"), "overloaded", True),
        (599, None, "server", True),
        (302, None, "invalid", False),
        (418, None, "invalid", False),
    ],
)
def test_by_status(status: int, sent: object, kind: ErrorKind, retryable: bool) -> None:
    error = from_status(status, sent, {}, NOW)
    assert (error.kind, error.retryable) == (kind, retryable)


def test_the_server_may_overrule_the_status() -> None:
    assert from_status(400, body(), {"x-should-retry": "true"}, NOW).retryable
    assert not from_status(529, body(), {"x-should-retry": "false"}, NOW).retryable


def test_the_summary_repeats_no_prose() -> None:
    hostile = {"error": {"type": "<script>", "message": "user said: secret"}}
    error = from_status(400, hostile, {"request-id": "req_01\nforged=1"}, NOW)
    assert error.summary == "status=400 type=none request_id=none"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Mon, 21 Sep 2026 14:14:00 GMT"}, 1_790_000_040.0 - NOW),
        ({"retry-after": "Mon, 21 Sep 2020 14:14:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "a while"}, None),
        ({"retry-after": "Mon, 99 Foo 2026"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_an_overflow_in_mid_stream_is_told_apart() -> None:
    assert from_event(body(message="prompt is too long"), None).kind == "too_large"
    assert from_event("no object", None).kind == "server"


def test_only_a_400_blocks_output() -> None:
    text = "Output blocked by content filtering policy"
    assert output_blocked(400, body(message=text))
    assert not output_blocked(500, body(message=text))

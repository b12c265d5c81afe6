"""Putting a stream together, from servers that do it their own way; errors by status, type and code."""

from typing import Any

import pytest

from agents.messages import AssistantMessage, ErrorKind, Usage
from agents.providers.anthropic import API, AnthropicAssembly
from agents.providers.draft import Draft
from agents.providers.payload import BadStream
from agents.providers.provider import ModelEvent
from agents.providers.refusals import failure_of, retry_after

MODEL = "claude-sonnet-4-6"


def assemble(*events: dict[str, Any], stop: str = "end_turn") -> tuple[list[ModelEvent], AssistantMessage]:
    assembly = AnthropicAssembly(Draft(api=API, provider="anthropic", model=MODEL, timestamp=0.0))
    end: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]
    pieces = [piece for event in [*events, *end] for piece in assembly.feed(event)]
    return pieces, assembly.finish()


def opened(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(change: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": change}


def test_anthropic_stream_of_whole_input_in_an_open_block() -> None:
    _, message = assemble(opened({"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "."}}))
    assert (message.calls[0].arguments, message.stop_reason) == ({"path": "."}, "tool_use")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": True, "content_block": {"type": "text"}},
        {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message_start"},
        {"type": "message_delta", "delta": None},
    ],
)
def test_what_is_plainly_broken_is_no_answer(event: dict[str, Any]) -> None:
    with pytest.raises(BadStream):
        assemble(event)


def test_thinking_and_what_is_not_known_are_kept_whole() -> None:
    thinking: dict[str, Any] = {"type": "thinking", "thinking": "", "estimate": 3}
    redacted: dict[str, Any] = {"type": "redacted_thinking", "data": "xyz"}
    future: dict[str, Any] = {"type": "hologram", "light": [1, 2, 3]}
    _, message = assemble(
        *(opened(block, index) for index, block in enumerate((thinking, redacted, future))),
        *(delta({"type": "thinking_delta", "thinking": it}) for it in ("h", "m")),
        *(delta({"type": "signature_delta", "signature": it}) for it in ("ab", "cd")),
        delta({"type": "text_delta", "text": "not a text"}),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_hum"},
    )
    assert [(part.type, part.wire and part.wire.data) for part in message.content] == [
        ("thinking", thinking | {"thinking": "hm", "signature": "abcd"}),
        ("thinking", redacted),
        ("opaque", future),
    ]


@pytest.mark.parametrize(("type_", "kept"), [("code_execution", True), ("direct", False)])
def test_who_else_made_a_call_is_kept(type_: str, kept: bool) -> None:
    caller = {"type": type_, "tool_id": "srvtoolu_1"}
    _, message = assemble(opened({"type": "tool_use", "id": "a", "name": "ls", "caller": caller}), stop="tool_use")
    wire = message.calls[0].wire
    assert (wire and wire.data) == ({"caller": caller} if kept else None)


_STOP_REASONS = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
    "stop_sequence": "stop_sequence",
    "a_new_reason": "end_turn",
}


@pytest.mark.parametrize(("theirs", "ours"), _STOP_REASONS.items())
def test_stop_reasons(theirs: str, ours: str) -> None:
    assert assemble(opened({"type": "text", "text": "x"}), stop=theirs)[1].stop_reason == ours


def test_the_last_word_on_usage_counts_and_its_nulls_do_not() -> None:
    start = {"type": "message_start", "message": {"id": 7, "usage": {"input_tokens": 5, "output_tokens": -1}}}
    last = {"input_tokens": None, "cache_read_input_tokens": "many", "output_tokens_details": {"thinking_tokens": 3}}
    _, message = assemble(start, {"type": "message_delta", "delta": {}, "usage": last})
    assert (message.usage, message.response_id) == (Usage(input=5, reasoning=3), None)


NOW = 1_790_000_000.0


def body(type_: str = "invalid_request_error", message: str = "", code: str | None = None) -> dict[str, object]:
    error: dict[str, object] = {"type": type_, "message": message}
    return {"type": "error", "error": error | ({"details": {"error_code": code}} if code else {})}


@pytest.mark.parametrize(
    ("status", "sent", "kind", "retryable"),
    [
        (400, body(message="Your credit balance is too low to access the API"), "billing", False),
        (400, body("billing_error"), "billing", False),
        (400, body(message="prompt is too long: 210000 tokens > 200000 maximum"), "too_large", False),
        (400, body(message="input length and `max_tokens` exceed context limit: 1 + 2 > 2"), "too_large", False),
        (400, body(message="Expected `thinking`, but found `text`"), "stale_thinking", False),
        (400, body(message="Invalid `signature` in `thinking` block"), "stale_thinking", False),
        (422, body(message="This model's maximum context length is 4096 tokens."), "too_large", False),
        (400, body(message="max_tokens: 9 > 8, which is the maximum allowed number"), "invalid", False),
        (429, body("rate_limit_error", "prompt is too long for now, please wait"), "rate_limited", True),
        (408, None, "timeout", True),
        (409, body("conflict_error"), "server", True),
        (429, body("rate_limit_error", code="ramp_limit_exceeded"), "rate_limited", True),
        (429, body("rate_limit_error", code="enforced_spend_limit_reached"), "billing", False),
        (500, [], "server", True),
        (504, "<html>", "server", True),
    ],
)
def test_by_status(status: int, sent: object, kind: ErrorKind, retryable: bool) -> None:
    error = failure_of(sent, status).error
    assert (error.kind, error.retryable) == (kind, retryable)


def test_the_server_may_overrule_the_status() -> None:
    assert failure_of(body(), 400, {"x-should-retry": "true"}).error.retryable
    assert not failure_of(body(), 529, {"x-should-retry": "false"}).error.retryable


def test_the_summary_repeats_no_prose() -> None:
    hostile = {"error": {"type": "<script>", "message": "user said: secret"}}
    assert failure_of(hostile, 400).error.summary == "status=400 type=none code=none"


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
        *(({"retry-after": junk}, None) for junk in ("0", "-5", "nan", "inf", "a while", "Mon, 99 Foo 2026")),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (body(message="prompt is too long"), "too_large"),
        (body(message="no"), "invalid"),
        (body("authentication_error"), "auth"),
        ("no object", "server"),
    ],
)
def test_in_mid_stream(event: object, kind: ErrorKind) -> None:
    assert failure_of(event).error.kind == kind


def test_only_a_400_blocks_output() -> None:
    sent = body(message="Output blocked by content filtering policy")
    assert [failure_of(sent, status).reason for status in (400, 500)] == ["content_filter", "error"]

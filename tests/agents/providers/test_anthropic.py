"""The Anthropic provider against the strict emulator: the official SDK over a real socket, one edge case a test."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Thinking
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig
from agents.providers.network import NetworkProvider
from agents.providers.provider import ThinkingDelta
from tests.agents.providers.requests import MODEL, asking, collect, result, user
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.anthropic.script import (
    Turn,
    call_block,
    events_of,
    redacted_block,
    rendered,
    text_block,
    thinking_block,
)
from tests.emulators.models.script import Fault, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback

NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[AnthropicEmulator, NetworkProvider]]]


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connected(
        *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[AnthropicEmulator, NetworkProvider]]:
        emulator = AnthropicEmulator(list(script), **options)
        async with serve_on_loopback(emulator.app) as url:
            settings = {"apiKey": "sk-test", "baseUrl": url} | (config or {})
            provider = build_provider("anthropic", ProviderConfig.model_validate(settings), now=lambda: NOW)
            assert isinstance(provider, NetworkProvider)
            try:
                yield emulator, provider
            finally:
                await provider.close()

    return connected


async def test_the_answer_goes_back_as_it_came_and_the_loop_goes_on(connect: Connect) -> None:
    thinking = thinking_block("First look, then speak.")
    turn = Turn(blocks=(thinking, redacted_block("opaque"), text_block("Looking."), call_block("ls", {"path": "."})))
    async with connect(turn, says("Done.")) as (emulator, provider):
        pieces, first = await collect(provider, asking())
        follow_up = asking(user("hello"), first, result(first.calls[0].id))
        _, second = await collect(provider, follow_up)
    assert any(isinstance(piece, ThinkingDelta) for piece in pieces)
    assert [part.text for part in first.content if isinstance(part, Thinking)] == ["First look, then speak.", ""]
    assert second.text == "Done."
    sent = emulator.requests[1].body["messages"][1]["content"]
    assert sent[0] == thinking
    assert [block["type"] for block in sent] == ["thinking", "redacted_thinking", "text", "tool_use"]


async def test_thinking_that_is_not_shown_is_kept_and_replayed(connect: Connect) -> None:
    turn = Turn(blocks=(thinking_block("secret", shown=False), call_block("ls", {})))
    async with connect(turn, says("ok")) as (_, provider):
        _, first = await collect(provider, asking())
        _, second = await collect(provider, asking(user("hello"), first, result(first.calls[0].id)))
    assert second.text == "ok"


async def test_configured_headers_are_sent_and_may_name_an_older_version(connect: Connect) -> None:
    config = {"headers": {"Anthropic-Version": "2023-06-01", "x-team": "blue"}}
    async with connect(says("ok"), config=config) as (emulator, provider):
        await collect(provider, asking())
    headers = emulator.requests[0].headers
    assert (headers["anthropic-version"], headers["x-team"]) == ("2023-06-01", "blue")


_STREAM_ERRORS: list[tuple[str, ErrorKind, bool]] = [
    ("overloaded_error", "overloaded", True),
    ("rate_limit_error", "rate_limited", True),
    ("api_error", "server", True),
    ("authentication_error", "auth", False),
    ("something_new", "server", True),
]


async def test_an_error_in_mid_stream_fails_by_its_type(connect: Connect) -> None:
    turn = replace(says("Half"), cut_after=4, then="error")
    async with connect(*(replace(turn, error_type=type_) for type_, _, _ in _STREAM_ERRORS)) as (_, provider):
        for number, (type_, kind, retryable) in enumerate(_STREAM_ERRORS, start=1):
            _, message = await collect(provider, asking())
            assert message.error is not None
            assert (message.error.kind, message.error.retryable) == (kind, retryable)
            assert message.error.summary == f"status=200 type={type_} request_id=req_{number:04d}"


async def test_events_blocks_and_deltas_of_the_future_are_passed_over(connect: Connect) -> None:
    future = {"type": "hologram", "light": [1, 2, 3]}
    async with connect(Turn(blocks=(text_block("ok"), future), noise=True)) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.text == "ok"
    assert message.stop_reason == "end_turn"
    opaque = message.content[1]
    assert opaque.wire is not None
    assert (opaque.type, opaque.wire.kind, opaque.wire.data) == ("opaque", "hologram", future)


_STOP_REASONS = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "stop_sequence": "stop_sequence",
    "a_new_reason": "end_turn",
}


async def test_stop_reasons(connect: Connect) -> None:
    async with connect(*(Turn(blocks=(text_block("text"),), stop_reason=theirs) for theirs in _STOP_REASONS)) as (
        _,
        provider,
    ):
        for ours in _STOP_REASONS.values():
            _, message = await collect(provider, asking())
            assert (message.stop_reason, message.error) == (ours, None)


async def test_calls_with_an_unknown_reason_to_stop_are_not_run(connect: Connect) -> None:
    turn = Turn(blocks=(call_block("ls", {}),), stop_reason="a_new_reason")
    async with connect(turn) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.stop_reason, message.calls) == ("error", ())


async def test_usage_counts_caches_apart(connect: Connect) -> None:
    usage = {
        "input_tokens": 12,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 2100,
        "output_tokens": 57,
    }
    async with connect(Turn(blocks=(text_block("ok"),), usage=usage)) as (_, provider):
        _, message = await collect(provider, asking())
    used = message.usage
    assert (used.input, used.cache_write, used.cache_read, used.output, used.estimated) == (12, 30, 2100, 57, False)


_WHOLE = "".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events_of(rendered(says("x")), 1, MODEL, 1)
)

_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, type="billing_error"), "billing", False),
    (Fault(status=413, type="request_too_large"), "too_large", False),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (Fault(status=200, body="event: message_start\ndata: 7\n\n", content_type="text/event-stream"), "incomplete", True),
]


async def test_faults_end_the_stream_as_errors(connect: Connect) -> None:
    async with connect(*(fault for fault, _, _ in _FAULTS)) as (_, provider):
        for fault, kind, retryable in _FAULTS:
            pieces, message = await collect(provider, asking())
            assert pieces == []
            assert message.error is not None
            assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, retryable), (
                fault
            )
            assert (fault.message or "Internal") not in message.error.summary


async def test_blocked_output_counts_as_a_refusal(connect: Connect) -> None:
    fault = Fault(status=400, type="invalid_request_error", message="Output blocked by content filtering policy")
    async with connect(fault) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.stop_reason == "content_filter"


async def test_an_older_model_is_no_reason_to_fail(connect: Connect) -> None:
    async with connect(says("ok")) as (_, provider):
        _, message = await collect(provider, asking(model="claude-sonnet-4-5"))
    assert message.text == "ok"

"""The Anthropic provider against the strict emulator: the official SDK over a real socket, one edge case a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Text, Thinking, ToolCall
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig
from agents.providers.network import NetworkProvider
from agents.providers.provider import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
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
from tests.emulators.models.script import HTML_200, Fault, calls, says
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


async def test_an_answer_arrives_as_deltas_and_as_a_whole(connect: Connect) -> None:
    async with connect(says("你好,这是一个足够长的回答,会分成几段。")) as (emulator, provider):
        pieces, message = await collect(provider, asking())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == message.text
    assert len(pieces) > 1
    assert message.text == "你好,这是一个足够长的回答,会分成几段。"
    assert (message.stop_reason, message.error, message.response_id) == ("end_turn", None, "msg_0001")
    assert (message.provider, message.model, message.api) == ("anthropic", MODEL, "anthropic-messages")
    assert message.timestamp == NOW
    assert message.usage.input > 0
    assert emulator.requests[0].refusal is None


async def test_parallel_calls_keep_their_order_ids_and_exact_arguments(connect: Connect) -> None:
    turn = calls(("ls", {"path": "/tmp"}), ("ls", {}), before="Looking.")
    async with connect(turn) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert [type(part).__name__ for part in message.content] == ["Text", "ToolCall", "ToolCall"]
    first, second = message.calls
    assert (first.id, first.arguments, first.arguments_raw) == ("toolu_000101", {"path": "/tmp"}, '{"path": "/tmp"}')
    assert (second.id, second.arguments, second.arguments_raw) == ("toolu_000102", {}, "")
    assert message.stop_reason == "tool_use"
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == [first.id, second.id]
    assert [piece.call for piece in pieces if isinstance(piece, ToolCallEnd)] == [first, second]
    assert "".join(piece.text for piece in pieces if isinstance(piece, ToolCallDelta)) == first.arguments_raw


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


async def test_nothing_is_sent_without_a_key() -> None:
    provider = build_provider("anthropic", ProviderConfig.model_validate({"apiKey": " \n"}))
    await provider.warm_up()
    pieces, message = await collect(provider, asking())
    assert pieces == []
    assert message.stop_reason == "error"
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("unconfigured", False)
    assert "providers.anthropic.apiKey" in message.error.summary


async def test_the_environment_has_no_say(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-api-key: stolen\nx-stray: yes")
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(says("ok"), api_key="sk-test") as (emulator, provider):
        await provider.warm_up()
        _, message = await collect(provider, asking())
    assert message.text == "ok"
    headers = emulator.requests[0].headers
    assert "x-stray" not in headers
    assert headers["authorization"] == "Bearer sk-test"
    assert headers["x-stainless-retry-count"] == "0"


async def test_configured_headers_are_sent_and_may_name_an_older_version(connect: Connect) -> None:
    config = {"headers": {"Anthropic-Version": "2023-06-01", "x-team": "blue"}}
    async with connect(says("ok"), config=config) as (emulator, provider):
        await collect(provider, asking())
    headers = emulator.requests[0].headers
    assert (headers["anthropic-version"], headers["x-team"]) == ("2023-06-01", "blue")


async def test_the_connection_is_used_again(connect: Connect) -> None:
    async with connect(says("a"), says("b")) as (_, provider):
        await collect(provider, asking())
        wire: Any = provider._wire
        pool: Any = wire._client._client._transport
        held = list(pool._pool.connections)
        assert len(held) == 1
        await collect(provider, asking())
        assert list(pool._pool.connections) == held


_BROKEN = Turn(blocks=(thinking_block("hm"), text_block("Half a sentence, and then"), call_block("ls", {"path": "."})))


@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_stream_cut_after_any_event_is_an_error_without_calls(connect: Connect, then: str) -> None:
    total = len(events_of(_BROKEN, 1, MODEL, 1))
    script = [replace(_BROKEN, cut_after=after, then=then) for after in range(total)]  # type: ignore[arg-type]
    async with connect(*script, _BROKEN) as (_, provider):
        for after in range(total):
            _, message = await collect(provider, asking())
            assert message.stop_reason == "error", after
            assert message.error is not None
            assert message.error.retryable
            assert message.error.kind == ("incomplete" if then == "end" else "network"), after
            assert message.calls == ()
            assert all(isinstance(part, Text) for part in message.content)
        _, whole = await collect(provider, asking())
    assert whole.stop_reason == "tool_use"


async def test_what_was_said_before_the_cut_is_kept(connect: Connect) -> None:
    async with connect(replace(says("Half a sentence"), cut_after=5)) as (_, provider):
        _, message = await collect(provider, asking())
    assert "Half a sentence".startswith(message.text)
    assert message.text


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


async def test_unicode_survives_any_cutting_of_the_bytes(connect: Connect) -> None:
    text = "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
    turn = Turn(blocks=(text_block(text), call_block("ls", {"path": "目录/🙂"})))
    async with connect(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000))) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, asking())
            assert message.text == text
            assert message.calls[0].arguments == {"path": "目录/🙂"}


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


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    async with connect(Turn(blocks=())) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert (pieces, message.content, message.stop_reason) == ([], (), "end_turn")


async def test_a_call_cut_at_the_output_limit_has_no_arguments(connect: Connect) -> None:
    turn = Turn(blocks=(call_block("ls", {}, raw='{"path": "/tm'),), stop_reason="max_tokens")
    async with connect(turn) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.stop_reason == "max_tokens"
    assert (message.calls[0].arguments, message.calls[0].arguments_raw) == (None, '{"path": "/tm')


async def test_one_id_for_two_calls_becomes_two_ids(connect: Connect) -> None:
    twice = call_block("ls", {}, id="same")
    async with connect(Turn(blocks=(twice, twice))) as (_, provider):
        _, message = await collect(provider, asking())
    assert [made.id for made in message.calls] == ["same", "same_1"]


async def test_a_thousand_calls_in_one_answer(connect: Connect) -> None:
    async with connect(calls(*[("ls", {"path": str(n)}) for n in range(1000)])) as (_, provider):
        _, message = await collect(provider, asking())
    assert len({made.id for made in message.calls}) == 1000


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
    (Fault(status=400, type="invalid_request_error", message="bad"), "invalid", False),
    (Fault(status=401, type="authentication_error", message="invalid x-api-key"), "auth", False),
    (Fault(status=402, type="billing_error"), "billing", False),
    (Fault(status=403, type="permission_error"), "auth", False),
    (Fault(status=404, type="not_found_error", message="model: x"), "not_found", False),
    (Fault(status=413, type="request_too_large"), "too_large", False),
    (Fault(status=429, type="rate_limit_error", headers={"retry-after": "7"}), "rate_limited", True),
    (Fault(status=500), "server", True),
    (Fault(status=502, body="<html>Bad gateway</html>", content_type="text/html"), "server", True),
    (Fault(status=529, type="overloaded_error"), "overloaded", True),
    (Fault(status=307, headers={"location": "http://127.0.0.1:9/"}), "invalid", False),
    (HTML_200, "incomplete", True),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (Fault(status=200, body='{"type": "message"}'), "incomplete", True),
    (Fault(status=200, body="", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="data: {oops\n\n", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="data: [1, 2]\n\n", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="event: message_start\ndata: 7\n\n", content_type="text/event-stream"), "incomplete", True),
    (
        Fault(
            status=200,
            body='event: content_block_delta\ndata: {"type": "content_block_delta", "index": 3, "delta": {}}\n\n',
            content_type="text/event-stream",
        ),
        "incomplete",
        True,
    ),
    (Fault(status=200, body="\x00\x01" * 5000, content_type="text/event-stream"), "incomplete", True),
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
            assert message.error.retry_after_seconds == (7.0 if "retry-after" in fault.headers else None)


async def test_a_conversation_that_is_too_long_says_so(connect: Connect) -> None:
    async with connect(window_tokens=100) as (_, provider):
        _, message = await collect(provider, asking(user("long " * 500)))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("too_large", False)


async def test_blocked_output_counts_as_a_refusal(connect: Connect) -> None:
    fault = Fault(status=400, type="invalid_request_error", message="Output blocked by content filtering policy")
    async with connect(fault) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.stop_reason == "content_filter"


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    config = ProviderConfig.model_validate({"apiKey": "k", "baseUrl": "http://127.0.0.1:9"})
    provider = build_provider("anthropic", config)
    _, message = await collect(provider, asking())
    await provider.close()
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("network", True)


async def test_silence_in_mid_stream_is_a_timeout(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=4, then="stall")
    async with connect(turn, config={"idleSeconds": 0.05}) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("timeout", True)


async def test_a_drip_that_never_fills_an_event_ends_at_the_idle_limit(connect: Connect) -> None:
    turn = replace(says("slow"), chunk_bytes=1, pause_seconds=0.03)
    async with connect(turn, config={"idleSeconds": 0.2, "timeoutSeconds": 0.6}) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.error is not None
    assert message.error.kind == "timeout"


async def test_cancelling_hangs_up_at_once(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=4, then="stall")
    async with connect(turn) as (emulator, provider):
        begun = asyncio.Event()

        async def ask() -> None:
            async for _ in provider.stream(asking()):
                begun.set()

        task = asyncio.create_task(ask())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not emulator.hangups:  # the server sees the connection close; without that this never ends
            await asyncio.sleep(0)
    assert emulator.hangups == 1


async def test_a_consumer_may_walk_away_in_mid_answer(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=4, then="stall")
    async with connect(turn) as (emulator, provider):
        stream = provider.stream(asking())
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        while not emulator.hangups:
            await asyncio.sleep(0)


async def test_many_first_requests_build_one_client(connect: Connect) -> None:
    async with connect(*[says("ok")] * 5) as (emulator, provider):
        answers = await asyncio.gather(*(collect(provider, asking()) for _ in range(5)))
        wire: Any = provider._wire
        client = wire._client
        await provider.warm_up()
        assert wire._client is client
    assert [message.text for _, message in answers] == ["ok"] * 5
    assert len(emulator.requests) == 5


async def test_an_older_model_is_no_reason_to_fail(connect: Connect) -> None:
    async with connect(says("ok")) as (_, provider):
        _, message = await collect(provider, asking(model="claude-sonnet-4-5"))
    assert message.text == "ok"


async def test_a_message_survives_the_journal(connect: Connect) -> None:
    from agents.messages import message_json

    turn = Turn(blocks=(thinking_block("hm"), text_block("x"), call_block("ls", {"path": "目录"})))
    async with connect(turn) as (_, provider):
        _, message = await collect(provider, asking())
    stored = message_json.dump_json(message)
    assert message_json.validate_json(stored) == message
    assert isinstance(json.loads(stored)["content"][2], dict)
    assert isinstance(message.content[2], ToolCall)

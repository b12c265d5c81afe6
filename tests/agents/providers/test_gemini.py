"""Gemini against the strict emulator: plain HTTP over a real socket, one edge case a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Message, Text, Thinking, Usage, message_json
from agents.providers.config import ProviderConfig
from agents.providers.gemini.provider import BASE_URL, GEMINI, base_url
from agents.providers.json_wire import JsonWire
from agents.providers.network import NetworkProvider
from agents.providers.provider import (
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from agents.repair import repair
from tests.agents.providers.requests import PIXEL, asking, collect, result, user
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.script import Turn, call_part, chunks_of, rendered, text_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import HTML_200, Call, Fault, Say, Think, calls, says
from tests.emulators.models.script import Turn as Said
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback
from tools.tool import Image

MODEL = "gemini-3.1-pro-preview"
NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[GeminiEmulator, NetworkProvider]]]


def built(**told: Any) -> NetworkProvider:
    config = ProviderConfig.model_validate(told)
    return NetworkProvider("google", config, JsonWire(GEMINI, config), now=lambda: NOW)


def ask(*messages: Any, **options: Any) -> ModelRequest:
    return asking(*messages, **{"model": MODEL} | options)


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connected(
        *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[GeminiEmulator, NetworkProvider]]:
        emulator = GeminiEmulator(list(script), **options)
        async with serve_on_loopback(emulator.app) as url:
            provider = built(**{"apiKey": "key", "baseUrl": url} | (config or {}))
            try:
                yield emulator, provider
            finally:
                await provider.close()

    return connected


async def test_an_answer_arrives_as_deltas_and_as_a_whole(connect: Connect) -> None:
    async with connect(says("你好,这是一个足够长的回答,会分成几段。")) as (emulator, provider):
        pieces, message = await collect(provider, ask())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == message.text
    assert len(pieces) > 1
    assert message.text == "你好,这是一个足够长的回答,会分成几段。"
    assert (message.stop_reason, message.error, message.response_id) == ("end_turn", None, "resp_0001")
    assert (message.provider, message.model, message.api) == ("google", MODEL, "google-gemini")
    assert message.timestamp == NOW
    assert message.usage.input > 0
    (received,) = emulator.requests
    assert received.refusal is None
    assert received.path == f"/v1beta/models/{MODEL}:streamGenerateContent"
    assert received.headers["x-goog-api-key"] == "key"


async def test_parallel_calls_keep_their_order_ids_and_exact_arguments(connect: Connect) -> None:
    turn = calls(("ls", {"path": "/目录"}), ("ls", {}), before="Looking.")
    async with connect(turn) as (_, provider):
        pieces, message = await collect(provider, ask())
    assert [type(part).__name__ for part in message.content] == ["Text", "ToolCall", "ToolCall"]
    first, second = message.calls
    assert (first.id, first.arguments, first.arguments_raw) == ("fc_000101", {"path": "/目录"}, '{"path": "/目录"}')
    assert (second.id, second.arguments, second.arguments_raw) == ("fc_000102", {}, "{}")
    assert message.stop_reason == "tool_use"
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == [first.id, second.id]
    assert [piece.call for piece in pieces if isinstance(piece, ToolCallEnd)] == [first, second]
    assert [piece.text for piece in pieces if isinstance(piece, ToolCallDelta)] == ['{"path": "/目录"}', "{}"]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("model", [MODEL, "gemini-2.5-flash"])
async def test_the_answer_goes_back_as_it_came_and_the_loop_goes_on(connect: Connect, model: str, ids: bool) -> None:
    turn = Said(parts=(Think(text="First look."), Say(text="Looking."), Call(name="ls"), Call(name="ls")))
    async with connect(turn, says("Done."), ids=ids) as (emulator, provider):
        pieces, first = await collect(provider, ask(model=model))
        history: list[Message] = [user("hello"), first, *(result(made.id) for made in first.calls)]
        repaired = repair(history, api="google-gemini", family=model)
        _, second = await collect(provider, ask(*repaired, model=model))
    assert any(isinstance(piece, ThinkingDelta) for piece in pieces)
    assert [part.text for part in first.content if isinstance(part, Thinking)] == ["First look."]
    assert second.text == "Done."
    sent = emulator.requests[1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in sent] == [
        signed(text_part("Looking."))["thoughtSignature"],
        signed(call_part("ls", {}))["thoughtSignature"],
        None,
    ]


async def test_hidden_thinking_signs_what_follows_and_a_signed_end_is_replayed(connect: Connect) -> None:
    turn = Said(parts=(Think(text="secret", shown=False), Call(name="ls"), Think(text="more", shown=False)))
    async with connect(turn, says("ok")) as (emulator, provider):
        _, first = await collect(provider, ask())
        repaired = repair([user("hello"), first, result(first.calls[0].id)], api="google-gemini", family=MODEL)
        _, second = await collect(provider, ask(*repaired))
    assert second.text == "ok"
    assert emulator.requests[1].body["contents"][1]["parts"] == [
        signed(call_part("ls", {}, id="fc_000100")),
        signed(text_part("")),
    ]


async def test_a_signature_that_is_refused_says_so(connect: Connect) -> None:
    async with connect(calls(("ls", {}))) as (_, provider):
        _, first = await collect(provider, ask())
        (made,) = first.calls
        assert made.wire is not None
        forged = replace(made, wire=replace(made.wire, data="AAAA"))
        history = (user("hello"), replace(first, content=(forged,)), result(made.id))
        _, message = await collect(provider, ask(*history))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("stale_thinking", False)


async def test_nothing_is_sent_without_a_key() -> None:
    provider = built(apiKey=" \n")
    await provider.warm_up()
    pieces, message = await collect(provider, ask())
    assert pieces == []
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("unconfigured", False)


async def test_the_environment_has_no_say(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "from-the-environment")
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(says("ok"), api_key="key") as (_, provider):
        await provider.warm_up()
        _, message = await collect(provider, ask())
    assert message.text == "ok"


async def test_configured_headers_are_sent(connect: Connect) -> None:
    async with connect(says("ok"), config={"headers": {"x-team": "blue"}}) as (emulator, provider):
        await collect(provider, ask())
    assert emulator.requests[0].headers["x-team"] == "blue"


@pytest.mark.parametrize(
    ("told", "url"),
    [
        (None, f"{BASE_URL}/v1beta"),
        ("http://host", "http://host/v1beta"),
        ("http://host/", "http://host/v1beta"),
        ("http://host/v1beta", "http://host/v1beta"),
        ("http://host/v1beta/", "http://host/v1beta"),
        ("http://host/gemini/v1alpha", "http://host/gemini/v1alpha"),
        ("http://host/v1/gemini", "http://host/v1/gemini/v1beta"),
    ],
)
def test_the_address_may_name_a_version_or_not(told: str | None, url: str) -> None:
    assert base_url(ProviderConfig.model_validate({"baseUrl": told})) == url


async def test_an_address_with_a_version_and_a_model_with_its_folder_arrive_where_they_should() -> None:
    emulator = GeminiEmulator([says("ok")])
    async with serve_on_loopback(emulator.app) as url:
        provider = built(apiKey="key", baseUrl=f"{url}/v1beta/")
        _, message = await collect(provider, ask(model=f"models/{MODEL}"))
        await provider.close()
    assert message.text == "ok"
    assert emulator.requests[0].path == f"/v1beta/models/{MODEL}:streamGenerateContent"


async def test_the_connection_is_used_again(connect: Connect) -> None:
    async with connect(says("a"), says("b")) as (_, provider):
        await collect(provider, ask())
        wire: Any = provider._wire
        held = list(wire._client._transport._pool.connections)
        assert len(held) == 1
        await collect(provider, ask())
        assert list(wire._client._transport._pool.connections) == held


_BROKEN = Said(parts=(Think(text="hm"), Say(text="Half a sentence, and then"), Call(name="ls", arguments={"p": "."})))


@pytest.mark.parametrize("then", ["end", "reset", "stall", "error"])
async def test_a_stream_cut_after_any_chunk_is_an_error_without_calls(connect: Connect, then: str) -> None:
    kinds = {"end": "incomplete", "reset": "network", "stall": "timeout", "error": "overloaded"}
    total = len(chunks_of(rendered(_BROKEN), 1, MODEL, 1, ids=True))
    script = [replace(_BROKEN, cut_after=after, then=then) for after in range(total + 1)]  # type: ignore[arg-type]
    config = {"idleSeconds": 0.1, "firstByteSeconds": 0.1} if then == "stall" else {}
    async with connect(*script, _BROKEN, config=config) as (_, provider):
        for after in range(total):
            _, message = await collect(provider, ask())
            assert message.stop_reason == "error", after
            assert message.error is not None
            assert message.error.retryable
            assert message.error.kind == kinds[then], after
            assert all(isinstance(part, Text) for part in message.content)
        for _ in ("cut behind the last chunk", "whole"):
            _, message = await collect(provider, ask())
            assert (message.stop_reason, message.error) == ("tool_use", None)


async def test_what_was_said_before_the_cut_is_kept(connect: Connect) -> None:
    async with connect(replace(says("Half a sentence"), cut_after=1)) as (_, provider):
        _, message = await collect(provider, ask())
    assert message.text == "Half a sente"


_STREAM_ERRORS: list[tuple[str, ErrorKind, bool]] = [
    ("overloaded_error", "overloaded", True),
    ("UNAVAILABLE", "overloaded", True),
    ("rate_limit_error", "rate_limited", True),
    ("RESOURCE_EXHAUSTED", "rate_limited", True),
    ("api_error", "server", True),
    ("DEADLINE_EXCEEDED", "timeout", True),
    ("authentication_error", "auth", False),
    ("INVALID_ARGUMENT", "invalid", False),
    ("SOMETHING_NEW", "server", True),
]


async def test_an_error_in_mid_stream_fails_by_its_status(connect: Connect) -> None:
    turn = replace(says("Half"), cut_after=1, then="error")
    async with connect(*(replace(turn, error_type=type_) for type_, _, _ in _STREAM_ERRORS)) as (_, provider):
        for type_, kind, retryable in _STREAM_ERRORS:
            _, message = await collect(provider, ask())
            assert message.error is not None
            assert (message.error.kind, message.error.retryable) == (kind, retryable), type_


async def test_unicode_survives_any_cutting_of_the_bytes(connect: Connect) -> None:
    text = "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
    turn = Said(parts=(Say(text=text), Call(name="ls", arguments={"path": "目录/🙂"})))
    async with connect(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000))) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, ask())
            assert message.text == text
            assert message.calls[0].arguments == {"path": "目录/🙂"}


async def test_chunks_and_parts_of_the_future_are_passed_over(connect: Connect) -> None:
    async with connect(replace(calls(("ls", {}), before="ok"), noise=True)) as (_, provider):
        _, message = await collect(provider, ask())
    assert [part.type for part in message.content] == ["text", "toolCall"]
    assert message.text == "ok"


async def test_usage_may_come_behind_the_reason_to_end(connect: Connect) -> None:
    told = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    async with connect(Turn(parts=(text_part("ok"),), usage=told, late_usage=True)) as (_, provider):
        _, message = await collect(provider, ask())
    assert (message.text, message.usage) == ("ok", Usage(input=9, output=3))


async def test_usage_counts_the_cache_apart(connect: Connect) -> None:
    usage = Usage(input=12, cache_read=2100, output=57, reasoning=20)
    async with connect(says("ok", usage=usage)) as (_, provider):
        _, message = await collect(provider, ask())
    assert message.usage == usage


async def test_refusals_filters_and_limits_are_answers_that_end_for_their_reason(connect: Connect) -> None:
    stops = {"length": "max_tokens", "refusal": "refusal", "filter": "content_filter", "context": "max_tokens"}
    turns = [replace(calls(("ls", {}), before="x"), stop=stop) for stop in stops]  # type: ignore[arg-type]
    blocked = Turn(parts=(), blocked="PROHIBITED_CONTENT")
    async with connect(*turns, blocked) as (_, provider):
        for ours in stops.values():
            _, message = await collect(provider, ask())
            assert (message.stop_reason, message.error, message.text) == (ours, None, "x")
        _, message = await collect(provider, ask())
    assert (message.stop_reason, message.error, message.content) == ("refusal", None, ())


async def test_a_malformed_call_of_the_model_may_be_asked_again(connect: Connect) -> None:
    async with connect(Turn(parts=(text_part("x"),), finish="MALFORMED_FUNCTION_CALL")) as (_, provider):
        _, message = await collect(provider, ask())
    assert message.error is not None
    assert (message.error.kind, message.error.retryable, message.text) == ("incomplete", True, "x")


async def test_a_call_with_broken_arguments_has_none_and_can_be_answered(connect: Connect) -> None:
    turn = Said(parts=(Call(name="ls", raw='{"path": "/tm'),))
    async with connect(turn, says("ok")) as (_, provider):
        _, first = await collect(provider, ask())
        (made,) = first.calls
        assert (made.arguments, made.arguments_raw, first.stop_reason) == (None, '{"path": "/tm', "tool_use")
        _, second = await collect(provider, ask(user("go"), first, result(made.id, "bad JSON", is_error=True)))
    assert second.text == "ok"


async def test_a_call_cut_at_the_output_limit_has_no_arguments_and_is_not_to_be_run(connect: Connect) -> None:
    async with connect(Said(parts=(Call(name="ls", raw='{"pa'),), stop="length")) as (_, provider):
        _, message = await collect(provider, ask())
    assert message.stop_reason == "max_tokens"
    assert (message.calls[0].arguments, message.calls[0].arguments_raw) == (None, '{"pa')


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    async with connect(Said(parts=())) as (_, provider):
        pieces, message = await collect(provider, ask())
    assert (pieces, message.content, message.stop_reason) == ([], (), "end_turn")


async def test_a_thousand_calls_in_one_answer(connect: Connect) -> None:
    async with connect(calls(*[("ls", {"path": str(n)}) for n in range(1000)]), ids=False) as (_, provider):
        _, message = await collect(provider, ask())
    assert len({made.id for made in message.calls}) == 1000


async def test_a_picture_in_a_result_is_shown_to_the_model(connect: Connect) -> None:
    picture = Image(media_type="image/png", data=PIXEL)
    async with connect(calls(("ls", {})), says("a dot")) as (_, provider):
        _, first = await collect(provider, ask())
        shown = replace(result(first.calls[0].id), content=(picture,))
        _, message = await collect(provider, ask(user("go"), first, shown))
    assert message.text == "a dot"


def told(status: str, code: int, *details: dict[str, Any], message: str = "words of Google's") -> str:
    return json.dumps({"error": {"code": code, "message": message, "status": status, "details": list(details)}})


_SSE = "text/event-stream"
_WHOLE = "".join(
    f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks_of(rendered(says("x")), 1, MODEL, 1, ids=True)
)
_FAULTS: list[tuple[Fault, ErrorKind, bool, float | None]] = [
    (Fault(status=400, message="bad"), "invalid", False, None),
    (Fault(status=400, message="API key not valid.", code="API_KEY_INVALID"), "auth", False, None),
    (Fault(status=400, type="FAILED_PRECONDITION", message="User location is not supported"), "auth", False, None),
    (Fault(status=400, message="Corrupted thought signature."), "stale_thinking", False, None),
    (Fault(status=400, message="Invalid thought signature."), "stale_thinking", False, None),
    (Fault(status=400, message="Request payload size exceeds the limit: 1 bytes."), "too_large", False, None),
    (Fault(status=401), "auth", False, None),
    (Fault(status=403), "auth", False, None),
    (Fault(status=404), "not_found", False, None),
    (Fault(status=413), "too_large", False, None),
    (Fault(status=429), "rate_limited", True, None),
    (Fault(status=429, code="12s"), "rate_limited", True, 12.0),
    (Fault(status=429, code="34.074824224s"), "rate_limited", True, 34.074824224),
    (Fault(status=429, headers={"retry-after": "7"}), "rate_limited", True, 7.0),
    (Fault(status=429, code="12s", headers={"retry-after": "7"}), "rate_limited", True, 7.0),
    (Fault(status=429, code="GenerateRequestsPerMinutePerProject"), "rate_limited", True, None),
    (Fault(status=429, code="GenerateRequestsPerDayPerProjectPerModel-FreeTier"), "billing", False, None),
    (Fault(status=429, body=f"[{told('X', 429, {'retryDelay': '3s'})}]"), "rate_limited", True, 3.0),
    (Fault(status=429, body=told("X", 429, {"retryDelay": "soon"}, {"violations": 7})), "rate_limited", True, None),
    (Fault(status=429, body='{"error": {"details": [1, null]}}'), "rate_limited", True, None),
    (Fault(status=500), "server", True, None),
    (Fault(status=502, body="<html>Bad gateway</html>", content_type="text/html"), "server", True, None),
    (Fault(status=503), "overloaded", True, None),
    (Fault(status=504), "timeout", True, None),
    (Fault(status=500, body="x" * 2_000_000), "server", True, None),
    (Fault(status=500, body="[" * 200_000), "server", True, None),
    (Fault(status=307, headers={"location": "http://127.0.0.1:9/"}), "invalid", False, None),
    (HTML_200, "incomplete", True, None),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True, None),
    (Fault(status=429, body=told("X", 429, {"retryDelay": "3s"}, message="x" * 300_000)), "rate_limited", True, None),
    (Fault(status=200, body='[{"candidates": []}]'), "incomplete", True, None),
    (Fault(status=200, body="", content_type=_SSE), "incomplete", True, None),
    (Fault(status=200, body="data: {oops\n\n", content_type=_SSE), "incomplete", True, None),
    (Fault(status=200, body="data: [1, 2]\n\n", content_type=_SSE), "incomplete", True, None),
    (Fault(status=200, body="data: [DONE]\n\n", content_type=_SSE), "incomplete", True, None),
    (Fault(status=200, body='data: {"candidates": [7]}\n\n', content_type=_SSE), "incomplete", True, None),
    (Fault(status=200, body=f"data: {told('UNAVAILABLE', 503)}\n\n", content_type=_SSE), "overloaded", True, None),
    (
        Fault(status=200, body=f"data: {told('X', 429, {'retryDelay': '9s'})}\n\n", content_type=_SSE),
        "rate_limited",
        True,
        9.0,
    ),
    (
        Fault(
            status=200,
            body=f"data: {told('INVALID_ARGUMENT', 400, message='The input token count (9) exceeds')}\n\n",
            content_type=_SSE,
        ),
        "too_large",
        False,
        None,
    ),
]


async def test_faults_end_the_stream_as_errors(connect: Connect) -> None:
    async with connect(*(fault for fault, *_ in _FAULTS)) as (_, provider):
        for fault, kind, retryable, wait in _FAULTS:
            pieces, message = await collect(provider, ask())
            assert pieces == []
            error = message.error
            assert error is not None
            assert (error.kind, error.retryable, error.retry_after_seconds) == (kind, retryable, wait), fault
            assert "words of Google's" not in error.summary
            assert (fault.message or "Google") not in error.summary


async def test_a_key_that_is_not_let_in_rests_while_another_works(connect: Connect) -> None:
    async with connect(says("ok"), api_key="good", config={"apiKey": "bad", "apiKeys": ("good",)}) as (_, provider):
        answers = [(await collect(provider, replace(ask(), conversation=name)))[1] for name in ("a", "b", "c", "d")]
    refused = [message.error for message in answers if message.error is not None]
    assert len(refused) <= 1
    assert all(error.kind == "auth" and error.retryable for error in refused)


async def test_a_conversation_that_is_too_long_says_so(connect: Connect) -> None:
    async with connect(window_tokens=100) as (_, provider):
        _, message = await collect(provider, ask(user("long " * 500)))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("too_large", False)


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    provider = built(apiKey="k", baseUrl="http://127.0.0.1:9")
    _, message = await collect(provider, ask())
    await provider.close()
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("network", True)


async def test_a_drip_that_never_fills_a_chunk_ends_at_the_idle_limit(connect: Connect) -> None:
    turn = replace(says("slow"), chunk_bytes=1, pause_seconds=0.03)
    async with connect(turn, config={"idleSeconds": 0.2, "timeoutSeconds": 0.6}) as (_, provider):
        _, message = await collect(provider, ask())
    assert message.error is not None
    assert message.error.kind == "timeout"


async def test_cancelling_hangs_up_at_once(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=1, then="stall")
    async with connect(turn) as (emulator, provider):
        begun = asyncio.Event()

        async def listen() -> None:
            async for _ in provider.stream(ask()):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not emulator.hangups:  # the server sees the connection close; without that this never ends
            await asyncio.sleep(0)
    assert emulator.hangups == 1


async def test_a_consumer_may_walk_away_in_mid_answer(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=1, then="stall")
    async with connect(turn) as (emulator, provider):
        stream = provider.stream(ask())
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        while not emulator.hangups:
            await asyncio.sleep(0)


async def test_many_first_requests_build_one_client(connect: Connect) -> None:
    async with connect(*[says("ok")] * 5) as (_, provider):
        answers = await asyncio.gather(*(collect(provider, ask()) for _ in range(5)))
        wire: Any = provider._wire
        client = wire._client
        await provider.warm_up()
        assert wire._client is client
    assert [message.text for _, message in answers] == ["ok"] * 5


async def test_a_message_survives_the_journal(connect: Connect) -> None:
    turn = Said(parts=(Think(text="hm"), Say(text="x"), Call(name="ls", arguments={"path": "目录"}), Think(text="y")))
    async with connect(turn) as (_, provider):
        _, message = await collect(provider, ask())
    assert message_json.validate_json(message_json.dump_json(message)) == message

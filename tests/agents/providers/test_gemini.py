"""Gemini against the strict emulator: plain HTTP over a real socket, one edge case a test."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Message, Thinking, Usage
from agents.providers.config import ProviderConfig
from agents.providers.gemini.provider import BASE_URL, GEMINI, base_url
from agents.providers.json_wire import JsonWire
from agents.providers.network import NetworkProvider
from agents.providers.provider import (
    ModelRequest,
    ThinkingDelta,
)
from agents.repair import repair
from tests.agents.providers.requests import asking, collect, result, user
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.script import Turn, call_part, chunks_of, rendered, text_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import Call, Fault, Say, Think, calls, says
from tests.emulators.models.script import Turn as Said
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback

MODEL = "gemini-3.1-pro-preview"
NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[GeminiEmulator, NetworkProvider]]]


def built(**settings: Any) -> NetworkProvider:
    config = ProviderConfig.model_validate(settings)
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


@pytest.mark.parametrize(
    ("address", "url"),
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
def test_the_address_may_name_a_version_or_not(address: str | None, url: str) -> None:
    assert base_url(ProviderConfig.model_validate({"baseUrl": address})) == url


async def test_an_address_with_a_version_and_a_model_with_its_folder_arrive_where_they_should() -> None:
    emulator = GeminiEmulator([says("ok")])
    async with serve_on_loopback(emulator.app) as url:
        provider = built(apiKey="key", baseUrl=f"{url}/v1beta/")
        _, message = await collect(provider, ask(model=f"models/{MODEL}"))
        await provider.close()
    assert message.text == "ok"
    assert emulator.requests[0].path == f"/v1beta/models/{MODEL}:streamGenerateContent"


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


async def test_usage_may_come_behind_the_reason_to_end(connect: Connect) -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    async with connect(Turn(parts=(text_part("ok"),), usage=usage, late_usage=True)) as (_, provider):
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


def error_body(status: str, code: int, *details: dict[str, Any], message: str = "words of Google's") -> str:
    return json.dumps({"error": {"code": code, "message": message, "status": status, "details": list(details)}})


_SSE = "text/event-stream"
_WHOLE = "".join(
    f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks_of(rendered(says("x")), 1, MODEL, 1, ids=True)
)
_FAULTS: list[tuple[Fault, ErrorKind, bool, float | None]] = [
    (Fault(status=400, message="API key not valid.", code="API_KEY_INVALID"), "auth", False, None),
    (Fault(status=400, type="FAILED_PRECONDITION", message="User location is not supported"), "auth", False, None),
    (Fault(status=400, message="Corrupted thought signature."), "stale_thinking", False, None),
    (Fault(status=400, message="Invalid thought signature."), "stale_thinking", False, None),
    (Fault(status=400, message="Request payload size exceeds the limit: 1 bytes."), "too_large", False, None),
    (Fault(status=429, code="12s"), "rate_limited", True, 12.0),
    (Fault(status=429, code="34.074824224s"), "rate_limited", True, 34.074824224),
    (Fault(status=429, code="12s", headers={"retry-after": "7"}), "rate_limited", True, 7.0),
    (Fault(status=429, code="GenerateRequestsPerMinutePerProject"), "rate_limited", True, None),
    (Fault(status=429, code="GenerateRequestsPerDayPerProjectPerModel-FreeTier"), "billing", False, None),
    (Fault(status=429, body=f"[{error_body('X', 429, {'retryDelay': '3s'})}]"), "rate_limited", True, 3.0),
    (
        Fault(status=429, body=error_body("X", 429, {"retryDelay": "soon"}, {"violations": 7})),
        "rate_limited",
        True,
        None,
    ),
    (Fault(status=429, body='{"error": {"details": [1, null]}}'), "rate_limited", True, None),
    (Fault(status=504), "timeout", True, None),
    (Fault(status=500, body="x" * 2_000_000), "server", True, None),
    (Fault(status=500, body="[" * 200_000), "server", True, None),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True, None),
    (
        Fault(status=429, body=error_body("X", 429, {"retryDelay": "3s"}, message="x" * 300_000)),
        "rate_limited",
        True,
        None,
    ),
    (Fault(status=200, body='[{"candidates": []}]'), "incomplete", True, None),
    (Fault(status=200, body='data: {"candidates": [7]}\n\n', content_type=_SSE), "incomplete", True, None),
    (
        Fault(status=200, body=f"data: {error_body('UNAVAILABLE', 503)}\n\n", content_type=_SSE),
        "overloaded",
        True,
        None,
    ),
    (
        Fault(status=200, body=f"data: {error_body('X', 429, {'retryDelay': '9s'})}\n\n", content_type=_SSE),
        "rate_limited",
        True,
        9.0,
    ),
    (
        Fault(
            status=200,
            body=f"data: {error_body('INVALID_ARGUMENT', 400, message='The input token count (9) exceeds')}\n\n",
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

"""The Mistral wire against the strict emulator, over a real socket: one edge case a test."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agents.messages import (
    AssistantMessage,
    ErrorKind,
    Message,
    Usage,
)
from agents.providers.config import ProviderConfig
from agents.providers.json_wire import JsonWire
from agents.providers.mistral.provider import MISTRAL
from agents.providers.models import family_of
from agents.providers.network import NetworkProvider
from agents.repair import repair
from tests.agents.providers import requests
from tests.agents.providers.requests import collect, result, user
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.script import chunks_of, thinking_chunk
from tests.emulators.models.script import HTML_200, Call, Fault, Say, Think, Turn, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback

MODEL = "mistral-large-latest"
NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[MistralEmulator, NetworkProvider]]]


def asking(*messages: Message, **members: Any) -> Any:
    return requests.asking(*messages, **({"model": MODEL} | members))


def provider_at(url: str, **config: Any) -> NetworkProvider:
    settings = ProviderConfig.model_validate({"apiKey": "sk-test", "baseUrl": url} | config)
    return NetworkProvider("mistral", settings, JsonWire(MISTRAL, settings), now=lambda: NOW)


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connected(
        *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[MistralEmulator, NetworkProvider]]:
        emulator = MistralEmulator(list(script), **({"api_key": "sk-test"} | options))
        async with serve_on_loopback(emulator.app) as url:
            provider = provider_at(url, **(config or {}))
            try:
                yield emulator, provider
            finally:
                await provider.close()

    return connected


_ANSWERS: dict[str, Turn] = {
    "thought, words, a thought, words and calls": Turn(
        parts=(
            Think(text="First look, then speak."),
            Say(text="Looking. \n"),
            Think(text="嗯 🙂"),
            Say(text="Now."),
            Call(name="ls", raw='{ "path" :"目录"}', id="aZ3aZ3aZ3"),
            Call(name="ls"),
        )
    ),
    "a hidden thought": Turn(parts=(Think(text="secret", shown=False), Call(name="ls"))),
    "words and a broken call": Turn(parts=(Say(text="Look: \n"), Call(name="ls", raw='{"path": '))),
    "calls alone": Turn(parts=(Call(name="ls", raw="[1]"), Call(name="ls", arguments={"path": "\u2028"}))),
}


@pytest.mark.parametrize("name", _ANSWERS)
async def test_the_answer_goes_back_as_it_came_and_the_loop_goes_on(connect: Connect, name: str) -> None:
    turn = _ANSWERS[name]
    expected = []
    for part in turn.parts:
        match part:
            case Say(text=text):
                expected.append({"type": "text", "text": text})
            case Think(text=text, shown=shown):
                expected.append(thinking_chunk(text, shown=shown))
            case Call():
                pass
    async with connect(turn, says("Done.")) as (emulator, provider):
        _, first = await collect(provider, asking())
        history: tuple[Message, ...] = (user("hello"), first, *(result(call.id) for call in first.calls))
        assert repair(history, api="mistral", family=family_of(MODEL)) is history
        _, second = await collect(provider, asking(*history))
    assert second.text == "Done."
    [sent] = [message for message in emulator.requests[1].body["messages"] if message["role"] == "assistant"]
    if all(chunk["type"] == "text" for chunk in expected):
        assert sent.get("content", "") == "".join(str(chunk["text"]) for chunk in expected)
    else:
        assert sent["content"] == expected
    made = [(call.id, call.raw, dict(call.arguments)) for call in turn.parts if isinstance(call, Call)]
    for number, ((call_id, raw, arguments), back) in enumerate(zip(made, sent["tool_calls"], strict=True)):
        assert back["id"] == (call_id or f"00001{number:04d}")
        assert back["function"]["arguments"] == (raw or json.dumps(arguments, ensure_ascii=False))


async def test_thinking_that_was_touched_is_refused_and_known_as_such(connect: Connect) -> None:
    turn = Turn(parts=(Think(text="hm"), Call(name="ls")))
    async with connect(turn) as (_, provider):
        _, first = await collect(provider, asking())
        thought = first.content[0]
        assert thought.wire is not None
        forged = replace(thought, wire=replace(thought.wire, data=thought.wire.data | {"signature": "x"}))
        touched = replace(first, content=(forged, *first.content[1:]))
        _, second = await collect(provider, asking(user("hello"), touched, result(first.calls[0].id)))
    assert second.error is not None
    assert (second.error.kind, second.error.retryable) == ("stale_thinking", False)


def test_only_a_server_on_this_machine_needs_no_key() -> None:
    assert [JsonWire(MISTRAL, ProviderConfig.model_validate({"baseUrl": url})).keyless for url in _HOSTS] == [
        *_HOSTS.values()
    ]


_HOSTS = {"http://127.0.0.1:8000": True, "http://localhost:8000/v1": True, "https://mistral.example.com": False}


async def test_a_local_server_gets_no_key_where_there_is_none(connect: Connect) -> None:
    async with connect(config={"apiKey": ""}) as (emulator, provider):
        await provider.warm_up()
        await collect(provider, asking())
    assert "authorization" not in emulator.requests[0].headers


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_in_v1(suffix: str) -> None:
    emulator = MistralEmulator([says("ok")])
    async with serve_on_loopback(emulator.app) as url:
        provider = provider_at(url + suffix)
        _, message = await collect(provider, asking())
        await provider.close()
    assert message.text == "ok"


async def test_configured_headers_are_sent_beside_the_key(connect: Connect) -> None:
    config = {"headers": {"x-team": "blue", "Authorization": "Bearer other"}}
    async with connect(says("ok"), config=config) as (emulator, provider):
        await collect(provider, asking())
    headers = emulator.requests[0].headers
    assert (headers["x-team"], headers["authorization"]) == ("blue", "Bearer sk-test")
    assert headers["accept"] == "text/event-stream"


async def test_an_answer_that_is_not_read_leaves_no_connection_behind(connect: Connect) -> None:
    page = replace(HTML_200, body="x" * 1_000_000)
    async with connect(page, replace(page, status=500), says("ok")) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, asking())
            wire: Any = provider._wire
            assert all(held.is_idle() for held in wire.client._client._transport._pool.connections)
    assert message.text == "ok"


async def test_usage_counts_the_cache_apart(connect: Connect) -> None:
    usage = Usage(input=12, cache_read=2100, output=57)
    async with connect(replace(says("ok"), usage=usage)) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.usage == usage


_SSE = "text/event-stream"
_WHOLE = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks_of(says("x"), 1, MODEL, 1))
_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=429, code="insufficient_quota"), "billing", False),
    (Fault(status=429, body=json.dumps({"type": "no_credit", "message": "x" * 1_000_000})), "rate_limited", True),
    (Fault(status=500, body='{"cut'), "server", True),
    (Fault(status=529), "overloaded", True),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (
        Fault(status=200, body='data: {"object": "error", "type": "rate_limited"}\n\n', content_type=_SSE),
        "rate_limited",
        True,
    ),
    (Fault(status=200, body=_WHOLE, content_type=_SSE, headers={"content-encoding": "gzip"}), "incomplete", True),
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


async def test_the_cost_may_come_behind_the_end() -> None:
    chunks = chunks_of(says("x"), 1, MODEL, 1)
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    chunks[-1] = {key: value for key, value in chunks[-1].items() if key != "usage"}
    chunks.append({"choices": [], "usage": usage})
    body = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks) + "data: [DONE]\r\n\r\n"
    answers = [body, body.replace("[DONE]", "{oops"), body.replace('"choices": [], "usage": ', '"x": ')]
    messages = [await _answered(answer.encode()) for answer in answers]
    assert [message.text for message in messages] == ["x"] * 3
    assert [message.usage for message in messages] == [Usage(input=5, output=2)] * 2 + [Usage(estimated=True)]


async def test_a_compressed_answer_is_read() -> None:
    message = await _answered(gzip.compress(_WHOLE.encode()), **{"content-encoding": "gzip"})
    assert (message.text, message.error) == ("x", None)


async def _answered(body: bytes, **headers: str) -> AssistantMessage:
    """What we make of these bytes."""

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(body, headers=headers, media_type=_SSE)

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    async with serve_on_loopback(app) as url:
        provider = provider_at(url)
        _, message = await collect(provider, asking())
        await provider.close()
    return message


def test_the_wire_costs_nothing_until_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, agents.providers.mistral.provider; print([m for m in sys.modules if m in ('httpx', 'mistralai')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

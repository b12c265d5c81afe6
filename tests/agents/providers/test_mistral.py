"""The Mistral wire against the strict emulator, over a real socket: one edge case a test."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agents.messages import (
    AssistantMessage,
    ErrorKind,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    message_json,
)
from agents.providers.config import ProviderConfig
from agents.providers.json_wire import JsonWire
from agents.providers.mistral.provider import MISTRAL
from agents.providers.models import family_of
from agents.providers.network import NetworkProvider
from agents.providers.provider import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.repair import repair
from tests.agents.providers import requests
from tests.agents.providers.requests import collect, result, user
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.script import chunks_of, thinking_chunk
from tests.emulators.models.script import HTML_200, Call, Fault, Say, Think, Turn, calls, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback
from tools.tool import Image

MODEL = "mistral-large-latest"
NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[MistralEmulator, NetworkProvider]]]


def asking(*messages: Message, **told: Any) -> Any:
    return requests.asking(*messages, **({"model": MODEL} | told))


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


async def test_an_answer_arrives_as_deltas_and_as_a_whole(connect: Connect) -> None:
    async with connect(says("你好,这是一个足够长的回答,会分成几段。")) as (emulator, provider):
        pieces, message = await collect(provider, asking())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == message.text
    assert len(pieces) > 1
    assert message.text == "你好,这是一个足够长的回答,会分成几段。"
    assert (message.stop_reason, message.error, message.response_id) == ("end_turn", None, f"{1:032x}")
    assert (message.provider, message.model, message.api) == ("mistral", MODEL, "mistral")
    assert (message.timestamp, message.usage.estimated) == (NOW, False)
    assert message.usage.input > 0
    [request] = emulator.requests
    assert (request.refusal, request.body["stream"], request.path) == (None, True, "/v1/chat/completions")


async def test_parallel_calls_keep_their_order_ids_and_exact_arguments(connect: Connect) -> None:
    turn = calls(("ls", {"path": "/tmp"}), ("ls", {}), before="Looking.")
    async with connect(turn) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert [type(part).__name__ for part in message.content] == ["Text", "ToolCall", "ToolCall"]
    first, second = message.calls
    assert (first.id, first.arguments, first.arguments_raw) == ("000010000", {"path": "/tmp"}, '{"path": "/tmp"}')
    assert (second.id, second.arguments, second.arguments_raw) == ("000010001", {}, "{}")
    assert message.stop_reason == "tool_use"
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == [first.id, second.id]
    assert [piece.call for piece in pieces if isinstance(piece, ToolCallEnd)] == [first, second]
    assert [piece.text for piece in pieces if isinstance(piece, ToolCallDelta)] == ['{"path": "/tmp"}', "{}"]


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
    said = []
    for part in turn.parts:
        match part:
            case Say(text=text):
                said.append({"type": "text", "text": text})
            case Think(text=text, shown=shown):
                said.append(thinking_chunk(text, shown=shown))
            case Call():
                pass
    async with connect(turn, says("Done.")) as (emulator, provider):
        _, first = await collect(provider, asking())
        history: tuple[Message, ...] = (user("hello"), first, *(result(call.id) for call in first.calls))
        assert repair(history, api="mistral", family=family_of(MODEL)) is history
        _, second = await collect(provider, asking(*history))
    assert second.text == "Done."
    [sent] = [message for message in emulator.requests[1].body["messages"] if message["role"] == "assistant"]
    if all(chunk["type"] == "text" for chunk in said):
        assert sent.get("content", "") == "".join(str(chunk["text"]) for chunk in said)
    else:
        assert sent["content"] == said
    told = [(call.id, call.raw, dict(call.arguments)) for call in turn.parts if isinstance(call, Call)]
    for number, ((call_id, raw, arguments), back) in enumerate(zip(told, sent["tool_calls"], strict=True)):
        assert back["id"] == (call_id or f"00001{number:04d}")
        assert back["function"]["arguments"] == (raw or json.dumps(arguments, ensure_ascii=False))


async def test_thinking_is_shown_as_it_comes(connect: Connect) -> None:
    async with connect(Turn(parts=(Think(text="First look, then speak."), Say(text="Done.")))) as (_, provider):
        pieces, message = await collect(provider, asking())
    shown = [piece.text for piece in pieces if isinstance(piece, ThinkingDelta)]
    assert ("".join(shown), len(shown) > 1) == ("First look, then speak.", True)
    assert [type(part) for part in message.content] == [Thinking, Text]


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


async def test_nothing_is_sent_without_a_key_but_to_this_machine() -> None:
    settings = ProviderConfig.model_validate({"apiKey": " \n"})
    provider = NetworkProvider("mistral", settings, JsonWire(MISTRAL, settings))
    await provider.warm_up()
    pieces, message = await collect(provider, asking())
    assert (pieces, message.stop_reason) == ([], "error")
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("unconfigured", False)
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


async def test_the_environment_has_no_say(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "from-the-environment")
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(says("ok")) as (emulator, provider):
        _, message = await collect(provider, asking())
    assert message.text == "ok"
    assert emulator.requests[0].headers["authorization"] == "Bearer sk-test"


async def test_configured_headers_are_sent_beside_the_key(connect: Connect) -> None:
    config = {"headers": {"x-team": "blue", "Authorization": "Bearer other"}}
    async with connect(says("ok"), config=config) as (emulator, provider):
        await collect(provider, asking())
    headers = emulator.requests[0].headers
    assert (headers["x-team"], headers["authorization"]) == ("blue", "Bearer sk-test")
    assert headers["accept"] == "text/event-stream"


async def test_the_connection_is_used_again(connect: Connect) -> None:
    async with connect(says("a"), says("b"), Fault(status=429), says("c")) as (_, provider):
        await collect(provider, asking())
        wire: Any = provider._wire
        held = list(wire._client._transport._pool.connections)
        assert len(held) == 1
        for _ in range(3):
            await collect(provider, asking())
        assert list(wire._client._transport._pool.connections) == held


async def test_an_answer_that_is_not_read_leaves_no_connection_behind(connect: Connect) -> None:
    page = replace(HTML_200, body="x" * 1_000_000)
    async with connect(page, replace(page, status=500), says("ok")) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, asking())
            wire: Any = provider._wire
            assert all(held.is_idle() for held in wire._client._transport._pool.connections)
    assert message.text == "ok"


_BROKEN = Turn(
    parts=(Think(text="hm"), Say(text="Half a sentence, and then"), Call(name="ls", arguments={"path": "."}))
)
_ENDS: list[tuple[Literal["end", "reset", "stall", "error"], ErrorKind]] = [
    ("end", "incomplete"),
    ("reset", "network"),
    ("stall", "timeout"),
    ("error", "overloaded"),
]


@pytest.mark.parametrize(("then", "kind"), _ENDS)
async def test_a_stream_cut_before_its_last_event_is_an_error_without_calls(
    connect: Connect, then: Literal["end", "reset", "stall", "error"], kind: ErrorKind
) -> None:
    total = len(chunks_of(_BROKEN, 1, MODEL, 1))
    script = [replace(_BROKEN, cut_after=after, then=then) for after in range(total + 2)]
    async with connect(*script, config={"idleSeconds": 0.2, "firstByteSeconds": 0.2}) as (_, provider):
        for after in range(total):
            _, message = await collect(provider, asking())
            assert message.stop_reason == "error", after
            assert message.error is not None
            assert (message.error.kind, message.error.retryable) == (kind, True), after
            assert message.calls == ()
            assert all(isinstance(part, Text) for part in message.content)
        for _ in range(2):  # the answer is whole, whatever becomes of [DONE]
            _, message = await collect(provider, asking())
            assert (message.stop_reason, message.error, len(message.calls)) == ("tool_use", None, 1)


async def test_what_was_said_before_the_cut_is_kept(connect: Connect) -> None:
    async with connect(replace(says("Half a sentence"), cut_after=2)) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.text == "Half a sente"


async def test_unicode_survives_any_cutting_of_the_bytes(connect: Connect) -> None:
    text = "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
    turn = Turn(parts=(Think(text=text), Say(text=text), Call(name="ls", arguments={"path": "目录/🙂"})))
    async with connect(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000))) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, asking())
            assert message.text == text
            assert message.calls[0].arguments == {"path": "目录/🙂"}


async def test_what_does_not_exist_yet_is_passed_over(connect: Connect) -> None:
    turn = Turn(parts=(Think(text="hm"), Say(text="ok"), Call(name="ls")), noise=True)
    async with connect(turn, replace(says("ok"), noise=True)) as (_, provider):
        _, message = await collect(provider, asking())
        _, plain = await collect(provider, asking())
    assert [type(part) for part in message.content] == [Thinking, Text, ToolCall]
    assert (message.stop_reason, message.text, plain.text) == ("tool_use", "ok", "ok")


_STOPS: list[tuple[Literal["length", "context", "refusal", "filter"], StopReason]] = [
    ("length", "max_tokens"),
    ("context", "context_window"),
    ("refusal", "content_filter"),
    ("filter", "content_filter"),
]


@pytest.mark.parametrize(("theirs", "ours"), _STOPS)
async def test_reasons_to_stop(
    connect: Connect, theirs: Literal["length", "context", "refusal", "filter"], ours: StopReason
) -> None:
    half = Turn(parts=(Say(text="Half"), Call(name="ls", raw='{"path": "/tm')), stop=theirs)
    async with connect(half) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.stop_reason, message.error) == (ours, None)
    assert [(call.arguments, call.arguments_raw) for call in message.calls] == [(None, '{"path": "/tm')]


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    async with connect(Turn(parts=())) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert (pieces, message.content, message.stop_reason) == ([], (), "end_turn")


async def test_ids_of_other_makers_work_in_the_next_request(connect: Connect) -> None:
    twice = Call(name="ls", id="call_same")
    async with connect(Turn(parts=(twice, twice, Call(name="ls", id="null"))), says("ok")) as (emulator, provider):
        _, first = await collect(provider, asking())
        assert len({call.id for call in first.calls}) == 3
        _, second = await collect(provider, asking(user("a"), first, *(result(call.id) for call in first.calls)))
    assert second.text == "ok"
    _, _, made, *results = emulator.requests[1].body["messages"]
    assert [call["id"] for call in made["tool_calls"]] == [told["tool_call_id"] for told in results]


async def test_a_thousand_calls_in_one_answer(connect: Connect) -> None:
    async with connect(calls(*[("ls", {"path": str(n)}) for n in range(1000)]), says("ok")) as (_, provider):
        _, first = await collect(provider, asking())
        _, second = await collect(provider, asking(user("a"), first, *(result(call.id) for call in first.calls)))
    assert (len({call.id for call in first.calls}), second.text) == (1000, "ok")


async def test_usage_counts_the_cache_apart(connect: Connect) -> None:
    usage = Usage(input=12, cache_read=2100, output=57)
    async with connect(replace(says("ok"), usage=usage)) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.usage == usage


async def test_a_picture_reaches_the_model(connect: Connect) -> None:
    picture = Image(media_type="image/png", data=requests.PIXEL)
    question = replace(user("what is it?"), content=(Text(text="what is it?"), picture))
    async with connect(calls(("ls", {})), says("A dot.")) as (_, provider):
        _, first = await collect(provider, asking(question))
        shown = replace(result(first.calls[0].id), content=(picture,))
        _, second = await collect(provider, asking(question, first, shown))
    assert second.text == "A dot."


_SSE = "text/event-stream"
_WHOLE = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks_of(says("x"), 1, MODEL, 1))
_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, message="bad"), "invalid", False),
    (Fault(status=401), "auth", False),
    (Fault(status=402), "billing", False),
    (Fault(status=403), "auth", False),
    (Fault(status=404), "not_found", False),
    (Fault(status=413), "too_large", False),
    (Fault(status=422), "invalid", False),
    (Fault(status=429, headers={"retry-after": "7"}), "rate_limited", True),
    (Fault(status=429, code="insufficient_quota"), "billing", False),
    (Fault(status=500), "server", True),
    (Fault(status=502, body="<html>Bad gateway</html>", content_type="text/html"), "server", True),
    (Fault(status=429, body=json.dumps({"type": "no_credit", "message": "x" * 1_000_000})), "rate_limited", True),
    (Fault(status=500, body='{"cut'), "server", True),
    (Fault(status=503), "overloaded", True),
    (Fault(status=529), "overloaded", True),
    (Fault(status=307, headers={"location": "http://127.0.0.1:9/"}), "invalid", False),
    (HTML_200, "incomplete", True),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (Fault(status=200, body='{"choices": []}'), "incomplete", True),
    (Fault(status=200, body="", content_type=_SSE), "incomplete", True),
    (Fault(status=200, body="data: [DONE]\n\n", content_type=_SSE), "incomplete", True),
    (Fault(status=200, body="data: {oops\n\n", content_type=_SSE), "incomplete", True),
    (Fault(status=200, body="data: [1, 2]\n\n", content_type=_SSE), "incomplete", True),
    (Fault(status=200, body="data: 7\n\n", content_type=_SSE), "incomplete", True),
    (Fault(status=200, body="\x00\x01" * 5000, content_type=_SSE), "incomplete", True),
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
            told = (message.stop_reason, message.error.kind, message.error.retryable)
            assert told == ("error", kind, retryable), fault
            assert (fault.message or "Internal") not in message.error.summary
            assert message.error.retry_after_seconds == (7.0 if "retry-after" in fault.headers else None)


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


async def test_a_conversation_that_is_too_long_says_so(connect: Connect) -> None:
    async with connect(window_tokens=100) as (_, provider):
        _, message = await collect(provider, asking(user("long " * 500)))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("too_large", False)


async def test_a_wrong_key_is_a_matter_of_the_configuration(connect: Connect) -> None:
    async with connect(api_key="another") as (_, provider):
        _, message = await collect(provider, asking())
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("auth", False)


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    provider = provider_at("http://127.0.0.1:9")
    _, message = await collect(provider, asking())
    await provider.close()
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("network", True)


async def test_a_drip_that_never_ends_meets_the_limit_of_the_turn(connect: Connect) -> None:
    turn = replace(says("slow"), chunk_bytes=1, pause_seconds=0.03)
    async with connect(turn, config={"idleSeconds": 0.2, "timeoutSeconds": 0.6}) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.error is not None
    assert message.error.kind == "timeout"


async def test_cancelling_hangs_up_at_once(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=3, then="stall")
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
    turn = replace(says("Half a sentence"), cut_after=3, then="stall")
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


async def test_a_message_survives_the_journal(connect: Connect) -> None:
    turn = Turn(parts=(Think(text="hm"), Say(text="x"), Call(name="ls", arguments={"path": "目录"})))
    async with connect(turn) as (_, provider):
        _, message = await collect(provider, asking())
    assert message_json.validate_json(message_json.dump_json(message)) == message


def test_the_wire_costs_nothing_until_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, agents.providers.mistral.provider; print([m for m in sys.modules if m in ('httpx', 'mistralai')])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"

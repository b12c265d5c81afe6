"""The Responses wire against the strict emulator: the official SDK over a real socket, one edge case a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Message, StopReason, Text, Thinking, Usage, Wire
from agents.providers.config import ProviderConfig
from agents.providers.network import NetworkProvider
from agents.providers.openai.provider import ResponsesWire
from agents.providers.provider import ModelRequest, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.repair import repair
from tests.agents.providers.requests import PIXEL, collect, result, user
from tests.agents.providers.requests import asking as asking_any
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item, rendered
from tests.emulators.models.responses.stream import events_of
from tests.emulators.models.script import HTML_200, Call, Fault, Say, Stop, Think, calls, says
from tests.emulators.models.script import Turn as AnyTurn
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback
from tools.tool import Image

MODEL = "gpt-5.5"
API = "openai-responses"
NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[ResponsesEmulator, NetworkProvider]]]


def asking(*messages: Any, **members: Any) -> ModelRequest:
    return asking_any(*messages, model=MODEL, **members)


def built(**settings: Any) -> NetworkProvider:
    config = ProviderConfig.model_validate(settings)
    return NetworkProvider("openai", config, ResponsesWire(config), now=lambda: NOW)


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connected(
        *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[ResponsesEmulator, NetworkProvider]]:
        emulator = ResponsesEmulator(list(script), **options)
        async with serve_on_loopback(emulator.app) as url:
            provider = built(**({"apiKey": "sk-test", "baseUrl": f"{url}/v1"} | (config or {})))
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
    assert (message.stop_reason, message.error, message.response_id) == ("end_turn", None, "resp_0001")
    assert (message.provider, message.model, message.api) == ("openai", MODEL, API)
    assert message.timestamp == NOW
    assert message.usage.input > 0
    assert emulator.requests[0].refusal is None
    assert emulator.requests[0].body["stream"] is True


@pytest.mark.parametrize("interleaved", [False, True])
async def test_parallel_calls_keep_their_order_ids_and_exact_arguments(connect: Connect, interleaved: bool) -> None:
    turn = Turn(
        items=(message_item("Looking."), call_item("ls", raw='{ "path":"/tmp" }'), call_item("ls")),
        interleaved=interleaved,
    )
    async with connect(turn) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert [type(part).__name__ for part in message.content] == ["Text", "ToolCall", "ToolCall"]
    first, second = message.calls
    assert (first.id, first.arguments, first.arguments_raw) == ("call_000101", {"path": "/tmp"}, '{ "path":"/tmp" }')
    assert (second.id, second.arguments, second.arguments_raw) == ("call_000102", {}, "{}")
    assert message.stop_reason == "tool_use"
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == [first.id, second.id]
    assert {piece.call.id for piece in pieces if isinstance(piece, ToolCallEnd)} == {first.id, second.id}
    deltas = [piece.text for piece in pieces if isinstance(piece, ToolCallDelta) and piece.index == 1]
    assert "".join(deltas) == first.arguments_raw


async def test_an_answer_goes_back_exactly_as_it_came(connect: Connect) -> None:
    """Everything but what repeats a default and the ids of messages and calls, in one running turn of two steps."""
    steps = [
        Turn(
            items=(
                reasoning_item("First look.", "Then speak."),
                message_item("Looking.", phase="commentary"),
                message_item("Wait.", phase="final_answer"),
                message_item("And now:"),
                reasoning_item(shown=False),
                call_item("ls", raw='{ "path" : "目录/\\ud83d\\ude42" }'),
                call_item("read", raw='{"path": '),
            ),
            noise=True,
        ),
        Turn(items=(reasoning_item("More."), call_item("ls"))),
    ]
    async with connect(*steps, says("Done.")) as (emulator, provider):
        _, first = await collect(provider, asking())
        so_far: list[Message] = [user("hello"), first, *(result(made.id) for made in first.calls)]
        _, second = await collect(provider, asking(*repair(so_far, api=API, family=MODEL)))
        so_far += [second, result(second.calls[0].id)]
        _, third = await collect(provider, asking(*repair(so_far, api=API, family=MODEL)))
    assert third.text == "Done."
    defaults = {"status", "annotations", "logprobs"}
    streams = [
        events_of(step, number, emulator.requests[0].body, 1)[-1]["response"]["output"]
        for number, step in enumerate(steps, start=1)
    ]
    for number, request in enumerate(emulator.requests[1:], start=1):
        sent = [item for item in request.body["input"] if item.get("type") in ("reasoning", "message", "function_call")]
        expected = [item for stream in streams[:number] for item in stream]
        assert sent == [_without(item, defaults) for item in expected]


def _without(item: dict[str, Any], members: set[str]) -> dict[str, Any]:
    if item["type"] != "reasoning":
        item = {key: value for key, value in item.items() if key not in {*members, "id"}}
    if "content" in item:
        item["content"] = [
            {key: value for key, value in part.items() if key not in members} for part in item["content"]
        ]
    return item


async def test_thinking_is_shown_and_goes_back_whether_it_was_shown_or_not(connect: Connect) -> None:
    for shown in (True, False):
        turn = AnyTurn(parts=(Think(text="Let me look.", shown=shown), Call(name="ls")))
        async with connect(turn, says("ok")) as (_, provider):
            pieces, first = await collect(provider, replace(asking(), thinking="high"))
            _, second = await collect(provider, asking(user("hello"), first, result(first.calls[0].id)))
        assert "".join(p.text for p in pieces if isinstance(p, ThinkingDelta)) == ("Let me look." if shown else "")
        assert isinstance(first.content[0], Thinking)
        assert (second.text, second.error) == ("ok", None)


async def test_reasoning_that_was_tampered_with_is_told_apart_from_other_mistakes(connect: Connect) -> None:
    turn = AnyTurn(parts=(Think(text="Let me look."), Call(name="ls")))
    async with connect(turn) as (_, provider):
        _, first = await collect(provider, asking())
        thinking = first.content[0]
        assert isinstance(thinking, Thinking)
        assert thinking.wire is not None
        forged = Wire(
            api=API,
            family=MODEL,
            kind="reasoning",
            data=thinking.wire.data | {"encrypted_content": "gAAAAfrom-elsewhere"},
        )
        changed = replace(first, content=(replace(thinking, wire=forged), *first.content[1:]))
        _, second = await collect(provider, asking(user("hello"), changed, result(first.calls[0].id)))
    assert second.error is not None
    assert (second.error.kind, second.error.retryable) == ("stale_thinking", False)


async def test_another_model_gets_neither_the_reasoning_nor_the_phase(connect: Connect) -> None:
    turn = Turn(items=(reasoning_item("hm"), message_item("Looking.", phase="commentary"), call_item("ls")))
    async with connect(turn, says("ok")) as (emulator, provider):
        _, first = await collect(provider, asking())
        history = repair([user("hello"), first, result(first.calls[0].id)], api=API, family="gpt-6-sol")
        await collect(provider, asking_any(*history, model="gpt-6-sol"))
    sent = emulator.requests[1].body["input"]
    assert [item.get("type") for item in sent] == [None, "message", "function_call", "function_call_output"]
    assert "phase" not in sent[1]


async def test_nothing_is_sent_without_a_key() -> None:
    provider = built(apiKey=" \n")
    await provider.warm_up()
    pieces, message = await collect(provider, asking())
    assert (pieces, message.stop_reason) == ([], "error")
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("unconfigured", False)
    assert "providers.openai.apiKey" in message.error.summary


async def test_a_server_on_this_machine_needs_no_key(connect: Connect) -> None:
    async with connect(says("ok"), config={"apiKey": ""}) as (_, provider):
        await provider.warm_up()
        _, message = await collect(provider, asking())
    assert message.text == "ok"


async def test_the_environment_has_no_say(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Bearer stolen\nx-stray: yes")
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(says("ok"), api_key="sk-test", config={"headers": {"x-team": "blue"}}) as (emulator, provider):
        await provider.warm_up()
        _, message = await collect(provider, asking())
    assert message.text == "ok"
    headers = emulator.requests[0].headers
    assert not [name for name, value in headers.items() if "from-the-environment" in value or name == "x-stray"]
    assert not headers.keys() & {"openai-organization", "openai-project"}
    assert (headers["authorization"], headers["x-team"]) == ("Bearer sk-test", "blue")
    assert headers["x-stainless-retry-count"] == "0"


async def test_what_is_refused_is_asked_only_once(connect: Connect) -> None:
    refusals = [
        Fault(status=429, headers={"retry-after": "0.001"}),
        Fault(status=500),
        Fault(status=400, headers={"x-should-retry": "true"}),
    ]
    async with connect(*refusals) as (emulator, provider):
        for count in range(1, 4):
            _, message = await collect(provider, asking())
            assert message.error is not None
            assert message.error.retryable
            assert len(emulator.requests) == count


async def test_the_connection_is_used_again(connect: Connect) -> None:
    async with connect(says("a"), says("b")) as (_, provider):
        await collect(provider, asking())
        wire: Any = provider._wire
        pool: Any = wire._client._client._client._transport
        held = list(pool._pool.connections)
        assert len(held) == 1
        await collect(provider, asking())
        assert list(pool._pool.connections) == held


_BROKEN = AnyTurn(parts=(Think(text="hm"), Say(text="Half a sentence, and then"), Call(name="ls", arguments={"a": 1})))
_ERRORS: dict[str, ErrorKind] = {"end": "incomplete", "reset": "network", "error": "overloaded"}


@pytest.mark.parametrize("then", ["end", "reset", "error"])
async def test_a_stream_cut_after_any_event_is_an_error_without_calls(connect: Connect, then: str) -> None:
    total = len(events_of(rendered(_BROKEN), 1, {"model": MODEL}, 1))
    script = [replace(_BROKEN, cut_after=after, then=then) for after in range(total)]  # type: ignore[arg-type]
    async with connect(*script, _BROKEN) as (_, provider):
        for after in range(total):
            _, message = await collect(provider, asking())
            assert message.stop_reason == "error", after
            assert message.error is not None
            assert message.error.retryable
            assert message.error.kind == _ERRORS[then], after
            assert message.calls == ()
            assert all(isinstance(part, Text) for part in message.content)
        _, whole = await collect(provider, asking())
    assert whole.stop_reason == "tool_use"


async def test_a_cut_behind_the_last_event_is_no_error(connect: Connect) -> None:
    total = len(events_of(rendered(_BROKEN), 1, {"model": MODEL}, 1))
    async with connect(replace(_BROKEN, cut_after=total, then="reset")) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.stop_reason, message.error) == ("tool_use", None)


async def test_what_was_said_before_the_cut_is_kept(connect: Connect) -> None:
    async with connect(replace(says("Half a sentence"), cut_after=5)) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.text == "Half a sente"


_ERROR_EVENT = {"type": "error", "error": {"type": "rate_limit_error", "code": None, "message": "slow down"}}


@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (replace(says("Half"), cut_after=4, then="error", error_type="server_error"), "server", True),
        (replace(says("Half"), cut_after=4, then="error", error_type="rate_limit_error"), "rate_limited", True),
        (replace(says("Half"), cut_after=4, then="error", error_type="invalid_prompt"), "invalid", False),
        (Turn(items=(), status="failed", error={"code": "server_error", "message": "x"}), "server", True),
        (Turn(items=(), status="failed", error={"code": "rate_limit_exceeded", "message": "x"}), "rate_limited", True),
        (AnyTurn(parts=(Say(text="Half"),), stop="context"), "too_large", False),
        (
            Fault(status=200, body=f"data: {json.dumps(_ERROR_EVENT)}\n\n", content_type="text/event-stream"),
            "rate_limited",
            True,
        ),
    ],
)
async def test_an_error_in_mid_stream_fails_by_its_code(
    connect: Connect, reply: Reply, kind: ErrorKind, retryable: bool
) -> None:
    async with connect(reply) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.error is not None
    assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, retryable)


async def test_unicode_survives_any_cutting_of_the_bytes(connect: Connect) -> None:
    text = "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
    turn = AnyTurn(parts=(Say(text=text), Call(name="ls", arguments={"path": "目录/🙂"})))
    async with connect(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000))) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, asking())
            assert message.text == text
            assert message.calls[0].arguments == {"path": "目录/🙂"}


async def test_events_and_members_of_the_future_are_passed_over(connect: Connect) -> None:
    async with connect(AnyTurn(parts=(Say(text="ok"), Call(name="ls")), noise=True)) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.text, len(message.calls), message.stop_reason) == ("ok", 1, "tool_use")


_STOPS: list[tuple[Stop | None, StopReason]] = [
    (None, "end_turn"),
    ("length", "max_tokens"),
    ("filter", "content_filter"),
    ("refusal", "refusal"),
]


async def test_stop_reasons(connect: Connect) -> None:
    async with connect(*(says("text", stop=theirs) for theirs, _ in _STOPS)) as (_, provider):
        for theirs, ours in _STOPS:
            _, message = await collect(provider, asking())
            assert (message.stop_reason, message.error) == (ours, None)
            assert message.text == ("" if theirs == "refusal" else "text")


async def test_a_refusal_without_words_and_calls_beside_one(connect: Connect) -> None:
    silent, busy = AnyTurn(parts=(), stop="refusal"), calls(("ls", {}), stop="refusal")
    async with connect(silent, busy) as (_, provider):
        _, nothing = await collect(provider, asking())
        _, called = await collect(provider, asking())
    assert (nothing.stop_reason, nothing.content) == ("refusal", ())
    assert (called.stop_reason, len(called.calls)) == ("refusal", 1)


@pytest.mark.parametrize("raw", ['{"path": "/tm', ""])
async def test_a_call_cut_at_the_output_limit_has_no_arguments(connect: Connect, raw: str) -> None:
    async with connect(AnyTurn(parts=(Call(name="ls", raw=raw),), stop="length")) as (_, provider):
        _, message = await collect(provider, asking())
    assert message.stop_reason == "max_tokens"
    assert (message.calls[0].arguments, message.calls[0].arguments_raw) == (None, raw)


async def test_a_cut_call_that_was_answered_with_an_error_goes_on(connect: Connect) -> None:
    cut = AnyTurn(parts=(Think(text="hm"), Call(name="ls", raw='{"path": "/tm')), stop="length")
    async with connect(cut, says("ok")) as (_, provider):
        _, first = await collect(provider, asking())
        history: list[Message] = [user("hello"), first, result(first.calls[0].id, "cut off", is_error=True)]
        _, second = await collect(provider, asking(*repair(history, api=API, family=MODEL)))
    assert (second.text, second.error) == ("ok", None)


async def test_an_empty_answer_is_an_answer(connect: Connect) -> None:
    async with connect(AnyTurn(parts=())) as (_, provider):
        pieces, message = await collect(provider, asking())
    assert (pieces, message.content, message.stop_reason) == ([], (), "end_turn")


async def test_a_thousand_calls_in_one_answer(connect: Connect) -> None:
    async with connect(calls(*[("ls", {"path": str(n)}) for n in range(1000)])) as (_, provider):
        _, message = await collect(provider, asking())
    assert len({made.id for made in message.calls}) == 1000


async def test_usage_counts_caches_apart_and_missing_usage_is_an_estimate(connect: Connect) -> None:
    usage = Usage(input=12, cache_write=30, cache_read=2100, output=57, reasoning=20)
    async with connect(says("ok", usage=usage), Turn(items=(), usage=None)) as (_, provider):
        _, counted = await collect(provider, asking())
        _, uncounted = await collect(provider, asking())
    assert counted.usage == usage
    assert uncounted.usage == Usage(estimated=True)


_EVENTS = events_of(rendered(says("x")), 1, {"model": MODEL}, 1)
_WHOLE = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
_DONE_ONLY = "".join(f"data: {json.dumps(event)}\n\n" for event in _EVENTS[:-1]) + "data: [DONE]\n\n"

_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, message="bad"), "invalid", False),
    (Fault(status=401), "auth", False),
    (Fault(status=403, code="unsupported_country_region_territory"), "auth", False),
    (Fault(status=404), "not_found", False),
    (Fault(status=429, headers={"retry-after": "7"}), "rate_limited", True),
    (Fault(status=429, type="insufficient_quota", code="insufficient_quota"), "billing", False),
    (Fault(status=500), "server", True),
    (Fault(status=502, body="<html>Bad gateway</html>", content_type="text/html"), "server", True),
    (Fault(status=503), "overloaded", True),
    (Fault(status=307, headers={"location": "http://127.0.0.1:9/"}), "invalid", False),
    (HTML_200, "incomplete", True),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (Fault(status=200, body='{"object": "response"}'), "incomplete", True),
    (Fault(status=200, body="", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="data: {oops\n\n", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="data: [1, 2]\n\n", content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body=_DONE_ONLY, content_type="text/event-stream"), "incomplete", True),
    (Fault(status=200, body="\x00\x01" * 5000, content_type="text/event-stream"), "incomplete", True),
]


async def test_faults_end_the_stream_as_errors(connect: Connect) -> None:
    async with connect(*(fault for fault, _, _ in _FAULTS)) as (_, provider):
        for fault, kind, retryable in _FAULTS:
            _, message = await collect(provider, asking())
            assert message.error is not None
            assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, retryable), (
                fault
            )
            assert (fault.message or "The server") not in message.error.summary
            assert message.error.retry_after_seconds == (7.0 if "retry-after" in fault.headers else None)


async def test_a_stream_without_event_names_or_end_of_body_is_read(connect: Connect) -> None:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in _EVENTS) + "data: [DONE]\n\n"
    async with connect(Fault(status=200, body=body, content_type="text/event-stream")) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.text, message.error) == ("x", None)


async def test_a_conversation_that_is_too_long_says_so(connect: Connect) -> None:
    async with connect(window_tokens=100) as (_, provider):
        _, message = await collect(provider, asking(user("long " * 500)))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("too_large", False)


async def test_a_server_that_is_not_there_is_a_network_error() -> None:
    provider = built(apiKey="k", baseUrl="http://127.0.0.1:9/v1")
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


async def test_cancelling_hangs_up_at_once(connect: Connect) -> None:
    turn = replace(says("Half a sentence"), cut_after=5, then="stall")
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
    turn = replace(says("Half a sentence"), cut_after=5, then="stall")
    async with connect(turn) as (emulator, provider):
        stream = provider.stream(asking())
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        while not emulator.hangups:
            await asyncio.sleep(0)


async def test_many_first_requests_build_one_client(connect: Connect) -> None:
    async with connect(*[says("ok")] * 5) as (emulator, provider):
        answers = await asyncio.gather(*(collect(provider, asking()) for _ in range(5)))
    assert [message.text for _, message in answers] == ["ok"] * 5
    assert len(emulator.requests) == 5


async def test_pictures_from_people_and_tools_arrive(connect: Connect) -> None:
    picture = Image(media_type="image/png", data=PIXEL)
    seen = replace(user("look"), content=(Text(text="look"), picture))
    async with connect(calls(("ls", {})), says("A pixel.")) as (emulator, provider):
        _, first = await collect(provider, asking(seen))
        shown = replace(result(first.calls[0].id), content=(picture,))
        _, second = await collect(provider, asking(seen, first, shown))
    assert (second.text, second.error) == ("A pixel.", None)
    assert emulator.requests[1].body["input"][-1]["output"][0]["type"] == "input_image"

"""The Responses wire against the strict emulator: the official SDK over a real socket, one edge case a test."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, Message, StopReason, Thinking, Usage, Wire
from agents.providers.config import ProviderConfig
from agents.providers.network import NetworkProvider
from agents.providers.openai.provider import ResponsesWire
from agents.providers.provider import ModelRequest, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.repair import repair
from tests.agents.providers.requests import asking as asking_any
from tests.agents.providers.requests import collect, result, user
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item, rendered
from tests.emulators.models.responses.stream import events_of
from tests.emulators.models.script import Call, Fault, Say, Stop, Think, calls, says
from tests.emulators.models.script import Turn as AnyTurn
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback

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


async def test_a_server_on_this_machine_needs_no_key(connect: Connect) -> None:
    async with connect(says("ok"), config={"apiKey": ""}) as (_, provider):
        await provider.warm_up()
        _, message = await collect(provider, asking())
    assert message.text == "ok"


_WITH_CALL = AnyTurn(
    parts=(Think(text="hm"), Say(text="Half a sentence, and then"), Call(name="ls", arguments={"a": 1}))
)


async def test_a_cut_behind_the_last_event_is_no_error(connect: Connect) -> None:
    total = len(events_of(rendered(_WITH_CALL), 1, {"model": MODEL}, 1))
    async with connect(replace(_WITH_CALL, cut_after=total, then="reset")) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.stop_reason, message.error) == ("tool_use", None)


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
    (Fault(status=403, code="unsupported_country_region_territory"), "auth", False),
    (Fault(status=429, type="insufficient_quota", code="insufficient_quota"), "billing", False),
    (Fault(status=200, body=_WHOLE, content_type="text/html"), "incomplete", True),
    (Fault(status=200, body='{"object": "response"}'), "incomplete", True),
    (Fault(status=200, body=_DONE_ONLY, content_type="text/event-stream"), "incomplete", True),
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


async def test_a_stream_without_event_names_or_end_of_body_is_read(connect: Connect) -> None:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in _EVENTS) + "data: [DONE]\n\n"
    async with connect(Fault(status=200, body=body, content_type="text/event-stream")) as (_, provider):
        _, message = await collect(provider, asking())
    assert (message.text, message.error) == ("x", None)

"""The Chat wire against the emulated servers: the official SDK over a real socket, one edge case a test."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from agents.messages import ErrorKind, StopReason, Text, Usage
from agents.providers.chat.response import API
from agents.providers.chat.vendors import VENDORS
from agents.providers.config import ProviderConfig
from agents.providers.models import family_of
from agents.providers.network import NetworkProvider
from agents.providers.openai.provider import ChatWire
from agents.providers.provider import ModelRequest, ThinkingDelta, ToolCallEnd, ToolCallStart
from agents.repair import repair
from tests.agents.providers.requests import asking, collect, result, user
from tests.agents.providers.test_chat_request import MODELS
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import Call, Fault, Say, Stop, Think, Turn, calls, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback

NOW = 1_790_000_000.0
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[ChatEmulator, NetworkProvider]]]
SHOWN = set(VENDORS) - {"openai", "azure", "clawdbot"}
"""Vendors that show what their models think."""


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connected(
        *script: Reply, vendor: str = "openai", config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[ChatEmulator, NetworkProvider]]:
        emulator = ChatEmulator(list(script), vendor=vendor, **options)
        async with serve_on_loopback(emulator.app) as url:
            given = {"apiKey": "sk-test", "baseUrl": f"{url}/v1"} | (config or {})
            settings = ProviderConfig.model_validate(given)
            wire = ChatWire("work", settings, VENDORS[vendor])
            provider = NetworkProvider("work", settings, wire, now=lambda: NOW)
            try:
                yield emulator, provider
            finally:
                await provider.close()

    return connected


def ask(*messages: Any, vendor: str = "openai", **members: Any) -> ModelRequest:
    """As the runner asks: with a history made fit for this wire."""
    model = MODELS[vendor]
    repaired = repair(messages or (user("hello"),), api=API, family=family_of(model))
    return asking(*repaired, model=model, **members)


async def test_the_sdk_sends_our_body_and_nothing_else(connect: Connect) -> None:
    from agents.providers.chat.request import wire_request

    request = ask(user("目录 🙂"))
    async with connect(says("ok")) as (emulator, provider):
        await collect(provider, request)
    assert emulator.requests[0].body == wire_request(request, VENDORS["openai"])
    headers = emulator.requests[0].headers
    assert headers["authorization"] == "Bearer sk-test"
    assert headers["x-stainless-retry-count"] == "0"


SPOKEN = (
    Think(text="The user wants a listing, so I look. 🙂"),
    Say(text="Looking for it."),
    Call(name="ls", arguments={"path": "/tmp/目录"}),
    Call(name="ls", raw='{ "path":  "b" }'),
    Call(name="ls"),
)


@pytest.mark.parametrize("vendor", VENDORS)
async def test_an_answer_goes_back_to_its_vendor_as_it_came(connect: Connect, vendor: str) -> None:
    async with connect(Turn(parts=SPOKEN), Turn(parts=SPOKEN), says("Done."), vendor=vendor) as (emulator, provider):
        pieces, first = await collect(provider, ask(vendor=vendor))
        loop = [user("hello"), first, *(result(call.id) for call in first.calls)]
        _, second = await collect(provider, ask(*loop, vendor=vendor))
        loop = [*loop, second, *(result(call.id) for call in second.calls)]
        _, third = await collect(provider, ask(*loop, vendor=vendor))
    assert (first.stop_reason, second.stop_reason, third.text) == ("tool_use", "tool_use", "Done.")
    kinds = ["thinking"] * (vendor in SHOWN) + ["text"] + ["toolCall"] * 3
    assert [part.type for part in first.content] == kinds
    assert [piece.call for piece in pieces if isinstance(piece, ToolCallEnd)] == list(first.calls)
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == [call.id for call in first.calls]
    thought = "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta))
    assert thought == ("The user wants a listing, so I look. 🙂" if vendor in SHOWN else "")
    sent = emulator.requests[1].body["messages"][2]
    assert sent["content"] == "Looking for it."
    assert [call["id"] for call in sent["tool_calls"]] == [call.id for call in first.calls]
    raws = ['{"path": "/tmp/目录"}', '{ "path":  "b" }', "{}"]
    assert [call["function"]["arguments"] for call in sent["tool_calls"]] == raws
    assert [call.arguments_raw for call in first.calls] == raws


@pytest.mark.parametrize(
    ("vendor", "name"),
    [
        ("deepseek", "reasoning_content"),
        ("moonshot", "reasoning_content"),
        ("qwen", "reasoning_content"),
        ("vllm", "reasoning"),
    ],
)
async def test_reasoning_is_kept_in_the_turn_and_left_behind_after_it(connect: Connect, vendor: str, name: str) -> None:
    script = (Turn(parts=SPOKEN), says("There."), says("Done."))
    async with connect(*script, vendor=vendor) as (emulator, provider):
        _, first = await collect(provider, ask(vendor=vendor))
        loop = [user("hello"), first, *(result(call.id) for call in first.calls)]
        _, last = await collect(provider, ask(*loop, vendor=vendor))
        _, message = await collect(provider, ask(*loop, last, user("and now?"), vendor=vendor))
    assert message.text == "Done."
    running, finished = (request.body["messages"][2] for request in emulator.requests[1:])
    assert running[name] == "The user wants a listing, so I look. 🙂"
    assert finished.get(name) == {"deepseek": "", "moonshot": " "}.get(vendor)


async def test_hidden_reasoning_of_openrouter_is_kept_and_replayed(connect: Connect) -> None:
    turn = Turn(parts=(Think(text="secret", shown=False), Think(text="open"), Call(name="ls")))
    async with connect(turn, says("ok"), vendor="openrouter") as (emulator, provider):
        _, first = await collect(provider, ask(vendor="openrouter"))
        again = ask(user("hello"), first, result(first.calls[0].id), vendor="openrouter")
        _, second = await collect(provider, again)
    assert second.text == "ok"
    sent = emulator.requests[1].body["messages"][2]["reasoning_details"]
    assert [entry["type"] for entry in sent] == ["reasoning.encrypted", "reasoning.text"]


async def test_reasoning_that_was_changed_is_refused_as_stale(connect: Connect) -> None:
    turn = Turn(parts=(Think(text="hm"), Call(name="ls")))
    async with connect(turn, vendor="deepseek") as (emulator, provider):
        _, first = await collect(provider, ask(vendor="deepseek"))
        emulator.script = [Fault(status=400, message="reasoning_content in the thinking mode must be passed back")]
        _, message = await collect(provider, ask(user("x"), first, result(first.calls[0].id), vendor="deepseek"))
    assert message.error is not None
    assert message.error.kind == "stale_thinking"


async def test_a_new_openai_model_calls_tools_without_reasoning(connect: Connect) -> None:
    async with connect(calls(("ls", {}))) as (emulator, provider):
        _, message = await collect(provider, asking(model="gpt-5.5"))
    assert message.stop_reason == "tool_use"
    assert emulator.requests[0].body["reasoning_effort"] == "none"


@pytest.mark.parametrize("key", ["", "sk-test"])
async def test_a_local_server_needs_no_key(connect: Connect, key: str) -> None:
    async with connect(says("ok"), vendor="ollama", config={"apiKey": key}) as (_, provider):
        await provider.warm_up()
        _, message = await collect(provider, ask(vendor="ollama"))
    assert message.text == "ok"


_WHOLE = Turn(parts=(Think(text="hm"), Say(text="Half a sentence, and then"), Call(name="ls", arguments={"path": "."})))


def proof(frames: list[bytes]) -> int:
    """How many frames it takes until the end is proved."""
    events = [json.loads(frame[6:]) if frame.startswith(b"data: {") else {} for frame in frames]
    reasons = [n for n, chunk in enumerate(events, 1) if chunk.get("choices") and chunk["choices"][0]["finish_reason"]]
    return reasons[0] if reasons else len(frames)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("then", ["end", "reset", "error"])
async def test_a_stream_cut_before_its_end_is_an_error_and_after_it_is_none(
    connect: Connect, vendor: str, then: str
) -> None:
    async with connect(vendor=vendor) as (emulator, provider):
        await collect(provider, ask(vendor=vendor))
        frames = emulator.frames(_WHOLE, 1, emulator.requests[0].body, 1)
        needed = proof(frames)
        for after in range(len(frames)):
            emulator.script = [replace(_WHOLE, cut_after=after, then=then)]  # type: ignore[arg-type]
            _, message = await collect(provider, ask(vendor=vendor))
            if after >= needed:
                assert (message.stop_reason, len(message.calls)) == ("tool_use", 1), after
                continue
            assert message.stop_reason == "error", after
            assert message.error is not None
            assert message.error.retryable
            kind = {"end": "incomplete", "reset": "network", "error": "overloaded"}[then]
            assert message.error.kind == kind, after
            assert message.calls == ()
            assert all(isinstance(part, Text) for part in message.content)


async def test_a_server_that_falls_silent_after_the_end_keeps_nobody_waiting(connect: Connect) -> None:
    async with connect(config={"idleSeconds": 0.2}) as (emulator, provider):
        await collect(provider, ask())
        frames = emulator.frames(_WHOLE, 1, emulator.requests[0].body, 1)
        emulator.script = [replace(_WHOLE, cut_after=proof(frames), then="stall")]
        _, message = await collect(provider, ask())
    assert (message.stop_reason, message.usage) == ("tool_use", Usage(estimated=True))


_STREAM_ERRORS: list[tuple[str, ErrorKind, bool]] = [
    ("overloaded_error", "overloaded", True),
    ("rate_limit_error", "rate_limited", True),
    ("server_error", "server", True),
    ("something_new", "server", True),
]


@pytest.mark.parametrize("vendor", ["openai", "openrouter", "zhipu"])
async def test_an_error_in_mid_stream_fails_by_its_type(connect: Connect, vendor: str) -> None:
    turn = replace(says("Half"), cut_after=2, then="error")
    script = [replace(turn, error_type=type_) for type_, _, _ in _STREAM_ERRORS]
    async with connect(*script, vendor=vendor) as (_, provider):
        for _, kind, retryable in _STREAM_ERRORS:
            _, message = await collect(provider, ask(vendor=vendor))
            assert message.error is not None
            assert (message.error.kind, message.error.retryable) == (kind, retryable)
            assert "It broke" not in message.error.summary


def _openrouter(code: int) -> Fault:
    return Fault(status=200, body=json.dumps({"error": {"code": code, "message": "x", "metadata": {}}}))


_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=404, code="model_not_found"), "not_found", False),
    (Fault(status=429, type="insufficient_quota", code="insufficient_quota"), "billing", False),
    (Fault(status=529), "overloaded", True),
    (_openrouter(502), "server", True),
    (_openrouter(402), "billing", False),
    (_openrouter(429), "rate_limited", True),
    (Fault(status=200, body='{"object": "chat.completion"}'), "incomplete", True),
    (Fault(status=200, body='{"error": {"message": "'), "incomplete", True),
    (Fault(status=200, body='{"error": {"message": "' + "x" * 1_100_000 + '"}}'), "incomplete", True),
]


async def test_faults_end_the_stream_as_errors(connect: Connect) -> None:
    async with connect(*(fault for fault, _, _ in _FAULTS)) as (_, provider):
        for fault, kind, retryable in _FAULTS:
            pieces, message = await collect(provider, ask())
            assert pieces == []
            assert message.error is not None
            assert (message.stop_reason, message.error.kind, message.error.retryable) == ("error", kind, retryable), (
                fault
            )


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_conversation_that_is_too_long_says_so(connect: Connect, vendor: str) -> None:
    async with connect(vendor=vendor, window_tokens=100) as (_, provider):
        _, message = await collect(provider, ask(user("long " * 500), vendor=vendor))
    assert message.error is not None
    assert (message.error.kind, message.error.retryable) == ("too_large", False)


@pytest.mark.parametrize(
    ("code", "kind"), [("1302", "rate_limited"), ("1305", "overloaded"), ("1113", "billing"), ("1310", "billing")]
)
async def test_zhipus_numbers_are_understood(connect: Connect, code: str, kind: ErrorKind) -> None:
    async with connect(Fault(status=429, code=code), vendor="zhipu") as (_, provider):
        _, message = await collect(provider, ask(vendor="zhipu"))
    assert message.error is not None
    assert message.error.kind == kind


_STOPS: list[tuple[str, Stop, StopReason]] = [
    ("openai", "length", "max_tokens"),
    ("openai", "refusal", "refusal"),
    ("openai", "filter", "content_filter"),
    ("ollama", "length", "max_tokens"),
    ("deepseek", "refusal", "content_filter"),
    ("zhipu", "filter", "content_filter"),
    ("zhipu", "context", "context_window"),
]


@pytest.mark.parametrize(("vendor", "stop", "reason"), _STOPS)
async def test_calls_of_an_answer_that_did_not_end_well_are_not_run(
    connect: Connect, vendor: str, stop: Stop, reason: StopReason
) -> None:
    turn = Turn(parts=(Say(text="Well,"), Call(name="ls", raw='{"path": "/tm')), stop=stop)
    async with connect(turn, vendor=vendor) as (_, provider):
        _, message = await collect(provider, ask(vendor=vendor))
    assert (message.stop_reason, message.text) == (reason, "Well,")
    assert (message.calls[0].arguments, message.calls[0].arguments_raw) == (None, '{"path": "/tm')


async def test_azures_filter_of_the_input_counts_as_a_refusal(connect: Connect) -> None:
    fault = Fault(status=400, code="content_filter", message="The response was filtered")
    async with connect(fault, vendor="azure") as (_, provider):
        _, message = await collect(provider, ask(vendor="azure"))
    assert message.stop_reason == "content_filter"


@pytest.mark.parametrize("vendor", VENDORS)
async def test_what_an_answer_cost(connect: Connect, vendor: str) -> None:
    used = Usage(input=12, cache_read=2100, output=57, reasoning=20)
    async with connect(says("ok", usage=used), vendor=vendor) as (_, provider):
        _, message = await collect(provider, ask(vendor=vendor))
    assert message.usage == used


async def test_comments_keep_a_slow_model_alive(connect: Connect) -> None:
    turn = replace(says("slow"), pause_seconds=0.03)
    async with connect(turn, vendor="openrouter", config={"idleSeconds": 5}) as (_, provider):
        _, message = await collect(provider, ask(vendor="openrouter"))
    assert message.text == "slow"

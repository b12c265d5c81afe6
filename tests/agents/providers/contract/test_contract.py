"""What every wire must do, edge by edge, over a real socket against its own strict emulator.

A wire that joins `SUBJECTS` joins all of this; what no vendor's record touches is asked of one subject a wire. What only
one vendor has is tested beside that vendor's code.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from agents.messages import AssistantMessage, ErrorKind, Message, Text, Thinking, message_json
from agents.providers.models import facts_of, family_of, nearest
from agents.providers.provider import (
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from agents.repair import repair
from tests.agents.providers.contract.subjects import KEY, NATIVE, NOW, SUBJECTS, WIRES, Subject
from tests.agents.providers.requests import LS, PIXEL, READ, asking, collect, result, user
from tests.emulators.models.script import HTML_200, Call, Fault, Say, Think, Turn, calls, says
from tests.emulators.models.server import ModelEmulator, Reply
from tools.tool import Image


def _each(subjects: Mapping[str, Subject]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("subject", subjects.values(), ids=subjects.keys())


WIRE, ANY, OWN = _each(WIRES), _each(SUBJECTS), _each(NATIVE)
THINKING = _each({name: it for name, it in SUBJECTS.items() if it.thinks})
SEEING = _each({name: it for name, it in SUBJECTS.items() if it.sees})


def ask(subject: Subject, *messages: Message, **more: Any) -> ModelRequest:
    """The request as the runner would make it: repaired for this model."""
    repaired = repair(
        messages or [user("hello")],
        api=subject.wire,
        family=family_of(subject.model),
        images_max=20 if facts_of(subject.model).vision else 0,
    )
    return replace(asking(*repaired, model=subject.model, tools=(LS, READ)), conversation="chat-1", **more)


def accepted(emulator: ModelEmulator) -> None:
    """Nothing that was sent has been refused."""
    assert [received.refusal for received in emulator.requests] == [None] * len(emulator.requests)


async def go_on(subject: Subject, provider: Provider, *turns: Message) -> AssistantMessage:
    """Ask with an answer and its results behind the question."""
    _, message = await collect(provider, ask(subject, *turns))
    return message


def failure(message: AssistantMessage) -> tuple[ErrorKind, bool]:
    assert message.error is not None
    return message.error.kind, message.error.retryable


@ANY
async def test_a_text_arrives_in_pieces_and_whole(subject: Subject) -> None:
    text = "你好,这是一个足够长的回答 👩‍👩‍👧,会分成几段。\u2028And a second line."
    async with subject.connected(says(text, usage=subject.usage)) as (emulator, provider):
        pieces, message = await collect(provider, ask(subject, user("half \ud83d and \0")))
    assert (message.error, message.text, message.stop_reason) == (None, text, "end_turn")
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == text
    assert len(pieces) > 1
    assert (message.provider, message.model, message.api) == (subject.name, subject.model, provider.api)
    assert (message.timestamp, bool(message.response_id)) == (NOW, True)
    assert message.usage == subject.usage
    assert "half \ufffd and \ufffd" in json.dumps(emulator.requests[0].body, ensure_ascii=False)
    accepted(emulator)


_SAME = Call(name="ls", id="call_same")
_OTHER = replace(_SAME, arguments={"path": "b"})
_CALLS: dict[str, Turn] = {
    "parallel": calls(("ls", {"path": "目录/🙂"}), ("ls", {"path": "b"}), ("read", {}), before="Looking."),
    "of a tool that nobody offered": calls(("rocket", {"to": "moon"})),
    "by ids that cannot pair": Turn(parts=(_SAME, _OTHER, Call(name="ls", id="null"))),
    "a thousand": calls(*(("ls", {"path": str(number)}) for number in range(1000))),
}


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        pytest.param(subject, kind, id=f"{name}, {kind}")
        for kind in _CALLS
        for name, subject in (SUBJECTS if kind == "parallel" else WIRES).items()
    ],
)
async def test_calls_keep_their_order_and_are_told_apart_and_answered(subject: Subject, kind: str) -> None:
    turn = _CALLS[kind]
    made = [(part.name, part.arguments) for part in turn.parts if isinstance(part, Call)]
    async with subject.connected(turn, says("Done.")) as (emulator, provider):
        pieces, message = await collect(provider, ask(subject))
        assert (message.error, message.stop_reason) == (None, "tool_use")
        assert [(call.name, call.arguments) for call in message.calls] == made
        assert message.text == ("Looking." if kind == "parallel" else "")
        assert message_json.validate_json(message_json.dump_json(message)) == message
        assert [piece.call for piece in pieces if isinstance(piece, ToolCallEnd)] == list(message.calls)
        started = [(piece.id, piece.name) for piece in pieces if isinstance(piece, ToolCallStart)]
        assert started == [(call.id, call.name) for call in message.calls]
        assert len(set(started)) == len(made)
        shown = "".join(piece.text for piece in pieces if isinstance(piece, ToolCallDelta))
        assert sorted(shown) == sorted("".join(call.arguments_raw for call in message.calls))
        results = [result(call.id, is_error=number == 1) for number, call in enumerate(message.calls)]
        end = await go_on(subject, provider, user("hello"), message, *results)
    assert end.text == "Done."
    accepted(emulator)


@ANY
async def test_a_call_with_broken_arguments_is_told_and_can_be_answered(subject: Subject) -> None:
    turn = Turn(parts=(Call(name="ls", raw='{"path": '),))
    async with subject.connected(turn, says("Sorry.")) as (emulator, provider):
        _, message = await collect(provider, ask(subject))
        if message.error is not None:  # a wire whose arguments are objects has no broken ones: the server says so
            assert message.error.retryable
            return
        (call,) = message.calls
        assert (call.arguments, call.arguments_raw) == (None, '{"path": ')
        end = await go_on(subject, provider, user("hello"), message, result(call.id, "broken", is_error=True))
    assert end.text == "Sorry."
    accepted(emulator)


@THINKING
async def test_thinking_is_sent_back_only_within_its_turn(subject: Subject) -> None:
    call = Call(name="ls", raw='{ "path" :"目录"}')
    turn = Turn(parts=(Think(text="First look, then speak."), Say(text="Looking. \n"), call, Call(name="ls")))
    level = nearest("high", facts_of(subject.model).thinking)
    async with subject.connected(turn, says("Done."), says("You are welcome.")) as (emulator, provider):
        pieces, first = await collect(provider, ask(subject, thinking=level))
        assert first.error is None
        shown = "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta))
        assert shown == "".join(part.text for part in first.content if isinstance(part, Thinking))
        assert [type(part).__name__ for part in first.content] == ["Thinking", "Text", "ToolCall", "ToolCall"]
        history: list[Message] = [user("hello"), first, *(result(call.id) for call in first.calls)]
        _, second = await collect(provider, ask(subject, *history, thinking=level))
        assert second.text == "Done."
        _, third = await collect(provider, ask(subject, *history, second, user("thanks"), thinking=level))
    assert third.text == "You are welcome."
    accepted(emulator)
    sent = json.dumps(emulator.requests[1].body)
    assert json.dumps("Looking. \n")[1:-1] in sent
    assert json.dumps(first.calls[0].arguments_raw)[1:-1] in sent or json.dumps({"path": "目录"}) in sent


@OWN
async def test_thinking_redacted_is_sent_back_untouched(subject: Subject) -> None:
    turn = Turn(parts=(Think(text="secret", shown=False), Call(name="ls")))
    async with subject.connected(turn, says("ok")) as (emulator, provider):
        pieces, first = await collect(provider, ask(subject))
        assert not any(isinstance(piece, ThinkingDelta) for piece in pieces)
        question, answer = user("hello"), result(first.calls[0].id)
        assert (await go_on(subject, provider, question, first, answer)).text == "ok"
        forged = replace(first, content=tuple(_forged(part) for part in first.content))
        refused = await go_on(subject, provider, question, forged, answer)
    assert failure(refused) == ("stale_thinking", False)
    assert emulator.requests[-1].refusal is not None


def _forged(part: Any) -> Any:
    """The part with its vendor's seal broken."""
    if part.wire is None:
        return part
    data = part.wire.data
    seals = {"signature": "AAAA", "encrypted_content": "gAAAAfrom-elsewhere"}
    touched = "AAAA" if isinstance(data, str) else data | {key: value for key, value in seals.items() if key in data}
    return replace(part, wire=replace(part.wire, data=touched))


@ANY
async def test_an_end_that_is_no_answer_says_why(subject: Subject) -> None:
    script = [says("I can", stop="refusal"), says("I can", stop="filter"), says("Half", stop="context")]
    async with subject.connected(*script, window_tokens=2000) as (_, provider):
        for _ in range(2):
            assert (await go_on(subject, provider)).stop_reason in ("refusal", "content_filter")
        full = await go_on(subject, provider)
        assert (full.error.kind if full.error else full.stop_reason) in ("context_window", "max_tokens", "too_large")
        assert failure(await go_on(subject, provider, user("long " * 2000))) == ("too_large", False)


_CUT = Turn(parts=(Say(text="So."), Call(name="ls", raw='{"path": "/tm')), stop="length")


@WIRE
@pytest.mark.parametrize(
    ("turn", "text", "stop"),
    [
        (says("Half", stop="length"), "Half", "max_tokens"),
        (_CUT, "So.", "max_tokens"),
        (Turn(parts=()), "", "end_turn"),
    ],
    ids=["a text that is cut", "a call that is cut", "nothing"],
)
async def test_a_turn_goes_on_after(subject: Subject, turn: Turn, text: str, stop: str) -> None:
    async with subject.connected(turn, says("er.")) as (emulator, provider):
        pieces, message = await collect(provider, ask(subject))
        assert (message.error, message.text, message.stop_reason) == (None, text, stop)
        assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == text
        assert all(call.arguments is None for call in message.calls)
        answers: list[Message] = [result(call.id, "cut off", is_error=True) for call in message.calls]
        rest = await go_on(subject, provider, user("hello"), message, *(answers or [user("go on")]))
    assert rest.text == "er."
    accepted(emulator)


_CUTS: dict[Any, ErrorKind] = {"end": "incomplete", "reset": "network", "stall": "timeout"}
_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, message="bad"), "invalid", False),
    (Fault(status=401), "auth", False),
    (Fault(status=402), "billing", False),
    (Fault(status=403), "auth", False),
    (Fault(status=404), "not_found", False),
    (Fault(status=413), "too_large", False),
    (Fault(status=422), "invalid", False),
    (Fault(status=429), "rate_limited", True),
    *((Fault(status=429, headers={"retry-after": "7"}, then=it), "rate_limited", True) for it in _CUTS),
    (Fault(status=400, headers={"x-should-retry": "true"}), "invalid", True),
    (Fault(status=500), "server", True),
    (Fault(status=502, body="<html>Bad gateway</html>", content_type="text/html"), "server", True),
    (Fault(status=503), "overloaded", True),
    (Fault(status=307, headers={"location": "http://127.0.0.1:9/"}), "invalid", False),
    (HTML_200, "incomplete", True),
    (Fault(status=200, body='{"type": "message", "choices": []}'), "incomplete", True),
    (Fault(status=429, body='{"error": "' + "x" * 1_000_000), "rate_limited", True),
    *(
        (Fault(status=200, body=body, content_type="text/event-stream"), "incomplete", True)
        for body in ("", "data: {oops\n\n", "data: [1, 2]\n\n", "data: 7\n\n", "data: [DONE]\n\n", "\x00\x01" * 5000)
    ),
]


@WIRE
async def test_faults_end_the_stream_as_errors_of_their_kind(subject: Subject) -> None:
    """Each is sent once: the next answer would be that to a second attempt."""
    busy: tuple[Fault, ErrorKind, bool] = (Fault(status=subject.busy_status), "overloaded", True)
    async with subject.connected(*(fault for fault, _, _ in _FAULTS), busy[0], config={"idleSeconds": 0.5}) as (
        _,
        provider,
    ):
        for fault, kind, retryable in (*_FAULTS, busy):
            pieces, message = await collect(provider, ask(subject))
            assert (pieces, message.stop_reason, failure(message)) == ([], "error", (kind, retryable)), fault
            assert message.error is not None
            assert message.error.retry_after_seconds == (7.0 if "retry-after" in fault.headers else None)
            assert "bad" not in message.error.summary


_DRIP = says("slow " * 50, chunk_bytes=1, pause_seconds=0.03)
_HALF = says("Half", cut_after=1, then="error")
_TROUBLE: dict[str, tuple[Reply, dict[str, Any], tuple[ErrorKind, bool]]] = {
    "a wrong key": (says("hi"), {"apiKey": "sk-wrong"}, ("auth", False)),
    "a drip without end": (_DRIP, {"timeoutSeconds": 0.4}, ("timeout", True)),
    "a drip that fills no event": (_DRIP, {"idleSeconds": 0.2, "timeoutSeconds": 0.6}, ("timeout", True)),
    "an error in mid stream": (_HALF, {}, ("overloaded", True)),
    "a limit in mid stream": (replace(_HALF, error_type="rate_limit_error"), {}, ("rate_limited", True)),
    "an unheard-of error": (replace(_HALF, error_type="unheard_of"), {}, ("server", True)),
    "no server": (_HALF, {"baseUrl": "http://127.0.0.1:9"}, ("network", True)),
    "no key": (_HALF, {"apiKey": " \n", "baseUrl": "https://models.example.com"}, ("unconfigured", False)),
}


@WIRE
@pytest.mark.parametrize("trouble", _TROUBLE)
async def test_trouble_ends_the_stream_as_what_it_is(subject: Subject, trouble: str) -> None:
    reply, config, expected = _TROUBLE[trouble]
    async with subject.connected(reply, config=config) as (_, provider):
        await provider.warm_up()
        message = await go_on(subject, provider)
    assert (failure(message), message.calls) == (expected, ())
    assert message.error is not None
    assert "It broke" not in message.error.summary
    assert trouble != "no key" or f"providers.{subject.name}.apiKey" in message.error.summary


_WHOLE = Turn(parts=(Say(text="Half a sentence, and then"), Call(name="ls", arguments={"path": "."})))


@WIRE
@pytest.mark.parametrize("then", ["end", "reset", "stall", "error"])
async def test_stream_cut_at_any_event_is_a_failed_attempt(subject: Subject, then: Any) -> None:
    quick = {"idleSeconds": 0.1, "firstByteSeconds": 0.1} if then == "stall" else {}
    whole = replace(_WHOLE, parts=(Think(text="hm"), *_WHOLE.parts)) if subject.thinks else _WHOLE
    shown: set[str] = set()
    async with subject.connected(config=quick) as (emulator, provider):
        for after in itertools.count():
            emulator.script = [replace(whole, cut_after=after, then=then)]
            _, message = await collect(provider, ask(subject))
            if message.error is None:
                break
            assert message.stop_reason == "error", after
            assert message.error.retryable, (after, message.error)
            assert message.error.kind == _CUTS.get(then, message.error.kind), (after, message.error)
            assert message.calls == ()
            assert all(isinstance(part, Text) for part in message.content)
            assert _WHOLE.parts[0].text.startswith(message.text)  # type: ignore[union-attr]
            shown.add(message.text)
    assert after > 3
    assert shown - {""}
    assert message.stop_reason == "tool_use"
    assert len(message.calls) == 1


async def recorded(subject: Subject, turn: Turn) -> str:
    """The body of this answer, as the server sends it."""
    async with subject.connected(turn, turn) as (emulator, provider):
        await collect(provider, ask(subject))
        (sent,) = emulator.requests
        headers = {name: value for name, value in sent.headers.items() if name != "content-length"}
        transport = httpx.ASGITransport(emulator.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://emulator", headers=headers) as client:
            return (await client.post(sent.path, json=sent.body)).text


@WIRE
async def test_stream_in_any_wrapping_reads_the_same(subject: Subject) -> None:
    body = await recorded(subject, says("ok"))
    lines = [line for line in body.splitlines() if line.startswith("data:") and "[DONE]" not in line]
    unnamed, events = "\n\n".join(lines) + "\n\n", Fault(status=200, body=body, content_type="text/event-stream")
    read = [
        unnamed,
        unnamed.replace("\n", "\r\n") + "data: [DONE]\r\n\r\n",
        *(f"\ufeff{it}".replace("\n", end) for it in (body.replace("\r", ""), unnamed) for end in ("\n", "\r\n", "\r")),
        "\n".join(line.removeprefix("data: ") for line in lines),
    ]
    labels = [replace(events, content_type=it) for it in ("application/json", "text/plain; charset=utf-8", "text/html")]
    unread = [
        replace(events, headers={"content-encoding": "gzip"}),
        replace(events, body=f"{lines[0]}\n\ndata: [DONE]\n\n"),
    ]
    async with subject.connected(*(replace(events, body=it) for it in read), *labels, *unread) as (_, provider):
        for _ in (*read, *labels):
            assert (await go_on(subject, provider)).text == "ok"
        for fault in unread:
            assert failure(await go_on(subject, provider)) == ("incomplete", True), fault


@WIRE
async def test_stream_chunking_and_unknown_events_change_nothing(subject: Subject) -> None:
    turn = Turn(
        parts=(Say(text="emoji 👩‍👩‍👧 中文 \u2028 𠜎"), Call(name="ls", arguments={"path": "目录/🙂"})), noise=True
    )
    slow = replace(turn, pause_seconds=0.02)
    async with subject.connected(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000)), slow) as (_, provider):
        for _ in range(4):
            message = await go_on(subject, provider)
            assert message.stop_reason == "tool_use"
            assert message.text == "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
            assert message.calls[0].arguments == {"path": "目录/🙂"}


@WIRE
async def test_the_user_may_stop_it_or_walk_away_and_the_server_notices(subject: Subject) -> None:
    turn = replace(says("Half a sentence, and the rest never comes"), cut_after=8, then="stall")
    async with subject.connected(turn, turn) as (emulator, provider):
        begun = asyncio.Event()

        async def listen() -> None:
            async for _ in provider.stream(ask(subject)):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = provider.stream(ask(subject))
        assert isinstance(stream, AsyncGenerator)
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        while emulator.hangups < 2:  # the server sees each connection close; without that this never ends
            await asyncio.sleep(0)


@SEEING
async def test_a_picture_from_a_person_and_one_from_a_tool_are_seen(subject: Subject) -> None:
    picture = Image(media_type="image/png", data=PIXEL, name="dot.png")
    question = replace(user("what is this?"), content=(*user("what is this?").content, picture))
    async with subject.connected(calls(("read", {"path": "a.png"})), says("A dot.")) as (emulator, provider):
        _, first = await collect(provider, ask(subject, question))
        shown = replace(result(first.calls[0].id), content=(Text(text="a.png"), picture))
        second = await go_on(subject, provider, question, first, shown)
    assert second.text == "A dot."
    assert json.dumps(emulator.requests[1].body).count(PIXEL) == 2
    accepted(emulator)


@WIRE
async def test_a_key_that_has_had_enough_gives_way_to_the_next(subject: Subject) -> None:
    config = {"apiKey": "sk-wrong", "apiKeys": (KEY,)}
    async with subject.connected(says("hi"), config=config) as (_, provider):
        errors = [(await go_on(subject, provider)).error for _ in range(2)]
    first, second = errors
    assert second is None
    assert first is None or (first.kind, first.retryable, first.retry_after_seconds) == ("auth", True, 0.0)


_ENVIRONMENT = {
    **dict.fromkeys(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"), "stolen"),
    **dict.fromkeys(("MISTRAL_API_KEY", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"), "stolen"),
    **dict.fromkeys(("OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET"), "stolen"),
    **dict.fromkeys(("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"), "x-api-key: stolen\nauthorization: stolen"),
    **dict.fromkeys(("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"), "http://127.0.0.1:9"),
    **dict.fromkeys(("HTTP_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9"),
}


@WIRE
async def test_only_the_config_decides_what_is_sent(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    config = {"headers": {"x-team": "blue"}}
    async with subject.connected(says("ok"), config=config) as (emulator, provider):
        await provider.warm_up()
        _, message = await collect(provider, ask(subject))
    assert message.text == "ok"
    headers = emulator.requests[0].headers
    assert headers["x-team"] == "blue"
    assert [name for name, value in headers.items() if "stolen" in value] == []
    assert any(KEY in value for value in headers.values())
    assert headers.get("x-stainless-retry-count", "0") == "0"


@WIRE
async def test_a_later_request_differs_from_the_first_in_its_body_alone(subject: Subject) -> None:
    """An SDK builds the first one, and its own judgement of the path, the key and the headers holds for all."""
    config = {"headers": {"x-team": "blue"}, "apiKey": KEY}
    long = "x" * 300_000  # more than what is sent in one piece
    async with subject.connected(*[says("ok")] * 3, config=config) as (emulator, provider):
        for text in ("short", long, "once more"):
            await collect(provider, ask(subject, user(text)))
    first, second, third = emulator.requests
    assert long in json.dumps(second.body)
    assert "once more" in json.dumps(third.body)
    lengths = {received.headers["content-length"] for received in emulator.requests}
    assert len(lengths) == 3
    for received in (second, third):
        assert received.path == first.path
        assert {**received.headers, "content-length": ""} == {**first.headers, "content-length": ""}


@pytest.mark.parametrize("name", ["responses", "mistral", "openai chat", "ollama"])
async def test_a_server_on_this_machine_needs_no_key(name: str) -> None:
    async with SUBJECTS[name].connected(config={"apiKey": ""}) as (emulator, provider):
        await provider.warm_up()
        await collect(provider, ask(SUBJECTS[name]))
    assert not any(KEY in value for value in emulator.requests[0].headers.values())


@WIRE
async def test_connections_are_used_again_and_shared_from_the_first_requests_on(subject: Subject) -> None:
    slow: list[Reply] = [says("ok", pause_seconds=0.05)] * 5  # so that all five are under way at once
    quick: list[Reply] = [says("ok"), Fault(status=429), *[says("ok")] * 5]
    async with subject.connected(*slow, *quick) as (emulator, provider):
        answers = await asyncio.gather(*(collect(provider, ask(subject)) for _ in range(5)))
        first = {received.client for received in emulator.requests}
        await provider.warm_up()
        for _ in range(2):
            await collect(provider, ask(subject))
        await asyncio.gather(*(collect(provider, ask(subject)) for _ in range(5)))
    assert [message.text for _, message in answers] == ["ok"] * 5
    assert (len(first), {received.client for received in emulator.requests}) == (5, first)

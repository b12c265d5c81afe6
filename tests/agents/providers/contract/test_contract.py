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
from agents.providers.catalog import build_provider
from agents.providers.models import facts_of, family_of, nearest
from agents.providers.provider import (
    ModelRequest,
    OneTool,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolChoice,
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


async def answered(subject: Subject, *script: Reply, **options: Any) -> AssistantMessage:
    """What becomes of one question."""
    async with subject.connected(*script, **options) as (_, provider):
        return await go_on(subject, provider)


def failure(message: AssistantMessage) -> tuple[ErrorKind, bool]:
    assert message.error is not None
    return message.error.kind, message.error.retryable


@ANY
async def test_a_text_arrives_in_pieces_and_whole(subject: Subject) -> None:
    text = "你好,这是一个足够长的回答 👩‍👩‍👧,会分成几段。\u2028And a second line."
    async with subject.connected(says(text)) as (emulator, provider):
        pieces, message = await collect(provider, ask(subject))
    assert message.error is None
    assert (message.text, message.stop_reason) == (text, "end_turn")
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == text
    assert len(pieces) > 1
    assert (message.provider, message.model, message.api) == (subject.name, subject.model, provider.api)
    assert (message.timestamp, bool(message.response_id)) == (NOW, True)
    assert message.usage.input > 0
    assert message_json.validate_json(message_json.dump_json(message)) == message
    accepted(emulator)


_SAME = Call(name="ls", id="call_same")
_CALLS: dict[str, Turn] = {
    "parallel": calls(("ls", {"path": "目录/🙂"}), ("ls", {"path": "b"}), ("read", {}), before="Looking."),
    "of a tool that nobody offered": calls(("rocket", {"to": "moon"})),
    "by ids that cannot pair": Turn(parts=(_SAME, _SAME, Call(name="ls", id="null"))),
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
        assert [json.loads(call.arguments_raw or "{}") for call in message.calls] == [
            arguments for _, arguments in made
        ]
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
async def test_thinking_goes_back_as_it_came_while_the_turn_runs_and_not_after_it(subject: Subject) -> None:
    call = Call(name="ls", raw='{ "path" :"目录"}')
    turn = Turn(parts=(Think(text="First look, then speak."), Say(text="Looking. \n"), call, Call(name="ls")))
    level = nearest("high", facts_of(subject.model).thinking)
    async with subject.connected(turn, says("Done."), says("You are welcome.")) as (emulator, provider):
        _, first = await collect(provider, ask(subject, thinking=level))
        assert first.error is None
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
async def test_thinking_that_was_hidden_goes_back_and_is_refused_as_stale_where_it_was_touched(
    subject: Subject,
) -> None:
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


@THINKING
async def test_thinking_that_is_shown_is_streamed_beside_the_text(subject: Subject) -> None:
    async with subject.connected(Turn(parts=(Think(text="Hmm, let me see."), Say(text="It is so.")))) as (_, provider):
        pieces, message = await collect(provider, ask(subject))
    shown = "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta))
    assert shown == "".join(part.text for part in message.content if isinstance(part, Thinking))
    assert [type(part) for part in message.content] == [Thinking, Text]
    assert message.text == "It is so."


@ANY
@pytest.mark.parametrize("stop", ["refusal", "filter"])
async def test_a_refusal_is_no_answer_and_runs_no_call(subject: Subject, stop: Any) -> None:
    message = await answered(subject, says("I can", stop=stop))
    assert message.error is None
    assert message.stop_reason in ("refusal", "content_filter")


@WIRE
async def test_a_text_cut_at_the_output_limit_says_so(subject: Subject) -> None:
    async with subject.connected(says("Half an answ", stop="length"), says("er.")) as (emulator, provider):
        _, message = await collect(provider, ask(subject))
        assert (message.text, message.stop_reason) == ("Half an answ", "max_tokens")
        rest = await go_on(subject, provider, user("hello"), message, user("go on"))
    assert rest.text == "er."
    accepted(emulator)


@WIRE
async def test_a_call_cut_at_the_output_limit_is_not_one_to_run(subject: Subject) -> None:
    turn = Turn(parts=(Say(text="So."), Call(name="ls", raw='{"path": "/tm')), stop="length")
    async with subject.connected(turn, says("Smaller.")) as (emulator, provider):
        _, message = await collect(provider, ask(subject))
        assert message.stop_reason == "max_tokens"
        assert all(call.arguments is None for call in message.calls)
        answers = [result(call.id, "cut off", is_error=True) for call in message.calls]
        last: list[Message] = [*answers] or [user("go on")]
        end = await go_on(subject, provider, user("hello"), message, *last)
    assert end.text == "Smaller."
    accepted(emulator)


@ANY
async def test_a_full_window_while_writing_says_so(subject: Subject) -> None:
    message = await answered(subject, says("Half", stop="context"))
    reason = message.error.kind if message.error else message.stop_reason
    assert reason in ("context_window", "max_tokens", "too_large")


_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, message="bad"), "invalid", False),
    (Fault(status=401), "auth", False),
    (Fault(status=402), "billing", False),
    (Fault(status=403), "auth", False),
    (Fault(status=404), "not_found", False),
    (Fault(status=413), "too_large", False),
    (Fault(status=422), "invalid", False),
    (Fault(status=429), "rate_limited", True),
    (Fault(status=429, headers={"retry-after": "7"}), "rate_limited", True),
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
    async with subject.connected(*(fault for fault, _, _ in _FAULTS)) as (_, provider):
        for fault, kind, retryable in _FAULTS:
            pieces, message = await collect(provider, ask(subject))
            assert (pieces, message.stop_reason, failure(message)) == ([], "error", (kind, retryable)), fault
            assert message.error is not None
            assert message.error.retry_after_seconds == (7.0 if "retry-after" in fault.headers else None)
            assert "bad" not in message.error.summary


@WIRE
@pytest.mark.parametrize("then", ["stall", "reset"])
async def test_a_refusal_whose_body_never_ends_is_reported_by_its_status(subject: Subject, then: Any) -> None:
    fault = Fault(status=429, headers={"retry-after": "7"}, then=then)
    message = await answered(subject, fault, config={"idleSeconds": 0.2})
    assert failure(message) == ("rate_limited", True)
    assert message.error is not None
    assert message.error.retry_after_seconds == 7.0


_DRIP = says("slow " * 50, chunk_bytes=1, pause_seconds=0.03)
_TROUBLE: dict[str, tuple[Reply, dict[str, Any], tuple[ErrorKind, bool]]] = {
    "a wrong key": (says("hi"), {"apiKey": "sk-wrong"}, ("auth", False)),
    "a drip without end": (_DRIP, {"timeoutSeconds": 0.4}, ("timeout", True)),
    "a drip that fills no event": (_DRIP, {"idleSeconds": 0.2, "timeoutSeconds": 0.6}, ("timeout", True)),
    "an error in mid stream": (says("Half", cut_after=1, then="error"), {}, ("overloaded", True)),
    "a limit in mid stream": (
        says("Half", cut_after=1, then="error", error_type="rate_limit_error"),
        {},
        ("rate_limited", True),
    ),
    "an unheard-of error": (says("Half", cut_after=1, then="error", error_type="unheard_of"), {}, ("server", True)),
}


@WIRE
@pytest.mark.parametrize("trouble", _TROUBLE)
async def test_trouble_ends_the_stream_as_what_it_is(subject: Subject, trouble: str) -> None:
    reply, config, expected = _TROUBLE[trouble]
    message = await answered(subject, reply, config=config)
    assert (failure(message), message.calls) == (expected, ())
    assert message.error is not None
    assert "It broke" not in message.error.summary


@WIRE
async def test_an_overloaded_server_is_told_apart(subject: Subject) -> None:
    assert failure(await answered(subject, Fault(status=subject.busy_status))) == ("overloaded", True)


_CUTS: dict[str, ErrorKind] = {"end": "incomplete", "reset": "network", "stall": "timeout"}
_WHOLE = Turn(parts=(Say(text="Half a sentence, and then"), Call(name="ls", arguments={"path": "."})))


@WIRE
@pytest.mark.parametrize("then", ["end", "reset", "stall", "error"])
async def test_a_stream_that_breaks_at_any_event_is_a_failed_attempt_without_calls(subject: Subject, then: Any) -> None:
    quick = {"idleSeconds": 0.1, "firstByteSeconds": 0.1} if then == "stall" else {}
    whole = replace(_WHOLE, parts=(Think(text="hm"), *_WHOLE.parts)) if subject.thinks else _WHOLE
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
            last = message.text
    assert after > 3
    assert last
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
async def test_the_same_events_are_read_in_any_wrapping_but_not_as_anything_else(subject: Subject) -> None:
    body = await recorded(subject, says("ok"))
    lines = [line for line in body.splitlines() if line.startswith("data:") and "[DONE]" not in line]
    unnamed, events = "\n\n".join(lines) + "\n\n", Fault(status=200, body=body, content_type="text/event-stream")
    read = [unnamed, unnamed.replace("\n", "\r\n") + "data: [DONE]\r\n\r\n"]
    unread = [
        replace(events, content_type="text/html"),
        replace(events, headers={"content-encoding": "gzip"}),
        replace(events, body=f"{lines[0]}\n\ndata: [DONE]\n\n"),
    ]
    async with subject.connected(*(replace(events, body=it) for it in read), *unread) as (_, provider):
        for _ in read:
            assert (await go_on(subject, provider)).text == "ok"
        for fault in unread:
            assert failure(await go_on(subject, provider)) == ("incomplete", True), fault


@WIRE
async def test_any_cutting_of_the_bytes_gives_the_same_answer(subject: Subject) -> None:
    turn = Turn(parts=(Say(text="emoji 👩‍👩‍👧 中文 \u2028 𠜎"), Call(name="ls", arguments={"path": "目录/🙂"})))
    async with subject.connected(*(replace(turn, chunk_bytes=size) for size in (1, 7, 1000))) as (_, provider):
        for _ in range(3):
            _, message = await collect(provider, ask(subject))
            assert message.text == "emoji 👩‍👩‍👧 中文 \u2028 𠜎"
            assert message.calls[0].arguments == {"path": "目录/🙂"}


@WIRE
async def test_a_slow_drip_is_waited_for_as_long_as_it_lives(subject: Subject) -> None:
    patient = {"idleSeconds": 5.0, "firstByteSeconds": 5.0}
    assert (await answered(subject, says("slow", pause_seconds=0.02), config=patient)).text == "slow"


@WIRE
async def test_the_user_can_stop_it_and_the_server_notices(subject: Subject) -> None:
    turn = replace(says("Half a sentence, and the rest never comes"), cut_after=8, then="stall")
    async with subject.connected(turn) as (emulator, provider):
        begun = asyncio.Event()

        async def listen() -> None:
            async for _ in provider.stream(ask(subject)):
                begun.set()

        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not emulator.hangups:  # the server sees the connection close; without that this never ends
            await asyncio.sleep(0)


@ANY
async def test_a_conversation_that_is_too_long_says_so(subject: Subject) -> None:
    async with subject.connected(window_tokens=200) as (_, provider):
        message = await go_on(subject, provider, user("long " * 2000))
    assert failure(message) == ("too_large", False)


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
async def test_an_empty_answer_is_an_answer(subject: Subject) -> None:
    async with subject.connected(Turn(parts=()), says("here")) as (emulator, provider):
        pieces, message = await collect(provider, ask(subject))
        assert message.error is None
        assert (message.text, message.calls, message.stop_reason) == ("", (), "end_turn")
        assert not any(isinstance(piece, TextDelta) for piece in pieces)
        again = await go_on(subject, provider, user("hello"), message, user("nothing?"))
    assert again.text == "here"
    accepted(emulator)


@WIRE
async def test_what_does_not_exist_yet_is_passed_over(subject: Subject) -> None:
    turn = Turn(parts=(Say(text="ok"), Call(name="ls", arguments={})), noise=True)
    message = await answered(subject, turn)
    assert (message.text, message.stop_reason) == ("ok", "tool_use")


@ANY
@pytest.mark.parametrize("choice", ["auto", "none", "required", OneTool(name="ls"), OneTool(name="gone")], ids=str)
async def test_every_tool_choice_is_sent_or_degraded_but_never_refused(subject: Subject, choice: ToolChoice) -> None:
    levels = facts_of(subject.model).thinking
    async with subject.connected() as (emulator, provider):
        for level in (None, *levels):
            _, message = await collect(provider, ask(subject, tool_choice=choice, thinking=level))
            assert message.error is None, (level, emulator.requests[-1].refusal)
    accepted(emulator)


@ANY
async def test_usage_counts_caches_and_reasoning_apart(subject: Subject) -> None:
    assert (await answered(subject, says("ok", usage=subject.usage))).usage == subject.usage


@ANY
async def test_an_agent_that_has_lost_its_tools_can_go_on(subject: Subject) -> None:
    async with subject.connected(calls(("ls", {})), says("ok")) as (emulator, provider):
        _, message = await collect(provider, ask(subject))
        request = ask(subject, user("hello"), message, result(message.calls[0].id), message, user("and now?"))
        _, end = await collect(provider, replace(request, tools=()))
    assert end.text == "ok"
    accepted(emulator)


@WIRE
async def test_a_key_that_has_had_enough_gives_way_to_the_next(subject: Subject) -> None:
    config = {"apiKey": "sk-wrong", "apiKeys": (KEY,)}
    async with subject.connected(says("hi"), config=config) as (_, provider):
        errors = [(await go_on(subject, provider)).error for _ in range(2)]
    assert errors[1] is None
    assert errors[0] is None or (errors[0].kind, errors[0].retryable, errors[0].retry_after_seconds) == (
        "auth",
        True,
        0.0,
    )


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
async def test_nothing_is_sent_without_a_key(subject: Subject) -> None:
    provider = build_provider(subject.name, subject.config("https://models.example.com", {"apiKey": " \n"}))
    await provider.warm_up()
    pieces, message = await collect(provider, ask(subject))
    await provider.close()
    assert (pieces, message.stop_reason, failure(message)) == ([], "error", ("unconfigured", False))
    assert message.error is not None
    assert f"providers.{subject.name}.apiKey" in message.error.summary


@pytest.mark.parametrize("name", ["responses", "mistral", "openai chat", "ollama"])
async def test_a_server_on_this_machine_needs_no_key(name: str) -> None:
    async with SUBJECTS[name].connected(config={"apiKey": ""}) as (emulator, provider):
        await provider.warm_up()
        await collect(provider, ask(SUBJECTS[name]))
    assert not any(KEY in value for value in emulator.requests[0].headers.values())


@WIRE
async def test_a_server_that_is_not_there_is_a_network_error(subject: Subject) -> None:
    provider = build_provider(subject.name, subject.config("http://127.0.0.1:9", {}))
    message = await go_on(subject, provider)
    await provider.close()
    assert failure(message) == ("network", True)


@WIRE
async def test_the_connection_is_used_again(subject: Subject) -> None:
    async with subject.connected(says("a"), says("b"), Fault(status=429), says("c")) as (emulator, provider):
        await provider.warm_up()
        for _ in range(4):
            await collect(provider, ask(subject))
        await provider.warm_up()
    assert (len(emulator.requests), len({received.client for received in emulator.requests})) == (4, 1)


@WIRE
async def test_many_first_requests_share_what_they_build(subject: Subject) -> None:
    slow = [says("ok", pause_seconds=0.05)] * 5  # so that all five are under way at once
    async with subject.connected(*slow, *[says("ok")] * 5) as (emulator, provider):
        answers = await asyncio.gather(*(collect(provider, ask(subject)) for _ in range(5)))
        first = {received.client for received in emulator.requests}
        await asyncio.gather(*(collect(provider, ask(subject)) for _ in range(5)))
    assert [message.text for _, message in answers] == ["ok"] * 5
    assert {received.client for received in emulator.requests} == first


@WIRE
async def test_what_is_refused_is_sent_only_once(subject: Subject) -> None:
    refusals = [
        Fault(status=429, headers={"retry-after": "0.001"}),
        Fault(status=500),
        Fault(status=400, headers={"x-should-retry": "true"}),
    ]
    async with subject.connected(*refusals) as (emulator, provider):
        for count in range(1, 4):
            assert (await go_on(subject, provider)).error is not None
            assert len(emulator.requests) == count


@WIRE
async def test_a_consumer_may_walk_away_in_mid_answer(subject: Subject) -> None:
    turn = replace(says("Half a sentence, and the rest never comes"), cut_after=8, then="stall")
    async with subject.connected(turn) as (emulator, provider):
        stream = provider.stream(ask(subject))
        assert isinstance(stream, AsyncGenerator)
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        while not emulator.hangups:
            await asyncio.sleep(0)
    assert emulator.hangups == 1


@WIRE
async def test_half_an_emoji_from_a_person_does_not_break_the_request(subject: Subject) -> None:
    async with subject.connected(says("ok")) as (emulator, provider):
        _, message = await collect(provider, ask(subject, user("half \ud83d and \0")))
    assert message.text == "ok"
    assert "half \ufffd and \ufffd" in json.dumps(emulator.requests[0].body, ensure_ascii=False)

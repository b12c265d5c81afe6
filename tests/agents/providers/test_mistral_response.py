"""Mistral's chunks put together: as documented, as servers of its shape are known to differ, and broken."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import AssistantMessage, StopReason, Text, Thinking, ToolCall, Usage
from agents.providers.draft import ANSWER_CHARS_MAX
from agents.providers.errors import AttemptFailed, BadStream
from agents.providers.mistral.response import MistralAssembly
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from tests.emulators.models.mistral.script import thinking_chunk

MODEL = "magistral-medium-latest"


def delta(finish: str | None = None, **members: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    return {"id": "cmpl1", "choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def thinks(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **members}


def made(arguments: Any = None, **members: Any) -> dict[str, Any]:
    """A delta with one piece of a call."""
    function = {key: members.pop(key) for key in ("name",) if key in members} | {"arguments": arguments}
    return delta(tool_calls=[members | {"function": function}])


END = delta("stop")
CALLED = delta("tool_calls")


def put_together(*chunks: dict[str, Any]) -> tuple[list[ModelEvent], AssistantMessage]:
    assembly = MistralAssembly(provider="mistral", model=MODEL, timestamp=1.0)
    pieces = [piece for chunk in chunks for piece in assembly.feed(chunk)]
    return pieces, assembly.finish()


def content(*chunks: dict[str, Any]) -> list[Any]:
    return [part.text if isinstance(part, Text | Thinking) else part for part in put_together(*chunks)[1].content]


def calls(*chunks: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments_raw) for call in put_together(*chunks)[1].calls]


def test_a_plain_answer() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    pieces, message = put_together(
        delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), END | {"usage": usage}
    )
    assert pieces == [TextDelta(index=0, text="Hel"), TextDelta(index=0, text="lo")]
    assert message == AssistantMessage(
        content=(Text(text="Hello"),),
        provider="mistral",
        model=MODEL,
        api="mistral",
        stop_reason="end_turn",
        usage=Usage(input=10, output=3),
        response_id="cmpl1",
        timestamp=1.0,
    )


def test_thoughts_come_in_pieces_and_are_kept_as_one_chunk_in_place() -> None:
    pieces, message = put_together(
        delta(content=[thinks("First ")]),
        delta(content=[thinks("look.", signature="sig", closed=True), {"type": "text", "text": "So "}]),
        delta(content="it is."),
        delta(content=[thinks("Another", closed=True), thinks("and another")]),
        END,
    )
    first, answer, second, third = message.content
    assert isinstance(first, Thinking)
    assert first.wire is not None
    assert first.wire.data == thinks("First look.", signature="sig", closed=True)
    assert (first.wire.api, first.wire.family, first.wire.kind) == ("mistral", "magistral-medium", "thinking")
    assert (first.text, answer, second.type, third.type) == (
        "First look.",
        Text(text="So it is."),
        "thinking",
        "thinking",
    )
    assert [piece.text for piece in pieces if isinstance(piece, ThinkingDelta)] == [
        "First ",
        "look.",
        "Another",
        "and another",
    ]


def test_what_stands_in_a_thought_beside_text_stays_where_it_was() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    chunk = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, reference, {"type": "text", "text": "b"}]}
    [part] = put_together(delta(content=[chunk]), delta(content=[thinks("c")]), END)[1].content
    assert part.wire is not None
    assert part.wire.data["thinking"] == [{"type": "text", "text": "a"}, reference, {"type": "text", "text": "bc"}]


def test_a_thought_that_is_no_text_is_kept_beside_one_that_is() -> None:
    odd = {"type": "text", "text": 7}
    [part] = put_together(delta(content=[{"type": "thinking", "thinking": [odd]}]), delta(content=[thinks("a")]), END)[
        1
    ].content
    assert part.wire is not None
    assert part.wire.data["thinking"] == [odd, {"type": "text", "text": "a"}]


def test_a_hidden_thought_is_kept_and_an_empty_one_is_none() -> None:
    hidden = thinking_chunk("secret", shown=False)
    [part] = put_together(delta(content=[hidden]), END)[1].content
    assert isinstance(part, Thinking)
    assert part.text == ""
    assert part.wire is not None
    assert part.wire.data == hidden
    assert content(delta(content=[{"type": "thinking", "thinking": []}]), END) == []


def test_whole_calls_in_the_last_chunk() -> None:
    whole_calls = [
        {"id": "AAAAAAAAA", "function": {"name": "ls", "arguments": '{"path": "/"}'}, "index": 0},
        {"id": "BBBBBBBBB", "function": {"name": "ls", "arguments": "{}"}, "index": 1},
    ]
    pieces, message = put_together(delta(content="Looking."), delta("tool_calls", content="", tool_calls=whole_calls))
    first, second = message.calls
    assert message.stop_reason == "tool_use"
    assert (first.id, first.arguments, second.id, second.arguments) == ("AAAAAAAAA", {"path": "/"}, "BBBBBBBBB", {})
    assert pieces[1:] == [
        ToolCallStart(index=1, id="AAAAAAAAA", name="ls"),
        ToolCallDelta(index=1, text='{"path": "/"}'),
        ToolCallStart(index=2, id="BBBBBBBBB", name="ls"),
        ToolCallDelta(index=2, text="{}"),
        ToolCallEnd(index=1, call=first),
        ToolCallEnd(index=2, call=second),
    ]


_A = {"id": "AAAAAAAAA", "name": "ls"}
_B = {"id": "BBBBBBBBB", "name": "cat"}
_STREAMED: dict[str, tuple[Sequence[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "in pieces by index": (
        [
            made("", index=0, **_A),
            made("", index=1, **_B),
            made('{"a":', index=0),
            made("{}", index=1),
            made("1}", index=0),
        ],
        [("AAAAAAAAA", "ls", '{"a":1}'), ("BBBBBBBBB", "cat", "{}")],
    ),
    "pieces that repeat id and name": (
        [made("", index=0, **_A), made('{"a":', index=0, **_A), made("1}", index=0, **_A)],
        [("AAAAAAAAA", "ls", '{"a":1}')],
    ),
    "whole calls that all say index 0": (
        [made("{}", index=0, **_A), made("{}", index=0, **_B)],
        [("AAAAAAAAA", "ls", "{}"), ("BBBBBBBBB", "cat", "{}")],
    ),
    "a broken call and another, both at index 0": (
        [made('{"a":', index=0, **_A), made("{}", index=0, **_B)],
        [("AAAAAAAAA", "ls", '{"a":'), ("BBBBBBBBB", "cat", "{}")],
    ),
    "whole calls without index": (
        [made("{}", **_A), made("{}", **_B)],
        [("AAAAAAAAA", "ls", "{}"), ("BBBBBBBBB", "cat", "{}")],
    ),
    "pieces without index": ([made('{"a":', **_A), made("1}")], [("AAAAAAAAA", "ls", '{"a":1}')]),
    "one id for two calls": (
        [made("{}", index=0, **_A), made("{}", index=1, **_A)],
        [("AAAAAAAAA", "ls", "{}"), ("AAAAAAAAA_1", "ls", "{}")],
    ),
    "one id and one index for two calls": (
        [made("{}", index=0, **_A), made("{}", index=0, **_A)],
        [("AAAAAAAAA", "ls", "{}"), ("AAAAAAAAA_1", "ls", "{}")],
    ),
    "no id, and the id null": (
        [
            made("{}", index=0, name="ls"),
            made("{}", index=1, name="ls", id="null"),
            made("{}", index=2, name="x", id=None),
        ],
        [("call_cmpl1_0", "ls", "{}"), ("call_cmpl1_1", "ls", "{}"), ("call_cmpl1_2", "x", "{}")],
    ),
    "no id and one index": (
        [made("{}", name="ls"), made("{}", name="ls")],
        [("call_cmpl1_0", "ls", "{}"), ("call_cmpl1_1", "ls", "{}")],
    ),
    "arguments as an object": ([made({"path": "目录"}, index=0, **_A)], [("AAAAAAAAA", "ls", '{"path": "目录"}')]),
    "no arguments": ([made(None, index=0, **_A)], [("AAAAAAAAA", "ls", "")]),
    "no name": ([made("{}", index=0, id="AAAAAAAAA")], [("AAAAAAAAA", "", "{}")]),
}


@pytest.mark.parametrize("name", _STREAMED)
def test_calls_as_servers_send_them(name: str) -> None:
    chunks, expected = _STREAMED[name]
    assert calls(*chunks, CALLED) == expected


def test_text_that_goes_on_after_a_call_goes_on_in_its_block() -> None:
    text, call = content(delta(content="a"), made("{}", **_A), delta(content="b"), CALLED)
    assert (text, isinstance(call, ToolCall)) == ("ab", True)


_REASONS: list[tuple[str, StopReason, StopReason]] = [
    ("stop", "end_turn", "tool_use"),
    ("tool_calls", "end_turn", "tool_use"),
    ("length", "max_tokens", "max_tokens"),
    ("model_length", "context_window", "context_window"),
    ("content_filter", "content_filter", "content_filter"),
]


@pytest.mark.parametrize(("theirs", "without_calls", "with_calls"), _REASONS)
def test_reasons_to_stop(theirs: str, without_calls: StopReason, with_calls: StopReason) -> None:
    assert put_together(delta(content="x"), delta(theirs))[1].stop_reason == without_calls
    message = put_together(made('{"half": ', **_A), delta(theirs))[1]
    assert (message.stop_reason, len(message.calls)) == (with_calls, 1)


def test_an_unknown_reason_ends_an_answer_but_runs_no_calls() -> None:
    assert put_together(delta(content="x"), delta("new_reason"))[1].stop_reason == "end_turn"
    with pytest.raises(BadStream):
        put_together(made("{}", **_A), delta("new_reason"))


def test_an_answer_without_its_end_is_no_answer() -> None:
    with pytest.raises(BadStream):
        put_together(delta(content="Half"))
    with pytest.raises(BadStream):
        put_together()


def test_a_model_that_breaks_down_may_be_asked_again() -> None:
    with pytest.raises(AttemptFailed) as failed:
        put_together(delta(content="Half"), delta("error"))
    assert (failed.value.error.kind, failed.value.error.retryable) == ("server", True)


@pytest.mark.parametrize(
    "event",
    [
        {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"},
        {"error": {"message": "slow down", "type": "rate_limited"}},
    ],
)
def test_an_error_in_the_stream_is_the_error(event: dict[str, Any]) -> None:
    with pytest.raises(AttemptFailed) as failed:
        put_together(delta(content="Half"), event)
    assert failed.value.error.kind == "rate_limited"


_FUTURE: list[dict[str, Any]] = [
    {},
    {"object": "weather.report", "sky": "clear"},
    {"choices": None},
    {"choices": [7, {"index": 0}, {"index": 0, "delta": None}, {"index": 1, "delta": {"content": "another choice"}}]},
    delta(content=[{"type": "hologram", "light": 1}, 7, {"type": "text"}]),
    delta(content=7, tool_calls=7),
    delta(content=None, tool_calls=[7], mood="calm"),
    {"choices": [], "usage": 7},
]


def test_what_is_not_known_is_passed_over() -> None:
    assert content(*_FUTURE, delta(content="ok"), *_FUTURE, END) == ["ok"]


@pytest.mark.parametrize("kind", ["text", "thought", "arguments"])
def test_an_answer_that_never_ends_is_stopped(kind: str) -> None:
    much = "x" * (ANSWER_CHARS_MAX // 4)
    chunk = {"text": delta(content=much), "thought": delta(content=[thinks(much)]), "arguments": made(much, **_A)}[kind]
    with pytest.raises(BadStream):
        put_together(*[chunk] * 5, END)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(estimated=True)),
        ({}, Usage()),
        ({"prompt_tokens": 12, "completion_tokens": 5}, Usage(input=12, output=5)),
        (
            {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}},
            Usage(input=4, cache_read=8, output=5),
        ),
        ({"prompt_tokens": "many", "completion_tokens": None, "prompt_tokens_details": 7}, Usage()),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(cache_read=8)),
    ],
)
def test_usage(usage: dict[str, Any] | None, expected: Usage) -> None:
    end = END | ({} if usage is None else {"usage": usage})
    assert put_together(delta(content="x"), end)[1].usage == expected


_KEYS = [
    "id",
    "choices",
    "index",
    "delta",
    "content",
    "type",
    "text",
    "thinking",
    "signature",
    "tool_calls",
    "function",
]
_WORDS = ["text", "thinking", "null", "stop", "{}", "ls", "\ud83d"]
_anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.floats(), st.sampled_from(_WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*_KEYS, "name", "arguments", "finish_reason", "usage", "message"]), inner),
    ),
)


def _deltas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Chunks that are right on the outside."""
    chunk = st.fixed_dictionaries({"type": st.sampled_from(["text", "thinking"]), "thinking": inner, "text": inner})
    function = st.fixed_dictionaries({"name": inner, "arguments": inner})
    call = st.fixed_dictionaries({"id": inner, "index": inner, "function": function})
    return st.builds(delta, content=st.lists(chunk, max_size=3), tool_calls=st.lists(call, max_size=3))


@given(st.lists(st.one_of(_deltas(_anything), st.dictionaries(st.sampled_from(_KEYS), _anything)), max_size=6))
def test_no_stream_whatever_surprises_us(chunks: list[dict[str, Any]]) -> None:
    try:
        message = put_together(*chunks, CALLED)[1]
    except (BadStream, AttemptFailed):
        return
    assert len({call.id for call in message.calls}) == len(message.calls)


def _cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(number % (len(text) + 1) for number in at), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(st.text(min_size=1), st.lists(st.integers(0, 99), max_size=4), st.booleans())
def test_however_an_answer_is_cut_into_chunks_it_is_the_same(text: str, at: list[int], as_list: bool) -> None:
    spoken = [delta(content=[{"type": "text", "text": piece}] if as_list else piece) for piece in _cut(text, at)]
    thought = [delta(content=[thinks(piece)]) for piece in _cut(text, at)]
    called = [made(piece, index=0, id="AAAAAAAAA") for piece in _cut('{"a": 1}', at)]
    _, message = put_together(*thought, *spoken, made("", index=0, **_A), *called, CALLED)
    first, second, third = message.content
    assert isinstance(first, Thinking)
    assert isinstance(third, ToolCall)
    shown = text.replace("\0", "\ufffd")
    assert (first.text, second, third.arguments_raw) == (shown, Text(text=shown), '{"a": 1}')

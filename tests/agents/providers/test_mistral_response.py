"""Mistral's chunks put together: as documented, as servers of its shape are known to differ, and broken; and refusals."""

from typing import Any

import pytest

from agents.messages import AssistantMessage, ErrorKind, StopReason, Usage
from agents.providers.chat import ChatAssembly
from agents.providers.draft import Draft
from agents.providers.payload import BadStream
from agents.providers.provider import ModelEvent
from agents.providers.refusals import AttemptFailed, failure_of, is_error
from agents.providers.vendors import VENDORS

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
    assembly = ChatAssembly(Draft(api="mistral", provider="mistral", model=MODEL, timestamp=1.0), VENDORS["mistral"])
    pieces: list[ModelEvent] = []
    for chunk in chunks:
        if is_error(chunk):
            raise failure_of(chunk)
        pieces += assembly.feed(chunk)
    return pieces, assembly.finish()


_REFERENCE = {"type": "reference", "reference_ids": [1]}
_ODD = {"type": "text", "text": 7}


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ([["a", _REFERENCE, "b"], ["c"]], ["a", _REFERENCE, "bc"]),
        ([[_ODD], ["a"]], [_ODD, "a"]),
        (["a", ["b"]], ["ab"]),
        ([["a", ""], ["b"]], ["ab"]),
        ([[]], None),
    ],
)
def test_what_a_thought_holds_beside_text_stays_in_its_place(chunks: list[Any], kept: list[Any] | None) -> None:
    def items(held: Any) -> Any:
        return held if isinstance(held, str) else [_text(it) for it in held]

    thoughts = [{"type": "thinking", "thinking": items(held)} for held in chunks]
    content = put_together(*(delta(content=[it]) for it in thoughts), END)[1].content
    assert {part.wire.kind for part in content if part.wire} <= {"thinking"}
    assert [part.wire.data["thinking"] for part in content if part.wire] == ([] if kept is None else [items(kept)])


def test_thinking_chunk_that_is_closed_goes_back_by_itself() -> None:
    """Each has a signature of its own, which is about its text alone."""
    pieces = [thinks("a"), thinks("b", signature="s1", closed=True), thinks("c", signature="s2", closed=True)]
    _, message = put_together(*(delta(content=[it]) for it in pieces), delta(content="d"), END)
    chunks = [thinks("ab", signature="s1", closed=True), thinks("c", signature="s2", closed=True)]
    assert [part.wire.data for part in message.content if part.wire] == chunks
    assert [part.type for part in message.content] == ["thinking", "thinking", "text"]


def test_thinking_without_end_is_refused_also_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.providers.draft.ANSWER_CHARS_MAX", 1_000)
    flood = delta(content=[{"type": "thinking", "thinking": [_REFERENCE]}])
    with pytest.raises(BadStream, match="no end"):
        put_together(*[flood] * 100, END)


def _text(item: Any) -> Any:
    return {"type": "text", "text": item} if isinstance(item, str) else item


_A, _B = {"id": "A", "name": "ls"}, {"id": "B", "name": "cat"}
_STREAMED: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "in pieces by index": (
        [made("", index=0, **_A), made("", index=1, **_B), made("{", index=0), made("{}", index=1), made("}", index=0)],
        ["A ls {}", "B cat {}"],
    ),
    "pieces that repeat id and name": (
        [made("", index=0, **_A), made('{"a":', index=0, **_A), made("1}", index=0, **_A)],
        ['A ls {"a":1}'],
    ),
    "a broken call and another, both at index 0": (
        [made('{"a":', index=0, **_A), made("{}", index=0, **_B)],
        ['A ls {"a":', "B cat {}"],
    ),
    "whole calls without index": ([made("{}", **_A), made("{}", **_B)], ["A ls {}", "B cat {}"]),
    "pieces without index": ([made('{"a":', **_A), made("1}")], ['A ls {"a":1}']),
    "one id and one index for two calls": (
        [made('{"n":1}', index=0, **_A), made('{"n":2}', index=0, **_A)],
        ['A ls {"n":1}', 'A_1 ls {"n":2}'],
    ),
    "a call that is repeated": ([made('{"n":1}', index=0, **_A), made('{"n": 1}', index=1, **_A)], ['A ls {"n":1}']),
    "no id, the id null, and no index": (
        [made("{}", index=0, name="ls"), made("{}", index=1, name="ls", id="null"), made("{}", name="x", id=None)],
        ["call_cmpl1_0 ls {}", "call_cmpl1_1 ls {}", "call_cmpl1_2 x {}"],
    ),
    "arguments as an object": ([made({"path": "目录"}, index=0, **_A)], ['A ls {"path": "目录"}']),
    "no arguments": ([made(None, index=0, **_A)], ["A ls "]),
    "no name": ([made("{}", index=0, id="A")], ["A  {}"]),
}


@pytest.mark.parametrize("name", _STREAMED)
def test_calls_as_servers_send_them(name: str) -> None:
    chunks, expected = _STREAMED[name]
    message = put_together(*chunks, CALLED)[1]
    assert [f"{call.id} {call.name} {call.arguments_raw}" for call in message.calls] == expected


def test_text_that_goes_on_after_a_call_goes_on_in_its_block() -> None:
    _, message = put_together(delta(content="a"), made("{}", **_A), delta(content="b"), CALLED)
    assert [part.type for part in message.content] == ["text", "toolCall"]
    assert message.text == "ab"


_REASONS: list[tuple[str, StopReason, StopReason]] = [
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


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (delta("error"), "server"),
        ({"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"}, "rate_limited"),
        ({"error": {"message": "slow down", "type": "rate_limited"}}, "rate_limited"),
    ],
)
def test_a_model_that_breaks_down_may_be_asked_again(end: dict[str, Any], kind: str) -> None:
    with pytest.raises(AttemptFailed) as failed:
        put_together(delta(content="Half"), end)
    assert (failed.value.error.kind, failed.value.error.retryable) == (kind, True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(estimated=True)),
        ({}, Usage(estimated=True)),
        ({"prompt_tokens": "many", "completion_tokens": None, "prompt_tokens_details": 7}, Usage()),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(cache_read=8)),
    ],
)
def test_usage(usage: dict[str, Any] | None, expected: Usage) -> None:
    end = END | ({} if usage is None else {"usage": usage})
    assert put_together(delta(content="x"), end)[1].usage == expected


def error(message: Any, type_: str | None = None, code: object = None) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": type_, "param": None, "code": code}


_LONG = "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
_ORDER = "Unexpected role 'user' after role 'tool'"
_STALE = {"detail": [{"type": "x", "loc": ["body", "messages", 1, "assistant", "content", 0, "thinking"], "msg": "no"}]}
_EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}

REFUSALS: list[tuple[int, object, ErrorKind, bool]] = [
    (400, error(_ORDER, "invalid_request_message_order", "3230"), "invalid", False),
    (400, error(_LONG, "invalid_request_error", "3051"), "too_large", False),
    (400, error({"detail": [{"msg": _LONG}]}), "too_large", False),
    (400, error("Invalid model: x", "invalid_model", "1500"), "not_found", False),
    (400, error("Invalid `signature` in thinking chunk", "invalid_assistant_message"), "stale_thinking", False),
    (400, error("You have no credits", "insufficient_credits"), "billing", False),
    (422, _EXTRA, "invalid", False),
    (422, _STALE, "stale_thinking", False),
    (422, {"detail": [{"msg": _LONG}]}, "too_large", False),
    (429, error("Rate limit exceeded", "rate_limited", "1300"), "rate_limited", True),
    (429, error("too many tokens, too large for model with", "rate_limited"), "rate_limited", True),
    (429, error(None, code="insufficient_quota"), "billing", False),
    (429, error("No credits left", "invalid_request_error", "insufficient_credits"), "billing", False),
    (400, {"message": {"detail": 7}, "type": ["x"], "code": {}}, "invalid", False),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), REFUSALS)
def test_refusals(status: int, body: object, kind: ErrorKind, retryable: bool) -> None:
    failure = failure_of(body, status).error
    assert (failure.kind, failure.retryable) == (kind, retryable)


def test_the_log_gets_ids_and_codes_and_the_wait() -> None:
    failure = failure_of(error("张三 wrote too much", "rate_limited", 1300), 429, {"retry-after": "7"}).error
    assert failure.summary == "status=429 type=rate_limited code=1300"
    assert failure.retry_after_seconds == 7.0
    assert "none" in failure_of(error("x", "张三 wrote"), 400).error.summary


@pytest.mark.parametrize(
    ("event", "kind", "retryable"),
    [
        (error("x", "authentication_error"), "auth", False),
        (error(_LONG, "invalid_request_error"), "too_large", False),
        ({"error": "broken"}, "server", True),
        ({"detail": "broken"}, "server", True),
    ],
)
def test_errors_inside_a_stream(event: dict[str, Any], kind: ErrorKind, retryable: bool) -> None:
    with pytest.raises(AttemptFailed) as failed:
        put_together(event)
    failure = failed.value.error
    assert (failure.kind, failure.retryable) == (kind, retryable)

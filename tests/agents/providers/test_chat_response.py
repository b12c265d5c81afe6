"""A Chat answer put together from whatever servers send: each deviation seen in the wild, one by one."""

from typing import Any

import pytest

from agents.messages import AssistantMessage, Text, Thinking, Usage
from agents.providers.chat import API, ChatAssembly
from agents.providers.draft import Draft
from agents.providers.payload import BadStream
from agents.providers.provider import (
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from agents.providers.refusals import AttemptFailed
from agents.providers.vendors import VENDORS

DONE = {"type": "[DONE]"}


def assembly(vendor: str = "generic") -> ChatAssembly:
    return ChatAssembly(Draft(api=API, provider="p", model="m", timestamp=1.0), VENDORS[vendor])


def chunk(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(name: str | None = None, arguments: Any = None, **members: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return members | {"function": {key: value for key, value in function.items() if value is not None}}


def put_together(*events: dict[str, Any], vendor: str = "generic") -> tuple[list[ModelEvent], AssistantMessage]:
    made = assembly(vendor)
    shown = [shown for event in events for shown in made.feed(event)]
    return shown, made.finish()


def called(
    *deltas: dict[str, Any] | list[dict[str, Any]], finish: str | None = "tool_calls"
) -> list[tuple[str, str, str]]:
    """The calls made of the `tool_calls` of these deltas, as (id, name, arguments); what was shown says the same."""
    pieces = [it if isinstance(it, list) else [it] for it in deltas]
    shown, message = put_together(*(chunk(tool_calls=it) for it in pieces), chunk(finish), DONE)
    assert message.stop_reason == "tool_use"
    ended = [event.call for event in shown if isinstance(event, ToolCallEnd)]
    assert tuple(ended) == message.calls
    for start, call in zip((it for it in shown if isinstance(it, ToolCallStart)), ended, strict=True):
        raw = "".join(it.text for it in shown if isinstance(it, ToolCallDelta) and it.index == start.index)
        assert (start.id, start.name, raw) == (call.id, call.name, call.arguments_raw)
    return [(call.id, call.name, call.arguments_raw) for call in message.calls]


A1, B2 = '{"p": 1}', '{"p": 2}'
TWO = [("a", "ls", A1), ("b", "read", B2)]
SAME = [("call_chatcmpl-1_0", "ls", A1), ("call_chatcmpl-1_1", "ls", B2)]
SILENT = [(call_id, name, "") for call_id, name, _ in SAME]


def halves(call_id: str, name: str, last: str, **members: Any) -> list[dict[str, Any]]:
    """A call in two pieces that say everything each time."""
    return [piece(name, part, id=call_id, **members) for part in ('{"p"', last)]


CALLS: dict[str, tuple[list[dict[str, Any] | list[dict[str, Any]]], list[tuple[str, str, str]]]] = {
    "interleaved": (
        [
            [piece("ls", "", index=0, id="a"), piece("read", "", index=1, id="b")],
            *(piece(None, raw, index=index) for index, raw in ((1, '{"p"'), (0, A1), (1, ": 2}"))),
        ],
        TWO,
    ),
    "whole, without an index": ([piece("ls", A1, id="a"), piece("read", B2, id="b")], TWO),
    "whole, all with index 0": ([piece("ls", A1, index=0, id="a"), piece("read", B2, index=0, id="b")], TWO),
    "one tool twice, without arguments, all with index 0": (
        [piece("ls", "", index=0, id="a"), piece("ls", "", index=0, id="b")],
        [("a", "ls", ""), ("b", "ls", "")],
    ),
    "pieces without an index": (
        [
            *(piece("ls", "", id="a"), piece(None, A1)),
            *(piece("read", "", id="b"), piece(None, '{"p"'), piece(None, ": 2}")),
        ],
        TWO,
    ),
    "id and name with every piece": (
        [*halves("a", "ls", ": 1}", index=0), *halves("b", "read", ": 2}", index=1)],
        TWO,
    ),
    "id and name with every piece, without an index": (
        [*halves("a", "ls", ": 1}"), *halves("b", "read", ": 2}")],
        TWO,
    ),
    "no ids": ([piece("ls", A1, index=0), piece("ls", B2, index=1, id="")], SAME),
    "no ids and no index, the same tool twice": ([piece("ls", A1), piece("ls", B2)], SAME),
    "no ids and no index, in one delta": ([[piece("ls", ""), piece("ls", "")]], SILENT),
    "one id for two, without an index": (
        [piece("ls", A1, id="a"), piece("ls", B2, id="a")],
        [("a", "ls", A1), ("a_1", "ls", B2)],
    ),
    "another tool with the same index": (
        [piece("ls", "", index=0), piece("read", "", index=0)],
        [("call_chatcmpl-1_0", "ls", ""), ("call_chatcmpl-1_1", "read", "")],
    ),
    "arguments as an object": ([piece("ls", {"p": 1}, index=0, id="a")], TWO[:1]),
    "the name after the id": ([piece(None, "", index=0, id="a"), piece("ls", A1, index=0)], TWO[:1]),
    "empty pieces behind": ([piece("ls", A1, index=0, id="a"), [{"index": 0}, {"index": 1}]], TWO[:1]),
    "arguments null and no name at all": ([piece(None, None, index=0, id="a")], [("a", "", "")]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_told_apart(name: str) -> None:
    deltas, made = CALLS[name]
    assert called(*deltas) == made


def test_calls_are_run_whatever_the_server_says_about_the_end() -> None:
    for finish in ("stop", "function_call", "something_new", None):
        assert called(piece("ls", "{}", index=0, id="a"), finish=finish) == [("a", "ls", "{}")]


NULLS = [
    chunk(role="assistant", content=None, tool_calls=None, refusal=None, reasoning_content=None),
    {"choices": []},
    {"choices": None},
    {},
    {"choices": [{"delta": None}]},
    chunk(content="Hi", tool_calls=[]),
    {"choices": [None]},
    {"error": None, **chunk(content=" there")},
    chunk(content=[{"type": "text", "text": " as a part"}]),
]


def test_members_that_are_null_empty_or_strange_are_passed_over() -> None:
    shown, message = put_together(*NULLS, chunk("stop"))
    assert [event.text for event in shown if isinstance(event, TextDelta)] == ["Hi", " there", " as a part"]
    assert (message.content, message.stop_reason) == ((Text(text="Hi there as a part"),), "end_turn")
    assert (message.api, message.response_id, message.usage) == (API, "chatcmpl-1", Usage(estimated=True))


PARTS: list[tuple[Any, str]] = [
    ([{"type": "text", "text": "fine "}, {"type": "output_text", "text": "words"}], "fine words"),
    (["fine ", "words"], "fine words"),
    ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "words"}], "words"),
    ([{"type": "refusal", "refusal": "no"}], "no"),
    ({"type": "text", "text": "one"}, "one"),
    (
        [{"type": "image_url", "image_url": {}}, {"type": "text", "text": " there"}],
        "[unreadable part: image_url] there",
    ),
    ([{"type": "text", "text": ""}, None, 7], ""),
]


@pytest.mark.parametrize(("content", "text"), PARTS)
def test_content_as_parts_is_read_and_a_part_without_text_is_named(content: Any, text: str) -> None:
    _, message = put_together(chunk(content=content), chunk("stop"))
    assert message.text == text


def test_line_ends_before_the_first_word_are_not_part_of_the_answer() -> None:
    shown, message = put_together(*(chunk(content=text) for text in ("\n", "\r\n", "\nHi\n")), chunk("stop"))
    assert message.text == "Hi\n"
    assert [event.text for event in shown if isinstance(event, TextDelta)] == ["Hi\n"]


@pytest.mark.parametrize("vendor", ["vllm", "openrouter"])
def test_reasoning_is_found_under_its_new_and_its_old_name_and_told_once(vendor: str) -> None:
    for names in (["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]):
        shown, message = put_together(chunk(**dict.fromkeys(names, "hm")), chunk("stop"), vendor=vendor)
        assert [event.text for event in shown if isinstance(event, ThinkingDelta)] == ["hm"]
        (part,) = message.content
        assert isinstance(part, Thinking)
        assert part.wire is not None
        assert part.text == part.wire.data == "hm"
        assert part.wire.kind in names


def test_reasoning_details_are_put_together_entry_by_entry() -> None:
    first, second = {"type": "reasoning.text", "index": 0}, {"type": "reasoning.encrypted", "index": 1, "data": "x=="}
    unnumbered = {"type": "reasoning.summary", "summary": "S"}
    shown, message = put_together(
        chunk(reasoning="Let ", reasoning_details=[first | {"text": "Let ", "signature": None}]),
        chunk(reasoning="me", reasoning_details=[first | {"text": "me"}]),
        chunk(reasoning_details=[first | {"signature": "sig"}, second]),
        chunk(reasoning_details=[unnumbered]),
        chunk(reasoning_details=[unnumbered]),
        chunk("stop"),
        vendor="openrouter",
    )
    (thinking,) = message.content
    assert isinstance(thinking, Thinking)
    assert thinking.wire is not None
    whole = first | {"text": "Let me", "signature": "sig"}
    assert (thinking.wire.kind, thinking.wire.data) == ("reasoning_details", [whole, second, unnumbered, unnumbered])
    assert "".join(event.text for event in shown if isinstance(event, ThinkingDelta)) == "Let meSS"


def test_a_call_that_is_filtered_is_not_one_to_run() -> None:
    _, message = put_together(chunk(tool_calls=[piece("ls", '{"p', index=0, id="a")]), chunk("content_filter"))
    assert (message.stop_reason, message.calls[0].arguments) == ("content_filter", None)


def test_an_error_as_a_finish_reason_is_a_failed_attempt() -> None:
    for vendor, finish in (("openrouter", "error"), ("zhipu", "network_error")):
        with pytest.raises(AttemptFailed) as failed:
            put_together(chunk(content="Hi"), chunk(finish), vendor=vendor)
        assert (failed.value.error.kind, failed.value.error.retryable) == ("server", True)
        assert failed.value.error.summary == f"status=200 finish_reason={finish}"


def test_cut_off_before_the_first_word_the_window_is_full() -> None:
    assert put_together(chunk("length"))[1].stop_reason == "context_window"
    reasoned = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 500}}
    assert put_together(chunk("length"), reasoned)[1].stop_reason == "max_tokens"


def test_without_a_finish_reason_the_answer_is_cut() -> None:
    with pytest.raises(BadStream, match="without a finish reason"):
        put_together(chunk(content="Hi"))
    for vendor, *end in (("openai", DONE), ("ollama", chunk(""))):
        with pytest.raises(BadStream):
            put_together(chunk(content="Hi"), *end, vendor=vendor)


def test_an_error_after_the_end_takes_nothing_from_the_answer() -> None:
    _, message = put_together(chunk(content="Hi"), chunk("stop"), {"error": {"message": "x"}})
    assert (message.text, message.error) == ("Hi", None)


def test_a_usage_that_is_nonsense_costs_nothing() -> None:
    """Where each server puts it, and under which names, is in the contract."""
    nonsense = {"prompt_tokens": -1, "completion_tokens": "57", "prompt_tokens_details": None, "cached_tokens": 5}
    assert put_together(chunk("stop"), {"usage": nonsense})[1].usage == Usage(cache_read=5)


def test_a_usage_of_null_does_not_replace_one_that_came() -> None:
    first = chunk(content="Hi") | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    assert put_together(first, chunk("stop") | {"usage": None})[1].usage == Usage(input=3, output=1)

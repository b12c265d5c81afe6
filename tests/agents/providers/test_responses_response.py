"""Putting a Responses stream together: items side by side, cuts, failures, and servers that do it their own way."""

from typing import Any

import pytest

from agents.messages import AssistantMessage, ErrorKind, Opaque, StopReason, Text, Thinking, Usage, Wire
from agents.providers.draft import Draft
from agents.providers.payload import BadStream
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.providers.refusals import AttemptFailed
from agents.providers.responses import API, ResponsesAssembly

MODEL = "gpt-5.5"


def assembly() -> ResponsesAssembly:
    return ResponsesAssembly(Draft(api=API, provider="openai", model=MODEL, timestamp=0.0))


def assemble(*events: dict[str, Any], end: dict[str, Any] | None = None) -> tuple[list[ModelEvent], AssistantMessage]:
    made = assembly()
    pieces = [piece for event in [*events, end or completed()] for piece in made.feed(event)]
    return pieces, made.finish()


def completed(**members: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", **members}}


def incomplete(reason: str | None) -> dict[str, Any]:
    details = {"reason": reason} if reason else None
    return {"type": "response.incomplete", "response": {"id": "resp_1", "incomplete_details": details}}


def opened(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def closed(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def delta(kind: str, text: str, place: int = 0, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": text} | members


def text_delta(text: str, place: int = 0) -> dict[str, Any]:
    return delta("output_text", text, place, content_index=0)


def argued(text: str, place: int = 0) -> dict[str, Any]:
    return delta("function_call_arguments", text, place)


def summed(text: str, part: int) -> dict[str, Any]:
    return delta("reasoning_summary_text", text, summary_index=part)


def whole(arguments: str) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments}


def call(call_id: str = "call_1", **members: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "ls", "arguments": ""} | members


MESSAGE: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "early"}


def message_of(*texts: str, **members: Any) -> dict[str, Any]:
    return MESSAGE | {"content": [{"type": "output_text", "text": text} for text in texts]} | members


def shown(pieces: list[ModelEvent], kind: type[TextDelta] | type[ThinkingDelta] | type[ToolCallDelta]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind))


def test_calls_that_arrive_side_by_side_are_kept_apart() -> None:
    by_id = {"type": "response.function_call_arguments.delta", "item_id": "fc_b", "delta": 'th": "y"}'}
    pieces, message = assemble(
        opened(call("b", id="fc_b"), 1),
        opened(call("a", id="fc_a"), 0),
        *(argued('{"path"', 0), argued('{"pa', 1), argued(': "x"}', 0), by_id),
        closed(call("b", arguments='{"path": "y"}'), 1),
        closed(call("a", arguments='{"path": "x"}'), 0),
    )
    assert [(made.id, made.arguments) for made in message.calls] == [("a", {"path": "x"}), ("b", {"path": "y"})]
    assert [piece.index for piece in pieces if isinstance(piece, ToolCallEnd)] == [1, 0]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("events", "end", "streamed", "text"),
    [
        ([opened(MESSAGE), text_delta("Helo"), closed(message_of("Hello"))], None, "Helo", "Hello"),
        ([opened(MESSAGE), text_delta("Hel"), closed(message_of("Hello", ", you"))], None, "Hello, you", "Hello, you"),
        ([closed(message_of("Hello")), closed(call(arguments="{}"), 1)], None, "Hello", "Hello"),
        ([], completed(output=[message_of("Hello"), call(arguments="{}"), "noise"]), "Hello", "Hello"),
    ],
)
def test_responses_done_item_completes_the_deltas(
    events: list[dict[str, Any]], end: dict[str, Any] | None, streamed: str, text: str
) -> None:
    pieces, message = assemble(*events, end=end)
    assert (shown(pieces, TextDelta), message.text) == (streamed, text)
    assert [made.arguments for made in message.calls] == [{} for piece in pieces if isinstance(piece, ToolCallEnd)]
    assert shown(pieces, ToolCallDelta) == "{}" * len(message.calls)


def test_items_left_open_are_closed_by_the_end() -> None:
    _, message = assemble(opened(MESSAGE), text_delta("Hi"), opened(call(), 1), argued("{}", 1))
    assert (message.text, message.calls[0].arguments, message.stop_reason) == ("Hi", {}, "tool_use")


def test_reasoning_is_shown_part_by_part_and_kept_as_it_was_when_done() -> None:
    parts = [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]
    done = REASONING | {"summary": parts, "encrypted_content": "final", "status": None}
    pieces, message = assemble(opened(REASONING), summed("Fir", 0), summed("st.", 0), summed("Then.", 1), closed(done))
    kept = Wire(api="openai-responses", family=MODEL, kind="reasoning", data=done)
    assert message.content == (Thinking(text="First.\n\nThen.", wire=kept),)
    assert shown(pieces, ThinkingDelta) == "First.\n\nThen."


def test_reasoning_text_is_shown_as_thinking() -> None:
    piece = delta("reasoning_text", "hm", content_index=0)
    whole = closed(REASONING | {"content": [{"type": "reasoning_text", "text": "hm!"}]})
    for end, text in ((opened(call(), 1), "hm"), (whole, "hm!")):
        pieces, message = assemble(opened(REASONING), piece, end)
        assert isinstance(message.content[0], Thinking)
        assert shown(pieces, ThinkingDelta) == message.content[0].text == text


def test_reasoning_that_may_not_be_sent_again_is_kept_for_people_only() -> None:
    half = [{"type": "summary_text", "text": "half \ud83d"}]
    for change in ({"encrypted_content": None}, {"encrypted_content": ""}, {"status": "incomplete"}, {"summary": half}):
        for end in ([], [closed(REASONING | change)]):
            _, message = assemble(opened(REASONING), summed("hm", 0), *end)
            assert isinstance(message.content[0], Thinking)
            assert message.content[0].wire is None


def test_a_refusal_is_a_refusal_and_not_an_answer() -> None:
    refusal = delta("refusal", "I can't.", content_index=0)
    done = MESSAGE | {"content": [{"type": "refusal", "refusal": "I can't."}]}
    for events in ([opened(MESSAGE), refusal], [opened(MESSAGE), refusal, closed(done)], [closed(done)]):
        pieces, message = assemble(*events)
        assert (pieces, message.content, message.stop_reason) == ([], (), "refusal")


def test_an_incomplete_answer_never_has_calls_to_run() -> None:
    for reason, ours in (("content_filter", "content_filter"), ("steered", "max_tokens"), (None, "max_tokens")):
        _, message = assemble(opened(call()), argued("{}"), closed(call(arguments="{}")), end=incomplete(reason))
        assert (message.stop_reason, len(message.calls), message.error) == (ours, 1, None)


def test_a_cut_call_has_no_arguments() -> None:
    for raw in ("", '{"path": "/t'):
        begun = [opened(call()), argued(raw)]
        for events in (begun, [*begun, closed(call(arguments=raw, status="incomplete"))]):
            _, message = assemble(*events, end=incomplete("max_output_tokens"))
            assert (message.calls[0].arguments, message.calls[0].arguments_raw) == (None, raw)


def test_the_whole_arguments_beat_their_pieces() -> None:
    for events, end, raw, arguments in (
        ([whole("")], incomplete("max_output_tokens"), "", {}),
        ([argued('{"b"'), whole('{"a": 1}')], None, '{"a": 1}', {"a": 1}),
        ([closed(call(arguments={"path": "目录"}))], None, '{"path": "目录"}', {"path": "目录"}),
    ):
        pieces, message = assemble(opened(call()), *events, end=end)
        assert (message.calls[0].arguments_raw, message.calls[0].arguments) == (raw, arguments)
        assert isinstance(pieces[-1], ToolCallEnd)


def test_calls_without_an_id_or_with_the_same_can_still_be_told_apart() -> None:
    created = {"type": "response.created", "response": {"id": "resp_1"}}
    made_items = [call(""), call("same"), call("same", arguments='{"n": 2}')]
    pieces, message = assemble(created, *(closed(item, place) for place, item in enumerate(made_items)))
    ids = [made.id for made in message.calls]
    assert ids == ["call_resp_1_0", "same", "same_2"]
    assert [piece.id for piece in pieces if isinstance(piece, ToolCallStart)] == ids


FAILURES: list[tuple[dict[str, Any], ErrorKind, bool, StopReason]] = [
    ({"code": "rate_limit_exceeded", "message": "x"}, "rate_limited", True, "error"),
    ({"code": "invalid_prompt", "message": "x"}, "invalid", False, "error"),
    ({"code": "image_parse_error", "message": "x"}, "invalid", False, "error"),
    ({"code": "data_residency_mismatch", "message": "x"}, "invalid", False, "error"),
    ({"code": "invalid_encrypted_content", "message": "x"}, "stale_thinking", False, "error"),
    ({"code": "context_length_exceeded", "message": "x"}, "too_large", False, "error"),
    ({"code": "new", "message": "Your input exceeds the context window of this model."}, "too_large", False, "error"),
    ({"code": "new", "message": "x"}, "server", True, "error"),
    ({}, "server", True, "error"),
    ({"code": "bio_policy", "message": "x"}, "invalid", False, "content_filter"),
    ({"code": "misalignment_policy_violation", "message": "x"}, "invalid", False, "content_filter"),
]


@pytest.mark.parametrize(("error", "kind", "retryable", "reason"), FAILURES)
def test_a_failure_is_read_by_its_code_in_every_form(
    error: dict[str, Any], kind: ErrorKind, retryable: bool, reason: StopReason
) -> None:
    forms: list[dict[str, Any]] = [
        {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": error}},
        {"type": "error", "sequence_number": 3, "param": None, **error},
        {"type": "error", "error": error},
        {"error": error | {"message": error.get("message", "x")}},
    ]
    for event in forms:
        with pytest.raises(AttemptFailed) as failed:
            list(assembly().feed(event))
        ours = failed.value.error
        assert (ours.kind, ours.retryable, failed.value.reason) == (kind, retryable, reason), event


def test_a_failed_answer_keeps_its_words_and_its_cost() -> None:
    made = assembly()
    for event in (opened(MESSAGE), text_delta("Half"), opened(call(), 1)):
        list(made.feed(event))
    usage = {"input_tokens": 7, "output_tokens": 2}
    with pytest.raises(AttemptFailed) as failed:
        list(made.feed({"type": "response.failed", "response": {"error": None, "usage": usage}}))
    message = made.draft.failed(failed.value.error)
    assert message.content == (Text(text="Half"),)
    assert (message.usage.input, message.usage.output, message.stop_reason) == (7, 2, "error")


def test_a_usage_that_is_nonsense_costs_nothing() -> None:
    usages: list[tuple[object, Usage]] = [
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}}, Usage(input=0, cache_read=9)),
        ({"input_tokens": "many", "output_tokens": -1, "input_tokens_details": []}, Usage()),
        (None, Usage(estimated=True)),
    ]
    for usage, ours in usages:
        assert assemble(end=completed(usage=usage))[1].usage == ours


def test_an_item_that_does_not_exist_yet_is_kept() -> None:
    future = {"type": "hologram", "id": "ho_1", "light": [1]}
    strange = [{"type": ["strange"]}, {}, opened(future), text_delta("not a message", 0)]
    pieces, message = assemble(*strange, closed(future), closed(message_of("ok", mood="calm"), 1))
    assert shown(pieces, TextDelta) == message.text == "ok"
    assert isinstance(message.content[0], Opaque)
    assert (message.content[0].wire.kind, message.content[0].wire.data) == ("hologram", future)


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "response.output_item.added", "output_index": 0}],
        [{"type": "response.output_item.added", "output_index": True, "item": MESSAGE}],
        [opened(MESSAGE), opened(MESSAGE)],
        [closed(message_of("x")), closed(message_of("x"))],
        [text_delta("x", 5)],
        [{"type": "response.output_text.delta", "item_id": "msg_9", "delta": "x"}],
        [{"type": "response.function_call_arguments.done", "arguments": "{}"}],
        [{"type": "response.created"}],
        [{"type": "response.completed", "response": None}],
    ],
)
def test_what_is_plainly_broken_is_no_answer(events: list[dict[str, Any]]) -> None:
    with pytest.raises(BadStream):
        assemble(*events)

"""Putting Gemini's chunks together: signatures, ids, ends, and servers that do it their own way."""

from typing import Any

import pytest

from agents.messages import AssistantMessage, ErrorKind, Opaque, StopReason, Usage, Wire
from agents.providers.draft import Draft
from agents.providers.gemini import API, GeminiAssembly
from agents.providers.payload import BadStream
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta
from agents.providers.refusals import AttemptFailed

MODEL = "gemini-3.1-pro-preview"


def assemble(*events: dict[str, Any]) -> tuple[list[ModelEvent], AssistantMessage]:
    assembly = GeminiAssembly(Draft(api=API, provider="google", model=MODEL, timestamp=0.0))
    pieces = [piece for event in events for piece in assembly.feed(event)]
    return pieces, assembly.finish()


def chunk(*parts: Any, finish: str | None = None, **members: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]} | members


def end(finish: str = "STOP", **members: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": finish, "index": 0}]} | members


def made(**members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": "ls"} | members}


def test_unsigned_texts_are_one_and_a_signed_one_stays_apart() -> None:
    pieces, message = assemble(
        chunk({"text": "Hm", "thought": True}),
        chunk({"text": "m.", "thought": True}),
        chunk({"text": "Hello "}, {"text": "wor"}),
        chunk({"text": "ld", "thoughtSignature": "AAAA"}),
        chunk({"text": "!"}),
        chunk({"text": "", "thoughtSignature": "BBBB"}, {"text": ""}, finish="STOP"),
    )
    assert [(part.type, getattr(part, "text", None), part.wire and part.wire.data) for part in message.content] == [
        ("thinking", "Hmm.", None),
        ("text", "Hello wor", None),
        ("text", "ld", "AAAA"),
        ("text", "!", None),
        ("opaque", None, {"text": "", "thoughtSignature": "BBBB"}),
    ]
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == message.text == "Hello world!"
    assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta)) == "Hmm."


def test_calls_come_whole_with_their_own_signature_and_id() -> None:
    first = made(args={"path": "目录", "n": 1.0}) | {"thoughtSignature": "AAAA"}
    _, message = assemble(chunk(first, made(id="a"), made(id="a", args={"n": 2}), made(id="a"), responseId="r1"), end())
    assert [call.id for call in message.calls] == ["call_r1_0", "a", "a_2"]
    call = message.calls[0]
    assert (call.name, call.arguments_raw, message.stop_reason) == ("ls", '{"path": "目录", "n": 1.0}', "tool_use")
    assert call.wire == Wire(api=API, family=MODEL, kind="thought_signature", data="AAAA")


@pytest.mark.parametrize(
    ("members", "raw", "arguments"),
    [
        ({"args": None}, "{}", {}),
        ({"args": '{"a": 1}'}, '{"a": 1}', {"a": 1}),
        ({"args": '{"a": '}, '{"a": ', None),
        ({"args": [1]}, "[1]", None),
        ({"args": {"a": float("nan")}}, '{"a": NaN}', None),
        ({"args": {"a": "\ud83d"}}, '{"a": "\ufffd"}', {"a": "\ufffd"}),
    ],
)
def test_arguments_of_any_form(members: dict[str, Any], raw: str, arguments: dict[str, Any] | None) -> None:
    _, message = assemble(chunk(made(**members)), end())
    assert (message.calls[0].arguments_raw, message.calls[0].arguments) == (raw, arguments)


_STOPS: list[tuple[str, StopReason]] = [
    ("SAFETY", "refusal"),
    ("PROHIBITED_CONTENT", "refusal"),
    ("RECITATION", "content_filter"),
    ("BLOCKLIST", "content_filter"),
    ("SPII", "content_filter"),
    ("LANGUAGE", "content_filter"),
    ("CONTINUATION", "pause"),
    ("A_NEW_REASON", "end_turn"),
]


@pytest.mark.parametrize(("theirs", "ours"), _STOPS)
def test_reasons_to_stop(theirs: str, ours: StopReason) -> None:
    _, message = assemble(chunk({"text": "x"}), end(theirs))
    assert (message.stop_reason, message.text) == (ours, "x")


_BROKEN_OFF: list[tuple[str, ErrorKind, bool]] = [
    ("MALFORMED_FUNCTION_CALL", "incomplete", True),
    ("UNEXPECTED_TOOL_CALL", "incomplete", True),
    ("TOO_MANY_TOOL_CALLS", "incomplete", True),
    ("MALFORMED_RESPONSE", "incomplete", True),
    ("MISSING_THOUGHT_SIGNATURE", "stale_thinking", False),
    ("OTHER", "server", True),
]


@pytest.mark.parametrize(("theirs", "kind", "retryable"), _BROKEN_OFF)
def test_a_model_that_broke_off_has_failed(theirs: str, kind: ErrorKind, retryable: bool) -> None:
    with pytest.raises(AttemptFailed) as failed:
        assemble(chunk({"text": "x"}), end(theirs))
    assert (failed.value.error.kind, failed.value.error.retryable) == (kind, retryable)
    assert theirs in failed.value.error.summary


def test_a_question_that_is_blocked_is_refused() -> None:
    _, message = assemble({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}})
    assert (message.stop_reason, message.content, message.usage.input) == ("refusal", (), 7)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [chunk({"text": "x"})],
        [chunk({"text": "x"}, finish="FINISH_REASON_UNSPECIFIED")],
        [chunk(made()), end("A_NEW_REASON")],
        [chunk("not a part"), end()],
        [{"candidates": ["not a candidate"]}],
    ],
)
def test_no_end_is_no_answer(events: list[dict[str, Any]]) -> None:
    with pytest.raises(BadStream):
        assemble(*events)


def test_a_part_that_only_gemini_understands_is_kept_whole() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "AAAA"}
    _, message = assemble(chunk(part), end())
    (kept,) = message.content
    assert isinstance(kept, Opaque)
    assert (kept.wire.kind, kept.wire.data) == ("executableCode", part)


def test_usage_comes_in_pieces_and_the_prompt_holds_the_cache() -> None:
    first = {"promptTokenCount": 90, "toolUsePromptTokenCount": 10, "candidatesTokenCount": 20}
    late = {"cachedContentTokenCount": 60, "thoughtsTokenCount": 5}
    _, message = assemble(chunk({"text": "x"}, usageMetadata=first), end(), {"usageMetadata": late})
    assert message.usage == Usage(input=40, cache_read=60, output=25, reasoning=5)


LONG = "x" * 1_000_000


@pytest.mark.parametrize("part", [made(args={"a": LONG}), {"text": "", "thoughtSignature": LONG}, {"inlineData": LONG}])
def test_an_answer_without_end_is_ended(part: dict[str, Any]) -> None:
    with pytest.raises(BadStream, match="no end"):
        assemble(*[chunk(part)] * 9)

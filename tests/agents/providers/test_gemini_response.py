"""Putting Gemini's chunks together: signatures, ids, ends, and servers that do it their own way."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import AssistantMessage, ErrorKind, Message, Opaque, StopReason, Text, Thinking, Usage
from agents.providers.errors import AttemptFailed, BadStream
from agents.providers.gemini.request import API, wire_request
from agents.providers.gemini.response import GeminiAssembly
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta
from agents.repair import repair
from tests.agents.providers.requests import asking, result, user
from tests.emulators.models import script
from tests.emulators.models.gemini.rules import check_body
from tests.emulators.models.gemini.script import chunks_of, finished, rendered
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import Call, Say, Think

MODEL = "gemini-3.1-pro-preview"


def assemble(*events: dict[str, Any]) -> tuple[list[ModelEvent], AssistantMessage]:
    assembly = GeminiAssembly(provider="google", model=MODEL, timestamp=0.0)
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
    assert [(type(part).__name__, getattr(part, "text", None)) for part in message.content] == [
        ("Thinking", "Hmm."),
        ("Text", "Hello wor"),
        ("Text", "ld"),
        ("Text", "!"),
        ("Opaque", None),
    ]
    assert [part.wire.data if part.wire else None for part in message.content] == [
        None,
        None,
        "AAAA",
        None,
        {"text": "", "thoughtSignature": "BBBB"},
    ]
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == message.text == "Hello world!"
    assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta)) == "Hmm."


def test_a_call_comes_whole_with_its_own_signature() -> None:
    part = made(id="x", args={"path": "目录", "n": 1.0, "deep": [{}]}) | {"thoughtSignature": "AAAA"}
    _, message = assemble(chunk(part), end())
    (call,) = message.calls
    assert (call.id, call.name, call.arguments) == ("x", "ls", {"path": "目录", "n": 1.0, "deep": [{}]})
    assert call.arguments_raw == '{"path": "目录", "n": 1.0, "deep": [{}]}'
    assert call.wire is not None
    assert (call.wire.api, call.wire.family, call.wire.kind, call.wire.data) == (
        API,
        MODEL,
        "thought_signature",
        "AAAA",
    )
    assert message.stop_reason == "tool_use"


def test_calls_without_an_id_or_with_anothers_get_one_of_their_own() -> None:
    _, message = assemble(chunk(made(), made(id="a"), made(id="a"), responseId="r1"), end())
    assert [call.id for call in message.calls] == ["call_r1_0", "a", "a_2"]


@pytest.mark.parametrize(
    ("members", "raw", "arguments"),
    [
        ({}, "{}", {}),
        ({"args": None}, "{}", {}),
        ({"args": {}}, "{}", {}),
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
    ("STOP", "end_turn"),
    ("MAX_TOKENS", "max_tokens"),
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


@pytest.mark.parametrize("theirs", ["MAX_TOKENS", "SAFETY", "RECITATION"])
def test_calls_of_an_answer_that_was_cut_keep_its_reason(theirs: str) -> None:
    _, message = assemble(chunk(made()), end(theirs))
    assert len(message.calls) == 1
    assert message.stop_reason != "tool_use"


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
        [{"usageMetadata": {}}],
        [chunk(made()), end("A_NEW_REASON")],
        [chunk("not a part"), end()],
        [{"candidates": ["not a candidate"]}],
    ],
)
def test_no_end_is_no_answer(events: list[dict[str, Any]]) -> None:
    with pytest.raises(BadStream):
        assemble(*events)


def test_what_does_not_exist_yet_is_passed_over() -> None:
    _, message = assemble(
        {"weather": 1},
        {"candidates": None},
        {"candidates": []},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"parts": None}}]},
        chunk({"hologram": {}}, {"text": None}, {"text": "ok", "scent": "pine"}, {"functionCall": None}),
        {"candidates": [{"content": {"role": "model"}, "finishReason": "STOP", "mood": "calm"}]},
    )
    assert message.content == (Text(text="ok"),)


def test_a_part_that_only_gemini_understands_is_kept_whole() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "AAAA"}
    _, message = assemble(chunk(part), end())
    (kept,) = message.content
    assert isinstance(kept, Opaque)
    assert (kept.wire.kind, kept.wire.data) == ("executableCode", part)


def test_usage_counts_the_cache_apart_and_thoughts_as_output() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
    }
    _, message = assemble(
        chunk({"text": "x"}, usageMetadata={"promptTokenCount": 100}), end(), {"usageMetadata": usage}
    )
    assert message.usage == Usage(input=40, cache_read=60, output=25, reasoning=5)


def test_usage_that_never_came_is_an_estimate() -> None:
    _, message = assemble(chunk({"text": "x"}), end())
    assert message.usage == Usage(estimated=True)


@pytest.mark.parametrize("part", [{"text": "x" * 1_000_000}, made(args={"a": "x" * 1_000_000})])
def test_an_answer_without_end_is_ended(part: dict[str, Any]) -> None:
    with pytest.raises(BadStream, match="no end"):
        assemble(*[chunk(part)] * 9)


any_part = st.one_of(
    st.builds(lambda text: Say(text=text), st.text(st.sampled_from("ab中🙂"), min_size=1, max_size=40)),
    st.builds(lambda text, shown: Think(text=text, shown=shown), st.text("hm", min_size=1), st.booleans()),
    st.builds(lambda path: Call(name="ls", arguments={"path": path, "n": 1.5, "中": [None]}), st.text("x/🙂")),
)


@settings(deadline=None)
@given(st.lists(any_part, max_size=6), st.booleans())
def test_an_answer_goes_back_as_it_came(parts: list[Say | Think | Call], ids: bool) -> None:
    turn = rendered(script.Turn(parts=(*parts, Call(name="ls", id="last"))))
    _, message = assemble(*chunks_of(turn, 1, MODEL, 10, ids=ids))
    messages: list[Message] = [user("go"), message, *(result(call.id) for call in message.calls)]
    repaired = tuple(repair(messages, api=API, family=MODEL))
    assert all(after is before for after, before in zip(repaired, messages, strict=True)) or any(
        isinstance(part, Thinking) for part in message.content
    )  # unsigned summaries are dropped, nothing else is touched
    body = wire_request(asking(*repaired, model=MODEL))
    check_body(body, MODEL)
    sent = [_without_own_id(part) for part in body["contents"][1]["parts"]]
    finished_parts = _joined(finished(turn, 1, ids=ids))
    assert sent == [_without_own_id(part) for part in finished_parts if not part.get("thought")]


def _without_own_id(part: dict[str, Any]) -> dict[str, Any]:
    """A call that came without an id goes back with one of ours."""
    call = part.get("functionCall")
    if isinstance(call, dict) and str(call.get("id")).startswith("call_"):
        return part | {"functionCall": {key: value for key, value in call.items() if key != "id"}}
    return part


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Unsigned texts that follow each other are one text."""
    joined: list[dict[str, Any]] = []
    for part in parts:
        if joined and part.keys() == joined[-1].keys() == {"text"}:
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def test_a_signature_of_the_emulator_is_good_for_its_part_alone() -> None:
    assert signed({"text": "a"})["thoughtSignature"] != signed({"text": "b"})["thoughtSignature"]

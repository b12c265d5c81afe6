"""What every wire's answer has of `Draft`, once: blocks in order, ids, halves of emoji, the cap, what a failure keeps."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import AssistantMessage, ModelError, Opaque, Text, Thinking, ToolCall, Usage
from agents.providers.draft import ANSWER_CHARS_MAX, BlockKind, Draft
from agents.providers.errors import BadStream
from agents.providers.payload import parse_arguments
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart


def draft() -> Draft:
    return Draft(api="wire-1", provider="vendor", model="model-1", timestamp=7.0, response_id="r1")


def write(it: Draft, kind: BlockKind, *pieces: str) -> list[ModelEvent]:
    """One block named by its kind, in these pieces."""
    it.open(kind, kind)
    return [event for piece in pieces for event in it.add(kind, piece)]


def call(it: Draft, key: str, raw: str = "{}", *, vendor_id: str = "", name: str = "ls") -> list[ModelEvent]:
    it.open(key, "call")
    return [*it.start(key, vendor_id=vendor_id, name=name), *it.add(key, raw), *it.close(key)]


def test_an_answer_has_its_blocks_in_order_and_its_makers_names() -> None:
    it = draft()
    pieces = [*write(it, "thinking", "h", "m"), *write(it, "text", "Look", "ing."), *call(it, "c", vendor_id="a")]
    made = ToolCall(id="a", name="ls", arguments={}, arguments_raw="{}")
    assert pieces == [
        ThinkingDelta(index=0, text="h"),
        ThinkingDelta(index=0, text="m"),
        TextDelta(index=1, text="Look"),
        TextDelta(index=1, text="ing."),
        ToolCallStart(index=2, id="a", name="ls"),
        ToolCallDelta(index=2, text="{}"),
        ToolCallEnd(index=2, call=made),
    ]
    assert it.finished("end_turn") == AssistantMessage(
        content=(Thinking(text="hm"), Text(text="Looking."), made),
        provider="vendor",
        model="model-1",
        api="wire-1",
        stop_reason="tool_use",
        usage=Usage(estimated=True),
        response_id="r1",
        timestamp=7.0,
    )


def test_the_wire_may_say_where_a_block_stands() -> None:
    it = draft()
    it.open("b", "text", index=1)
    it.open("a", "text", index=0)
    assert [*it.add("b", "second"), *it.add("a", "first")] == [
        TextDelta(index=1, text="second"),
        TextDelta(index=0, text="first"),
    ]
    assert it.finished("end_turn").content == (Text(text="first"), Text(text="second"))


def test_what_the_vendor_wants_back_stays_with_its_block() -> None:
    it = draft()
    for kind in ("text", "thinking", "call", "opaque"):
        it.open(kind, kind, lambda text, kind=kind: (kind, [text, "half \ud83d"]))  # type: ignore[misc]
        list(it.add(kind, "{}"))
    list(it.close("call"))
    parts = it.finished("tool_use").content
    assert [type(part) for part in parts] == [Text, Thinking, ToolCall, Opaque]
    kept = ["{}", "half \ufffd"]
    for part, kind in zip(parts, ("text", "thinking", "call", "opaque"), strict=True):
        assert part.wire is not None
        assert (part.wire.api, part.wire.family, part.wire.kind, part.wire.data) == ("wire-1", "model-1", kind, kept)


def test_blocks_that_hold_nothing_are_no_parts_but_a_hidden_thought_is_one() -> None:
    it = draft()
    for kind in ("text", "thinking", "call", "opaque"):
        it.open(kind, kind)
    it.open("hidden", "thinking", lambda _: ("thinking", {"signature": "s"}))
    [part] = it.finished("end_turn").content
    assert isinstance(part, Thinking)
    assert (part.text, part.wire is not None) == ("", True)


def test_a_call_is_shown_once_it_has_its_name() -> None:
    it = draft()
    it.open("c", "call")
    assert list(it.add("c", '{"a"')) == []
    assert list(it.start("c", vendor_id="a", name="ls")) == [
        ToolCallStart(index=0, id="a", name="ls"),
        ToolCallDelta(index=0, text='{"a"'),
    ]
    assert list(it.start("c", vendor_id="b", name="other")) == []
    assert list(it.add("c", ": 1}")) == [ToolCallDelta(index=0, text=": 1}")]
    [end] = it.close("c")
    assert end == ToolCallEnd(index=0, call=ToolCall(id="a", name="ls", arguments={"a": 1}, arguments_raw='{"a": 1}'))
    assert list(it.close("c")) == []


def test_the_wire_has_the_last_word_on_arguments() -> None:
    it = draft()
    it.open("c", "call")
    list(it.start("c", vendor_id="a", name="ls"))
    list(it.add("c", '{"a": '))
    [end] = it.close("c", arguments='{"a": "\ud83d"}')
    assert isinstance(end, ToolCallEnd)
    assert (end.call.arguments, end.call.arguments_raw) == ({"a": "\ufffd"}, '{"a": "\ufffd"}')


def test_calls_can_always_be_paired_by_id() -> None:
    it = draft()
    for number, vendor_id in enumerate(("same", "same", "", "", "other")):
        call(it, str(number), vendor_id=vendor_id)
    assert [made.id for made in it.finished("tool_use").calls] == ["same", "same_1", "call_r1_2", "call_r1_3", "other"]
    nameless = Draft(api="a", provider="p", model="m", timestamp=0.0)
    assert nameless.unique_id("", 0) == "call_x_0"


@pytest.mark.parametrize("kind", ["text", "thinking", "call"])
def test_an_answer_without_end_is_stopped(kind: BlockKind) -> None:
    it = draft()
    write(it, kind, "x" * ANSWER_CHARS_MAX)
    with pytest.raises(BadStream):
        list(it.add(kind, "x"))


def test_a_block_is_opened_once_and_before_it_is_written() -> None:
    it = draft()
    with pytest.raises(BadStream):
        list(it.add("a", "x"))
    it.open("a", "text")
    with pytest.raises(BadStream):
        it.open("a", "text")


@pytest.mark.parametrize(
    ("reason", "alone", "with_call"),
    [
        ("max_tokens", "max_tokens", "max_tokens"),
        ("pause", "pause", "pause"),
        ("end_turn", "end_turn", "tool_use"),
        ("tool_use", "end_turn", "tool_use"),
        (None, "end_turn", None),
    ],
)
def test_why_it_ended_is_the_reason_or_else_in_the_content(reason: Any, alone: str, with_call: str | None) -> None:
    it = draft()
    write(it, "text", "x")
    assert it.finished(reason).stop_reason == alone
    call(it, "c", '{"half')
    if with_call is None:
        with pytest.raises(BadStream):
            it.finished(reason)
    else:
        assert it.finished(reason).stop_reason == with_call


def test_of_a_failed_answer_only_the_text_is_kept() -> None:
    it = draft()
    it.usage = Usage(input=5)
    write(it, "thinking", "hm")
    it.open("blank", "text")
    list(it.add("blank", " \n"))
    write(it, "text", "Half")
    call(it, "c")
    error = ModelError(kind="network", summary="", retryable=True)
    message = it.failed(error)
    assert (message.content, message.stop_reason, message.error) == ((Text(text="Half"),), "error", error)
    assert (message.usage, message.response_id) == (Usage(input=5), "r1")
    assert it.failed(error, "refusal").stop_reason == "refusal"


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_an_emoji_in_two_halves_is_shown_whole(kind: BlockKind) -> None:
    it = draft()
    pieces = write(it, kind, "a\ud83d", "\ude42b", "\ude42\0")
    shown = [piece.text for piece in pieces if isinstance(piece, TextDelta | ThinkingDelta)]
    assert shown == ["a", "🙂b", "\ufffd\ufffd"]
    [part] = it.finished("end_turn").content
    assert isinstance(part, Text | Thinking)
    assert part.text == "a🙂b\ufffd\ufffd"


@given(st.text(alphabet=st.characters(), max_size=30), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_the_deltas_are_the_text(text: str, size: int) -> None:
    utf16 = text.encode("utf-16-le", "surrogatepass")
    units = [utf16[at : at + 2 * size].decode("utf-16-le", "surrogatepass") for at in range(0, len(utf16), 2 * size)]
    it = draft()
    shown = "".join(piece.text for piece in write(it, "text", *units) if isinstance(piece, TextDelta))
    whole = it.finished("end_turn").text
    assert whole.startswith(shown)
    assert len(whole) - len(shown) <= 1  # a first half at the very end is never shown
    whole.encode()


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("", {}),
        ("{}", {}),
        ('{"a": [1, 2.5, null, "中"]}', {"a": [1, 2.5, None, "中"]}),
        ('{"id": 12345678901234567890123}', {"id": 12345678901234567890123}),
        ('{"emoji": "\\ud83d\\ude42"}', {"emoji": "🙂"}),
        ('{"a": 1', None),
        ("null", None),
        ('"x"', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ('{"a": "\\ud83d"}', None),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", None),
        ("[" * 100_000, None),
        ('{"a": ' + "9" * 5000 + "}", None),
    ],
)
def test_arguments_are_an_object_or_nothing(raw: str, arguments: dict[str, Any] | None) -> None:
    assert parse_arguments(raw) == arguments

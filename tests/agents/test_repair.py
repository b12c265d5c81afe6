"""History repair: a table of the findings, and the laws that hold for any history whatever."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    Wire,
)
from agents.providers.anthropic.request import wire_request
from agents.repair import IMAGES_MAX, repair
from tests.agents.histories import API, OTHER, broken_histories
from tests.agents.providers.requests import MODEL, PIXEL, asking, assistant, call, result, user
from tests.emulators.models.anthropic.rules import check_body
from tests.emulators.models.anthropic.script import thinking_block
from tests.emulators.models.server import Refusal
from tools.tool import Image

PROPERTY = settings(max_examples=200, deadline=None)


def repaired(*messages: Message) -> Sequence[Message]:
    return repair(messages, api=API, family=MODEL)


def thought(text: str = "hm", api: str = API, family: str = MODEL) -> Thinking:
    return Thinking(text=text, wire=Wire(api=api, family=family, kind="thinking", data=thinking_block(text)))


def spoke(*parts: Text | Thinking | ToolCall | Opaque, stop: StopReason = "end_turn") -> AssistantMessage:
    return replace(assistant(Text(text="x")), content=parts, stop_reason=stop)


def said(message: Message) -> str:
    return "|".join(part.text for part in message.content if isinstance(part, Text))


def interrupted(message: Message) -> bool:
    return isinstance(message, ToolResultMessage) and message.is_error and '"INTERRUPTED"' in said(message)


def test_a_healthy_history_is_the_same_object() -> None:
    history = (
        user("a", metadata="M"),
        assistant(call("1"), call("2")),
        result("1"),
        result("2", is_error=True),
        assistant(Text(text="b")),
        user("c", metadata="M"),
        spoke(thought(), Text(text="d"), call("3"), stop="tool_use"),
        result("3"),
    )
    assert repaired(*history) is not history  # `repaired` packs anew, so ask directly
    assert repair(history, api=API, family=MODEL) is history
    as_list: list[Message] = list(history)
    assert repair(as_list, api=API, family=MODEL) is as_list


A, B, C = user("a"), user("b"), user("c")
BOTH = replace(A, content=(Text(text="a"), Text(text="b")))
SAID, TWO = assistant(Text(text="x")), assistant(call("1"), call("2"))
ONE, FIRST, SECOND = assistant(call("1")), result("1", "first"), result("1", "second")
REPAIRED: dict[str, tuple[Sequence[Message], Sequence[Message]]] = {
    **{f"1 {stop}": ((A, spoke(call("1"), stop=stop), FIRST, B), (BOTH,)) for stop in ("error", "aborted")},
    **{
        f"4 {stop}": ((A, SAID, B, ONE, FIRST, spoke(Text(text="No."), stop=stop), C), (A, SAID, C))
        for stop in ("refusal", "content_filter")
    },
    "4 the running question stays": ((A, spoke(stop="refusal")), (A,)),
    "5 twice in one answer": (
        (A, assistant(call("1"), call("1")), FIRST, SECOND),
        (A, assistant(call("1"), call("1_2")), FIRST, result("1_2", "second")),
    ),
    "6 and 7 orphans and doubles": ((A, result("0"), ONE, FIRST, SECOND), (A, ONE, FIRST)),
    "9 and 10 late and out of order": ((A, TWO, B, result("2"), FIRST), (A, TWO, FIRST, result("2"), B)),
    "13 the first word is the user's": ((result("0"), SAID, B), (B,)),
    "13 nobody has said anything": ((SAID,), ()),
    "16 thinking that led nowhere": ((A, spoke(thought(), stop="max_tokens"), B), (BOTH,)),
}


@pytest.mark.parametrize(("broken", "whole"), REPAIRED.values(), ids=REPAIRED)
def test_what_is_broken_is_made_whole(broken: Sequence[Message], whole: Sequence[Message]) -> None:
    assert repaired(*broken) == whole


def test_1_of_an_answer_that_broke_the_shown_text_stays() -> None:
    broken = spoke(thought(), Text(text="Half"), call("1"), stop="aborted")
    history = repaired(user("a"), broken, user("b"))
    assert [said(message) for message in history] == ["a", "Half", "b"]
    assert isinstance(history[1], AssistantMessage)
    assert history[1].calls == ()


def test_2_a_cut_call_is_answered() -> None:
    cut = ToolCall(id="1", name="write", arguments=None, arguments_raw='{"a": ')
    history = repaired(user("a"), spoke(cut, stop="max_tokens"), user("b"))
    assert interrupted(history[2])


def test_3_blank_text_and_empty_messages_go() -> None:
    history = repaired(user("a"), spoke(Text(text=" \n"), call("1"), stop="tool_use"), result("1"), spoke(), user("b"))
    assert isinstance(history[1], AssistantMessage)
    assert history[1].content == (call("1"),)
    assert [message.role for message in history] == ["user", "assistant", "toolResult", "user"]


def test_3_a_message_without_words_is_still_a_message() -> None:
    assert said(repaired(user(" "))[0]) == "(empty message)"
    with_metadata = UserMessage(content=(), metadata="M")
    assert repaired(with_metadata)[0] is with_metadata


def test_5_an_id_used_again_is_renamed_with_its_result() -> None:
    history = repaired(
        user("a"), assistant(call("1")), result("1", "first"), assistant(call("1")), result("1", "second")
    )
    later = history[3]
    assert isinstance(later, AssistantMessage)
    assert later.calls[0].id == "1_2"
    assert history[4] == result("1_2", "second")


def test_8_a_call_nobody_answered_is_answered() -> None:
    history = repaired(user("a"), assistant(call("1"), call("2")), result("2"), user("b"))
    assert interrupted(history[2])
    assert '"retryable": false' in said(history[2])
    assert history[3] == result("2")
    assert history[4] == user("b")


def test_8_of_several_open_calls_only_the_first_may_have_run() -> None:
    history = repaired(user("a"), assistant(call("1"), call("2"), call("3")), result("1"), user("b"))
    assert history[2] == result("1")
    assert "may have run" in said(history[3])
    assert "was not run" in said(history[4])


def test_11_and_12_neighbours_are_joined() -> None:
    history = repaired(
        user("a"), user("b"), assistant(Text(text="c")), assistant(Text(text="d")), user("e"), user("f", metadata="M")
    )
    assert [said(message) for message in history] == ["a|b", "c|d", "e", "f"]


def test_14_an_unfinished_answer_of_ours_is_dropped_and_a_pause_stays() -> None:
    assert repaired(user("a"), spoke(Text(text="half"), stop="error")) == (user("a"),)
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    paused = spoke(Opaque(wire=Wire(api=API, family=MODEL, kind="server_tool_use", data=block)), stop="pause")
    assert repaired(user("a"), paused) == (user("a"), paused)
    assert repair((user("a"), paused), api=API, family=OTHER) == (user("a"),)


def test_16_thinking_lives_as_long_as_its_turn_and_belongs_to_its_maker() -> None:
    old = (user("a"), spoke(thought(), call("1"), stop="tool_use"), result("1"), spoke(thought(), Text(text="b")))
    ours = spoke(thought("mine"), call("2"), stop="tool_use")
    foreign = spoke(thought("theirs", family=OTHER), thought("x", api="elsewhere"), call("3"), stop="tool_use")
    history = repaired(*old, user("c"), ours, result("2"), foreign, result("3"))
    kept = [part.text for message in history for part in message.content if isinstance(part, Thinking)]
    assert kept == ["mine"]
    assert history[5] is ours


def test_16_thinking_cut_off_behind_a_call_does_not_end_the_message() -> None:
    cut = spoke(thought("led here"), call("1"), thought("cut"), stop="max_tokens")
    history = repaired(user("a"), cut, result("1"))
    assert history[1].content == cut.content[:2]
    check_body(wire_request(asking(*history)))


def test_18_half_an_emoji_and_nul_are_replaced_everywhere() -> None:
    bad = "x\ud83dy\0"
    made = ToolCall(id="1", name="ls", arguments={bad: [bad]}, arguments_raw=bad)
    history = repaired(user(bad, metadata=bad), assistant(Text(text=bad), made), result("1", bad))
    assert "\ud83d" not in repr(history)
    assert repr(history).count("\\x00") == 0
    assert isinstance(history[1], AssistantMessage)
    assert history[1].calls[0].arguments == {"x\ufffdy\ufffd": ["x\ufffdy\ufffd"]}


def test_19_the_newest_pictures_stay_and_wrong_ones_become_words() -> None:
    picture = Image(media_type="image/jpeg", data=PIXEL, name="a.png")
    many = [replace(user(""), content=(picture,), metadata=f"M{number}") for number in range(IMAGES_MAX + 2)]
    history = repaired(*many)
    shown = [isinstance(message.content[0], Image) for message in history]
    assert shown == [False, False] + [True] * IMAGES_MAX
    first, last = history[0].content[0], history[-1].content[0]
    assert isinstance(first, Text)
    assert first.text == "[image: a.png]"
    assert isinstance(last, Image)
    assert last.media_type == "image/png"


def calls_and_results(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """What stands behind each call, in order; fails where a result is not directly behind its answer."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            pairs.append((waiting.pop(0), message.call_id))
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [made.id for made in message.calls]
    assert not waiting
    return pairs


@given(broken_histories)
@PROPERTY
def test_every_call_has_exactly_one_result_and_the_reverse(messages: list[Message]) -> None:
    pairs = calls_and_results(repaired(*messages))
    assert all(made == answered for made, answered in pairs)
    assert len({made for made, _ in pairs}) == len(pairs)


@given(broken_histories)
@PROPERTY
def test_repairing_again_changes_nothing(messages: list[Message]) -> None:
    once = repaired(*messages)
    assert repair(once, api=API, family=MODEL) is once


@given(broken_histories)
@PROPERTY
def test_what_is_stored_is_never_touched(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    repair(messages, api=API, family=MODEL)
    assert messages == before


@given(broken_histories)
@PROPERTY
def test_the_people_keep_their_order(messages: list[Message]) -> None:
    texts = [
        part.text
        for message in repaired(*messages)
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, Text)
    ]
    original = [
        part.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")
        for message in messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, Text)
    ]
    remaining = iter(original)
    made = ("(empty message)", "[image: picture.png]")
    assert all(text in remaining for text in texts if text not in made)


@given(broken_histories)
@PROPERTY
def test_anthropic_takes_any_history_once_it_is_repaired(messages: list[Message]) -> None:
    history = repair([*messages, user("and now?", metadata="M")], api=API, family=MODEL)
    check_body(wire_request(asking(*history)))


@given(broken_histories)
@PROPERTY
def test_anthropic_takes_a_loop_in_progress_too(messages: list[Message]) -> None:
    running: list[Message] = [user("go"), spoke(thought(), Text(text="x"), call("now"), stop="tool_use"), result("now")]
    history = repair([*messages, *running], api=API, family=MODEL)
    body = wire_request(asking(*history, tools=()))
    check_body(body)
    assert body["messages"][-2]["content"][0]["type"] == "thinking"


def test_without_repair_the_rules_bite() -> None:
    with pytest.raises(Refusal):
        check_body(wire_request(asking(user("a"), assistant(call("1")), user("b"))))


def test_what_is_bound_to_nothing_outlives_its_turn_and_still_goes_to_its_maker_alone() -> None:
    signed = Wire(api="google-gemini", family="gemini-3-flash", kind="thought_signature", data="c2ln")
    spoken = spoke(replace(Text(text="Looking."), wire=signed), thought())
    history = (user("a"), spoken, user("b"))
    kept = repair(history, api="google-gemini", family="gemini-3-flash")
    assert kept[1] == spoke(replace(Text(text="Looking."), wire=signed))
    for api, family in (("google-gemini", "gemini-2.5-pro"), (API, MODEL), ("google-gemini", "")):
        assert repair(history, api=api, family=family)[1] == spoke(Text(text="Looking."))


def test_a_model_that_does_not_see_reads_a_line_in_the_place_of_a_picture() -> None:
    picture = Image(media_type="image/png", data=PIXEL, name="dot.png")
    history = (replace(user("look"), content=(Text(text="look"), picture)),)
    assert said(repair(history, api=API, family=MODEL, images_max=0)[0]) == "look|[image: dot.png]"
    assert repair(history, api=API, family=MODEL) is history

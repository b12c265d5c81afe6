"""History repair: a table of the findings, and the laws that hold for any history whatever."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.context import past
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
from agents.repair import IMAGES_MAX, repair, reusable_prefix
from tests.agents.histories import API, OTHER, broken_histories
from tests.agents.providers.requests import MODEL, PIXEL, assistant, call, result, user
from tests.emulators.models.anthropic.script import thinking_block
from tools.tool import Image


def repaired(*messages: Message) -> Sequence[Message]:
    return repair(messages, api=API, family=MODEL)


def thought(text: str = "hm", api: str = API, family: str = MODEL) -> Thinking:
    return Thinking(text=text, wire=Wire(api=api, family=family, kind="thinking", data=thinking_block(text)))


def spoke(*parts: Text | Thinking | ToolCall | Opaque, stop: StopReason = "end_turn") -> AssistantMessage:
    return replace(assistant(Text(text="x")), content=parts, stop_reason=stop)


def text_in(message: Message) -> str:
    return "|".join(part.text for part in message.content if isinstance(part, Text))


def interrupted(message: Message) -> bool:
    return isinstance(message, ToolResultMessage) and message.is_error and '"INTERRUPTED"' in text_in(message)


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
HALF, SILENT, LATER = Text(text="Half"), UserMessage(content=(), metadata="M"), user("f", metadata="M")
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
CUT_OFF = spoke(thought("led here"), call("1"), thought("cut"), stop="max_tokens")
PAUSED = spoke(Opaque(wire=Wire(api=API, family=MODEL, kind="server_tool_use", data=SEARCH)), stop="pause")
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
    "1 the shown text stays": (
        (A, spoke(thought(), HALF, call("1"), stop="aborted"), B),
        (A, spoke(HALF, stop="aborted"), B),
    ),
    "3 blank text and empty messages": (
        (A, spoke(Text(text=" \n"), call("1"), stop="tool_use"), FIRST, spoke(), B),
        (A, ONE, FIRST, B),
    ),
    "3 a message without words is still a message": ((user(" "),), (user("(empty message)"),)),
    "3 and so is one with metadata": ((SILENT,), (SILENT,)),
    "5 used again": ((A, ONE, FIRST, ONE, SECOND), (A, ONE, FIRST, assistant(call("1_2")), result("1_2", "second"))),
    "11 and 12 neighbours are joined": (
        (A, B, SAID, SAID, C, LATER),
        (BOTH, replace(SAID, content=SAID.content * 2), C, LATER),
    ),
    "14 an unfinished answer of ours is dropped": ((A, spoke(HALF, stop="error")), (A,)),
    "14 and a pause stays": ((A, PAUSED), (A, PAUSED)),
    "16 thinking cut off behind a call": (
        (A, CUT_OFF, FIRST),
        (A, replace(CUT_OFF, content=CUT_OFF.content[:2]), FIRST),
    ),
    "16 thinking that led nowhere": ((A, spoke(thought(), stop="max_tokens"), B), (BOTH,)),
}


@pytest.mark.parametrize(("broken", "whole"), REPAIRED.values(), ids=REPAIRED)
def test_what_is_broken_is_made_whole(broken: Sequence[Message], whole: Sequence[Message]) -> None:
    assert repaired(*broken) == whole


def test_of_the_calls_that_nobody_answered_only_the_first_may_have_run() -> None:
    cut = ToolCall(id="1", name="write", arguments=None, arguments_raw='{"a": ')
    calling = spoke(cut, call("2"), call("3"), stop="max_tokens")
    _, _, first, answered, last, after = repaired(A, calling, result("2"), B)
    assert interrupted(first)
    assert "may have run" in text_in(first)
    assert '"retryable": false' in text_in(first)
    assert interrupted(last)
    assert "was not run" in text_in(last)
    assert (answered, after) == (result("2"), B)


def test_16_thinking_lives_as_long_as_its_turn_and_belongs_to_its_maker() -> None:
    old = (user("a"), spoke(thought(), call("1"), stop="tool_use"), result("1"), spoke(thought(), Text(text="b")))
    ours = spoke(thought("mine"), call("2"), stop="tool_use")
    foreign = spoke(thought("theirs", family=OTHER), thought("x", api="elsewhere"), call("3"), stop="tool_use")
    history = repaired(*old, user("c"), ours, result("2"), foreign, result("3"))
    kept = [part.text for message in history for part in message.content if isinstance(part, Thinking)]
    assert kept == ["mine"]
    assert history[5] is ours
    assert repair((A, PAUSED), api=API, family=OTHER) == (A,)


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


@given(broken_histories)
def test_repair_is_idempotent_and_never_touches_the_store(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    once = repair(messages, api=API, family=MODEL)
    assert messages == before
    assert repair(once, api=API, family=MODEL) is once


@given(broken_histories, st.integers(0, 4))
def test_a_past_of_nothing_but_words_changes_nothing_of_what_follows(messages: list[Message], exchanges: int) -> None:
    words = [it for n in range(exchanges) for it in (user(f"question {n}"), assistant(Text(text=f"answer {n}")))]
    follows = [user("and now?"), *messages]
    whole = repair([*words, *follows], api=API, family=MODEL)
    assert list(whole[: len(words)]) == words
    assert list(whole[len(words) :]) == list(repair(follows, api=API, family=MODEL))


def own(messages: Sequence[Message], call_ids: set[str]) -> list[Message]:
    """Drop what no journal has: results whose call is not before them in this turn. Drop also a result with the id of an
    earlier turn's call, to which it could belong as well; `call_ids` grows by the ids of this turn."""
    calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update(it.id for it in message.calls)
        if not isinstance(message, ToolResultMessage) or message.call_id in calls - call_ids:
            kept.append(message)
    call_ids |= calls
    return kept


@given(st.lists(broken_histories, max_size=3), broken_histories)
@settings(max_examples=25)
def test_what_was_settled_turn_by_turn_is_what_the_whole_history_becomes(
    turns: list[list[Message]], messages: list[Message]
) -> None:
    words: list[Message] = [user("question"), assistant(Text(text="answer"))]
    ids: set[str] = set()
    chat: list[list[Message]] = [[user("a"), *own(turn, ids), assistant(Text(text="b"))] for turn in turns]
    shown = [turn for turn in past([*chat, words, words]) if turn.is_final_form]
    running = [user("and now?", metadata="M"), *own(messages, ids)]
    for count in range(len(shown) + 1):  # as the chat grows
        found, taken = reusable_prefix(shown[:count], api=API, family=MODEL)
    rest = [it for turn in shown[len(found) :] for it in turn]
    behind = repair([*rest, *running], api=API, family=MODEL, taken=taken)
    whole = repair([it for turn in shown for it in turn] + running, api=API, family=MODEL)
    assert [*chain.from_iterable(found), *behind] == list(whole)


@given(broken_histories)
def test_the_people_keep_their_order(messages: list[Message]) -> None:
    def texts(history: Sequence[Message]) -> list[str]:
        people = [message for message in history if isinstance(message, UserMessage)]
        return [part.text for message in people for part in message.content if isinstance(part, Text)]

    original = [it.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for it in texts(messages)]
    original = [text.replace("\0", "\ufffd") for text in original]
    remaining = iter(original)
    made = ("(empty message)", "[image: picture.png]")
    assert all(text in remaining for text in texts(repaired(*messages)) if text not in made)


def test_repair_keeps_unbound_thinking_for_its_maker() -> None:
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
    assert text_in(repair(history, api=API, family=MODEL, images_max=0)[0]) == "look|[image: dot.png]"
    assert repair(history, api=API, family=MODEL) is history

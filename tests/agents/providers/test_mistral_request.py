"""Our request as Mistral's body: what goes where, judged by the emulator's rules and by the models of Mistral's SDK."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import AssistantMessage, AssistantPart, Message, Text, Thinking, ToolCall, UserMessage, Wire
from agents.providers.mistral.request import API, fitting_ids, wire_request
from agents.providers.models import facts_of, family_of
from agents.providers.provider import ModelRequest, OneTool, System, ToolChoice
from agents.repair import repair
from tests.agents.histories import broken_histories
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.mistral.rules import check_body
from tests.emulators.models.mistral.script import thinking_chunk
from tools.tool import Image, ToolSpec

MODEL = "mistral-large-latest"
FAMILY = family_of(MODEL)
PICTURE = Image(media_type="image/png", data=PIXEL, name="cat.png")
DATA_URL = f"data:image/png;base64,{PIXEL}"


def wire(request: ModelRequest) -> dict[str, Any]:
    """The body, proved acceptable to the emulator and to Mistral's own models of a request."""
    from mistralai.client.models import ChatCompletionStreamRequest

    body = wire_request(request)
    check_body(body)
    judged = ChatCompletionStreamRequest.model_validate(body)
    assert json.loads(judged.model_dump_json(by_alias=True, exclude_unset=True)) == body
    return body


def messages(*history: Message, **options: Any) -> list[dict[str, Any]]:
    """What is sent of a conversation, without the system prompt."""
    sent: list[dict[str, Any]] = wire(asking(*history, **({"model": MODEL} | options)))["messages"][1:]
    return sent


def thought(text: str, *, api: str = API) -> Thinking:
    return Thinking(text=text, wire=Wire(api=api, family=FAMILY, kind="thinking", data=thinking_chunk(text)))


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def spoke(*parts: AssistantPart) -> AssistantMessage:
    return replace(assistant(Text(text="x")), content=parts, api=API, model=MODEL)


def test_the_first_request_of_a_chat() -> None:
    assert wire(asking(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ,), model=MODEL)) == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are a helper.\n\n## Runtime\nagent=coder"},
            {"role": "user", "content": "## Inbound Context\n{}\n\n张三: 你好"},
        ],
        "max_tokens": 1024,
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Read a file.", "parameters": READ.input_schema},
            }
        ],
    }


def test_a_loop_goes_back_with_calls_beside_the_words_and_results_by_id() -> None:
    sent = messages(
        user("go"), spoke(Text(text="Looking."), call("AbC123xyZ"), call("b", "cat")), result("AbC123xyZ"), result("b")
    )
    other = sent[1]["tool_calls"][1]["id"]
    assert sent[1] == {
        "role": "assistant",
        "content": "Looking.",
        "tool_calls": [
            {"id": "AbC123xyZ", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}},
            {"id": other, "type": "function", "function": {"name": "cat", "arguments": '{"path": "."}'}},
        ],
    }
    assert sent[2:] == [
        {"role": "tool", "tool_call_id": "AbC123xyZ", "name": "ls", "content": "README.md"},
        {"role": "tool", "tool_call_id": other, "name": "ls", "content": "README.md"},
    ]


def test_an_answer_of_calls_alone_has_no_content() -> None:
    assert messages(user("go"), assistant(call("a")), result("a"))[1].keys() == {"role", "tool_calls"}


def test_an_empty_system_prompt_is_left_out() -> None:
    body = wire(asking(system=System(stable=" ", volatile=""), model=MODEL))
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_a_question_right_behind_results_of_a_broken_turn_is_a_message_of_its_own() -> None:
    sent = messages(user("go"), assistant(call("a")), result("a"), user("never mind"))
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[3] == {"role": "user", "content": "never mind"}


def test_neighbours_of_one_role_become_one_message() -> None:
    apart = (assistant(Text(text="c")), spoke(thought("d"), Text(text="e")))
    assert messages(user("a", "M"), user("b", "N"), *apart, user("f")) == [
        {"role": "user", "content": "M\n\na\n\nN\n\nb"},
        {"role": "assistant", "content": [text("c"), thinking_chunk("d"), text("e")]},
        {"role": "user", "content": "f"},
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "any"),
        (OneTool(name="ls"), {"type": "function", "function": {"name": "ls"}}),
        (OneTool(name="gone"), None),
    ],
)
def test_tool_choice(choice: ToolChoice, sent: object) -> None:
    assert wire(asking(model=MODEL, tool_choice=choice)).get("tool_choice") == sent


def test_without_tools_neither_tools_nor_a_choice_are_sent() -> None:
    assert not wire(asking(tools=(), tool_choice="required", model=MODEL)).keys() & {"tools", "tool_choice"}


def test_an_agent_that_lost_its_tools_can_still_go_on() -> None:
    history = (user("a"), assistant(call("1", "functions.ls"), call("2", "cat"), call("3", "cat")))
    body = wire(asking(*history, result("1"), result("2"), result("3"), tools=(), model=MODEL))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["functions_ls", "cat"]
    assert body["tool_choice"] == "none"


def test_a_picture_of_a_person_goes_as_a_data_url() -> None:
    sent = messages(UserMessage(content=(PICTURE, Text(text="what is it?")), metadata="META"))
    image = {"type": "image_url", "image_url": DATA_URL}
    assert sent == [{"role": "user", "content": [image, text("META\n\nwhat is it?")]}]
    sent = messages(UserMessage(content=(PICTURE,), metadata="META"))
    assert sent == [{"role": "user", "content": [text("META"), image]}]


def test_pictures_of_tools_follow_behind_all_results_and_join_what_the_user_says_next() -> None:
    shown = replace(result("a"), content=(Text(text="see"), PICTURE), tool="read")
    sent = messages(user("go"), assistant(call("a"), call("b")), shown, result("b"), user("well?"))
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] == "see\n[the image follows]"
    image = {"type": "image_url", "image_url": DATA_URL}
    assert sent[4]["content"] == [text("[what read returned]"), image, text("well?")]
    last = messages(user("go"), assistant(call("a")), shown)[-1]
    assert last == {"role": "user", "content": [text("[what read returned]"), image]}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("exit code 1", "The tool failed: exit code 1"),
        ('{"ok": false, "error_code": "DENIED"}', '{"ok": false, "error_code": "DENIED"}'),
        ("", "The tool failed: (no output)"),
    ],
)
def test_a_failure_of_a_tool_is_said_in_words_once(text: str, sent: str) -> None:
    failed = result("a", text, is_error=True)
    assert messages(user("go"), assistant(call("a")), failed)[2]["content"] == sent


@pytest.mark.parametrize(
    ("raw", "sent"), [('{"path": ', '{"path": '), ("", "{}"), (" ", "{}"), ('{ "a" :1}', '{ "a" :1}'), ("[1]", "[1]")]
)
def test_arguments_go_back_as_the_string_that_came(raw: str, sent: str) -> None:
    made = ToolCall(id="a", name="ls", arguments=None, arguments_raw=raw)
    [sent_call] = messages(user("go"), assistant(made), result("a"))[1]["tool_calls"]
    assert sent_call["function"]["arguments"] == sent


def test_thinking_goes_back_whole_and_in_place() -> None:
    sent = messages(
        user("go"), spoke(thought("hm"), Text(text="a"), thought("嗯"), Text(text="b"), call("c")), result("c")
    )
    assert sent[1]["content"] == [thinking_chunk("hm"), text("a"), thinking_chunk("嗯"), text("b")]
    assert list(sent[1]) == ["role", "content", "tool_calls"]


def test_a_strangers_thoughts_are_not_sent() -> None:
    sent = messages(user("go"), spoke(thought("hm", api="other"), Thinking(text="loose"), call("c")), result("c"))
    assert "content" not in sent[1]


def test_the_output_limit_of_a_known_model_is_respected() -> None:
    assert wire(replace(asking(model="magistral-medium"), max_tokens=500_000))["max_tokens"] == 40_000
    assert wire(replace(asking(model="ministral-9"), max_tokens=500_000))["max_tokens"] == 500_000


def test_a_tool_without_description_gets_its_summary() -> None:
    bare = ToolSpec(name="ls", summary="list", description="", input_schema={"type": "object"})
    assert wire(asking(tools=(bare,), model=MODEL))["tools"][0]["function"]["description"] == "list"


def test_nothing_of_ours_is_changed_by_sending_it() -> None:
    request = asking(user("a", "M"), user("b"), spoke(thought("x"), call("1")), result("1"), tools=(LS,), model=MODEL)
    before = repr(request)
    assert wire(request) == wire(request)
    assert repr(request) == before


NINE = re.compile(r"[a-zA-Z0-9]{9}")


@given(st.lists(st.one_of(st.text(max_size=4), st.from_regex(NINE, fullmatch=True), st.just("\ud800"))))
def test_every_id_becomes_nine_letters_of_its_own_and_fitting_ones_stay(ids: list[str]) -> None:
    fitting = fitting_ids(ids)
    assert fitting == fitting_ids(ids)
    assert all(NINE.fullmatch(sent) for sent in fitting.values())
    assert len(set(fitting.values())) == len(set(ids))
    assert all(fitting[given] == given for given in ids if NINE.fullmatch(given))


def test_an_id_that_is_already_taken_gives_way() -> None:
    derived = fitting_ids(["call_1"])["call_1"]
    fitting = fitting_ids(["call_1", derived])
    assert fitting[derived] == derived
    assert fitting["call_1"] != derived


def test_an_id_is_the_same_in_the_next_request() -> None:
    assert fitting_ids(["call_1"])["call_1"] == fitting_ids(["call_0", "call_1"])["call_1"]


def _own(part: AssistantPart) -> AssistantPart:
    """Other vendors' histories, with thoughts of this one."""
    if isinstance(part, Thinking) and part.wire is not None and part.wire.api == "anthropic-messages":
        return thought(part.text)
    return part


def _as_ours(history: Sequence[Message]) -> list[Message]:
    return [
        replace(message, content=tuple(_own(part) for part in message.content))
        if isinstance(message, AssistantMessage)
        else message
        for message in history
    ]


@settings(max_examples=200, deadline=None)
@given(
    broken_histories,
    st.sampled_from([(), (LS,)]),
    st.sampled_from(["auto", "none", "required", OneTool(name="ls"), OneTool(name="gone")]),
    st.sampled_from([MODEL, "magistral-small-latest", "mistral-new-9"]),
)
def test_any_history_whatever_is_accepted_once_repaired(
    history: list[Message], tools: tuple[ToolSpec, ...], choice: ToolChoice, model: str
) -> None:
    images_max = 20 if facts_of(model).vision else 0
    repaired = repair([*_as_ours(history), user("and now?")], api=API, family=FAMILY, images_max=images_max)
    wire(asking(*repaired, tools=tools, tool_choice=choice, model=model))
    repaired = repair(_as_ours(history), api=API, family=FAMILY, images_max=images_max)
    if repaired and not isinstance(repaired[-1], AssistantMessage):
        wire(asking(*repaired, tools=tools, tool_choice=choice, model=model))

"""Our request as Mistral's body: what goes where, judged by the emulator's rules and by the models of Mistral's SDK."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import Message, Text, Thinking, ToolCall, UserMessage
from agents.providers.request import wire_id
from agents.providers.vendors import VENDORS
from tests.agents.providers.contract.bodies import mistral as wire
from tests.agents.providers.contract.bodies import thought as thought_of
from tests.agents.providers.requests import PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.mistral.script import thinking_chunk
from tools.tool import Image

MODEL = "mistral-large-latest"
PICTURE = Image(media_type="image/png", data=PIXEL, name="cat.png")
PNG = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def messages(*history: Message, **options: Any) -> list[dict[str, Any]]:
    """What is sent of a conversation, without the system prompt."""
    sent: list[dict[str, Any]] = wire(asking(*history, **({"model": MODEL} | options)))["messages"][1:]
    return sent


def thought(text: str) -> Thinking:
    return thought_of("mistral", MODEL, text)


def fitting_id(call_id: str) -> str:
    return wire_id(call_id, pattern=VENDORS["mistral"].ids)


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_the_first_request_of_a_chat() -> None:
    assert wire(asking(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ,), model=MODEL)) == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are a helper.\n\n## Runtime\nagent=coder"},
            {"role": "user", "content": "## Inbound Context\n{}\n\n张三: 你好"},
        ],
        "stream": True,
        "max_tokens": 1024,
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Read a file.", "parameters": READ.input_schema},
            }
        ],
    }


def test_a_long_history_goes_back_as_it_was() -> None:
    """Pictures of a person in place, those of tools behind all results; thoughts in place, calls beside the words;
    a person's messages are one, but for a question right behind results."""
    broken = ToolCall(id="b", name="目录", arguments=None, arguments_raw='{"path": ')
    mixed = (thought("hm"), Text(text="a "), Thinking(text="loose"), Text(text="b"))
    shown = replace(result("AbC123xyZ"), content=(Text(text="see"), PICTURE), tool="read")
    sent = messages(
        UserMessage(content=(PICTURE, Text(text="what is it?")), metadata="META"),
        user("and now?", "MORE"),
        assistant(*mixed, call("AbC123xyZ"), broken),
        shown,
        result("b", "exit code 1", is_error=True),
        user("well?"),
        assistant(Text(text="c")),
        assistant(thought("d"), Text(text="e")),
        user("f"),
    )
    given = fitting_id("b")
    calls = [
        {"id": "AbC123xyZ", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}},
        {"id": given, "type": "function", "function": {"name": "__", "arguments": '{"path": '}},
    ]
    assert sent == [
        {"role": "user", "content": [PNG, text("META\n\nwhat is it?"), text("MORE\n\nand now?")]},
        {"role": "assistant", "content": [thinking_chunk("hm"), text("a "), text("b")], "tool_calls": calls},
        {
            "role": "tool",
            "tool_call_id": "AbC123xyZ",
            "content": "see\n(the picture follows in the next user message)",
        },
        {"role": "tool", "tool_call_id": given, "content": "Error: exit code 1"},
        {
            "role": "user",
            "content": [text("(The gateway: pictures of the results above.)"), PNG, text("well?")],
        },
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": [thinking_chunk("d"), text("e")]},
        {"role": "user", "content": "f"},
    ]


DENIED = '{"ok": false, "error_code": "DENIED"}'


@pytest.mark.parametrize(("text", "sent"), [(DENIED, DENIED), ("", "Error: the tool failed and gave no reason")])
def test_a_failure_of_a_tool_is_said_in_words_once(text: str, sent: str) -> None:
    history = (user("go"), assistant(call("a"), call("b")), result("a", text, is_error=True), result("b", ""))
    assert [message["content"] for message in messages(*history)[2:]] == [sent, "(no output)"]


@pytest.mark.parametrize(("raw", "sent"), [("", "{}"), (" ", "{}"), ('{ "a" :1}', '{ "a" :1}'), ("[1]", "[1]")])
def test_arguments_go_back_as_the_string_that_came(raw: str, sent: str) -> None:
    made = ToolCall(id="a", name="ls", arguments=None, arguments_raw=raw)
    [sent_call] = messages(user("go"), assistant(made), result("a"))[1]["tool_calls"]
    assert sent_call["function"]["arguments"] == sent


NINE = re.compile(r"[a-zA-Z0-9]{9}")


@given(st.lists(st.one_of(st.text(max_size=4), st.from_regex(NINE, fullmatch=True), st.just("\ud800"))))
def test_every_id_becomes_nine_letters_of_its_own_and_fitting_ones_stay(ids: list[str]) -> None:
    fitting = {given: fitting_id(given) for given in ids}
    assert all(NINE.fullmatch(sent) for sent in fitting.values())
    assert len(set(fitting.values())) == len(set(ids))
    assert all(fitting[given] == given for given in ids if NINE.fullmatch(given))

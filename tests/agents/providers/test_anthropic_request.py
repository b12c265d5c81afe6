"""Our request as Anthropic's body: what goes where, judged by the emulator's own rules."""

from dataclasses import replace
from typing import Any

import pytest

from agents.messages import AssistantMessage, Opaque, Text, Thinking, ToolCall, UserMessage, Wire
from agents.providers.anthropic.request import wire_request
from agents.providers.provider import ModelRequest, OneTool, System, ToolChoice
from agents.providers.request import wire_id, wire_name
from tests.agents.providers.requests import LS, MODEL, PIXEL, READ, WRITE, asking, assistant, call, result, user
from tests.emulators.models.anthropic.rules import check_body
from tests.emulators.models.anthropic.script import redacted_block, thinking_block
from tools.tool import Image, ToolSpec

MARK = {"type": "ephemeral"}


def wire(request: ModelRequest) -> dict[str, Any]:
    """The body, proved acceptable."""
    body = wire_request(request)
    check_body(body)
    return body


def test_the_first_request_of_a_chat() -> None:
    body = wire(asking(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ, LS)))
    assert body == {
        "model": MODEL,
        "max_tokens": 1024,
        "system": [
            {"type": "text", "text": "You are a helper.", "cache_control": MARK},
            {"type": "text", "text": "## Runtime\nagent=coder"},
        ],
        "tools": [
            {"name": "read", "description": "Read a file.", "input_schema": READ.input_schema},
            {"name": "ls", "description": "List a folder.", "input_schema": LS.input_schema, "cache_control": MARK},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "## Inbound Context\n{}\n\n张三: 你好", "cache_control": MARK},
                ],
            },
        ],
    }


def test_a_loop_in_a_chat_with_history_has_its_four_marks() -> None:
    history = (user("old"), assistant(call("a")), result("a"), assistant(Text(text="There.")))
    running = (user("new"), assistant(Text(text="Looking."), call("b"), call("c")), result("b"), result("c", "x"))
    body = wire(asking(*history, *running))
    marked = [
        (number, place)
        for number, message in enumerate(body["messages"])
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marked == [(3, 0), (6, 1)]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"] * 3 + ["user"]
    assert body["messages"][6]["content"][0] == {"type": "tool_result", "tool_use_id": "b", "content": "README.md"}


def test_empty_halves_of_the_system_prompt_are_left_out() -> None:
    assert "system" not in wire(asking(system=System(stable=" ", volatile="")))
    only_volatile = wire(asking(system=System(stable="", volatile="x")))["system"]
    assert only_volatile == [{"type": "text", "text": "x"}]


@pytest.mark.parametrize(
    ("model", "choice", "sent"),
    [
        (MODEL, "auto", None),
        (MODEL, "none", {"type": "none"}),
        (MODEL, "required", {"type": "any"}),
        (MODEL, OneTool(name="ls"), {"type": "tool", "name": "ls"}),
        (MODEL, OneTool(name="gone"), None),
        ("claude-opus-5", "required", {"type": "any"}),
        ("claude-opus-5-5", "required", None),
        ("claude-sonnet-5-5-20261101", OneTool(name="ls"), None),
        ("claude-fable-5-1", "required", None),
        ("claude-haiku-5-5", "required", {"type": "any"}),
    ],
)
def test_tool_choice(model: str, choice: ToolChoice, sent: dict[str, str] | None) -> None:
    assert wire(asking(model=model, tool_choice=choice)).get("tool_choice") == sent


def test_without_tools_neither_tools_nor_a_choice_are_sent() -> None:
    body = wire(asking(tools=(), tool_choice="required"))
    assert "tools" not in body
    assert "tool_choice" not in body


def test_an_agent_that_lost_its_tools_can_still_go_on() -> None:
    body = wire(asking(user("a"), assistant(call("1", "functions.ls")), result("1"), tools=()))
    assert [tool["name"] for tool in body["tools"]] == ["functions_ls"]
    assert body["tool_choice"] == {"type": "none"}


def test_a_result_is_text_list_or_nothing_and_an_error_is_text() -> None:
    picture = Image(media_type="image/png", data=PIXEL)
    both = (Text(text="see"), picture)
    body = wire(
        asking(
            user("go"),
            assistant(call("a"), call("b"), call("c"), call("d")),
            replace(result("a"), content=both),
            replace(result("b"), content=both, is_error=True),
            replace(result("c"), content=()),
            replace(result("d"), content=(picture,), is_error=True),
        )
    )
    a, b, c, d = body["messages"][2]["content"]
    assert [block["type"] for block in a["content"]] == ["text", "image"]
    assert (b["content"], b["is_error"]) == ("see", True)
    assert "content" not in c
    assert d["content"]


def test_an_image_without_words_gets_the_metadata_before_it() -> None:
    picture = Image(media_type="image/png", data=PIXEL)
    body = wire(asking(UserMessage(content=(picture,), metadata="META")))
    assert [block["type"] for block in body["messages"][0]["content"]] == ["text", "image"]
    assert body["messages"][0]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}


def test_ids_and_names_that_the_wire_refuses_are_mapped_alike_for_call_and_result() -> None:
    strange = ToolCall(id="functions.ls:0", name="目录 ls", arguments=None, arguments_raw="{oops")
    body = wire(asking(user("go"), assistant(strange), result("functions.ls:0")))
    sent = body["messages"][1]["content"][0]
    assert sent["id"] == body["messages"][2]["content"][0]["tool_use_id"] == wire_id("functions.ls:0")
    assert (sent["name"], sent["input"]) == ("___ls", {})


def test_legal_ids_and_names_stay() -> None:
    assert (wire_id("toolu_01-A"), wire_name("read")) == ("toolu_01-A", "read")
    assert wire_id("\ud800") != wire_id("")
    assert wire_name("") == "unknown"


def test_thinking_goes_back_untouched_and_unmarked() -> None:
    def own(kind: str, data: dict[str, Any]) -> Wire:
        return Wire(api="anthropic-messages", family=MODEL, kind=kind, data=data)

    thinking, redacted = thinking_block("hm"), redacted_block("xyz")
    message = AssistantMessage(
        content=(
            Thinking(text="hm", wire=own("thinking", thinking)),
            Thinking(text="", wire=own("redacted_thinking", redacted)),
            Thinking(text="a stranger's thought", wire=Wire(api="other", family="x", kind="y", data={})),
            call("a"),
        ),
        provider="anthropic",
        model=MODEL,
        api="anthropic-messages",
        stop_reason="tool_use",
    )
    body = wire(asking(user("go"), message, result("a")))
    assert body["messages"][1]["content"][:2] == [thinking, redacted]
    assert len(body["messages"][1]["content"]) == 3


def test_a_mark_never_falls_on_thinking() -> None:
    data = thinking_block("hm")
    thinking = Thinking(text="hm", wire=Wire(api="anthropic-messages", family=MODEL, kind="thinking", data=data))
    lost = replace(assistant(), content=(thinking,))
    body = wire_request(asking(user("a"), lost, user("b")))
    assert body["messages"][1]["content"] == [data]


def test_a_paused_turn_goes_back_unchanged() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    part = Opaque(wire=Wire(api="anthropic-messages", family=MODEL, kind="server_tool_use", data=block))
    paused = replace(assistant(Text(text="Searching.")), content=(Text(text="Searching."), part), stop_reason="pause")
    assert wire(asking(user("go"), paused))["messages"][1]["content"][1] == block


def test_a_call_made_by_a_servers_tool_names_its_caller_again() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    made = replace(
        call("a"), wire=Wire(api="anthropic-messages", family=MODEL, kind="tool_use", data={"caller": caller})
    )
    body = wire(asking(user("go"), assistant(made), result("a")))
    assert body["messages"][1]["content"][0]["caller"] == caller


def test_the_output_limit_of_a_known_model_is_respected() -> None:
    assert wire(replace(asking(model="claude-haiku-4-5"), max_tokens=500_000))["max_tokens"] == 64_000
    assert wire(replace(asking(model="claude-new-9"), max_tokens=500_000))["max_tokens"] == 500_000


def test_equal_requests_are_equal_bytes_and_nothing_of_ours_is_changed() -> None:
    request = asking(user("a", metadata="M"), assistant(call("1")), result("1"), tools=(LS, READ, WRITE))
    before = repr(request)
    assert wire(request) == wire(request)
    assert repr(request) == before


def test_a_tool_without_description_gets_its_summary() -> None:
    bare = ToolSpec(name="ls", summary="list", description="", input_schema={"type": "object"})
    assert wire(asking(tools=(bare,)))["tools"][0]["description"] == "list"

"""Our request as Anthropic's body: what goes where, judged by the emulator's own rules."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from agents.messages import Message, Opaque, Text, Thinking, ToolCall, Wire
from agents.providers.anthropic import wire_request
from agents.providers.models import Level, facts_of
from agents.providers.provider import OneTool, ToolChoice
from agents.providers.request import wire_id, wire_name
from tests.agents.providers.contract.bodies import anthropic as wire
from tests.agents.providers.contract.bodies import thought
from tests.agents.providers.requests import LS, MODEL, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.anthropic.script import redacted_block, thinking_block
from tools.tool import Image

MARK = {"type": "ephemeral"}


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
                "content": [{"type": "text", "text": "## Inbound Context\n{}\n\n张三: 你好", "cache_control": MARK}],
            }
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


def test_no_tool_is_forced_where_the_model_refuses_it() -> None:
    choices: list[ToolChoice] = ["required", OneTool(name="ls")]
    for model in ("claude-opus-5-5", "claude-sonnet-5-5-20261101", "claude-fable-5-1"):
        assert [wire(asking(model=model, tool_choice=choice)).get("tool_choice") for choice in choices] == [None, None]
    for model in ("claude-opus-5", "claude-haiku-5-5"):
        assert wire(asking(model=model, tool_choice="required"))["tool_choice"] == {"type": "any"}


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


def test_anthropic_ids_and_names_are_mapped_for_call_and_result() -> None:
    strange = ToolCall(id="functions.ls:0", name="目录 ls", arguments=None, arguments_raw="{oops")
    body = wire(asking(user("go"), assistant(strange), result("functions.ls:0")))
    sent = body["messages"][1]["content"][0]
    assert sent["id"] == body["messages"][2]["content"][0]["tool_use_id"] == wire_id("functions.ls:0")
    assert (sent["name"], sent["input"]) == ("___ls", {})
    assert (wire_id("toolu_01-A"), wire_name("read"), wire_name("")) == ("toolu_01-A", "read", "unknown")
    assert wire_id("\ud800") != wire_id("")


def own(kind: str, data: dict[str, Any]) -> Wire:
    return Wire(api="anthropic-messages", family=MODEL, kind=kind, data=data)


def test_anthropic_own_thinking_goes_back_and_foreign_does_not() -> None:
    thinking, redacted = thinking_block("hm"), redacted_block("xyz")
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    parts = (
        Thinking(text="hm", wire=own("thinking", thinking)),
        Thinking(text="", wire=own("redacted_thinking", redacted)),
        Thinking(text="a stranger's thought", wire=Wire(api="other", family="x", kind="y", data={})),
        Opaque(wire=own("server_tool_use", search)),
        replace(call("a"), wire=own("tool_use", {"caller": caller})),
    )
    sent = wire(asking(user("go"), assistant(*parts), result("a")))["messages"][1]["content"]
    assert sent[:3] == [thinking, redacted, search]
    assert (len(sent), sent[3]["caller"]) == (4, caller)


def test_a_mark_never_falls_on_thinking() -> None:
    data = thinking_block("hm")
    lost = assistant(Thinking(text="hm", wire=own("thinking", data)))
    assert wire_request(asking(user("a"), lost, user("b")))["messages"][1]["content"] == [data]


def body(model: str, level: Level | None, *messages: Message, **more: Any) -> dict[str, Any]:
    request = replace(asking(*messages, model=model), thinking=level, max_tokens=8192, **more)
    made = wire(request)
    return {key: made[key] for key in ("thinking", "output_config") if key in made}


@pytest.mark.parametrize(
    ("model", "level", "sent"),
    [
        ("claude-sonnet-4-6", None, {}),
        ("claude-sonnet-4-6", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", "low", {"output_config": {"effort": "low"}}),
        (
            "claude-opus-5",
            "max",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}},
        ),
        ("claude-haiku-4-5", "off", {}),
        ("claude-haiku-4-5", "medium", {"thinking": {"type": "enabled", "budget_tokens": 3276}}),
    ],
)
def test_each_model_is_asked_in_its_own_way(model: str, level: Level | None, sent: dict[str, Any]) -> None:
    assert body(model, level) == sent


@pytest.mark.parametrize("model", ["claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-5"])
def test_every_level_a_model_takes_is_accepted_with_every_choice(model: str) -> None:
    for level, choice in product((None, *facts_of(model).thinking), ("auto", "required", OneTool(name="ls"))):
        body(model, level, tool_choice=choice)


def test_anthropic_turn_begun_without_thinking_stays_so() -> None:
    answer = assistant(Text(text="Looking."), call("a"))
    assert body("claude-haiku-4-5", "high", user("hi"), answer, result("a")) == {}
    thinking = thought("anthropic-messages", "claude-haiku-4-5")
    thought_of = replace(answer, content=(thinking, *answer.content))
    assert "thinking" in body("claude-haiku-4-5", "high", user("hi"), thought_of, result("a"))
    ended = (user("hi"), answer, result("a"), assistant(Text(text="There.")))
    assert "thinking" in body("claude-haiku-4-5", "high", *ended, user("and?"))
    joined = (user("never"), user("mind"))  # to one message with the result
    assert body("claude-haiku-4-5", "high", *ended[:3], *joined) == {}


def test_a_budget_needs_room_for_an_answer() -> None:
    request = replace(asking(model="claude-haiku-4-5"), thinking="low", max_tokens=1024)
    assert "thinking" not in wire(request)
    assert wire(replace(request, max_tokens=1025))["thinking"]["budget_tokens"] == 1024

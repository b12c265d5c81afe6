"""Our request as a Chat body: what goes where at each vendor, judged by the emulator's own rules."""

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, Wire
from agents.providers.chat.request import parameters, wire_request
from agents.providers.chat.response import API
from agents.providers.chat.vendors import VENDORS, for_model
from agents.providers.models import Level, family_of
from agents.providers.provider import ModelRequest, OneTool, System, ToolChoice
from agents.repair import repair
from tests.agents.histories import broken_histories
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.chat.rules import check_body
from tools.tool import Image, ToolSpec

MODELS = {
    "openai": "gpt-4.1",
    "azure": "gpt-5.5",
    "deepseek": "deepseek-v4-pro",
    "deepseek-r1": "deepseek-reasoner",
    "moonshot": "kimi-k3",
    "zhipu": "glm-5.2",
    "qwen": "qwen3-max",
    "openrouter": "anthropic/claude-sonnet-5",
    "ollama": "qwen3:8b",
    "vllm": "Qwen/Qwen3-32B",
    "lmstudio": "some-model",
    "clawdbot": "clawdbot-3.5-tools",
    "generic": "some-model",
}
"""A model of each vendor."""
IMAGE = Image(media_type="image/png", data=PIXEL, name="a.png")
URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def wire(request: ModelRequest, vendor: str) -> dict[str, Any]:
    """The body, proved acceptable to this vendor, and serialisable as strict JSON."""
    body = wire_request(request, VENDORS[vendor])
    check_body(body, for_model(VENDORS[vendor], request.model).name)
    json.dumps(body, ensure_ascii=False).encode()
    return body


def ask(vendor: str, *messages: Message, **members: Any) -> dict[str, Any]:
    """What a vendor is sent; `members` are other members of the request."""
    level: Level | None = members.pop("thinking", None)
    conversation: str = members.pop("conversation", "")
    request = asking(*messages, model=members.pop("model", MODELS[vendor]), **members)
    return wire(replace(request, thinking=level, conversation=conversation), vendor)


def thought(text: str, model: str, kind: str = "reasoning_content", data: Any = None) -> Thinking:
    payload = text if data is None else data
    return Thinking(text=text, wire=Wire(api=API, family=family_of(model), kind=kind, data=payload))


def spoke(*parts: Any) -> AssistantMessage:
    return replace(assistant(call("x")), content=parts)


def test_the_first_request_of_a_chat() -> None:
    body = ask("openai", user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ, LS))
    tools = [
        {"type": "function", "function": {"name": name, "description": words, "parameters": dict(LS.input_schema)}}
        for name, words in (("read", "Read a file."), ("ls", "List a folder."))
    ]
    assert body == {
        "model": "gpt-4.1",
        "messages": [
            {"role": "system", "content": "You are a helper.\n\n## Runtime\nagent=coder"},
            {"role": "user", "content": "## Inbound Context\n{}\n\n张三: 你好"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 1024,
        "tools": tools,
    }


def test_a_tool_loop_goes_back_as_it_came() -> None:
    raw = '{ "path" :"/tmp" }'
    made = ToolCall(id="call_A", name="ls", arguments={"path": "/tmp"}, arguments_raw=raw)
    bare = ToolCall(id="call_B", name="ls", arguments={}, arguments_raw="")
    body = ask("openai", user("go"), spoke(made, bare), result("call_A", "a.txt"), result("call_B"))
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_A", "type": "function", "function": {"name": "ls", "arguments": raw}},
                {"id": "call_B", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_A", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "call_B", "content": "README.md"},
    ]


def test_arguments_made_on_another_wire_are_written_out() -> None:
    made = ToolCall(id="a", name="ls", arguments={"path": "目录"}, arguments_raw="")
    sent = ask("openai", user("go"), spoke(made), result("a"))["messages"][2]["tool_calls"][0]
    assert sent["function"]["arguments"] == '{"path": "目录"}'


@pytest.mark.parametrize(
    ("vendor", "sent"),
    [("openai", '{"path": '), ("deepseek", '{"path": '), ("qwen", "{}"), ("vllm", "{}"), ("ollama", "{}")],
)
def test_broken_arguments_go_back_raw_except_to_servers_that_parse_them(vendor: str, sent: str) -> None:
    broken = ToolCall(id="a", name="ls", arguments=None, arguments_raw='{"path": ')
    made = ask(vendor, user("go"), spoke(broken), result("a"))["messages"][2]["tool_calls"][0]
    assert made["function"]["arguments"] == sent


@pytest.mark.parametrize(
    ("vendor", "content"),
    [("openai", None), ("azure", None), ("deepseek", ""), ("ollama", ""), ("vllm", ""), ("clawdbot", None)],
)
def test_a_message_that_only_calls_has_the_content_that_the_server_takes(vendor: str, content: str | None) -> None:
    assert ask(vendor, user("go"), spoke(call("a")), result("a"))["messages"][2]["content"] == content


@pytest.mark.parametrize(
    ("text", "is_error", "vendor", "sent"),
    [
        ("fine", False, "openai", "fine"),
        ("", False, "openai", "(no output)"),
        ("gone", True, "openai", "Error: gone"),
        ('{"ok": false, "error_code": "X"}', True, "openai", '{"ok": false, "error_code": "X"}'),
        ("", True, "openai", "Error: the tool failed and gave no reason"),
        ("fine", False, "clawdbot", '{"output": "fine"}'),
        ('{"a": 1}', False, "clawdbot", '{"a": 1}'),
        ("gone", True, "clawdbot", '{"error": "gone"}'),
        ('{"ok": false}', True, "clawdbot", '{"ok": false}'),
    ],
)
def test_a_result_says_in_words_that_it_failed(text: str, is_error: bool, vendor: str, sent: str) -> None:
    body = ask(vendor, user("go"), spoke(call("a")), result("a", text, is_error=is_error))
    assert body["messages"][3]["content"] == sent


def test_pictures_of_tools_follow_all_results_as_one_message_of_the_user() -> None:
    seen = ToolResultMessage(call_id="a", tool="ls", content=(Text(text="found"), IMAGE))
    blind = ToolResultMessage(call_id="b", tool="ls", content=(IMAGE,))
    body = ask("openai", user("go"), spoke(call("a"), call("b")), seen, blind)
    first, second, pictures = body["messages"][3:]
    assert first["content"] == "found\n\n(the picture follows in the next user message)"
    assert second["content"] == "(the picture follows in the next user message)"
    assert pictures == {
        "role": "user",
        "content": [{"type": "text", "text": "Pictures from the tool results above:"}, URL, URL],
    }


def test_a_person_who_writes_behind_pictures_of_tools_is_in_the_same_message() -> None:
    seen = ToolResultMessage(call_id="a", tool="ls", content=(IMAGE,))
    body = ask("openai", user("go"), spoke(call("a")), seen, user("and now?", metadata="META"))
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][4]["content"][-1] == {"type": "text", "text": "META\n\nand now?"}


def test_two_messages_of_a_person_in_a_row_are_one() -> None:
    body = ask("openai", user("one"), user("two", metadata="META"))
    assert body["messages"][1:] == [{"role": "user", "content": "one\n\nMETA\n\ntwo"}]
    seen = UserMessage(content=(IMAGE,), metadata="META")
    (message,) = ask("openai", user("one"), seen)["messages"][1:]
    assert message["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "META"}, URL]


def test_a_picture_from_a_person_keeps_its_place_and_the_metadata_stand_before_the_words() -> None:
    message = UserMessage(content=(IMAGE, Text(text="what is it?")), metadata="META")
    sent = ask("openai", message)["messages"][1]["content"]
    assert sent == [URL, {"type": "text", "text": "META\n\nwhat is it?"}]
    alone = UserMessage(content=(IMAGE,), metadata="META")
    assert ask("openai", alone)["messages"][1]["content"] == [{"type": "text", "text": "META"}, URL]


@pytest.mark.parametrize("vendor", VENDORS)
def test_plain_words_are_always_a_string(vendor: str) -> None:
    message = UserMessage(content=(Text(text="one"), Text(text="two")))
    assert ask(vendor, message)["messages"][1]["content"] == "one\n\ntwo"


LONG = "chatcmpl-tool-" + "f" * 32


@pytest.mark.parametrize(
    ("vendor", "call_id", "kept"),
    [
        ("openai", "call_1", True),
        ("openai", LONG, False),
        ("openai", "functions.ls:0", False),
        ("moonshot", "functions.ls:0", True),
        ("deepseek", "functions.ls:0", False),
        ("vllm", LONG, True),
        ("openrouter", LONG, False),
        ("generic", "é" * 90, False),
    ],
)
def test_ids_that_a_vendor_does_not_take_are_renamed_alike_for_call_and_result(
    vendor: str, call_id: str, kept: bool
) -> None:
    _, _, called, answered = ask(vendor, user("go"), spoke(call(call_id)), result(call_id))["messages"][:4]
    sent = called["tool_calls"][0]["id"]
    assert sent == answered["tool_call_id"]
    assert (sent == call_id) is kept


FORCED = {"type": "function", "function": {"name": "ls"}}
CHOICES: list[tuple[str, ToolChoice, Level | None, Any]] = [
    ("openai", "auto", None, None),
    ("openai", "none", None, "none"),
    ("openai", "required", None, "required"),
    ("openai", OneTool(name="ls"), None, FORCED),
    ("openai", OneTool(name="gone"), None, None),
    ("deepseek", "required", None, None),
    ("deepseek", OneTool(name="ls"), "high", None),
    ("deepseek", "required", "off", "required"),
    ("deepseek", OneTool(name="ls"), "off", FORCED),
    ("deepseek", "none", None, "none"),
    ("deepseek-r1", "required", None, None),
    ("deepseek-r1", OneTool(name="ls"), None, None),
    ("moonshot", "required", None, None),
    ("moonshot", OneTool(name="ls"), None, None),
    ("zhipu", "required", None, None),
    ("zhipu", OneTool(name="ls"), None, None),
    ("qwen", "required", None, None),
    ("qwen", "required", "off", "required"),
    ("openrouter", "required", None, "required"),
    ("ollama", "required", None, None),
    ("vllm", "required", None, "required"),
    ("clawdbot", "auto", None, "auto"),
    ("clawdbot", "none", None, "none"),
    ("clawdbot", "required", None, FORCED),
    ("clawdbot", OneTool(name="ls"), None, FORCED),
    ("clawdbot", OneTool(name="gone"), None, "auto"),
]


@pytest.mark.parametrize(("vendor", "choice", "thinking", "sent"), CHOICES)
def test_the_tool_choice_is_the_nearest_that_the_vendor_takes(
    vendor: str, choice: ToolChoice, thinking: Level | None, sent: Any
) -> None:
    assert ask(vendor, tool_choice=choice, thinking=thinking).get("tool_choice") == sent


def test_kimi_that_does_not_think_may_be_told_which_tool_but_not_that_it_must() -> None:
    body = ask("moonshot", model="kimi-k2.6", thinking="off", tool_choice="required")
    assert body["tool_choice"] == FORCED
    two = ask("moonshot", model="kimi-k2.6", thinking="off", tool_choice="required", tools=(LS, READ))
    assert "tool_choice" not in two


def test_clawdbot_with_two_tools_cannot_be_made_to_call_one() -> None:
    assert ask("clawdbot", tool_choice="required", tools=(LS, READ))["tool_choice"] == "auto"


def test_a_vendor_without_none_is_shown_no_tools_unless_the_history_calls() -> None:
    assert "tools" not in ask("zhipu", tool_choice="none")
    called = ask("zhipu", user("go"), spoke(call("a")), result("a"), tool_choice="none")
    assert ("tools" in called, "tool_choice" in called) == (True, False)


@pytest.mark.parametrize("vendor", VENDORS)
def test_an_agent_that_lost_its_tools_still_declares_what_its_history_calls(vendor: str) -> None:
    body = ask(vendor, user("go"), spoke(call("a"), call("b", "目录")), result("a"), result("b"), tools=())
    assert [tool["function"]["name"] for tool in body["tools"]] == ["ls", "__"]
    assert body.get("tool_choice", "none") == "none"
    assert ask(vendor, tools=()).keys() & {"tools", "tool_choice"} == set()


THINKING: list[tuple[str, str, Level | None, dict[str, Any]]] = [
    ("openai", "gpt-5.2", "high", {"reasoning_effort": "high"}),
    ("openai", "gpt-5.2", None, {}),
    ("deepseek", "deepseek-v4-pro", "off", {"thinking": {"type": "disabled"}}),
    ("deepseek", "deepseek-v4-pro", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
    ("moonshot", "kimi-k2.6", "off", {"thinking": {"type": "disabled"}}),
    ("moonshot", "kimi-k2.6", "high", {"thinking": {"type": "enabled"}}),
    ("moonshot", "kimi-k3", "low", {"reasoning_effort": "low"}),
    ("zhipu", "glm-5.2", "off", {"thinking": {"type": "disabled"}}),
    ("zhipu", "glm-5.2", "high", {"thinking": {"type": "enabled", "clear_thinking": False}}),
    ("qwen", "qwen3-max", "off", {"enable_thinking": False}),
    ("qwen", "qwen3-max", "low", {"enable_thinking": True, "thinking_budget": 1024}),
    ("openrouter", "anthropic/claude-sonnet-5", "high", {"reasoning": {"effort": "high"}}),
    ("openrouter", "anthropic/claude-sonnet-5", "off", {"reasoning": {"effort": "none"}}),
    ("vllm", "q", "off", {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
    ("clawdbot", "clawdbot-3.5-tools", "high", {}),
]
_SWITCHES = {"reasoning_effort", "thinking", "enable_thinking", "thinking_budget", "reasoning", "chat_template_kwargs"}


@pytest.mark.parametrize(("vendor", "model", "level", "sent"), THINKING)
def test_thinking_is_switched_in_the_vendors_own_way(
    vendor: str, model: str, level: Level | None, sent: dict[str, Any]
) -> None:
    body = ask(vendor, model=model, thinking=level)
    assert {name: body[name] for name in _SWITCHES & body.keys()} == sent


@pytest.mark.parametrize("level", [None, "high", "off"])
def test_new_openai_models_do_not_reason_while_they_have_tools_on_this_wire(level: Level | None) -> None:
    assert ask("openai", model="gpt-5.5", thinking=level)["reasoning_effort"] == "none"
    without = ask("openai", model="gpt-5.5", thinking=level, tools=())
    assert without.get("reasoning_effort") == {None: None, "high": "high", "off": "none"}[level]


REPLAY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai", {}, {}),
    ("azure", {}, {}),
    ("deepseek-r1", {}, {}),
    ("ollama", {}, {}),
    ("clawdbot", {}, {}),
    ("deepseek", {"reasoning_content": "hm"}, {"reasoning_content": ""}),
    ("moonshot", {"reasoning_content": "hm"}, {"reasoning_content": " "}),
    ("zhipu", {"reasoning_content": "hm"}, {}),
    ("qwen", {"reasoning_content": "hm"}, {}),
    ("vllm", {"reasoning_content": "hm"}, {}),
]


@pytest.mark.parametrize(("vendor", "with_own", "without"), REPLAY)
def test_reasoning_goes_back_where_it_is_wanted_and_nowhere_else(
    vendor: str, with_own: dict[str, Any], without: dict[str, Any]
) -> None:
    model = MODELS[vendor]
    own = spoke(thought("hm", model), Text(text="Looking."), call("a"))
    body = ask(vendor, user("go"), spoke(call("old")), result("old"), user("go on"), own, result("a"))
    named = {"reasoning_content", "reasoning", "reasoning_details"}
    old, new = (message for message in body["messages"] if message["role"] == "assistant")
    assert {name: old[name] for name in named & old.keys()} == without
    assert {name: new[name] for name in named & new.keys()} == with_own


def test_a_model_of_the_older_era_gets_no_reasoning_back_from_the_same_vendor() -> None:
    own = spoke(thought("hm", "deepseek-reasoner"), call("a"))
    body = ask("deepseek", user("go"), own, result("a"), model="deepseek-reasoner", tool_choice="required")
    assert "reasoning_content" not in body["messages"][2]
    assert "tool_choice" not in body


def test_openrouter_gets_its_list_back_unmodified() -> None:
    from tests.emulators.models.chat.shapes import signature_of

    entry = {"type": "reasoning.text", "text": "hm", "index": 0, "format": "x"}
    details = [entry | {"signature": signature_of(entry)}]
    own = spoke(thought("hm", MODELS["openrouter"], "reasoning_details", details), call("a"))
    sent = ask("openrouter", user("go"), own, result("a"))["messages"][2]
    assert sent["reasoning_details"] == details
    assert "reasoning" not in sent


def test_reasoning_that_came_in_another_field_goes_back_in_the_one_the_vendor_knows() -> None:
    own = spoke(thought("hm", MODELS["vllm"], "reasoning"), call("a"))
    assert ask("vllm", user("go"), own, result("a"))["messages"][2]["reasoning"] == "hm"
    moved = spoke(thought("hm", "x", "reasoning_details", [{"text": "hm"}]), call("a"))
    assert ask("deepseek", user("go"), moved, result("a"))["messages"][2]["reasoning_content"] == "hm"


def test_each_tool_is_written_out_for_servers_that_forget_what_is_not() -> None:
    bare = ToolSpec(name="now", summary="the time", description="", input_schema={"type": "object"})
    (tool,) = ask("clawdbot", tools=(bare,))["tools"]
    assert tool["function"] == {
        "name": "now",
        "description": "the time",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }


def test_references_are_put_in_place_for_servers_that_know_none() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "one"}, "tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "A": {"type": "string", "description": "any"},
            "Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}},
        },
    }
    assert parameters(schema, inline_defs=True) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "one"},
            "tree": {"type": "object", "properties": {"left": {}}},
        },
        "required": [],
    }
    assert parameters(schema, inline_defs=False)["$defs"] == schema["$defs"]
    spec = ToolSpec(name="t", summary="t", description="t", input_schema=schema)
    assert "$ref" not in json.dumps(ask("qwen", tools=(spec,)))


def test_a_long_description_is_cut_where_long_ones_are_refused() -> None:
    spec = replace(LS, description="x" * 3000)
    assert len(ask("openai", tools=(spec,))["tools"][0]["function"]["description"]) == 1024
    assert len(ask("deepseek", tools=(spec,))["tools"][0]["function"]["description"]) == 3000


def test_the_answer_is_limited_in_the_vendors_own_field() -> None:
    assert ask("openai")["max_completion_tokens"] == 1024
    assert ask("deepseek")["max_tokens"] == 1024
    assert wire(replace(asking(model="deepseek-chat"), max_tokens=99_999), "deepseek")["max_tokens"] == 8192
    assert wire(replace(asking(model="some-model"), max_tokens=99_999), "generic")["max_tokens"] == 99_999


def test_the_cache_key_names_the_chat_and_tells_nothing_of_it() -> None:
    key = ask("openai", conversation="feishu:oc_1")["prompt_cache_key"]
    assert (len(key), "feishu" in key) == (64, False)
    assert key == ask("openai", conversation="feishu:oc_1")["prompt_cache_key"]
    assert "prompt_cache_key" not in ask("deepseek", conversation="feishu:oc_1")


def test_half_an_emoji_and_an_empty_system_prompt_are_no_trouble() -> None:
    history = repair([user("half \ud83d and \0")], api="openai-chat", family="")
    body = ask("openai", *history, system=System(stable=" ", volatile=""))
    assert body["messages"] == [{"role": "user", "content": "half \ufffd and \ufffd"}]


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-5.5"])
def test_openais_own_sdk_knows_every_member_that_openai_is_sent(model: str) -> None:
    from openai.resources.chat.completions import AsyncCompletions

    known = set(inspect.signature(AsyncCompletions.create).parameters)
    body = ask(
        "openai", model=model, conversation="c", tool_choice="required", thinking="off" if "5" in model else None
    )
    assert body.keys() <= known


def _seen(messages: Sequence[Message], vendor: str) -> list[Message]:
    """As the loop hands them over: no pictures for models that do not see, and wires of this api."""
    return [_seen_message(message, vendor) for message in messages]


def _seen_message(message: Message, vendor: str) -> Message:
    from agents.providers.models import facts_of

    facts = facts_of(MODELS[vendor])
    if isinstance(message, AssistantMessage):
        parts = tuple(
            replace(part, wire=replace(part.wire, api=API, family=MODELS[vendor], kind="reasoning_content", data="hm"))
            if isinstance(part, Thinking) and part.wire
            else part
            for part in message.content
        )
        return replace(message, content=parts)
    blind = facts.known and not facts.vision
    shown = tuple(Text(text="[image]") if isinstance(part, Image) and blind else part for part in message.content)
    return replace(message, content=shown)


@pytest.mark.parametrize("vendor", VENDORS)
@given(
    history=broken_histories,
    tools=st.sampled_from([(), (LS,), (LS, READ)]),
    choice=st.sampled_from(["auto", "none", "required", OneTool(name="ls"), OneTool(name="gone")]),
    thinking=st.sampled_from([None, "off"]),
)
@settings(max_examples=60, deadline=None)
def test_any_repaired_history_is_accepted_by_every_vendor(
    vendor: str, history: list[Message], tools: tuple[ToolSpec, ...], choice: ToolChoice, thinking: Level | None
) -> None:
    model = MODELS[vendor]
    messages = [*_seen(history, vendor), user("now")]
    repaired = repair(messages, api=API, family=family_of(model))
    request = asking(*repaired, model=model, tools=tools, tool_choice=choice)
    body = wire(replace(request, thinking=thinking if "off" in request.facts.thinking else None), vendor)
    roles = [message["role"] for message in body["messages"]]
    assert ("user", "user") not in pairwise(roles)

"""Our request as a Chat body: what goes where at each vendor, judged by the emulator's own rules."""

import inspect
import json
from dataclasses import replace
from typing import Any

import pytest

from agents.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, Wire
from agents.providers.chat.request import parameters
from agents.providers.chat.response import API
from agents.providers.models import Level, family_of
from agents.providers.provider import OneTool, ToolChoice
from tests.agents.providers.contract.bodies import chat
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
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


def ask(vendor: str, *messages: Message, **members: Any) -> dict[str, Any]:
    """What a vendor is sent; `members` are other members of the request."""
    level: Level | None = members.pop("thinking", None)
    more = {name: members.pop(name) for name in ("conversation", "max_tokens") if name in members}
    request = asking(*messages, model=members.pop("model", MODELS[vendor]), **members)
    return chat(vendor)(replace(request, thinking=level, **more))


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


def test_a_long_history_goes_back_as_it_was() -> None:
    """Arguments byte for byte; pictures of tools behind all results, in one message with what a person says next;
    pictures of a person in place; a person's messages in a row are one."""
    raw = '{ "path" :"/tmp" }'
    made = ToolCall(id="call_A", name="ls", arguments={"path": "/tmp"}, arguments_raw=raw)
    elsewhere = ToolCall(id="call_B", name="ls", arguments={"path": "目录"}, arguments_raw="")
    seen = ToolResultMessage(call_id="call_A", tool="ls", content=(Text(text="found"), IMAGE))
    blind = ToolResultMessage(call_id="call_B", tool="ls", content=(IMAGE,))
    body = ask(
        "openai",
        user("one"),
        user("two", metadata="META"),
        spoke(made, elsewhere),
        seen,
        blind,
        user("and now?", metadata="META"),
        spoke(Text(text="a"), Text(text="b"), call("call_C")),
        result("call_C"),
        UserMessage(content=(IMAGE, Text(text="what is it?")), metadata="META"),
    )

    def called(call_id: str, arguments: str) -> dict[str, Any]:
        return {"id": call_id, "type": "function", "function": {"name": "ls", "arguments": arguments}}

    def text(words: str) -> dict[str, str]:
        return {"type": "text", "text": words}

    below = "(the picture follows in the next user message)"
    assert body["messages"][1:] == [
        {"role": "user", "content": "one\n\nMETA\n\ntwo"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [called("call_A", raw), called("call_B", '{"path": "目录"}')],
        },
        {"role": "tool", "tool_call_id": "call_A", "content": f"found\n\n{below}"},
        {"role": "tool", "tool_call_id": "call_B", "content": below},
        {
            "role": "user",
            "content": [text("Pictures from the tool results above:"), URL, URL, text("META\n\nand now?")],
        },
        {"role": "assistant", "content": "a\n\nb", "tool_calls": [called("call_C", '{"path": "."}')]},
        {"role": "tool", "tool_call_id": "call_C", "content": "README.md"},
        {"role": "user", "content": [URL, text("META\n\nwhat is it?")]},
    ]


def test_a_running_turn_ends_with_the_pictures_of_its_tools() -> None:
    seen = ToolResultMessage(call_id="a", tool="ls", content=(IMAGE,))
    pictures = ask("openai", user("go"), spoke(call("a")), seen)["messages"][-1]
    assert (pictures["role"], pictures["content"][1:]) == ("user", [URL])


@pytest.mark.parametrize(
    ("vendor", "sent"), [("openai", '{"path": '), ("deepseek", '{"path": '), ("qwen", "{}"), ("vllm", "{}")]
)
def test_broken_arguments_go_back_raw_except_to_servers_that_parse_them(vendor: str, sent: str) -> None:
    broken = ToolCall(id="a", name="ls", arguments=None, arguments_raw='{"path": ')
    made = ask(vendor, user("go"), spoke(broken), result("a"))["messages"][2]["tool_calls"][0]
    assert made["function"]["arguments"] == sent


@pytest.mark.parametrize(("vendor", "content"), [("openai", None), ("deepseek", ""), ("clawdbot", None)])
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


LONG = "chatcmpl-tool-" + "f" * 32


@pytest.mark.parametrize(
    ("vendor", "call_id", "kept"),
    [
        ("openai", "call_1", True),
        ("openai", LONG, False),
        ("openai", "functions.ls:0", False),
        ("moonshot", "functions.ls:0", True),
        ("vllm", LONG, True),
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
    ("deepseek", "required", None, None),
    ("deepseek", OneTool(name="ls"), "high", None),
    ("deepseek", "required", "off", "required"),
    ("deepseek", OneTool(name="ls"), "off", FORCED),
    ("deepseek-r1", "required", None, None),
    ("deepseek-r1", OneTool(name="ls"), None, None),
    ("moonshot", "required", None, None),
    ("moonshot", OneTool(name="ls"), None, None),
    ("zhipu", "required", None, None),
    ("zhipu", OneTool(name="ls"), None, None),
    ("qwen", "required", None, None),
    ("qwen", "required", "off", "required"),
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


@pytest.mark.parametrize(
    ("vendor", "level", "tools", "sent"),
    [("moonshot", "off", (LS,), FORCED), ("moonshot", "off", (LS, READ), None), ("clawdbot", None, (LS, READ), "auto")],
)
def test_a_call_is_forced_by_the_only_tools_name_where_none_may_be_demanded(
    vendor: str, level: Level | None, tools: tuple[ToolSpec, ...], sent: Any
) -> None:
    model = "kimi-k2.6" if vendor == "moonshot" else MODELS[vendor]
    assert ask(vendor, model=model, thinking=level, tool_choice="required", tools=tools).get("tool_choice") == sent


def test_a_vendor_without_none_is_shown_no_tools_unless_the_history_calls() -> None:
    assert "tools" not in ask("zhipu", tool_choice="none")
    for members in ({"tool_choice": "none"}, {"tools": ()}):
        called = ask("zhipu", user("go"), spoke(call("a")), result("a"), **members)
        assert ("tools" in called, "tool_choice" in called) == (True, False)


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


def test_a_budget_is_a_share_of_the_answer() -> None:
    assert ask("qwen", thinking="medium", max_tokens=8192)["thinking_budget"] == 3276


@pytest.mark.parametrize("level", [None, "high", "off"])
def test_new_openai_models_do_not_reason_while_they_have_tools_on_this_wire(level: Level | None) -> None:
    assert ask("openai", model="gpt-5.5", thinking=level)["reasoning_effort"] == "none"
    without = ask("openai", model="gpt-5.5", thinking=level, tools=())
    assert without.get("reasoning_effort") == {None: None, "high": "high", "off": "none"}[level]


REPLAY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openai", {}, {}),
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
    assert ask("vllm", user("go"), moved, result("a"))["messages"][2]["reasoning"] == "hm"


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
        "properties": {"a": {"$ref": "#/$defs/A~1~0", "description": "one"}, "tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "A/~": {"type": "string", "description": "any"},
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
    assert (ask("openai")["max_completion_tokens"], ask("deepseek")["max_tokens"]) == (1024, 1024)


def test_vendors_that_know_no_cache_key_get_none() -> None:
    assert "prompt_cache_key" not in ask("deepseek", conversation="feishu:oc_1")


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-5.5"])
def test_openais_own_sdk_knows_every_member_that_openai_is_sent(model: str) -> None:
    from openai.resources.chat.completions import AsyncCompletions

    known = set(inspect.signature(AsyncCompletions.create).parameters)
    body = ask(
        "openai", model=model, conversation="c", tool_choice="required", thinking="off" if "5" in model else None
    )
    assert body.keys() <= known

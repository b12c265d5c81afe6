"""Our request as a Chat body: what goes where at each vendor, judged by the emulator's own rules."""

from dataclasses import replace
from typing import Any

import pytest

from agents.messages import Message, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, Wire
from agents.providers.chat import API
from agents.providers.models import Level, family_of
from agents.providers.provider import OneTool
from tests.agents.providers.contract.bodies import chat
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tests.emulators.models.chat.shapes import signature_of
from tools.tool import Image

MODELS = {name.removesuffix(" chat").replace(" ", "-"): it.model for name, it in SUBJECTS.items()}
"""A model of each vendor."""
IMAGE = Image(media_type="image/png", data=PIXEL, name="a.png")
SILENT = "the tool failed and gave no reason"
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


def test_the_first_request_of_a_chat() -> None:
    tool = {"name": "ls", "description": "List a folder.", "parameters": dict(LS.input_schema)}
    assert ask("openai", user("张三: 你好", metadata="## Inbound Context\n{}")) == {
        "model": "gpt-4.1",
        "messages": [
            {"role": "system", "content": "You are a helper.\n\n## Runtime\nagent=coder"},
            {"role": "user", "content": "## Inbound Context\n{}\n\n张三: 你好"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 1024,
        "tools": [{"type": "function", "function": tool}],
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
        assistant(made, elsewhere),
        seen,
        blind,
        user("and now?", metadata="META"),
        assistant(Text(text="a"), Text(text="b"), call("call_C")),
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
        {"role": "tool", "tool_call_id": "call_A", "content": f"found\n{below}"},
        {"role": "tool", "tool_call_id": "call_B", "content": below},
        {
            "role": "user",
            "content": [
                text("(The gateway: pictures of the results above.)"),
                URL,
                URL,
                text("META\n\nand now?"),
            ],
        },
        {"role": "assistant", "content": "a\n\nb", "tool_calls": [called("call_C", '{"path": "."}')]},
        {"role": "tool", "tool_call_id": "call_C", "content": "README.md"},
        {"role": "user", "content": [URL, text("META\n\nwhat is it?")]},
    ]


def looped(vendor: str, made: ToolCall, returned: ToolResultMessage) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a vendor is sent of a call and of its result."""
    _, _, called, answered = ask(vendor, user("go"), assistant(made), returned)["messages"]
    return called, answered


def test_chat_request_call_has_accepted_content_and_arguments() -> None:
    broken = ToolCall(id="a", name="ls", arguments=None, arguments_raw='{"path": ')
    for vendor, content, raw in (("openai", None, '{"path": '), ("deepseek", "", '{"path": '), ("qwen", "", "{}")):
        called, _ = looped(vendor, broken, result("a"))
        assert (called["content"], called["tool_calls"][0]["function"]["arguments"]) == (content, raw)


@pytest.mark.parametrize(
    ("text", "is_error", "openai", "clawdbot"),
    [
        ("fine", False, "fine", '{"output": "fine"}'),
        ("", False, "(no output)", '{"output": ""}'),
        ('{"a": 1}', False, '{"a": 1}', '{"a": 1}'),
        ("gone", True, "Error: gone", '{"error": "gone"}'),
        ('{"ok": false}', True, '{"ok": false}', '{"ok": false}'),
        ("", True, f"Error: {SILENT}", f'{{"error": "{SILENT}"}}'),
    ],
)
def test_a_result_says_in_words_that_it_failed(text: str, is_error: bool, openai: str, clawdbot: str) -> None:
    for vendor, sent in (("openai", openai), ("clawdbot", clawdbot)):
        assert looped(vendor, call("a"), result("a", text, is_error=is_error))[1]["content"] == sent


def test_chat_request_ids_are_mapped_for_call_and_result() -> None:
    kimi, long = "functions.ls:0", "chatcmpl-tool-" + "f" * 32
    taken = [("openai", "call_1"), ("moonshot", kimi), ("vllm", long)]
    for vendor, call_id in (*taken, ("openai", long), ("openai", kimi), ("generic", "é" * 90)):
        called, answered = looped(vendor, call(call_id), result(call_id))
        sent = called["tool_calls"][0]["id"]
        assert sent == answered["tool_call_id"]
        assert (sent == call_id) is ((vendor, call_id) in taken)


FORCED = {"type": "function", "function": {"name": "ls"}}


@pytest.mark.parametrize(
    ("vendor", "members", "sent"),
    [
        ("deepseek", {"tool_choice": "required", "thinking": "off"}, "required"),
        ("deepseek", {"tool_choice": OneTool(name="ls"), "thinking": "off"}, FORCED),
        ("moonshot", {"tool_choice": "required", "thinking": "off", "model": "kimi-k2.6"}, FORCED),
        ("moonshot", {"tool_choice": "required", "thinking": "off", "model": "kimi-k2.6", "tools": (LS, READ)}, None),
        ("qwen", {"tool_choice": "required", "thinking": "off"}, "required"),
        ("ollama", {"tool_choice": "required"}, None),
        ("vllm", {"tool_choice": "required"}, "required"),
        ("clawdbot", {"tool_choice": "auto"}, "auto"),
        ("clawdbot", {"tool_choice": "none"}, "none"),
        ("clawdbot", {"tool_choice": "required"}, FORCED),
        ("clawdbot", {"tool_choice": "required", "tools": (LS, READ)}, "auto"),
        ("clawdbot", {"tool_choice": OneTool(name="gone")}, "auto"),
    ],
)
def test_the_tool_choice_is_the_nearest_that_the_vendor_takes(vendor: str, members: dict[str, Any], sent: Any) -> None:
    """What a vendor refuses is not sent to it: that is in the contract."""
    assert ask(vendor, **members).get("tool_choice") == sent


def test_a_vendor_without_none_is_shown_no_tools_unless_the_history_calls() -> None:
    assert "tools" not in ask("zhipu", tool_choice="none")
    for members in ({"tool_choice": "none"}, {"tools": ()}):
        called = ask("zhipu", user("go"), assistant(call("a")), result("a"), **members)
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
    ("openai", "gpt-5.5", "high", {"reasoning_effort": "none"}),
    ("openai", "gpt-5.5", None, {"reasoning_effort": "none"}),
]
_SWITCHES = {"reasoning_effort", "thinking", "enable_thinking", "thinking_budget", "reasoning", "chat_template_kwargs"}


@pytest.mark.parametrize(("vendor", "model", "level", "sent"), THINKING)
def test_thinking_is_switched_in_the_vendors_own_way(
    vendor: str, model: str, level: Level | None, sent: dict[str, Any]
) -> None:
    body = ask(vendor, model=model, thinking=level)
    assert {name: body[name] for name in _SWITCHES & body.keys()} == sent


def test_chat_request_reasoning_budget_and_openai_tools() -> None:
    assert ask("qwen", thinking="medium", max_tokens=8192)["thinking_budget"] == 3276
    assert ask("openai", model="gpt-5.5", thinking="high", tools=())["reasoning_effort"] == "high"


REPLAY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("ollama", {}, {}),
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
    own = assistant(thought("hm", MODELS[vendor]), Text(text="Looking."), call("a"))
    body = ask(vendor, user("go"), assistant(call("old")), result("old"), user("go on"), own, result("a"))
    for message, sent in zip((body["messages"][2], body["messages"][5]), (without, with_own), strict=True):
        assert {name: value for name, value in message.items() if "reasoning" in name} == sent


def test_reasoning_goes_back_in_the_field_that_the_vendor_knows() -> None:
    entry = {"type": "reasoning.text", "text": "hm", "index": 0, "format": "x"}
    details = [entry | {"signature": signature_of(entry)}]
    for vendor, kind, data, sent in (
        ("openrouter", "reasoning_details", details, {"reasoning_details": details}),
        ("vllm", "reasoning", None, {"reasoning": "hm"}),
        ("vllm", "reasoning_details", details, {"reasoning": "hm"}),
        ("deepseek", "reasoning_details", details, {"reasoning_content": "hm"}),
    ):
        own = assistant(thought("hm", MODELS[vendor], kind, data), call("a"))
        message = ask(vendor, user("go"), own, result("a"))["messages"][2]
        assert {name: value for name, value in message.items() if "reasoning" in name} == sent


def test_a_long_description_is_cut_where_long_ones_are_refused() -> None:
    spec = replace(LS, description="x" * 3000)
    assert len(ask("openai", tools=(spec,))["tools"][0]["function"]["description"]) == 1024
    assert len(ask("deepseek", tools=(spec,))["tools"][0]["function"]["description"]) == 3000


def test_members_that_only_openai_knows_have_another_name_or_none() -> None:
    body = ask("deepseek", conversation="feishu:oc_1")
    assert (body["max_tokens"], body.keys() & {"prompt_cache_key", "max_completion_tokens"}) == (1024, set())

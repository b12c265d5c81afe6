"""The toolbox: what is offered, and that every mistake is answered in a form the model can act on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tools.bench import CALL, Bench, bench, text_of
from tools.catalog import NAMES, Toolbox
from tools.config import AgentToolsConfig, ExecConfig, MessageConfig, ToolsConfig, effective_exec
from tools.message import MessageTool
from tools.policy import layers_of, permitted
from tools.tool import Call, ToolError, ToolResult, ToolSpec

ALL = (
    *("read", "write", "edit", "ls", "exec", "message", "memory_search", "memory_get"),
    *("grep", "find", "process", "web_fetch", "web_search", "feishu", "task", "schedule", "ask"),
    *("handover", "group_history"),
)


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        (["*"], [], ALL),
        (["message", "read"], [], ("read", "message")),
        (["*"], ["exec", "write"], tuple(it for it in ALL if it not in ("exec", "write", "process"))),
        (["process"], [], ("process",)),
        (["process"], ["exec"], ()),
        (["read"], ["read"], ()),
        ([], [], ()),
        (["Read", "nope"], [], ()),
    ],
)
def test_policy_leaves_the_catalogues_order(allow: list[str], deny: list[str], left: tuple[str, ...]) -> None:
    assert NAMES == ALL
    config = AgentToolsConfig.model_validate({"allow": allow, "deny": deny})
    assert permitted(layers_of(ToolsConfig(), config), NAMES) == left
    harmless = permitted(layers_of(ToolsConfig(), AgentToolsConfig()), NAMES)
    assert harmless == ("read", "ls", "message", "ask", "handover", "group_history")


def test_what_an_agent_says_of_exec_wins_over_what_holds_for_all() -> None:
    everybody = ExecConfig.model_validate({"mode": "deny", "timeoutSeconds": 5})
    agent = AgentToolsConfig.model_validate({"exec": {"mode": "allow"}})
    assert effective_exec(everybody, agent) == ExecConfig.model_validate({"mode": "allow", "timeoutSeconds": 5})
    assert effective_exec(everybody, AgentToolsConfig()) == everybody


def test_every_schema_is_in_the_form_that_all_providers_take(at: Bench) -> None:
    for spec in at.toolbox.specs:
        schema: Any = spec.input_schema
        assert set(schema) == {"type", "properties", "required", "additionalProperties"}
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert set(schema["required"]) <= set(schema["properties"])
        for member in schema["properties"].values():
            assert member["description"]
            assert member["type"] in ("string", "integer", "number", "boolean", "array", "object")
            assert not {"anyOf", "oneOf", "$ref", "default", "title"} & set(member)
        assert spec.summary
        assert spec.description
        assert "\n" not in spec.summary


BEFORE = "they were cut off before they began; make the call again"
FAULTS = {
    "{oops": "expecting property name enclosed in double quotes at character 2 (line 1, column 2), near '{oops'",
    '{"a": "C:\\path"}': (
        'invalid \\escape at character 10 (line 1, column 10), near \'{"a": "C:\\\\path"}\'; write a backslash as \\\\'
    ),
    '{"a": "b': (
        "they end at character 8, before they are whole; the string that begins at character 7 (line 1, column 7) has no"
        " end; make the call again, in smaller steps"
    ),
    '{"a": ': "they end at character 5, before they are whole; make the call again, in smaller steps",
    '{"a": 1} x': "extra data at character 10 (line 1, column 10), near '{\"a\": 1} x'",
    '{"a": NaN}': "NaN is not JSON; write null or a number",
    '"words"': "they are a string",
}


@pytest.mark.parametrize(
    ("tool", "arguments", "raw", "message"),
    [
        ("read", {}, "{}", "'file_path' is required"),
        ("read", {"file_path": "a", "x": 1}, "", "'x' is not an argument of this tool"),
        ("read", {"file_path": 7}, "", "'file_path': input should be a valid string"),
        ("read", {"file_path": "a", "offset": 0}, "", "'offset' is 0; the first line is 1, the last is -1"),
        ("read", None, "[1]", "the arguments must be one JSON object: they are a list"),
        ("read", None, " ", f"the arguments must be one JSON object: {BEFORE}"),
        *(("read", None, raw, f"the arguments must be one JSON object: {fault}") for raw, fault in FAULTS.items()),
        ("message", {"action": "edit", "message": "x"}, "", "'action' must be 'send'"),
    ],
)
async def test_a_mistake_in_the_arguments_is_one_structured_sentence(
    at: Bench, tool: str, arguments: dict[str, Any] | None, raw: str, message: str
) -> None:
    result = await at.toolbox.call(tool, arguments, raw, CALL)
    assert result.is_error
    body = json.loads(text_of(result))
    assert body.pop("error") == f"Invalid argument: {message}"
    assert body == {"ok": False, "error_code": "INVALID_ARGUMENT", "message": message, "retryable": False}


class _Weather:
    """A source of one tool as a server brings it: its schema is not ours, and neither is its check."""

    spec = ToolSpec(name="weather", summary="", description="", input_schema={"$ref": "#/$defs/City"})

    def parse(self, raw: Mapping[str, Any]) -> str:
        if "city" not in raw:
            raise ToolError("INVALID_ARGUMENT", "which city?")
        return str(raw["city"])

    async def run(self, arguments: str, call: Call) -> ToolResult:
        return ToolResult(content=(f"sunny in {arguments}",))


async def test_a_source_may_bring_tools_with_schemas_of_their_own() -> None:
    toolbox = Toolbox([_Weather(), _Weather()], layers=(), argument_bytes_max=100)
    assert [spec.input_schema for spec in toolbox.specs] == [{"$ref": "#/$defs/City"}]
    assert toolbox.effect("weather") == "once"
    assert text_of(await toolbox.call("weather", {"city": "北京"}, "{}", CALL)) == "sunny in 北京"
    assert "which city?" in text_of(await toolbox.call("weather", {}, "{}", CALL))


async def test_null_for_an_optional_argument_counts_as_left_out(at: Bench) -> None:
    (at.root / "a").write_text("x")
    assert text_of(await at.call("read", file_path="a", offset=None, limit=None)) == "x"


async def test_arguments_beyond_their_size_are_refused(at: Bench) -> None:
    assert await at.code("write", file_path="a", content="x" * 70_000) == "INVALID_ARGUMENT"
    assert list(at.root.iterdir()) == []


async def test_toolbox_refuses_an_unknown_tool_and_names_the_others(tmp_path: Path) -> None:
    at = bench(tmp_path, allow=["read", "ls"])
    for name in ("write", "nope", "READ", ""):
        result = await at.call(name, file_path="a", content="x")
        assert json.loads(text_of(result))["error_code"] == "TOOL_NOT_ALLOWED"
        assert "read, ls" in text_of(result)
    at.workspace.close()


async def test_a_tool_that_breaks_down_is_a_result_without_its_insides(at: Bench) -> None:
    at.workspace.close()
    result = await at.call("ls")
    assert result.is_error
    assert str(at.root) not in text_of(result)


async def test_toolbox_message_has_the_calls_idempotency_key(at: Bench) -> None:
    assert await at.text("message", action="send", message="hi") == "Sent to this chat (message om_1)"
    sent = {"channel": "feishu", "account": "default", "chat": "oc_here", "thread": "omt_1", "text": "hi"}
    assert at.outbox.sent == [sent | {"key": "key-1", "begun_at": None}]


@pytest.mark.parametrize(
    ("target", "channel", "account"),
    [("oc_team", None, "default"), ("oc_sales", None, "sales"), ("oc_team", "feishu", "default")],
)
async def test_another_chat_is_reached_only_where_the_config_names_it(
    tmp_path: Path, target: str, channel: str | None, account: str
) -> None:
    at = bench(tmp_path, targets=["feishu:oc_team", "feishu:sales:oc_sales"])
    await at.text("message", action="send", message="hi", target=target, channel=channel)
    for other in ({"target": "oc_other"}, {"target": "oc_team", "channel": "telegram"}, {"channel": "telegram"}):
        assert await at.code("message", action="send", message="hi", **other) == "TARGET_NOT_ALLOWED"
    assert [(it["chat"], it["account"], it["thread"]) for it in at.outbox.sent] == [(target, account, None)]
    at.workspace.close()


async def test_what_the_platform_did_not_take_is_told_to_the_model(at: Bench) -> None:
    at.outbox.refuses = True
    assert await at.code("message", action="send", message="hi") == "NOT_DELIVERED"
    assert await at.code("message", action="send", message=" \n") == "INVALID_ARGUMENT"


def test_writing_never_runs_beside_reading(at: Bench) -> None:
    effects = [at.toolbox.effect(name) for name in ("read", "ls", "write", "message", "edit", "exec", "nope")]
    assert effects == ["safe", "safe", "keyed", "keyed", "once", "once", "once"]


async def test_thousands_of_mistakes_are_a_short_answer(at: Bench) -> None:
    answer = text_of(await at.call("read", **{f"wrong{number}": 1 for number in range(1_000)}))
    assert len(answer) < 4_000
    assert "and 981 more mistakes" in json.loads(answer)["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "send"}, "'message' is required"),
        ({"action": "send", "message": " \n"}, "'message' has no visible text"),
        ({"action": "edit", "message": "x"}, "'message_id' is required"),
        ({"action": "edit"}, "'message_id' is required; 'message' is required"),
        ({"action": "delete"}, "'message_id' is required"),
        ({"action": "react"}, "'emoji' is required"),
        ({"action": "buttons", "message": "x"}, "'buttons' is required"),
        ({"action": "poll", "message": "x", "options": ["one"]}, "'action' must be "),
        ({"action": "send", "message": "x", "options": ["one"]}, "'options' is not an argument of this tool here"),
        ({"action": "send", "message": "x", "voice": True}, "'voice' is not an argument of this tool here"),
        ({"action": "edit", "message_id": "1", "message": "x", "media": ["a"]}, "'media' goes with "),
        ({"action": "send", "message": "x", "media": ["a"], "buttons": ["b"]}, "'media' goes with "),
        ({"action": "buttons", "message": "x", "buttons": ["b"] * 9}, "'buttons': list should have at most 8 items"),
        ({"action": "shout", "message": "x"}, "'action' must be "),
        ({"action": "edit", "message_id": "a\0b", "message": "x"}, "an id has no control characters"),
        ({"action": "reply", "reply_to": "\n", "message": "x"}, "an id has no control characters"),
    ],
)
def test_what_a_channel_cannot_do_is_no_argument_of_its_message_tool(
    at: Bench, arguments: dict[str, Any], message: str
) -> None:
    abilities = frozenset({"send", "reply", "edit", "delete", "react", "buttons", "media"})
    tool = MessageTool(at.outbox, MessageConfig(), at.workspace, abilities)
    with pytest.raises(ToolError) as error:
        tool.parse(arguments)
    assert error.value.message.startswith(message)
    members = tool.spec.input_schema["properties"]
    assert "poll" not in members["action"]["enum"]
    assert {"voice", "options"}.isdisjoint(members)

"""What written calls say, form by form: tolerant where there is one reading, and never a guess."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.providers.textcalls.grammar import FormKind, WrittenCall, written_calls
from tests.agents.providers.requests import LS
from tools.tool import ToolSpec

GREP = ToolSpec(
    name="grep",
    summary="search",
    description="Search.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}, "max": {"type": "integer"}, "in": {"type": "array"}},
    },
)
TOOLS = {"ls": LS, "grep": GREP}


def said(kind: FormKind, text: str) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in written_calls(kind, text, TOOLS)]


TMP = ("ls", {"path": "/tmp"})


@pytest.mark.parametrize(
    ("payload", "calls"),
    [
        ('{"name": "ls", "arguments": {"path": "/tmp"}}', [TMP]),
        ('\n{"name": "ls", "parameters": {"path": "/tmp"}}\n', [TMP]),
        ('```json\n{"name": "ls", "arguments": {"path": "/tmp"}}\n```', [TMP]),
        ('```\n{"name": " ls ", "arguments": {"path": "/tmp"}}```', [TMP]),
        ('{"name": "ls", "arguments": "{\\"path\\": \\"/tmp\\"}"}', [TMP]),
        ('{"name": "ls", "arguments": {"path": "a\nb"}}', [("ls", {"path": "a\nb"})]),
        ('{"name": "ls"}', [("ls", {})]),
        ('{"name": "ls", "arguments": null}', [("ls", {})]),
        ('{"name": "ls", "arguments": ""}', [("ls", {})]),
        ('{"name": "rm", "arguments": {}}', [("rm", {})]),
        ('[{"name": "ls", "arguments": {"path": "/tmp"}}, {"name": "ls"}]', [TMP, ("ls", {})]),
        ('[{"name": "ls"}, 3]', [("ls", {}), ("tool_call", None)]),
        ("<function=ls>\n<parameter=path>\n/tmp\n</parameter>\n</function>", [TMP]),
        ('{"name": "ls", "arguments": {"path": "/tmp"}', [("ls", None)]),
        ('{"name": "ls", "arguments": [1]}', [("ls", None)]),
        ('{"name": "ls", "arguments": "/tmp"}', [("ls", None)]),
        ('{"name": "ls", "arguments": {"n": NaN}}', [("ls", None)]),
        ('{"name": "ls", "arguments": {"n": 1e999}}', [("ls", None)]),
        ('{"name": "ls", "arguments": ' + '{"a":' * 70 + "1" + "}" * 71, [("ls", None)]),
        ('{"arguments": {}}', [("tool_call", None)]),
        ('{"name": 7, "arguments": {}}', [("tool_call", None)]),
        ("ls /tmp", [("tool_call", None)]),
        ("[]", [("tool_call", None)]),
        ("[" * 100_000, [("tool_call", None)]),
        ("", [("tool_call", None)]),
    ],
)
def test_what_stands_between_the_tags(payload: str, calls: list[tuple[str, object]]) -> None:
    assert said("tool_call", f"<tool_call>{payload}</tool_call>") == calls
    assert said("tool_call", f"<tool_call>{payload}") == calls


def test_a_call_that_cannot_be_read_keeps_all_that_was_written() -> None:
    (broken,) = written_calls("tool_call", '<tool_call>\n{"name": "ls", oops}\n</tool_call>', TOOLS)
    assert broken == WrittenCall(name="ls", arguments=None, raw='{"name": "ls", oops}')
    (encoded,) = written_calls("tool_call", '<tool_call>{"name": "ls", "arguments": "/tmp"}</tool_call>', TOOLS)
    assert encoded.raw == '{"name": "ls", "arguments": "/tmp"}'


def test_half_an_emoji_does_not_reach_the_tool() -> None:
    (call,) = written_calls("tool_call", '<tool_call>{"name": "ls", "arguments": {"path": "\\ud83d"}}', TOOLS)
    assert call.arguments == {"path": "\ufffd"}
    (whole,) = written_calls("tool_call", '<tool_call>{"name": "ls", "arguments": {"path": "\\ud83d\\ude42"}}', TOOLS)
    assert whole.arguments == {"path": "🙂"}


@pytest.mark.parametrize(
    ("kind", "text", "calls"),
    [
        ("marker", '[tool:ls] {"path": "/tmp"}', [TMP]),
        ("marker", '[tool:ls]\n{"path": "/tmp"}\n[/ls]', [TMP]),
        ("marker", '[tool: ls ]{"path": "/tmp"}[END_TOOL_REQUEST]', [TMP]),
        ("marker", '[tool:ls] {"path": }', [("ls", None)]),
        ("block", '[ls]\n{"path": "/tmp"}\n[/ls]', [TMP]),
        ("harmony", '<|channel|>commentary to=ls <|message|>{"path": "/tmp"}', [TMP]),
        (
            "harmony",
            '<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{"path": "/tmp"}<|call|>',
            [TMP],
        ),
        ("harmony", "<|channel|>commentary to=ls", [("tool_call", None)]),
        ("function", "<function=ls><parameter=path>/tmp</parameter></function>", [TMP]),
        ("function", '<function=ls>{"path": "/tmp"}</function>', [TMP]),
        ("function", "<function=ls></function>", [("ls", {})]),
        (
            "function",
            "<function=grep>\n<parameter=text>\n42\n</parameter>\n<parameter=max>\n7\n</parameter>\n"
            '<parameter=in>["a"]</parameter>\n</function>',
            [("grep", {"text": "42", "max": 7, "in": ["a"]})],
        ),
        ("function", "<function=grep><parameter=max>many</parameter></function>", [("grep", {"max": "many"})]),
        ("function", "<function=ls><parameter=path>/tmp</parameter>", [("ls", None)]),
        ("function", "<function=ls>/tmp</function>", [("ls", None)]),
        (
            "function",
            "<function=grep><parameter=text> a </parameter> b\n</parameter></function>",
            [("grep", {"text": " a </parameter> b"})],
        ),
        ("tool_calls", '[TOOL_CALLS] [{"name": "ls", "arguments": {"path": "/tmp"}}]', [TMP]),
        ("tool_calls", "[TOOL_CALLS]", [("tool_call", None)]),
        ("bare", '{"name": "ls", "arguments": {"path": "/tmp"}}', [TMP]),
        ("bare", '[{"name": "ls", "parameters": {"path": "/tmp"}}]', [TMP]),
        ("bare", '{"name": "ls", "arguments": {}, "id": 1}', []),
        ("bare", '{"name": "ls"}', []),
        ("bare", '{"name": "ls", "arguments": {}', []),
        ("never", '<invoke name="ls"></invoke>', []),
    ],
)
def test_what_other_forms_say(kind: FormKind, text: str, calls: list[tuple[str, object]]) -> None:
    assert said(kind, text) == calls


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_whatever_the_arguments_they_arrive_as_they_were_written(arguments: dict[str, object]) -> None:
    payload = json.dumps({"name": "ls", "arguments": arguments}, ensure_ascii=False)
    (call,) = written_calls("tool_call", f"<tool_call>{payload}</tool_call>", TOOLS)
    assert (call.name, json.loads(call.raw)) == ("ls", call.arguments)
    assert call.arguments == arguments

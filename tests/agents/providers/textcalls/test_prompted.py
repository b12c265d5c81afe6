"""A model without tools that uses tools all the same: what people see, and which calls are made of what it wrote."""

import json
import re
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given

from agents.messages import AssistantMessage, Message, ModelError, StopReason, Text, ToolCall
from agents.providers.prompted import PromptedTools
from agents.providers.provider import ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.providers.textforms import OPENINGS_MAX
from tests.agents.providers.requests import LS, READ, asking, assistant, call, result, user
from tests.agents.providers.textcalls.scripted import Scripted, ask, chunkings, mentions, outline, says
from tools.tool import ToolSpec

LS_TMP = '<tool_call>{"name": "ls", "arguments": {"path": "/tmp"}}</tool_call>'
TMP = ("ls", {"path": "/tmp"})
UNREADABLE = ToolCall(id="x", name="ls", arguments=None, arguments_raw='{"name": "ls", oops')
FAILED = ModelError(kind="network", summary="cut", retryable=True)


async def test_a_written_call_becomes_a_call_and_is_never_seen() -> None:
    inner = says(f"Let me look.\n{LS_TMP}", pieces=[3])
    events, message = await ask(PromptedTools(inner), asking())
    assert (outline(message), message.stop_reason) == (["Let me look.\n", TMP], "tool_use")
    (made,) = message.calls
    assert re.fullmatch(r"call_[0-9a-f]{8}", made.id)
    assert json.loads(made.arguments_raw) == made.arguments
    assert events[-3:] == [
        ToolCallStart(index=1, id=made.id, name="ls"),
        ToolCallDelta(index=1, text=made.arguments_raw),
        ToolCallEnd(index=1, call=made),
    ]
    assert inner.requests[0].tools == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"\n\n{LS_TMP}\n", [TMP]),
        (f"First\n\n{LS_TMP}\n\nthen", ["First\n\n", TMP, "then"]),
        (f"First {LS_TMP}\n{LS_TMP}", ["First ", TMP, TMP]),
        (f"First{LS_TMP} then", ["First", TMP, " then"]),
        ('<tool_call>{"name": "rm", "arguments": {}}</tool_call>', [("rm", {})]),
        ('<tool_call>{"name": "ls", "argu', [("ls", None)]),
        ('<tool_call>{"name": …}</tool_call>', ['<tool_call>{"name": …}</tool_call>']),
        (f'{LS_TMP}\n<tool_response>{{"name": "ls", "content": "x"}}</tool_response>\nThere is x.', [TMP]),
        (f"{LS_TMP}\n</tool_call>\n", [TMP]),
        (f"{LS_TMP} <tool_response>x {LS_TMP}", [TMP]),
        ('So: <tool_response>{"name": "ls"}', ["So: "]),
        (f"`{LS_TMP}`", ["`", TMP, "`"]),
        (f"Write `{LS_TMP}` to look", [f"Write `{LS_TMP}` to look"]),
        (f"A lone ` here {LS_TMP}\n`", ["A lone ` here ", TMP, "`"]),
        (f"```\n{LS_TMP}\n```\n{LS_TMP}", [f"```\n{LS_TMP}\n```\n", TMP]),
        (f"````\n```\n{LS_TMP}\n````", [f"````\n```\n{LS_TMP}\n````"]),
        (f"```{LS_TMP}```", [f"```{LS_TMP}```"]),
        (f"```\n```py\n{LS_TMP}\n```", [f"```\n```py\n{LS_TMP}\n```"]),
        (f"    ```\n{LS_TMP}", ["    ```\n", TMP]),
        (f"~~~xml\n{LS_TMP}\n~~~", [f"~~~xml\n{LS_TMP}\n~~~"]),
        ('<tool_call>{"name": "w}</tool_call> later', ['<tool_call>{"name": "w}</tool_call> later']),
        (f"<tool_call><function=ls></tool_call>\n{LS_TMP}", [("ls", None), TMP]),
        ('<tool_call>{"name": "w", oops}</tool_call> later', [("w", None), "later"]),
        (f"<think>I need ls</think>\n\n{LS_TMP}", ["(I need ls)", TMP]),
        (f"<think>{LS_TMP}</think>no", [f"({LS_TMP})", "no"]),
        ("Write <tool_ca", ["Write <tool_ca"]),
        ("\n <think>\n\nhm\n</think>\n\n hello ", ["(hm\n)", "hello "]),
        ("<think>\n\n</think>\n\nhello", ["hello"]),
        ("<think>a < b </thi", ["(a < b )"]),
        ("<thinking>", ["<thinking>"]),
        ("I <think>hm</think> so", ["I <think>hm</think> so"]),
        ("  ", ["  "]),
    ],
)
async def test_what_is_made_of_an_answer(text: str, message: list[object]) -> None:
    for pieces in ([], [1], [7, 2]):
        _, made = await ask(PromptedTools(says(text, pieces)), asking(tools=[READ]))
        assert outline(made) == message
        assert made.stop_reason == ("tool_use" if made.calls else "end_turn")


GREP = ToolSpec(
    name="grep",
    summary="search",
    description="Search.",
    input_schema={"properties": {"text": {"type": "string"}, "max": {"type": "integer"}, "in": {"type": "array"}}},
)


@pytest.mark.parametrize(
    ("payload", "calls"),
    [
        ('\n{"name": "ls", "parameters": {"path": "/tmp"}}\n', [TMP]),
        ('```\n{"name": " ls ", "arguments": {"path": "/tmp"}}```', [TMP]),
        ('{"name": "ls", "arguments": "{\\"path\\": \\"/tmp\\"}"}', [TMP]),
        ('{"name": "ls", "arguments": {"path": "a\nb"}}', [("ls", {"path": "a\nb"})]),
        ('{"name": "ls", "arguments": {"path": "\\ud83d"}}', [("ls", {"path": "\ufffd"})]),
        ('{"name": "ls", "arguments": null}', [("ls", {})]),
        ('{"name": "ls", "arguments": ""}', [("ls", {})]),
        ('[{"name": "ls"}, 3]', [("ls", {}), ("tool_call", None)]),
        ("<function=ls>\n<parameter=path>\n/tmp\n</parameter>\n</function>", [TMP]),
        ('<function=ls>{"path": "/tmp"}</function>', [TMP]),
        ("<function=ls></function>", [("ls", {})]),
        (
            "<function=grep>\n<parameter=text>\n42\n</parameter>\n<parameter=max>\n7\n</parameter>\n"
            '<parameter=in>["a"]</parameter>\n</function>',
            [("grep", {"text": "42", "max": 7, "in": ["a"]})],
        ),
        ("<function=grep><parameter=max>many</parameter></function>", [("grep", {"max": "many"})]),
        (
            "<function=grep><parameter=text> a </parameter> b\n</parameter></function>",
            [("grep", {"text": " a </parameter> b"})],
        ),
        ("<function=ls><parameter=path>/tmp</parameter>", [("ls", None)]),
        ("<function=ls>/tmp</function>", [("ls", None)]),
        ('{"name": "ls", "arguments": [1]}', [("ls", None)]),
        ('{"name": "ls", "arguments": "/tmp"}', [("ls", None)]),
        ('{"name": "ls", "arguments": {"n": NaN}}', [("ls", None)]),
        ('{"name": "ls", "arguments": ' + '{"a":' * 70 + "1" + "}" * 71, [("ls", None)]),
        ('{"name": 7, "arguments": {}}', [("tool_call", None)]),
        ("[]", [("tool_call", None)]),
        ('{"name": "ls", "x": ' + "[" * 100_000, [("ls", None)]),
    ],
)
@pytest.mark.parametrize("closing", ["</tool_call>", ""])
async def test_what_stands_between_the_tags(payload: str, calls: list[object], closing: str) -> None:
    _, made = await ask(PromptedTools(says(f"<tool_call>{payload}{closing}")), asking(tools=[LS, GREP]))
    assert outline(made) == calls


@pytest.mark.parametrize("written", ['{"name": "ls", oops}', '{"name": "ls", "arguments": "/tmp"}'])
async def test_a_call_that_cannot_be_read_keeps_all_that_was_written(written: str) -> None:
    _, made = await ask(PromptedTools(says(f"<tool_call>\n{written}\n</tool_call>")), asking())
    assert [(it.name, it.arguments, it.arguments_raw) for it in made.calls] == [("ls", None, written)]


@pytest.mark.parametrize("reason", get_args(StopReason))
async def test_a_call_is_tool_use_unless_the_end_says_more(reason: StopReason) -> None:
    _, message = await ask(PromptedTools(says(LS_TMP, stop_reason=reason)), asking())
    assert len(message.calls) == (reason not in ("error", "aborted"))
    assert message.stop_reason == ("tool_use" if reason in ("end_turn", "stop_sequence") else reason)


@pytest.mark.parametrize("reason", ["error", "aborted"])
async def test_a_broken_answer_makes_no_calls_and_shows_no_tags(reason: StopReason) -> None:
    inner = replace(says(f"<think>hm</think>Look: {LS_TMP}", stop_reason=reason), error=FAILED)
    events, message = await ask(PromptedTools(inner), asking())
    assert outline(message) == ["Look: "]
    assert (message.stop_reason, message.error) == (reason, FAILED)
    assert not any(isinstance(event, ToolCallEnd) for event in events)


async def test_a_broken_answer_may_keep_less_than_its_deltas_showed() -> None:
    class Broken(Scripted):
        def _message(self, request: object) -> AssistantMessage:
            return replace(assistant(Text(text=f"B{LS_TMP}")), stop_reason="error", error=FAILED)

    _, message = await ask(PromptedTools(Broken((Text(text="\n"), Text(text=f"B{LS_TMP}")))), asking())
    assert outline(message) == ["B"]


async def test_ids_are_the_same_for_the_same_answer_and_new_for_every_other() -> None:
    async def ids(messages: tuple[Message, ...], response_id: str | None) -> list[str]:
        inner = replace(says(LS_TMP * 2), response_id=response_id)
        _, message = await ask(PromptedTools(inner), asking(*messages))
        return [made.id for made in message.calls]

    question = (user("q"),)
    once = await ids(question, "resp_1")
    assert once == await ids(question, "resp_1")
    later = (*question, assistant(call(once[0]), call(once[1])), result(once[0]), result(once[1]))
    others = [(question, "resp_2"), (question, None), (later, "resp_1"), (later, None)]
    made = [*once, *[it for messages, response_id in others for it in await ids(messages, response_id)]]
    assert len(set(made)) == len(made) == 10


async def test_an_id_that_the_history_has_is_not_given_again() -> None:
    _, message = await ask(PromptedTools(says(LS_TMP)), asking(user("q"), assistant(call("zzz"))))
    (once,) = message.calls
    _, message = await ask(PromptedTools(says(LS_TMP)), asking(user("q"), assistant(call(once.id))))
    assert message.calls[0].id != once.id


@pytest.mark.parametrize(
    ("history", "offered"),
    [
        ([user("q")], True),
        ([user("q"), assistant(UNREADABLE), result("x")], True),
        ([user("q"), assistant(UNREADABLE), result("x"), assistant(UNREADABLE), result("x")], False),
        ([user("q"), *[assistant(UNREADABLE, UNREADABLE), result("x")] * 3], False),
        ([user("q"), assistant(UNREADABLE), result("x"), assistant(call("c")), result("c")], True),
        ([user("q"), assistant(UNREADABLE), assistant(call("c")), result("c"), assistant(UNREADABLE)], True),
        ([user("q"), assistant(Text(text="so"), UNREADABLE), assistant(UNREADABLE), result("x")], True),
        ([user("q"), *[assistant(UNREADABLE), result("x")] * 2, user("again")], True),
    ],
)
async def test_after_two_mistakes_in_a_row_the_model_must_use_words(history: list[Message], offered: bool) -> None:
    inner = says(f"I tried. {LS_TMP}")
    _, message = await ask(PromptedTools(inner), asking(*history))
    assert ("Tool: ls" in inner.requests[0].system.stable) is offered
    assert ("do not work now" in inner.requests[0].system.stable) is not offered
    assert outline(message) == (["I tried. ", TMP] if offered else ["I tried. "])


async def test_textcalls_after_a_thousand_openings_are_text() -> None:
    """A stuck model repeats itself, and each opening costs a search."""
    for openings, calls in ((OPENINGS_MAX - 1, 1), (OPENINGS_MAX, 0)):
        _, message = await ask(PromptedTools(says("<tool_call> " * openings + LS_TMP)), asking())
        assert len(message.calls) == calls


async def test_tools_that_may_not_be_used_are_not_called() -> None:
    _, message = await ask(PromptedTools(says(f"No. {LS_TMP}")), asking(tool_choice="none"))
    assert (outline(message), message.stop_reason) == (["No. "], "end_turn")


async def test_without_tools_and_calls_the_request_is_the_same_object() -> None:
    inner, request = says("hi"), asking(tools=[])
    await ask(PromptedTools(inner), request)
    assert inner.requests[0] is request


@given(mentions, chunkings)
async def test_words_about_calls_pass_whole_and_a_call_behind_them_is_made(words: str, pieces: list[int]) -> None:
    _, message = await ask(PromptedTools(says(words, pieces)), asking())
    assert outline(message) == [words]
    _, message = await ask(PromptedTools(says(f"{words}\n\n{LS_TMP}", pieces)), asking())
    assert outline(message) == [f"{words}\n\n", TMP]

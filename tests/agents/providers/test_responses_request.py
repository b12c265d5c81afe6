"""Our request as a Responses body: what goes where, judged by the emulator's own rules."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import Message, Opaque, Text, Thinking, ToolCall, Wire
from agents.providers.draft import Draft
from agents.providers.models import Level
from agents.providers.provider import ModelRequest, OneTool
from agents.providers.request import wire_id
from agents.providers.responses import API, ResponsesAssembly
from agents.repair import repair
from tests.agents.providers.contract.bodies import responses as wire
from tests.agents.providers.contract.bodies import thought
from tests.agents.providers.requests import LS, PIXEL, READ, assistant, call, result, user
from tests.agents.providers.requests import asking as asking_any
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item
from tests.emulators.models.responses.stream import events_of
from tools.tool import Image

MODEL = "gpt-5.5"
PICTURE = Image(media_type="image/png", data=PIXEL, name="pixel.png")
IMAGE_URL = f"data:image/png;base64,{PIXEL}"


def asking(*messages: Message, model: str = MODEL, **members: Any) -> ModelRequest:
    return asking_any(*messages, model=model, **members)


def reasoning(item_id: str = "rs_1") -> Thinking:
    return thought(API, MODEL, name=item_id)


def test_the_first_request_of_a_chat() -> None:
    text = {"type": "input_text", "text": "## Inbound Context\n{}\n\n张三: 你好"}
    tool = {"type": "function", "name": "read", "description": "Read a file.", "strict": True}
    path = {"type": ["string", "null"], "description": "The folder."}
    strict = {"type": "object", "properties": {"path": path}, "required": ["path"], "additionalProperties": False}
    assert wire(asking(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ,))) == {
        "model": MODEL,
        "instructions": "You are a helper.\n\n## Runtime\nagent=coder",
        "input": [{"role": "user", "content": [text]}],
        "tools": [tool | {"parameters": strict}],
        "max_output_tokens": 1024,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_reasoning_goes_back_directly_before_what_it_led_to_or_not_at_all() -> None:
    new = Opaque(wire=Wire(api=API, family=MODEL, kind="new", data={"type": "new"}))
    foreign = Thinking(text="x", wire=Wire(api="other", family="y", kind="z", data={}))
    for before in ([reasoning(), Text(text=" ")], [reasoning(), new], [Thinking(text="lost")], [foreign]):
        items = wire(asking(user("go"), assistant(*before, call("a"), reasoning()), result("a")))["input"]
        assert [item["type"] for item in items[1:-1]] == ["function_call"]


@pytest.mark.parametrize(
    ("model", "thinking", "effort"),
    [(MODEL, None, None), (MODEL, "high", "high"), (MODEL, "off", "none"), ("gpt-4.1", "high", None)],
)
def test_reasoning_is_wanted_only_where_the_model_reasons(
    model: str, thinking: Level | None, effort: str | None
) -> None:
    body = wire(replace(asking(model=model), thinking=thinking))
    assert body.get("reasoning") == ({"effort": effort, "summary": "auto"} if effort else None)
    assert ("include" in body) == (model == MODEL)


def test_a_schema_that_cannot_be_strict_is_sent_as_it_is_and_says_so() -> None:
    long = {**LS.input_schema, "properties": {"path": {"type": "string", "maxLength": 9}}}
    bare = {"type": "object"}
    tools = [replace(LS, input_schema=long), replace(READ, input_schema=bare, description="")]
    first, second = wire(asking(tools=tools))["tools"]
    assert (first["strict"], first["parameters"]) == (False, long)
    assert (second["strict"], second["parameters"]) == (False, {"type": "object", "properties": {}})
    assert second["description"] == "read a file"


_ENUM = {"type": "string", "enum": ["x"]}
_LIST = {"type": "array", "items": _ENUM}
_MEMBERS = {"a": {"type": "integer", "minimum": 1}, "b": _ENUM, "c": _LIST}


def test_responses_schema_makes_optional_nullable_and_required() -> None:
    def sent(**members: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": _MEMBERS, "required": ["a"], "additionalProperties": False} | members
        made: dict[str, Any] = wire(asking(tools=(replace(LS, input_schema=schema),)))["tools"][0]
        return made

    nullable = {"type": ["string", "null"], "enum": ["x", None]}
    members = _MEMBERS | {"b": nullable, "c": _LIST | {"type": ["array", "null"]}}
    assert sent()["parameters"]["properties"] == members
    assert (sent()["parameters"]["required"], sent()["strict"]) == (["a", "b", "c"], True)
    loose: tuple[dict[str, Any], ...] = (
        {"additionalProperties": True},
        {"$defs": {}},
        {"properties": {"a": {"type": "object"}}},
    )
    long = {"type": "string", "minLength": 1}
    for more in (*loose, {"properties": {"a": long}}, {"properties": {"a": {"type": "array", "items": long}}}):
        assert not sent(**more)["strict"]


def test_the_output_limit_is_at_least_the_smallest_that_is_taken() -> None:
    assert wire(replace(asking(), max_tokens=1))["max_output_tokens"] == 16


SILENT = "Error: the tool failed and gave no reason"
IMAGE = {"type": "input_image", "detail": "auto", "image_url": IMAGE_URL}


@pytest.mark.parametrize(
    ("content", "is_error", "output"),
    [
        ((Text(text="a"), Text(text="b")), False, "a\nb"),
        ((), False, "(no output)"),
        ((), True, SILENT),
        ((Text(text="no such file"),), True, "Error: no such file"),
        ((Text(text='{"ok": false}'),), True, '{"ok": false}'),
        ((Text(text="[" * 100_000),), True, "Error: " + "[" * 100_000),
        ((Text(text="see"), PICTURE), False, [{"type": "input_text", "text": "see"}, IMAGE]),
        ((PICTURE,), True, [{"type": "input_text", "text": SILENT}, IMAGE]),
    ],
)
def test_a_result_is_a_text_or_a_list_with_pictures_and_an_error_says_so(
    content: tuple[Text | Image, ...], is_error: bool, output: object
) -> None:
    returned = replace(result("a"), content=content, is_error=is_error)
    assert wire(asking(user("go"), assistant(call("a")), returned))["input"][-1]["output"] == output


@pytest.mark.parametrize(("raw", "arguments"), [("", "{}"), ("{oops", "{oops")])
def test_responses_request_accepts_a_foreign_call(raw: str, arguments: str) -> None:
    made = ToolCall(id="functions.ls:0", name="目录 ls", arguments=None, arguments_raw=raw)
    _, sent, answer = wire(asking(user("go"), assistant(made), result(made.id)))["input"]
    assert sent["call_id"] == answer["call_id"] == wire_id(made.id)
    assert (sent["name"], sent["arguments"]) == ("___ls", arguments)


words = st.text(alphabet=st.sampled_from("a中 \n🙂"), min_size=1, max_size=30).filter(str.strip)
phases = st.sampled_from([None, "commentary", "final_answer"])
spoken = st.one_of(
    st.builds(lambda texts, phase: message_item(*texts, phase=phase), st.lists(words, min_size=1, max_size=2), phases),
    st.builds(lambda raw: call_item("ls", raw=raw), st.sampled_from(["", "{}", '{ "path" : "目录" }', '{"pa', "[1]"])),
)
thoughts = st.builds(lambda texts: reasoning_item(*texts), st.lists(words, max_size=2))
steps = st.builds(
    lambda groups, interleaved, noise: Turn(
        items=tuple(item for thinks, spoken in groups for item in (*thinks, spoken)),
        interleaved=interleaved,
        noise=noise,
    ),
    st.lists(st.tuples(st.lists(thoughts, max_size=1), spoken), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)


@given(steps)
def test_whatever_is_said_goes_back_as_it_was_said(turn: Turn) -> None:
    """Through the stream, our own message, the repair, and out again; but for ids of items and what is a default."""
    events = events_of(turn, 1, wire(asking()), 1)
    made = ResponsesAssembly(Draft(api=API, provider="openai", model=MODEL, timestamp=0.0))
    for event in events:
        list(made.feed(json.loads(json.dumps(event))))
    message = made.finish()
    history: list[Message] = [user("go"), message, *(result(call.id) for call in message.calls)]
    sent = wire(asking(*repair(history, api=API, family=MODEL)))["input"][1 : len(turn.items) + 1]
    members = {"function_call": ("call_id", "name", "arguments"), "message": ("content", "phase")}
    for item, original in zip(sent, events[-1]["response"]["output"], strict=True):
        kind = original["type"]
        assert item["type"] == kind
        if kind == "message":
            text = "".join(part["text"] for part in original["content"])
            original = original | {"content": [{"type": "output_text", "text": text}]}
        for name in members.get(kind, original):
            assert item.get(name) == original.get(name)


def test_a_model_that_cannot_be_forced_is_not_forced() -> None:
    for wanted, sent in (("required", None), (OneTool(name="ls"), None), ("none", "none")):
        request = asking(tool_choice=wanted)
        body = wire(replace(request, facts=replace(request.facts, forced_tool=False)))
        assert body.get("tool_choice") == sent

"""Our request as a Responses body: what goes where, judged by the emulator's own rules."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    UserMessage,
    Wire,
)
from agents.providers.models import Level, facts_of
from agents.providers.provider import ModelRequest, OneTool, System, ToolChoice
from agents.providers.request import wire_id
from agents.providers.responses.request import API, wire_request
from agents.providers.responses.response import ResponsesAssembly
from agents.repair import repair
from tests.agents.histories import broken_histories
from tests.agents.providers.requests import LS, PIXEL, READ, WRITE, assistant, call, result, user
from tests.agents.providers.requests import MODEL as CLAUDE
from tests.agents.providers.requests import asking as asking_any
from tests.emulators.models.responses.rules import check_body, parse_body
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item
from tests.emulators.models.responses.sealing import sealed
from tests.emulators.models.responses.stream import events_of
from tools.tool import Image, ToolSpec

MODEL = "gpt-5.5"
PICTURE = Image(media_type="image/png", data=PIXEL, name="pixel.png")
IMAGE_URL = f"data:image/png;base64,{PIXEL}"


def asking(*messages: Message, model: str = MODEL, **members: Any) -> ModelRequest:
    return asking_any(*messages, model=model, **members)


def wire(request: ModelRequest) -> dict[str, Any]:
    """The body, proved acceptable as the bytes that it becomes."""
    body = wire_request(request)
    sent = parse_body(json.dumps(body, ensure_ascii=False).encode())
    check_body(sent)
    return sent


def reasoning(item_id: str = "rs_1", text: str = "hm", *, family: str = MODEL) -> Thinking:
    summary = [{"type": "summary_text", "text": text}]
    data = {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": sealed(item_id, summary)}
    return Thinking(text=text, wire=Wire(api=API, family=family, kind="reasoning", data=data))


def phased(text: str, phase: str) -> Text:
    return Text(text=text, wire=Wire(api=API, family=MODEL, kind="phase", data={"phase": phase}))


def own(*parts: AssistantPart) -> AssistantMessage:
    return replace(assistant(call("x")), content=parts, provider="openai", model=MODEL, api=API)


def test_the_first_request_of_a_chat() -> None:
    body = wire(asking(user("张三: 你好", metadata="## Inbound Context\n{}"), tools=(READ,)))
    assert body == {
        "model": MODEL,
        "instructions": "You are a helper.\n\n## Runtime\nagent=coder",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "## Inbound Context\n{}\n\n张三: 你好"}]},
        ],
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Read a file.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": ["string", "null"], "description": "The folder."}},
                    "required": ["path"],
                    "additionalProperties": False,
                },
                "strict": True,
            },
        ],
        "max_output_tokens": 1024,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_loop_goes_back_item_by_item() -> None:
    answer = own(reasoning(), phased("Looking.", "commentary"), call("a"), call("b"))
    body = wire(asking(user("go"), answer, result("a"), result("b", "x")))
    assert [item.get("type", "message") for item in body["input"]] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    _, thought, spoken, first, _, returned, _ = body["input"]
    assert thought == answer.content[0].wire.data  # type: ignore[union-attr]
    assert spoken == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Looking."}],
        "phase": "commentary",
    }
    assert first == {"type": "function_call", "call_id": "a", "name": "ls", "arguments": '{"path": "."}'}
    assert returned == {"type": "function_call_output", "call_id": "a", "output": "README.md"}


def test_each_text_is_a_message_of_its_own_with_its_own_phase() -> None:
    answer = own(phased("One.", "commentary"), phased("Two.", "final_answer"), Text(text="Three."))
    items = wire(asking(user("go"), answer, user("more")))["input"][1:4]
    assert [(item["content"][0]["text"], item.get("phase")) for item in items] == [
        ("One.", "commentary"),
        ("Two.", "final_answer"),
        ("Three.", None),
    ]


@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        ((reasoning(), call("a")), ["reasoning", "function_call"]),
        ((reasoning(), Text(text="x"), call("a")), ["reasoning", "message", "function_call"]),
        ((reasoning("rs_1"), reasoning("rs_2"), call("a")), ["reasoning", "reasoning", "function_call"]),
        ((call("a"), reasoning()), ["function_call"]),
        ((reasoning(), Text(text=" "), call("a")), ["function_call"]),
        (
            (reasoning(), Opaque(wire=Wire(api=API, family=MODEL, kind="new", data={"type": "new"})), call("a")),
            ["function_call"],
        ),
        ((Thinking(text="lost"), call("a")), ["function_call"]),
        ((Thinking(text="x", wire=Wire(api="other", family="y", kind="z", data={})), call("a")), ["function_call"]),
    ],
)
def test_reasoning_goes_back_directly_before_what_it_led_to_or_not_at_all(
    parts: tuple[AssistantPart, ...], kinds: list[str]
) -> None:
    items = wire(asking(user("go"), own(*parts), result("a")))["input"]
    assert [item["type"] for item in items[1:-1]] == kinds


def test_ids_of_items_are_never_sent_but_in_reasoning() -> None:
    items = wire(asking(user("go"), own(reasoning(), Text(text="x"), call("a")), result("a")))["input"]
    assert [item.get("id") for item in items] == [None, "rs_1", None, None, None]


@pytest.mark.parametrize(
    ("model", "thinking", "members"),
    [
        (MODEL, None, {"include": ["reasoning.encrypted_content"]}),
        (MODEL, "high", {"reasoning": {"effort": "high", "summary": "auto"}}),
        (MODEL, "off", {"reasoning": {"effort": "none", "summary": "auto"}}),
        ("gpt-6-astra", "xhigh", {"reasoning": {"effort": "xhigh", "summary": "auto"}}),
        ("gpt-4.1", None, {}),
        ("gpt-4.1", "high", {}),
        ("gpt-unheard-of", "high", {}),
    ],
)
def test_reasoning_is_asked_for_only_where_the_model_reasons(
    model: str, thinking: Level | None, members: dict[str, Any]
) -> None:
    body = wire(replace(asking(model=model), thinking=thinking))
    assert body.get("reasoning") == members.get("reasoning")
    assert ("include" in body) == bool(members)
    assert not body.keys() & {"temperature", "top_p", "parallel_tool_calls"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        (OneTool(name="ls"), {"type": "function", "name": "ls"}),
        (OneTool(name="gone"), None),
    ],
)
def test_tool_choice(choice: ToolChoice, sent: object) -> None:
    assert wire(asking(tool_choice=choice)).get("tool_choice") == sent


def test_without_tools_neither_tools_nor_a_choice_are_sent() -> None:
    assert not wire(asking(tools=(), tool_choice="required")).keys() & {"tools", "tool_choice"}


def test_an_agent_that_lost_its_tools_can_still_go_on() -> None:
    body = wire(asking(user("a"), assistant(call("1", "functions.ls")), result("1"), tools=()))
    assert [tool["name"] for tool in body["tools"]] == ["functions_ls"]
    assert body["tool_choice"] == "none"


def test_a_schema_that_cannot_be_strict_is_sent_as_it_is_and_says_so() -> None:
    long = {**LS.input_schema, "properties": {"path": {"type": "string", "maxLength": 9}}}
    bare = {"type": "object"}
    tools = [replace(LS, input_schema=long), replace(READ, input_schema=bare, description="")]
    first, second = wire(asking(tools=tools))["tools"]
    assert (first["strict"], first["parameters"]) == (False, long)
    assert (second["strict"], second["parameters"]) == (False, {"type": "object", "properties": {}})
    assert second["description"] == "read a file"


def test_a_tool_without_any_words_is_described_by_its_name() -> None:
    silent = ToolSpec(name="ls", summary="", description="", input_schema=LS.input_schema)
    assert wire(asking(tools=(silent,)))["tools"][0]["description"] == "ls"


def test_a_chat_is_named_to_the_cache_without_telling_who_it_is() -> None:
    key = wire(replace(asking(), conversation="feishu:张三"))["prompt_cache_key"]
    assert key == hashlib.sha256("feishu:张三".encode()).hexdigest()
    assert len(key) == 64
    assert "prompt_cache_key" not in wire(asking())


@pytest.mark.parametrize(
    ("model", "limit", "sent"),
    [(MODEL, 1, 16), (MODEL, 4096, 4096), (MODEL, 500_000, 128_000), ("gpt-unheard-of", 500_000, 500_000)],
)
def test_the_output_limit_is_one_that_the_model_takes(model: str, limit: int, sent: int) -> None:
    assert wire(replace(asking(model=model), max_tokens=limit))["max_output_tokens"] == sent


def test_empty_halves_of_the_system_prompt_are_left_out() -> None:
    assert "instructions" not in wire(asking(system=System(stable=" ", volatile="")))
    assert wire(asking(system=System(stable="", volatile="x")))["instructions"] == "x"


@pytest.mark.parametrize(
    ("content", "is_error", "output"),
    [
        ((Text(text="ok"),), False, "ok"),
        ((Text(text="a"), Text(text="b")), False, "a\nb"),
        ((), False, "(no output)"),
        ((Text(text="no such file"),), True, "Error: no such file"),
        ((Text(text='{"ok": false}'),), True, '{"ok": false}'),
        ((Text(text='"x"'),), True, 'Error: "x"'),
        ((Text(text="[" * 100_000),), True, "Error: " + "[" * 100_000),
        ((), True, "Error: the tool failed and gave no reason."),
        (
            (Text(text="see"), PICTURE),
            False,
            [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "detail": "auto", "image_url": IMAGE_URL},
            ],
        ),
        (
            (PICTURE,),
            True,
            [
                {"type": "input_text", "text": "Error: the tool failed and gave no reason."},
                {"type": "input_image", "detail": "auto", "image_url": IMAGE_URL},
            ],
        ),
    ],
)
def test_a_result_is_a_text_or_a_list_with_pictures_and_an_error_says_so(
    content: tuple[Text | Image, ...], is_error: bool, output: object
) -> None:
    returned = replace(result("a"), content=content, is_error=is_error)
    assert wire(asking(user("go"), assistant(call("a")), returned))["input"][-1]["output"] == output


def test_a_picture_without_words_gets_the_metadata_before_it() -> None:
    content = wire(asking(UserMessage(content=(PICTURE,), metadata="META")))["input"][0]["content"]
    assert content == [
        {"type": "input_text", "text": "META"},
        {"type": "input_image", "detail": "auto", "image_url": IMAGE_URL},
    ]


def test_ids_and_names_that_the_wire_refuses_are_mapped_alike_for_call_and_result() -> None:
    for strange in ("functions.ls:0", "x" * 65, ""):
        made = ToolCall(id=strange, name="目录 ls", arguments=None, arguments_raw="{oops")
        body = wire(asking(user("go"), assistant(made), result(strange)))
        _, sent, answer = body["input"]
        assert sent["call_id"] == answer["call_id"] == wire_id(strange)
        assert (sent["name"], sent["arguments"]) == ("___ls", "{oops")


@pytest.mark.parametrize(
    ("raw", "sent"),
    [('{ "a":1 }', '{ "a":1 }'), ("{oops", "{oops"), ('{"a": "\ud83d\ude42"}', '{"a": "🙂"}'), ("", "")],
)
def test_arguments_go_back_as_they_came(raw: str, sent: str) -> None:
    made = own(ToolCall(id="a", name="ls", arguments=None, arguments_raw=raw))
    history = repair([user("go"), made, result("a")], api=API, family="gpt-5.5")
    assert wire(asking(*history))["input"][1]["arguments"] == sent


def test_no_arguments_of_another_vendor_become_an_empty_object() -> None:
    made = assistant(ToolCall(id="a", name="ls", arguments={}, arguments_raw=""))
    assert wire(asking(user("go"), made, result("a")))["input"][1]["arguments"] == "{}"


def test_equal_requests_are_equal_bytes_and_nothing_of_ours_is_changed() -> None:
    request = asking(
        user("a", metadata="M"), own(reasoning(), phased("x", "commentary"), call("1")), result("1"), tools=(LS, WRITE)
    )
    before = repr(request)
    assert json.dumps(wire(request)) == json.dumps(wire(request))
    assert repr(request) == before


def _ours(message: Message, number: int) -> Message:
    """The histories are Claude's; here its payloads become reasoning, phases and unknown items of the Responses API."""
    if not isinstance(message, AssistantMessage):
        return message
    parts: list[AssistantPart] = []
    for place, part in enumerate(message.content):
        wire_ = part.wire
        if isinstance(part, Thinking) and wire_ is not None and wire_.api == "anthropic-messages":
            part = reasoning(f"rs_{number}_{place}", family=wire_.family)
        elif isinstance(part, Opaque) and wire_ is not None and wire_.api == "anthropic-messages":
            part = Opaque(wire=replace(wire_, api=API))
        elif isinstance(part, Text) and place % 2:
            part = replace(part, wire=Wire(api=API, family=CLAUDE, kind="phase", data={"phase": "commentary"}))
        parts.append(part)
    return replace(message, content=tuple(parts), api=API)


@given(
    broken_histories,
    st.sampled_from([(), (LS,), (LS, READ)]),
    st.sampled_from(["auto", "none", "required", OneTool(name="ls"), OneTool(name="gone")]),
    st.sampled_from([None, "off", "high"]),
)
@settings(max_examples=400, deadline=None)
def test_any_history_once_repaired_is_accepted(
    history: list[Message], tools: tuple[ToolSpec, ...], choice: ToolChoice, thinking: Level | None
) -> None:
    ours = [_ours(message, number) for number, message in enumerate(history)]
    repaired = repair([*ours, user("now?")], api=API, family=CLAUDE)
    request = replace(asking(*repaired, tools=tools, tool_choice=choice), thinking=thinking, facts=facts_of(MODEL))
    body = wire(request)
    if any(isinstance(message, AssistantMessage) and message.calls for message in repaired):
        assert body["tools"]


@given(broken_histories)
@settings(max_examples=300, deadline=None)
def test_reasoning_of_the_running_turn_is_accepted(history: list[Message]) -> None:
    ours = [_ours(message, number) for number, message in enumerate(history)]
    repaired = repair([user("go"), *(m for m in ours if not isinstance(m, UserMessage))], api=API, family=CLAUDE)
    if repaired:
        wire(asking(*repaired))


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
@settings(max_examples=200, deadline=None)
def test_whatever_is_said_goes_back_as_it_was_said(turn: Turn) -> None:
    """Through the stream, our own message, the repair, and out again; but for ids of items and what is a default."""
    events = events_of(turn, 1, wire(asking()), 1)
    made = ResponsesAssembly(provider="openai", model=MODEL, timestamp=0.0)
    for event in events:
        list(made.feed(json.loads(json.dumps(event))))
    message = made.finish()
    history: list[Message] = [user("go"), message, *(result(call.id) for call in message.calls)]
    sent = wire(asking(*repair(history, api=API, family=MODEL)))["input"][1 : len(turn.items) + 1]
    for item, original in zip(sent, events[-1]["response"]["output"], strict=True):
        match original["type"]:
            case "reasoning":
                assert item == original
            case "function_call":
                assert [item[key] for key in ("type", "call_id", "name", "arguments")] == [
                    original[key] for key in ("type", "call_id", "name", "arguments")
                ]
            case _:
                assert "".join(part["text"] for part in item["content"]) == "".join(
                    part["text"] for part in original["content"]
                )
                assert item.get("phase") == original.get("phase")

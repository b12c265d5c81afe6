"""The emulator refuses what OpenAI refuses, with the same status, code and words, and streams what it streams."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.rules import check_body
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item
from tests.emulators.models.responses.sealing import sealed
from tests.emulators.models.script import Call, Say, Think, calls, says
from tests.emulators.models.script import Turn as AnyTurn
from tests.emulators.models.server import Refusal, Reply
from tests.loopback import serve_on_loopback

MODEL = "gpt-5.5"
HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "ls",
    "description": "List.",
    "parameters": EMPTY,
    "strict": True,
}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"}


def user(*parts: Any, **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts) or [{"type": "input_text", "text": "hi"}]} | members


def spoke(text: str = "ok", **members: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content} | members


def use(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "ls", "arguments": "{}"} | members


def answer(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "ok"} | members


def thought(item_id: str = "rs_1", **members: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": "hm"}]
    content = sealed(item_id, summary)
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": content} | members


def asks(*items: Any, **members: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": list(items) or [user()], "tools": [TOOL], "store": False} | members


def without(body: dict[str, Any], member: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != member}


def tool(**members: Any) -> dict[str, Any]:
    return asks(tools=[TOOL | members])


def schema(**members: Any) -> dict[str, Any]:
    return tool(parameters=EMPTY | members)


def prop(**members: Any) -> dict[str, Any]:
    return schema(properties={"a": members}, required=["a"])


LOOP = asks(user(), thought(), spoke(phase="commentary"), use("a"), use("b"), answer("a"), answer("b"))

ACCEPTED: dict[str, dict[str, Any]] = {
    "a plain question": {"model": MODEL, "input": "hi"},
    "a finished loop": LOOP,
    "outputs in another order": asks(user(), use("a"), use("b"), answer("b"), answer("a")),
    "words between a call and its output": asks(user(), use(), spoke(), answer()),
    "two steps": asks(user(), thought(), use("a"), answer("a"), thought("rs_2"), use("b"), answer("b")),
    "ids of the right kind": asks(user(), spoke(id="msg_1", status="completed"), use(id="fc_1"), answer()),
    "a picture in an output": asks(user(), use(), answer(output=[{"type": "input_text", "text": "x"}, IMAGE])),
    "a picture from elsewhere": asks(user({"type": "input_image", "image_url": "https://example.org/a.png"})),
    "a developer's word": asks({"role": "developer", "content": "be brief"}, user()),
    "everything": asks(
        user({"type": "input_image", "file_id": "x", "detail": "low"}, {"type": "input_file", "file_id": "x"}),
        spoke(content=[{"type": "refusal", "refusal": "x"}], id="msg_1", status="completed"),
        instructions="x",
        max_output_tokens=16,
        reasoning={"effort": "low", "summary": "auto", "context": "auto"},
        include=["reasoning.encrypted_content"],
        metadata={"a": "b"},
        prompt_cache_key="x",
        safety_identifier="x",
        truncation="auto",
        parallel_tool_calls=True,
        stream=True,
        background=False,
    ),
    "nulls for what may be left out": asks(instructions=None, tool_choice=None, reasoning=None, metadata=None),
    "an old model with a temperature": {"model": "gpt-4.1", "input": "hi", "temperature": 0.5},
    "no effort": asks(reasoning={"effort": "none", "summary": "auto"}),
    "a tool that is not strict": tool(strict=False, parameters={"type": "object", "properties": {"a": True}}),
    "a tool that does not say but could be strict": asks(tools=[without(TOOL, "strict")]),
    "one tool": asks(tool_choice={"type": "function", "name": "ls"}),
    "some tools": asks(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"name": "ls"}]}),
    "a model nobody knows": {"model": "gpt-unheard-of", "input": "hi", "reasoning": {"effort": "max"}},
}


REFUSED: list[tuple[dict[str, Any], str | None]] = [
    (without(asks(), "model"), "missing_required_parameter"),
    (without(asks(), "input"), "missing_required_parameter"),
    (asks(temperature=1), "unsupported_parameter"),
    (asks(top_p=1), "unsupported_parameter"),
    (asks(max_output_tokens=15), "integer_below_min_value"),
    (asks(max_output_tokens=128001), "integer_above_max_value"),
    (asks(prompt_cache_key="x" * 65), "string_above_max_length"),
    (asks(safety_identifier="x" * 129), "string_above_max_length"),
    (asks(metadata={"a": "x" * 513}), "string_above_max_length"),
    (asks(metadata={str(n): "" for n in range(17)}), "array_above_max_length"),
    (asks(truncation="some"), "invalid_value"),
    (asks(include=["everything"]), "invalid_value"),
    (asks(stream_options={}), "invalid_value"),
    (asks(previous_response_id="resp_9"), "previous_response_not_found"),
    (asks(reasoning={"effort": "hard"}), "invalid_value"),
    (asks(reasoning={"effort": "max"}), "unsupported_value"),
    (asks(model="gpt-6-astra", reasoning={"effort": "none"}), "unsupported_value"),
    (asks(reasoning={"summary": "long"}), "invalid_value"),
    (asks(model="gpt-4.1", reasoning={"effort": "low"}), "unsupported_parameter"),
    (asks(model="gpt-4.1", include=["reasoning.encrypted_content"]), None),
    (asks(user(), thought()), None),
    (asks(user(), thought(), user()), None),
    (asks(user(), thought(summary=[]), use(), answer()), "invalid_encrypted_content"),
    (asks(user(), thought(id="rs_2"), use(), answer()), "invalid_encrypted_content"),
    (asks(user(), thought(encrypted_content="中"), use(), answer()), "invalid_encrypted_content"),
    (asks(user(), without(thought(), "summary"), use(), answer()), "missing_required_parameter"),
    (asks(user(), thought(), use(), answer(), thought(), spoke()), None),
    (asks(user(), use()), None),
    (asks(user(), use(), user(), answer()), None),
    (asks(user(), answer()), None),
    (asks(user(), use(), answer(), answer()), None),
    (asks(user(), use(), answer(), use(), answer()), None),
    (asks({"type": "hologram"}), "invalid_value"),
    (asks(user(role="robot")), "invalid_value"),
    (asks({"role": "user"}), "missing_required_parameter"),
    (asks(user(content=[])), "empty_array"),
    (asks(user(content="")), "empty_string"),
    (asks(user({"type": "input_text", "text": ""})), "empty_string"),
    (asks(user({"type": "output_text", "text": "x"})), "invalid_value"),
    (asks(user(), spoke(content=[{"type": "input_text", "text": "x"}])), "invalid_value"),
    (asks(user(), spoke(phase="aside")), "invalid_value"),
    (asks(user(), spoke(id="item_1")), "invalid_value"),
    (asks(user(), use(id="call_1"), answer()), "invalid_value"),
    (asks(user(), use(), without(answer(), "call_id")), "missing_required_parameter"),
    (asks(user(), use("x" * 65), answer("x" * 65)), "string_above_max_length"),
    (asks(user(), use(""), answer("")), "empty_string"),
    (asks(user(), use(name="a b"), answer()), "invalid_value"),
    (asks(user(), use(status="done"), answer()), "invalid_value"),
    (asks(user(), use(), answer(output=[])), "empty_array"),
    (asks(user(IMAGE | {"image_url": PIXEL})), "invalid_value"),
    (asks(user(IMAGE | {"image_url": f"data:image/jpeg;base64,{PIXEL}"})), "invalid_value"),
    (asks(user(IMAGE | {"detail": "fine"})), "invalid_value"),
    (asks(tools=[]), "empty_array"),
    (asks(tools=[{"type": "function", "function": TOOL}]), "missing_required_parameter"),
    (tool(type="retrieval"), "invalid_value"),
    (tool(name="功能"), "invalid_value"),
    (tool(name="x" * 65), "string_above_max_length"),
    (asks(tools=[TOOL, TOOL]), "invalid_value"),
    (asks(tools=[without(TOOL, "parameters")]), "invalid_function_parameters"),
    (tool(parameters={"type": "object"}), "invalid_function_parameters"),
    (tool(parameters=without(EMPTY, "additionalProperties")), "invalid_function_parameters"),
    (schema(properties={"y": {"type": "string"}}), "invalid_function_parameters"),
    (tool(parameters=without(EMPTY, "required")), "invalid_function_parameters"),
    (schema(required=["y"]), "invalid_function_parameters"),
    (prop(type="string", default=""), "invalid_function_parameters"),
    (prop(description="anything"), "invalid_function_parameters"),
    (prop(**{"$ref": "#/properties/b"}), "invalid_function_parameters"),
    (prop(**{"$ref": "#", "description": "x"}), "invalid_function_parameters"),
    (
        asks(tools=[without(TOOL, "strict") | {"parameters": {"type": "object", "properties": {}}}]),
        "invalid_function_parameters",
    ),
    (without(asks(tool_choice="auto"), "tools"), None),
    (asks(tool_choice="any"), "invalid_value"),
    (asks(tool_choice={"type": "function", "name": "rm"}), None),
    (asks(tool_choice={"type": "function", "function": {"name": "ls"}}), "missing_required_parameter"),
]


@pytest.mark.parametrize(("body", "code"), REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any], code: str | None) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type, refusal.value.code) == (400, "invalid_request_error", code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (asks(model="claude-opus-5"), "model_not_found"),
        (asks(user(), thought(encrypted_content=None), use(), answer()), None),
        (asks(user(), without(thought(), "encrypted_content"), use(), answer()), None),
        (asks(user(), {"type": "item_reference", "id": "rs_1"}), None),
        (asks(conversation="conv_1"), None),
    ],
)
def test_what_is_not_there(body: dict[str, Any], code: str | None) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.code) == (404, code)


RICH = Turn(
    items=(
        reasoning_item("First look.", "Then speak, at some length."),
        message_item("Looking ", "around.", phase="commentary"),
        call_item("ls", {"path": "目录/🙂"}),
        call_item("ls"),
    )
)
TURNS: dict[str, Reply] = {
    "a rich answer": RICH,
    "side by side": Turn(items=RICH.items, interleaved=True),
    "a refusal": Turn(items=(message_item(refusal="I can't help with that."),)),
    "cut": AnyTurn(parts=(Say(text="Half"), Call(name="ls", raw='{"pa')), stop="length"),
    "filtered": AnyTurn(parts=(Say(text="Half"),), stop="filter"),
    "failed": Turn(items=RICH.items, status="failed", error={"code": "server_error", "message": "It broke."}),
    "hidden thoughts": AnyTurn(parts=(Think(text="secret", shown=False), Say(text="ok"))),
    "nothing": AnyTurn(parts=()),
    "counted": says("ok", usage=Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=1)),
}


def request_body(**members: Any) -> dict[str, Any]:
    return asks(include=["reasoning.encrypted_content"], **members)


@pytest.mark.parametrize("name", TURNS)
async def test_the_official_sdk_reads_every_event_and_the_whole(name: str) -> None:
    """Its iterator takes anything, so each event is also put through its models with all their checks on."""
    judge: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    emulator = ResponsesEmulator([TURNS[name]] * 2)
    async with (
        serve_on_loopback(emulator.app) as url,
        openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client,
    ):
        stream = await client.responses.create(**request_body(), stream=True)
        events = [event async for event in stream]
        whole = await client.responses.create(**request_body())
    sent_events = [event.model_dump(mode="json", by_alias=True, exclude_unset=True) for event in events]
    for event in sent_events:
        judge.validate_python(event)
    assert [event["sequence_number"] for event in sent_events] == list(range(len(sent_events)))
    assert [event["type"] for event in sent_events[:2]] == ["response.created", "response.in_progress"]
    assert sent_events[-1]["type"] == f"response.{sent_events[-1]['response']['status']}"
    streamed = Response.model_validate(sent_events[-1]["response"])
    done = [event["item"] for event in sent_events if event["type"] == "response.output_item.done"]
    assert sorted(done, key=json.dumps) == sorted(sent_events[-1]["response"]["output"], key=json.dumps)
    assert len(streamed.output) == len(whole.output)
    assert (streamed.output_text, streamed.status) == (whole.output_text, whole.status)


async def test_the_events_of_an_answer_in_order() -> None:
    emulator = ResponsesEmulator([Turn(items=(reasoning_item("hm"), message_item("Hi"), call_item("ls")))])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        response = await client.post(f"{url}/v1/responses", json=request_body(stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-request-id"] == "req_0001"
    assert "[DONE]" not in response.text
    names = [line.removeprefix("event: response.") for line in response.text.splitlines() if line.startswith("event: ")]
    order = """created in_progress
        output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done
        reasoning_summary_part.done output_item.done
        output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done
        output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed"""
    assert " ".join(names) == " ".join(order.split())
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    early, final = (event["item"] for event in events if event.get("item", {}).get("type") == "reasoning")
    assert early["encrypted_content"] != final["encrypted_content"]
    check_body(asks(user(), final, use(), answer()))
    with pytest.raises(Refusal, match="could not be verified"):
        check_body(asks(user(), early, use(), answer()))


async def test_the_arguments_of_a_cut_call_are_never_told_to_be_whole() -> None:
    turn = AnyTurn(parts=(Call(name="ls"), Call(name="ls", raw='{"pa')), stop="length")
    emulator = ResponsesEmulator([turn])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        response = await client.post(f"{url}/v1/responses", json=request_body(stream=True))
    assert response.text.count("event: response.function_call_arguments.done") == 1
    last = json.loads(response.text.splitlines()[-2].removeprefix("data: "))["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in last["output"]] == ["completed", "incomplete"]


async def test_reasoning_comes_encrypted_only_where_that_is_asked_for() -> None:
    emulator = ResponsesEmulator([RICH, RICH])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        plain = await client.post(f"{url}/v1/responses", json=asks())
        encrypted = await client.post(f"{url}/v1/responses", json=request_body())
    assert plain.json()["output"][0]["encrypted_content"] is None
    assert encrypted.json()["output"][0]["encrypted_content"]


async def test_an_item_named_by_its_id_needs_the_reasoning_that_led_to_it() -> None:
    emulator = ResponsesEmulator([Turn(items=(reasoning_item("hm"), call_item("ls")))])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        reasoning, made = (await client.post(f"{url}/v1/responses", json=request_body())).json()["output"]
        returned = answer(made["call_id"])
        whole = await client.post(f"{url}/v1/responses", json=asks(user(), reasoning, made, returned))
        alone = await client.post(f"{url}/v1/responses", json=asks(user(), made, returned))
        unnamed = await client.post(f"{url}/v1/responses", json=asks(user(), without(made, "id"), returned))
    assert (whole.status_code, alone.status_code, unnamed.status_code) == (200, 400, 200)


async def test_calls_get_ids_of_their_own_or_those_of_the_script() -> None:
    turn = AnyTurn(parts=(Call(name="ls"), Call(name="ls", id="mine")))
    emulator = ResponsesEmulator([turn, calls(("ls", {}), before="Looking.")])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        first = (await client.post(f"{url}/v1/responses", json=asks())).json()["output"]
        second = (await client.post(f"{url}/v1/responses", json=asks())).json()["output"]
    assert [item["call_id"] for item in first] == ["call_000100", "mine"]
    assert [item["id"] for item in second] == ["msg_000200", "fc_000201"]

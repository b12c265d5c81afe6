"""The emulator refuses what OpenAI refuses, with the same status, code and words, and streams what it streams."""

import json
from copy import deepcopy
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.rules import check_body, check_headers, parse_body
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item
from tests.emulators.models.responses.sealing import sealed
from tests.emulators.models.script import Call, Fault, Say, Think, calls, says
from tests.emulators.models.script import Turn as AnyTurn
from tests.emulators.models.server import Refusal, Reply
from tests.loopback import serve_on_loopback

MODEL = "gpt-5.5"
HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOL: dict[str, Any] = {"type": "function", "name": "ls", "description": "List.", "parameters": EMPTY, "strict": True}
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
    "nulls for what may be left out": asks(instructions=None, tool_choice=None, reasoning=None, metadata=None),
    "an old model with a temperature": {"model": "gpt-4.1", "input": "hi", "temperature": 0.5},
    "no effort": asks(reasoning={"effort": "none", "summary": "auto"}),
    "a tool that is not strict": tool(strict=False, parameters={"type": "object", "properties": {"a": True}}),
    "a tool that does not say but could be strict": asks(tools=[without(TOOL, "strict")]),
    "one tool": asks(tool_choice={"type": "function", "name": "ls"}),
    "some tools": asks(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"name": "ls"}]}),
    "a model nobody knows thinks as hard as it likes": {
        "model": "gpt-unheard-of",
        "input": "hi",
        "reasoning": {"effort": "max"},
    },
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    body = deepcopy(ACCEPTED[name])
    check_body(body)
    assert body == ACCEPTED[name]


NOT_FOLLOWED = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
UNSTORED = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."

REFUSED: list[tuple[dict[str, Any], str | None, str]] = [
    # the request
    (asks(colour="red"), "unknown_parameter", "Unknown parameter: 'colour'."),
    (without(asks(messages=[]), "input"), "unsupported_parameter", "API, this parameter has moved to 'input'."),
    (asks(max_tokens=5), "unsupported_parameter", "has moved to 'max_output_tokens'"),
    (asks(response_format={}), "unsupported_parameter", "has moved to 'text.format'"),
    (without(asks(), "model"), "missing_required_parameter", "Missing required parameter: 'model'."),
    (without(asks(), "input"), "missing_required_parameter", "or 'prompt' or 'conversation' must be provided."),
    (asks() | {"input": []}, "missing_required_parameter", 'One of "input"'),
    (asks() | {"input": 7}, "invalid_type", "Invalid type for 'input': expected a string or array, but got an integer"),
    (asks(stream="yes"), "invalid_type", "Invalid type for 'stream': expected a boolean, but got a string instead."),
    (asks(instructions=7), "invalid_type", "Invalid type for 'instructions': expected a string, but got an integer"),
    (asks(temperature=1), "unsupported_parameter", "Unsupported parameter: 'temperature' is not supported with this"),
    (asks(top_p=1), "unsupported_parameter", "'top_p' is not supported with this model."),
    (asks(max_output_tokens=15), "integer_below_min_value", "value. Expected a value >= 16, but got 15 instead."),
    (asks(max_output_tokens=128_001), "integer_above_max_value", "Expected a value <= 128000, but got 128001"),
    (asks(max_output_tokens="9"), "invalid_type", "Invalid type for 'max_output_tokens': expected an integer"),
    (asks(prompt_cache_key="x" * 65), "string_above_max_length", "Invalid 'prompt_cache_key': string too long."),
    (asks(safety_identifier="x" * 129), "string_above_max_length", "Invalid 'safety_identifier'"),
    (asks(metadata={"a": 7}), "invalid_type", "Invalid type for 'metadata.a'"),
    (asks(metadata={"a": "x" * 513}), "string_above_max_length", "Invalid 'metadata.a'"),
    (asks(metadata={str(n): "" for n in range(17)}), "object_above_max_properties", "Invalid 'metadata'"),
    (asks(truncation="some"), "invalid_value", "Supported values are: 'auto', and 'disabled'."),
    (asks(include=["everything"]), "invalid_value", "Invalid value: 'everything'."),
    (asks(include="x"), "invalid_type", "Invalid type for 'include': expected an array"),
    (asks(stream_options={}), "invalid_value", "only allowed when 'stream' is enabled"),
    (asks(previous_response_id="resp_9"), "previous_response_not_found", "response with id 'resp_9' not found."),
    # reasoning
    (asks(reasoning={"effort": "hard"}), "invalid_value", "Invalid value: 'hard'. Supported values are: 'none', 'min"),
    (
        asks(reasoning={"effort": "max"}),
        "unsupported_value",
        f"Unsupported value: 'max' is not supported with the '{MODEL}' model. Supported values are: 'none', 'low'",
    ),
    (asks(model="gpt-6-astra", reasoning={"effort": "none"}), "unsupported_value", "Unsupported value: 'none'"),
    (asks(reasoning={"summary": "long"}), "invalid_value", "Invalid value: 'long'."),
    (asks(reasoning={"colour": "red"}), "unknown_parameter", "Unknown parameter: 'reasoning.colour'."),
    (asks(model="gpt-4.1", reasoning={"effort": "low"}), "unsupported_parameter", "is not supported"),
    (asks(model="gpt-4.1", include=["reasoning.encrypted_content"]), None, "Encrypted content is not supported"),
    (asks(user(), thought()), None, NOT_FOLLOWED),
    (asks(user(), thought(), user()), None, NOT_FOLLOWED),
    (asks(user(), use(), thought(), answer()), None, NOT_FOLLOWED),
    (asks(user(), thought(summary=[]), use(), answer()), "invalid_encrypted_content", "The encrypted content gAAA..."),
    (asks(user(), thought(id="rs_2"), use(), answer()), "invalid_encrypted_content", "could not be verified. Reason:"),
    (
        asks(user(), thought(encrypted_content=thought()["encrypted_content"][:-4]), use(), answer()),
        "invalid_encrypted_content",
        "could not be verified",
    ),
    (
        asks(user(), thought(encrypted_content="中"), use(), answer()),
        "invalid_encrypted_content",
        "The encrypted content",
    ),
    (asks(user(), thought(mood="calm"), use(), answer()), "unknown_parameter", "Unknown parameter: 'input[1].mood'."),
    (asks(user(), without(thought(), "summary"), use(), answer()), "missing_required_parameter", "'input[1].summary'"),
    (asks(user(), thought(), use(), answer(), thought(), spoke()), None, "Duplicate item found with id rs_1."),
    # pairs
    (asks(user(), use()), None, "No tool output found for function call a."),
    (asks(user(), use(), user(), answer()), None, "No tool output found for function call a."),
    (asks(user(), use("a"), use("b"), answer("a")), None, "No tool output found for function call b."),
    (asks(user(), answer()), None, "No tool call found for function call output with call_id a."),
    (asks(user(), answer(), use()), None, "No tool call found for function call output with call_id a."),
    (asks(user(), use(), answer(), answer()), None, "No tool call found for function call output with call_id a."),
    (asks(user(), use(), answer(), use(), answer()), None, "Duplicate function call found with call_id a."),
    # items
    (asks("hi"), "invalid_type", "Invalid type for 'input[0]': expected an object, but got a string instead."),
    (asks({"type": "hologram"}), "invalid_value", "Invalid value: 'hologram'. Supported values are: 'message', 'reas"),
    (asks({"content": "x"}), "invalid_value", "Invalid value: 'None'."),
    (asks(user(role="robot")), "invalid_value", "Invalid value: 'robot'. Supported values are: 'user', 'assistant'"),
    (asks({"role": "user"}), "missing_required_parameter", "Missing required parameter: 'input[0].content'."),
    (asks(user(content=[])), "empty_array", "Invalid 'input[0].content': empty array."),
    (asks(user(content="")), "empty_string", "Invalid 'input[0].content': empty string."),
    (asks(user({"type": "input_text", "text": ""})), "empty_string", "'input[0].content[0].text': empty string"),
    (asks(user({"type": "text", "text": "x"})), "invalid_value", "'input_text', 'input_image', and 'input_file'."),
    (asks(user({"type": "output_text", "text": "x"})), "invalid_value", "Invalid value: 'output_text'."),
    (asks(user(), spoke(content=[{"type": "input_text", "text": "x"}])), "invalid_value", "and 'refusal'."),
    (asks(user({"type": "input_text", "text": "x", "cache_control": {}})), "unknown_parameter", ".cache_control'."),
    (asks(user(phase="commentary")), "unknown_parameter", "Unknown parameter: 'input[0].phase'."),
    (asks(user(), spoke(phase="aside")), "invalid_value", "Invalid value: 'aside'."),
    (asks(user(), spoke(stop_reason="x")), "unknown_parameter", "Unknown parameter: 'input[1].stop_reason'."),
    (asks(user(), spoke(id="item_1")), "invalid_value", "'item_1'. Expected an ID that begins with 'msg'."),
    (asks(user(), use(id="call_1"), answer()), "invalid_value", "'call_1'. Expected an ID that begins with 'fc'."),
    (asks(user(), use(), without(answer(), "call_id")), "missing_required_parameter", "parameter: 'input[2].call_id'."),
    (asks(user(), use("x" * 65), answer("x" * 65)), "string_above_max_length", "Invalid 'input[1].call_id'"),
    (asks(user(), use(""), answer("")), "empty_string", "Invalid 'input[1].call_id'"),
    (asks(user(), use(name="a b"), answer()), "invalid_value", "'input[1].name': string does not match pattern"),
    (asks(user(), use(arguments={}), answer()), "invalid_type", "Invalid type for 'input[1].arguments'"),
    (asks(user(), use(status="done"), answer()), "invalid_value", "Invalid value: 'done'."),
    (asks(user(), use(), answer(output=None)), "invalid_type", "Invalid type for 'input[2].output'"),
    (asks(user(), use(), answer(output=[])), "empty_array", "Invalid 'input[2].output': empty array."),
    (asks(user(), use(), answer(is_error=True)), "unknown_parameter", "Unknown parameter: 'input[2].is_error'."),
    # pictures
    (asks(user(IMAGE | {"image_url": {"url": "x"}})), "invalid_type", "an image URL, but got an object instead."),
    (asks(user(IMAGE | {"image_url": PIXEL})), "invalid_value", "Expected a valid URL"),
    (asks(user(IMAGE | {"image_url": f"data:image/bmp;base64,{PIXEL}"})), "image_parse_error", "a valid image"),
    (asks(user(IMAGE | {"image_url": f"data:image/jpeg;base64,{PIXEL}"})), "image_parse_error", "a valid image"),
    (asks(user(IMAGE | {"image_url": "data:image/png;base64,abc"})), "invalid_base64_image", "a valid image"),
    (asks(user(IMAGE | {"detail": "fine"})), "invalid_value", "Invalid value: 'fine'."),
    # tools
    (asks(tools=[]), "empty_array", "Invalid 'tools': empty array."),
    (asks(tools=[{"type": "function", "function": TOOL}]), "missing_required_parameter", "'tools[0].name'."),
    (tool(type="retrieval"), "invalid_value", "Invalid value: 'retrieval'."),
    (tool(name="功能"), "invalid_value", "pattern '^[a-zA-Z0-9_-]+$'."),
    (tool(name="x" * 65), "string_above_max_length", "Invalid 'tools[0].name'"),
    (tool(summary="x"), "unknown_parameter", "Unknown parameter: 'tools[0].summary'."),
    (tool(strict="yes"), "invalid_type", "Invalid type for 'tools[0].strict': expected a boolean"),
    (asks(tools=[TOOL, TOOL]), "invalid_value", "Tool names must be unique."),
    (
        asks(tools=[without(TOOL, "parameters")]),
        "invalid_function_parameters",
        "Invalid schema for function 'ls': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
    ),
    (schema(anyOf=[]), "invalid_function_parameters", "at the top level."),
    (tool(parameters={"type": "object"}), "invalid_function_parameters", "object schema missing properties."),
    (
        tool(strict=False, parameters={"type": "object", "properties": {"a": {"type": "array"}}}),
        "invalid_function_parameters",
        "In context=('properties', 'a'), array schema missing items.",
    ),
    (prop(type="text"), "invalid_function_parameters", "In context=('properties', 'a')"),
    (schema(properties=[]), "invalid_function_parameters", "is not of type 'object'"),
    (tool(parameters=without(EMPTY, "additionalProperties")), "invalid_function_parameters", "and to be false."),
    (schema(properties={"y": {"type": "string"}}), "invalid_function_parameters", "key in properties. Missing 'y'."),
    (tool(parameters=without(EMPTY, "required")), "invalid_function_parameters", "'required' is required"),
    (schema(required=["y"]), "invalid_function_parameters", "'required' includes 'y'"),
    (prop(type="string", maxLength=3), "invalid_function_parameters", "'maxLength' is not permitted."),
    (prop(type="string", default=""), "invalid_function_parameters", "'default' is not permitted."),
    (prop(description="anything"), "invalid_function_parameters", "schema must have a 'type' key."),
    (prop(**{"$ref": "#/properties/b"}), "invalid_function_parameters", "reference can only point to definitions."),
    (prop(**{"$ref": "#", "description": "x"}), "invalid_function_parameters", "$ref cannot have keywords"),
    (
        asks(tools=[without(TOOL, "strict") | {"parameters": {"type": "object", "properties": {}}}]),
        "invalid_function_parameters",
        "'additionalProperties' is required",
    ),
    # tool choice
    (without(asks(tool_choice="auto"), "tools"), None, "only allowed when 'tools' are specified"),
    (asks(tool_choice="any"), "invalid_value", "Invalid value: 'any'. Supported values are: 'none', 'auto', and"),
    (asks(tool_choice={"type": "function", "name": "rm"}), None, "Tool choice 'rm' not found in 'tools' parameter."),
    (
        asks(tool_choice={"type": "function", "function": {"name": "ls"}}),
        "unknown_parameter",
        "Unknown parameter: 'tool_choice.function'.",
    ),
]


@pytest.mark.parametrize(("body", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any], code: str | None, message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type) == (400, "invalid_request_error")
    assert message in refusal.value.message
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (asks(model="claude-opus-5"), "model_not_found", "The model `claude-opus-5` does not exist"),
        (asks(user(), thought(encrypted_content=None), use(), answer()), None, UNSTORED),
        (asks(user(), without(thought(), "encrypted_content"), use(), answer()), None, UNSTORED),
        (asks(user(), {"type": "item_reference", "id": "rs_1"}), None, UNSTORED),
        (asks(conversation="conv_1"), None, "Conversation not found."),
    ],
)
def test_what_is_not_there(body: dict[str, Any], code: str | None, message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.code) == (404, code)
    assert message in refusal.value.message


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (without(HEADERS, "authorization"), 401, None),
        (HEADERS | {"authorization": "Basic k"}, 401, None),
        (HEADERS | {"authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        (HEADERS | {"content-type": "text/plain"}, 400, "unsupported_content_type"),
    ],
)
def test_headers(headers: dict[str, str], status: int, code: str | None) -> None:
    check_headers(HEADERS, "k")
    with pytest.raises(Refusal) as refusal:
        check_headers(headers, "k")
    assert (refusal.value.status, refusal.value.code) == (status, code)


@pytest.mark.parametrize("raw", [b"{", b'{"a": "\\ud83d"}', b'{"a": NaN}', b"[]", b'"\xff"'])
def test_a_body_that_is_no_strict_json_object(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_body(raw)
    assert refusal.value.status == 400


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
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    early, final = (event["item"] for event in events if event.get("item", {}).get("type") == "reasoning")
    assert early["encrypted_content"] != final["encrypted_content"]
    body = asks(user(), final, use(), answer())
    check_body(body)
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
    assert alone.json()["error"]["message"] == (
        "Item 'fc_000101' of type 'function_call' was provided without its required 'reasoning' item: 'rs_000100'."
    )


async def test_refusals_faults_and_the_ledger() -> None:
    emulator = ResponsesEmulator([Fault(status=429, headers={"retry-after": "7"}), Fault(status=500)], api_key="k")
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient() as client:
        refused = await client.post(f"{url}/v1/responses", headers=without(HEADERS, "authorization"), json=asks())
        limited = await client.post(f"{url}/v1/responses", headers=HEADERS, json=asks())
        failed = await client.post(f"{url}/v1/responses", headers=HEADERS, json=asks())
        echoed = await client.post(f"{url}/v1/responses", headers=HEADERS, json=LOOP)
        plain = await client.post(f"{url}/v1/responses", headers=HEADERS, json={"model": MODEL, "input": "hello"})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    assert limited.headers["retry-after"] == "7"
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    assert echoed.json()["output"][0]["content"][0]["text"] == "hi"
    assert plain.json()["output"][0]["content"][0]["text"] == "hello"
    assert emulator.requests[0].refusal is not None
    assert (emulator.requests[1].body, emulator.requests[1].refusal) == (asks(), None)


async def test_calls_get_ids_of_their_own_or_those_of_the_script() -> None:
    turn = AnyTurn(parts=(Call(name="ls"), Call(name="ls", id="mine")))
    emulator = ResponsesEmulator([turn, calls(("ls", {}), before="Looking.")])
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        first = (await client.post(f"{url}/v1/responses", json=asks())).json()["output"]
        second = (await client.post(f"{url}/v1/responses", json=asks())).json()["output"]
    assert [item["call_id"] for item in first] == ["call_000100", "mine"]
    assert [item["id"] for item in second] == ["msg_000200", "fc_000201"]


def test_a_turn_of_another_vendor_is_a_mistake_of_the_test() -> None:
    from tests.emulators.models.anthropic.script import Turn as Theirs
    from tests.emulators.models.responses.script import rendered

    with pytest.raises(TypeError, match="not an answer"):
        rendered(Theirs(blocks=()))

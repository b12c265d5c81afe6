"""The emulator refuses what Mistral refuses, with the same status and words, and is understood by Mistral's own SDK."""

import json
from copy import deepcopy
from typing import Any

import httpx
import pytest

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.rules import check_body, check_headers, parse_body
from tests.emulators.models.mistral.script import chunks_of, completion_of, thinking_chunk
from tests.emulators.models.script import Call, Fault, Say, Think, Turn, calls, says
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

MODEL = "mistral-large-latest"
PATH = "/v1/chat/completions"
HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
A, B = "AAAAAAAAA", "BBBBBBBBB"


def tool(name: str = "ls", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "List.", "parameters": PARAMETERS} | members}


def asks(content: Any = "hi", **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": content} | members


def made(call_id: str = A, name: str = "ls", arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}} | members


def answers(*content: Any, **members: Any) -> dict[str, Any]:
    return {"role": "assistant"} | ({"content": content[0]} if content else {}) | members


def called(*function_calls: dict[str, Any], **members: Any) -> dict[str, Any]:
    return answers(tool_calls=list(function_calls or (made(),)), **members)


def returns(call_id: str = A, content: Any = "ok", **members: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "ls", "content": content} | members


def text(words: str = "hi", **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | members


def image(url: Any = f"data:image/png;base64,{PIXEL}") -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


def talk(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": list(messages), "tools": [tool()]} | members


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}


SYSTEM = {"role": "system", "content": "Help."}
NAMED = {"type": "function", "function": {"name": "ls"}}
LOOP = talk(SYSTEM, asks(), called(made(A), made(B), content="Looking."), returns(A), returns(B))
ACCEPTED: dict[str, dict[str, Any]] = {
    "a plain question": without(talk(asks()), "tools"),
    "a finished loop": LOOP,
    "results in any order": talk(asks(), called(made(A), made(B)), returns(B), returns(A)),
    "a user behind results": talk(asks(), called(), returns(), asks()),
    "two users in a row": talk(asks(), asks([text(), image(), image({"url": "https://example.com/a.png"})])),
    "two answers in a row": talk(asks(), answers("a"), answers("b"), asks()),
    "content of no text beside calls": talk(
        asks(), called(content=""), returns(), answers(None, **called()), returns()
    ),
    "arguments as an object": talk(asks(), called(made(arguments={"path": "."}, index=0)), returns()),
    "arguments that are no JSON": talk(asks(), called(made(arguments="{oops")), returns()),
    "signed thinking": talk(asks(), called(content=[thinking_chunk("hm"), text()]), returns()),
    "an answer to be continued": talk(asks(), answers("Well,", prefix=True)),
    "tool choices": talk(asks(), tool_choice="any", parallel_tool_calls=False, max_tokens=10, temperature=0.3),
    "a named tool": talk(asks(), tool_choice=NAMED),
    "a tool with a deep schema": talk(
        asks(),
        tools=[
            tool(
                parameters={
                    "type": "object",
                    "properties": {"a": {"type": "array", "items": {"type": ["string", "null"]}}, "b": True},
                    "required": ["a"],
                    "additionalProperties": False,
                },
                strict=True,
            )
        ],
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    body = deepcopy(ACCEPTED[name])
    check_body(body)
    assert body == ACCEPTED[name]


_EXTRA = "Extra inputs are not permitted"
_COUNT = "Not the same number of function calls and responses"
_LAST = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
_ID = "must be a-z, A-Z, 0-9, with a length of 9."
_NAME = "must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
_STALE = "Invalid `signature` in thinking chunk"
_SCHEMA = "Invalid tool schema: "
_THOUGHT = thinking_chunk("hm")


def schema(**members: Any) -> dict[str, Any]:
    return talk(asks(), tools=[tool(parameters={"type": "object"} | members)])


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    (talk(asks(), colour="red"), 422, _EXTRA),
    (talk(asks(), stream_options={"include_usage": True}), 422, _EXTRA),
    (talk(asks(), max_completion_tokens=5), 422, _EXTRA),
    (talk(asks(name="Bob")), 422, _EXTRA),
    (talk(asks([text(mood="calm")])), 422, _EXTRA),
    (talk(asks(), called(reasoning_content="x"), returns()), 422, _EXTRA),
    (talk(asks(), called(made(parsed=1)), returns()), 422, _EXTRA),
    (talk(asks(), called(), returns(is_error=True)), 422, _EXTRA),
    (talk(asks(), tools=[tool(mood=1)]), 422, _EXTRA),
    (talk(asks(), tools=[tool() | {"cache_control": {}}]), 422, _EXTRA),
    (talk(asks(), tool_choice=NAMED | {"mode": 1}), 422, _EXTRA),
    (without(talk(asks()), "model"), 422, "Field required"),
    (without(talk(asks()), "messages"), 422, "Field required"),
    (talk(asks(), messages="hi"), 422, "valid list"),
    (talk(), 400, "Conversation must have at least one message"),
    (talk(asks(), model="gpt-6"), 400, "Invalid model: gpt-6"),
    (talk(asks(), max_tokens="10"), 422, "valid integer"),
    (talk(asks(), max_tokens=-1), 422, "greater than or equal to 0"),
    (talk(asks(), max_tokens=32_769), 400, "max_tokens is too large for model"),
    (talk(asks(), stream="yes"), 422, "valid boolean"),
    (talk(asks(), temperature=2), 422, "less than or equal to 1.5"),
    (talk(asks(), reasoning_effort="high"), 400, "is not supported for this model"),
    # roles and their order
    (talk({"role": "developer", "content": "x"}), 422, "Input tag 'developer' found using 'role'"),
    (talk("hi"), 422, "Input tag 'None' found using 'role'"),
    (talk(answers("x"), asks()), 400, "Conversation must start with a user message or system message"),
    (talk(asks(), returns()), 400, "Unexpected role 'tool' after role 'user'"),
    (talk(asks(), answers("x"), SYSTEM, asks()), 400, "Unexpected role 'system' after role 'assistant'"),
    (talk(asks(), answers("x")), 400, _LAST),
    (talk(asks(), called()), 400, _LAST),
    (talk(asks(), answers("x", prefix=True), asks()), 400, "Assistant message with prefix True must be last message"),
    # calls and results
    (talk(asks(), called(), asks()), 400, _COUNT),
    (talk(asks(), called(made(A), made(B)), returns(A)), 400, _COUNT),
    (talk(asks(), called(made(A), made(B)), returns(A), asks(), answers("x"), asks()), 400, _COUNT),
    (talk(asks(), called(), returns(B)), 400, f"Unexpected tool call id {B} in tool results"),
    (talk(asks(), called(), returns(), returns()), 400, f"Duplicate tool call id {A} in tool results"),
    (talk(asks(), called(made(A), made(A)), returns()), 400, f"Duplicate tool call id {A} in assistant message"),
    (talk(asks(), called(made("call_1")), returns()), 400, f"Tool call id was call_1 but {_ID}"),
    (talk(asks(), called(), returns("AAAAAAAA")), 400, f"Tool call id was AAAAAAAA but {_ID}"),
    (talk(asks(), called(made("null")), returns()), 400, "Tool call id has to be defined in serving mode."),
    (talk(asks(), called(), without(returns(), "tool_call_id")), 400, "Tool call id has to be defined."),
    (talk(asks(), called(made(name="a b")), returns()), 400, f"Function name was a b but {_NAME}"),
    (talk(asks(), called(), returns(name="a.b")), 400, f"Function name was a.b but {_NAME}"),
    (talk(asks(), called(made(arguments=None)), returns()), 422, "valid string"),
    (talk(asks(), called(made(type="tool")), returns()), 422, "Input should be 'function'"),
    (talk(asks(), answers("x", tool_calls=[]), asks()), 422, "List should have at least 1 item"),
    # content
    (talk(asks(), answers(), asks()), 400, "Assistant message must have either content or tool_calls."),
    (talk(asks(), answers(""), asks()), 400, "Assistant message must have either content or tool_calls."),
    (talk(asks("")), 400, "User message must have content"),
    (talk(asks([])), 400, "User message must have content"),
    (talk(asks([text("")])), 400, "Text chunks in user message must not be empty"),
    (talk(asks(None)), 422, "valid string"),
    (talk({"role": "user"}), 422, "Field required"),
    (talk(SYSTEM | {"content": ""}, asks()), 400, "System message must have content"),
    (talk(asks(), called(), returns(content="")), 400, "Tool message must have content"),
    (talk(asks([_THOUGHT])), 400, "Unexpected content chunk types in user message"),
    (talk(asks(), called(), returns(content=[image()])), 400, "Unexpected content chunk types in tool message"),
    (talk(asks([{"type": "image", "source": {}}])), 422, "Input tag 'image' found using 'type'"),
    (talk(asks([image("data:image/jpeg;base64," + PIXEL)])), 400, "The image is not of type image/jpeg"),
    (talk(asks([image("data:image/bmp;base64," + PIXEL)])), 400, "Image of type image/bmp is not supported"),
    (talk(asks([image("data:image/png;base64,???")])), 400, "image_url is not valid base64"),
    (talk(asks([image(PIXEL)])), 400, "image_url must be an https URL or a base64 data URL"),
    (talk(asks([image(None)])), 422, "valid string"),
    (talk(asks([image()]), model="magistral-small"), 400, "Image input is not enabled for this model"),
    # thinking
    (talk(asks(), answers([_THOUGHT | {"signature": "x"}]), asks()), 400, _STALE),
    (talk(asks(), answers([without(_THOUGHT, "signature")]), asks()), 400, _STALE),
    (talk(asks(), answers([_THOUGHT | {"thinking": [text("hmm")]}]), asks()), 400, _STALE),
    (talk(asks(), answers([_THOUGHT | {"thinking": "hm"}]), asks()), 422, "valid list"),
    # tools
    (talk(asks(), tools=[]), 422, "List should have at least 1 item"),
    (talk(asks(), tools=[tool("a b")]), 400, f"Function name was a b but {_NAME}"),
    (talk(asks(), tools=[tool("x" * 65)]), 400, _NAME),
    (talk(asks(), tools=[tool(), tool()]), 400, "Function names must be unique."),
    (talk(asks(), tools=[{"name": "ls", "input_schema": PARAMETERS}]), 422, _EXTRA),
    (talk(asks(), tools=[tool(description=None)]), 422, "valid string"),
    (talk(asks(), tools=[tool(parameters=None)]), 422, "Field required"),
    (schema(type="string"), 400, _SCHEMA + "schema must be a JSON Schema of 'type: \"object\"'"),
    (schema(anyOf=[]), 400, _SCHEMA),
    (schema(properties={"a": {"type": "array"}}), 400, _SCHEMA + "array schema missing items"),
    (schema(properties={"a": {"type": "text"}}), 400, _SCHEMA + "'text' is not valid"),
    (schema(properties={"a": {"type": "array", "items": {"type": "int"}}}), 400, _SCHEMA + "'int' is not valid"),
    (schema(properties=[]), 400, _SCHEMA),
    (schema(required=["a", "a"]), 400, _SCHEMA),
    (schema(required="a"), 400, _SCHEMA),
    # tool_choice
    (talk(asks(), tool_choice="sometimes"), 422, "Input should be 'auto', 'none', 'any', 'required'"),
    (talk(asks(), tool_choice={"type": "tool", "name": "ls"}), 422, _EXTRA),
    (without(talk(asks(), tool_choice="any"), "tools"), 400, "tool_choice can only be used with tools"),
    (talk(asks(), tool_choice={"type": "function", "function": {"name": "x"}}), 400, "Function x of tool_choice"),
]


@pytest.mark.parametrize(("body", "status", "words"), REFUSED)
def test_refused(body: dict[str, Any], status: int, words: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(deepcopy(body))
    assert refusal.value.status == status
    assert words in refusal.value.message


@pytest.mark.parametrize(
    ("body", "type_", "code"),
    [
        (talk(asks(), called()), "invalid_request_message_order", "3230"),
        (talk(asks(), called(made("x")), returns()), "invalid_function_call", "3280"),
        (talk(asks(), answers(), asks()), "invalid_assistant_message", "3240"),
        (talk(asks(), model="x"), "invalid_model", "1500"),
    ],
)
def test_refusals_carry_their_type_and_code(body: dict[str, Any], type_: str, code: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.type, refusal.value.code) == (type_, code)


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer "}, {"authorization": "Bearer other"}, {"authorization": "k"}, {"x-api-key": "k"}],
)
def test_a_key_that_is_wrong_or_missing(headers: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refusal:
        check_headers(headers, "k")
    assert (refusal.value.status, refusal.value.message) == (401, "Unauthorized")
    check_headers(HEADERS, "k")
    check_headers(HEADERS)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"a": NaN}', b'{"a": "\\ud83d"}', b'{"a": "\xff"}'])
def test_a_body_that_is_no_strict_json_object(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_body(raw)
    assert refusal.value.status == 422


async def test_refusals_have_mistrals_own_forms_on_the_wire() -> None:
    emulator = MistralEmulator([Fault(status=429, headers={"retry-after": "2"}), Fault(status=500)], api_key="k")
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
        extra = await client.post(PATH, json=talk(asks(), x=1))
        order = await client.post(PATH, json=talk(asks(), answers("x")))
        wrong = await client.post(PATH, json=talk(asks()), headers={"authorization": "Bearer x"})
        limited = await client.post(PATH, json=talk(asks()))
        broken = await client.post(PATH, json=talk(asks()))
    assert extra.status_code == 422
    assert extra.json() == {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": _EXTRA, "input": {}}]}
    assert order.json() == {
        "object": "error",
        "message": _LAST,
        "type": "invalid_request_message_order",
        "param": None,
        "code": "3230",
        "raw_status_code": 400,
    }
    assert (wrong.status_code, wrong.json()) == (401, {"detail": "Unauthorized"})
    assert (limited.status_code, limited.json()["code"], limited.headers["retry-after"]) == (429, "1300", "2")
    assert (broken.status_code, broken.json()["type"]) == (500, "internal_server_error")
    assert [request.refusal is not None for request in emulator.requests] == [True, True, True, False, False]


async def test_without_a_script_it_echoes_the_user_and_minds_its_window() -> None:
    emulator = MistralEmulator(window_tokens=400)
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
        echoed = await client.post(PATH, json=talk(asks("a"), answers("b"), asks([text("c"), text("你好"), image()])))
        long = await client.post(PATH, json=talk(asks("long " * 1000)))
    assert echoed.json()["choices"][0]["message"]["content"] == "你好"
    assert long.status_code == 400
    assert "too large for model with 400 maximum context length" in long.json()["message"]


TURNS = {
    "words": says("你好,这是一个足够长的回答。"),
    "calls": calls(("ls", {"path": "/"}), ("ls", {}), before="Looking."),
    "thinking": Turn(parts=(Think(text="A long thought."), Say(text="So."), Call(name="ls", raw="{oops"))),
    "a hidden thought": Turn(parts=(Think(text="secret", shown=False), Say(text="So."))),
    "cut": Turn(parts=(Say(text="Half"),), stop="length"),
    "too long": Turn(parts=(Say(text="Half"),), stop="context"),
    "with usage": Turn(parts=(Say(text="x"),), usage=Usage(input=5, cache_read=7, output=2)),
    "nothing": Turn(parts=()),
}


@pytest.mark.parametrize("name", TURNS)
def test_mistrals_own_models_read_what_is_said(name: str) -> None:
    from mistralai.client.models import ChatCompletionResponse, CompletionChunk

    for chunk in chunks_of(TURNS[name], 1, MODEL, 10):
        read = CompletionChunk.model_validate(chunk)
        assert json.loads(read.model_dump_json(by_alias=True, exclude_unset=True, warnings=False)) == chunk
    whole = completion_of(TURNS[name], 1, MODEL, 10)
    answer = ChatCompletionResponse.model_validate(whole)
    assert json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True, warnings=False)) == whole


@pytest.mark.parametrize("name", TURNS)
async def test_mistrals_own_client_gets_the_same_streamed_and_whole(name: str) -> None:
    from mistralai.client import Mistral

    emulator = MistralEmulator([TURNS[name], TURNS[name]], api_key="k")
    request: dict[str, Any] = without(LOOP, "model")
    async with serve_on_loopback(emulator.app) as url, Mistral(api_key="k", server_url=url) as client:
        whole = await client.chat.complete_async(model=MODEL, **request)
        stream = await client.chat.stream_async(model=MODEL, **request)
        chunks = [event.data async for event in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    message = whole.choices[0].message
    assert message is not None
    streamed = [call.function for delta in deltas for call in delta.tool_calls or []]
    assert streamed == [call.function for call in message.tool_calls or []]
    assert _words([delta.content for delta in deltas]) == _words([message.content])
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage is not None
    assert [request.refusal for request in emulator.requests] == [None, None]


def _words(contents: list[Any]) -> list[str]:
    """The thoughts and the text."""
    words = ["", ""]
    for content in contents:
        for chunk in content if isinstance(content, list) else []:
            if chunk.type == "thinking":
                words[0] += "".join(item.text for item in chunk.thinking)
            else:
                words[1] += chunk.text
        words[1] += content if isinstance(content, str) else ""
    return words


async def test_mistrals_own_client_understands_the_refusals() -> None:
    from mistralai.client import Mistral
    from mistralai.client.errors import HTTPValidationError, SDKError

    emulator = MistralEmulator(api_key="k")
    async with serve_on_loopback(emulator.app) as url, Mistral(api_key="k", server_url=url) as client:
        with pytest.raises(HTTPValidationError) as invalid:
            await client.chat.complete_async(model=MODEL, messages=[], tools=[])
        with pytest.raises(SDKError) as order:
            await client.chat.stream_async(model=MODEL, messages=[{"role": "assistant", "content": "x"}])
    assert invalid.value.data.detail
    assert invalid.value.data.detail[0].loc == ["body", "tools"]
    assert order.value.status_code == 400
    assert "Conversation must start with" in order.value.body

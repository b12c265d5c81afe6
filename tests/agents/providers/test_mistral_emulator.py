"""The emulator refuses what Mistral refuses, with the same status and words, and is understood by Mistral's own SDK."""

import json
from typing import Any

import httpx
import pytest

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.rules import check_body
from tests.emulators.models.mistral.script import chunks_of, completion_of, thinking_chunk
from tests.emulators.models.script import Call, Say, Think, Turn, calls, says
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
_LIST = {"type": "array", "items": {"type": ["string", "null"]}}
DEEP = {"type": "object", "properties": {"a": _LIST, "b": True}, "required": ["a"], "additionalProperties": False}
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
    "everything": talk(asks(), tool_choice=NAMED, n=1, random_seed=1, stream=True, safe_prompt=True),
    "a tool with a deep schema": talk(asks(), tools=[tool(parameters=DEEP, strict=True)]),
}


_THOUGHT = thinking_chunk("hm")


def schema(**members: Any) -> dict[str, Any]:
    return talk(asks(), tools=[tool(parameters={"type": "object"} | members)])


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    (without(talk(asks()), "model"), 422, "missing"),
    (without(talk(asks()), "messages"), 422, "missing"),
    (talk(), 400, "invalid_request_message_order"),
    (talk(asks(), model="gpt-6"), 400, "invalid_model"),
    (talk(asks(), max_tokens=-1), 422, "greater_than_equal"),
    (talk(asks(), max_tokens=32769), 400, "invalid_request_error"),
    (talk(asks(), temperature=2), 422, "less_than_equal"),
    (talk(asks(), reasoning_effort="high"), 400, "invalid_request_error"),
    (talk({"role": "developer", "content": "x"}), 422, "union_tag_invalid"),
    (talk(answers("x"), asks()), 400, "invalid_request_message_order"),
    (talk(asks(), returns()), 400, "invalid_request_message_order"),
    (talk(asks(), answers("x"), SYSTEM, asks()), 400, "invalid_request_message_order"),
    (talk(asks(), answers("x")), 400, "invalid_request_message_order"),
    (talk(asks(), called()), 400, "invalid_request_message_order"),
    (talk(asks(), answers("x", prefix=True), asks()), 400, "invalid_assistant_message"),
    (talk(asks(), called(), asks()), 400, "invalid_request_message_order"),
    (talk(asks(), called(made(A), made(B)), returns(A)), 400, "invalid_request_message_order"),
    (talk(asks(), called(), returns(), returns()), 400, "invalid_request_message_order"),
    (talk(asks(), called(made(A), made(A)), returns()), 400, "invalid_request_message_order"),
    (talk(asks(), called(made("call_1")), returns()), 400, "invalid_function_call"),
    (talk(asks(), called(), returns("AAAAAAAA")), 400, "invalid_function_call"),
    (talk(asks(), called(), without(returns(), "tool_call_id")), 400, "invalid_request_error"),
    (talk(asks(), called(made(name="a b")), returns()), 400, "invalid_function_call"),
    (talk(asks(), called(), returns(name="a.b")), 400, "invalid_function_call"),
    (talk(asks(), called(made(type="tool")), returns()), 422, "literal_error"),
    (talk(asks(), answers("x", tool_calls=[]), asks()), 422, "too_short"),
    (talk(asks(), answers(), asks()), 400, "invalid_assistant_message"),
    (talk(asks("")), 400, "invalid_user_message"),
    (talk(asks([text("")])), 400, "invalid_user_message"),
    (talk({"role": "user"}), 422, "missing"),
    (talk(asks(), called(), returns(content="")), 400, "invalid_tool_message"),
    (talk(asks([_THOUGHT])), 400, "invalid_user_message"),
    (talk(asks(), called(), returns(content=[image()])), 400, "invalid_tool_message"),
    (talk(asks([{"type": "image", "source": {}}])), 422, "union_tag_invalid"),
    (talk(asks([image("data:image/jpeg;base64," + PIXEL)])), 400, "invalid_request_error"),
    (talk(asks([image(PIXEL)])), 400, "invalid_request_error"),
    (talk(asks([image()]), model="magistral-small"), 400, "invalid_request_error"),
    (talk(asks(), answers([_THOUGHT | {"signature": "x"}]), asks()), 400, "invalid_assistant_message"),
    (talk(asks(), answers([without(_THOUGHT, "signature")]), asks()), 400, "invalid_assistant_message"),
    (talk(asks(), tools=[]), 422, "too_short"),
    (talk(asks(), tools=[tool("a b")]), 400, "invalid_function_call"),
    (talk(asks(), tools=[tool(), tool()]), 400, "invalid_tools"),
    (talk(asks(), tools=[{"name": "ls", "input_schema": PARAMETERS}]), 422, "missing"),
    (schema(type="string"), 400, "invalid_tool_schema"),
    (schema(anyOf=[]), 400, "invalid_tool_schema"),
    (schema(properties={"a": {"type": "array"}}), 400, "invalid_tool_schema"),
    (schema(properties={"a": {"type": "text"}}), 400, "invalid_tool_schema"),
    (schema(properties={"a": {"type": "array", "items": {"type": "int"}}}), 400, "invalid_tool_schema"),
    (schema(properties=[]), 400, "invalid_tool_schema"),
    (schema(required=["a", "a"]), 400, "invalid_tool_schema"),
    (schema(required="a"), 400, "invalid_tool_schema"),
    (talk(asks(), tool_choice="sometimes"), 422, "literal_error"),
    (talk(asks(), tool_choice={"type": "tool", "name": "ls"}), 422, "literal_error"),
    (without(talk(asks(), tool_choice="any"), "tools"), 400, "invalid_tool_choice"),
    (talk(asks(), tool_choice={"type": "function", "function": {"name": "x"}}), 400, "invalid_tool_choice"),
]


@pytest.mark.parametrize(("body", "status", "type_"), REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any], status: int, type_: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type) == (status, type_)


async def test_refusals_have_mistrals_own_forms_on_the_wire() -> None:
    emulator = MistralEmulator(api_key="k")
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
        order = await client.post(PATH, json=talk(asks(), answers("x")))
        wrong = await client.post(PATH, json=talk(asks()), headers={"authorization": "Bearer x"})
    assert order.json() | {"message": ""} == {
        "object": "error",
        "message": "",
        "type": "invalid_request_message_order",
        "param": None,
        "code": "3230",
        "raw_status_code": 400,
    }
    assert (wrong.status_code, wrong.json()) == (401, {"detail": "Unauthorized"})


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
    deltas, message = [chunk.choices[0].delta for chunk in chunks], whole.choices[0].message
    assert [call.function for delta in deltas for call in delta.tool_calls or ()] == [
        call.function for call in message.tool_calls or ()
    ]
    assert _words([delta.content for delta in deltas]) == _words([message.content])
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage is not None
    assert [request.refusal for request in emulator.requests] == [None, None]


def _words(contents: list[Any]) -> str:
    """The thoughts and the text."""
    chunks = [it for content in contents for it in ([content] if isinstance(content, str) else content or ())]
    items = [item for chunk in chunks for item in getattr(chunk, "thinking", [chunk])]
    return "".join(item if isinstance(item, str) else item.text for item in items)


async def test_mistrals_own_client_understands_the_refusals() -> None:
    from mistralai.client import Mistral
    from mistralai.client.errors import HTTPValidationError, SDKError

    emulator = MistralEmulator(api_key="k")
    async with serve_on_loopback(emulator.app) as url, Mistral(api_key="k", server_url=url) as client:
        with pytest.raises(HTTPValidationError) as invalid:
            await client.chat.complete_async(model=MODEL, messages=[], tools=[])
        with pytest.raises(SDKError) as order:
            await client.chat.stream_async(model=MODEL, messages=[{"role": "assistant", "content": "x"}])
    assert [detail.loc for detail in invalid.value.data.detail or ()] == [["body", "tools"]]
    assert order.value.status_code == 400

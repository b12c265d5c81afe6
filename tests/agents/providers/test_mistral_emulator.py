"""The emulator refuses what Mistral refuses, with the same status and words, and Mistral's own SDK understands it."""

import json
from typing import Any

import pytest

from agents.messages import Usage
from tests.agents.providers.requests import PIXEL, without
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.rules import check_body
from tests.emulators.models.mistral.script import chunks_of, completion_of, thinking_chunk
from tests.emulators.models.script import Call, Say, Think, Turn, calls, says
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

MODEL = "mistral-large-latest"
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


SYSTEM = {"role": "system", "content": "Help."}
_THOUGHT = thinking_chunk("hm")


def schema(**members: Any) -> dict[str, Any]:
    return talk(asks(), tools=[tool(parameters={"type": "object"} | members)])


REFUSED: list[tuple[dict[str, Any], str]] = [
    (talk(), "invalid_request_message_order"),
    (talk(asks(), model="gpt-6"), "invalid_model"),
    (talk(asks(), max_tokens=32769), "invalid_request_error"),
    (talk(asks(), reasoning_effort="high"), "invalid_request_error"),
    (talk(answers("x"), asks()), "invalid_request_message_order"),
    (talk(asks(), returns()), "invalid_request_message_order"),
    (talk(asks(), answers("x"), SYSTEM, asks()), "invalid_request_message_order"),
    (talk(asks(), answers("x")), "invalid_request_message_order"),
    (talk(asks(), answers("x", prefix=True), asks()), "invalid_assistant_message"),
    (talk(asks(), called(), asks()), "invalid_request_message_order"),
    (talk(asks(), called(made(A), made(B)), returns(A)), "invalid_request_message_order"),
    (talk(asks(), called(), returns(), returns()), "invalid_request_message_order"),
    (talk(asks(), called(made(A), made(A)), returns()), "invalid_request_message_order"),
    (talk(asks(), called(made("call_1")), returns()), "invalid_function_call"),
    (talk(asks(), called(), returns("AAAAAAAA")), "invalid_function_call"),
    (talk(asks(), called(), without(returns(), "tool_call_id")), "invalid_request_error"),
    (talk(asks(), called(made(name="a b")), returns()), "invalid_function_call"),
    (talk(asks(), called(), returns(name="a.b")), "invalid_function_call"),
    (talk(asks(), answers(), asks()), "invalid_assistant_message"),
    (talk(asks("")), "invalid_user_message"),
    (talk(asks([text("")])), "invalid_user_message"),
    (talk(asks(), called(), returns(content="")), "invalid_tool_message"),
    (talk(asks([_THOUGHT])), "invalid_user_message"),
    (talk(asks(), called(), returns(content=[image()])), "invalid_tool_message"),
    (talk(asks([image("data:image/jpeg;base64," + PIXEL)])), "invalid_request_error"),
    (talk(asks([image()]), model="magistral-small"), "invalid_request_error"),
    (talk(asks(), answers([_THOUGHT | {"signature": "x"}]), asks()), "invalid_assistant_message"),
    (talk(asks(), tools=[tool("a b")]), "invalid_function_call"),
    (talk(asks(), tools=[tool(), tool()]), "invalid_tools"),
    (schema(type="string"), "invalid_tool_schema"),
    (schema(anyOf=[]), "invalid_tool_schema"),
    (schema(properties={"a": {"type": "array"}}), "invalid_tool_schema"),
    (schema(properties={"a": {"type": "array", "items": {"type": "int"}}}), "invalid_tool_schema"),
    (schema(properties=[]), "invalid_tool_schema"),
    (schema(required=["a", "a"]), "invalid_tool_schema"),
    (without(talk(asks(), tool_choice="any"), "tools"), "invalid_tool_choice"),
    (talk(asks(), tool_choice={"type": "function", "function": {"name": "x"}}), "invalid_tool_choice"),
]


@pytest.mark.parametrize(("body", "type_"), REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any], type_: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type) == (400, type_)


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


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS.keys())
def test_mistrals_own_models_read_the_same(turn: Turn) -> None:
    from mistralai.client import models

    sent = [(models.CompletionChunk, chunk) for chunk in chunks_of(turn, 1, MODEL, 10)]
    for model, answer in ((models.ChatCompletionResponse, completion_of(turn, 1, MODEL, 10)), *sent):
        read = model.model_validate(answer).model_dump_json(by_alias=True, exclude_unset=True, warnings=False)
        assert json.loads(read) == answer


async def test_mistrals_own_client_understands_the_refusals() -> None:
    from mistralai.client import Mistral
    from mistralai.client.errors import HTTPValidationError, SDKError

    emulator = MistralEmulator(api_key="k")
    async with serve_on_loopback(emulator.app) as url, Mistral(api_key="k", server_url=url) as client:
        with pytest.raises(HTTPValidationError) as invalid:
            await client.chat.complete_async(model=MODEL, messages=[], tools=[])
        with pytest.raises(SDKError) as order:
            await client.chat.stream_async(model=MODEL, messages=[answers("x")])
    assert [detail.loc for detail in invalid.value.data.detail or ()] == [["body", "tools"]]
    form = {"object": "error", "type": "invalid_request_message_order", "param": None, "code": "3230"}
    assert json.loads(order.value.body).items() >= (form | {"raw_status_code": 400}).items()

"""The emulated Responses API refuses what does not belong together, and streams what OpenAI streams."""

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.agents.providers.requests import PIXEL, without
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.rules import check_body
from tests.emulators.models.responses.script import Turn, call_item, message_item, reasoning_item
from tests.emulators.models.responses.sealing import sealed
from tests.emulators.models.script import Call, Say, Think
from tests.emulators.models.script import Turn as AnyTurn
from tests.emulators.models.server import Refusal, Reply
from tests.loopback import serve_on_loopback

MODEL = "gpt-5.5"
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOL: dict[str, Any] = {"type": "function", "name": "ls", "description": "x", "parameters": EMPTY, "strict": True}
USER: dict[str, Any] = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SPOKE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
USE = {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"}
ANSWER = {"type": "function_call_output", "call_id": "a", "output": "ok"}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"}


def thought(item_id: str = "rs_1", **members: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": "hm"}]
    content = sealed(item_id, summary)
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": content} | members


def asks(*items: Any, **members: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": list(items) or [USER], "tools": [TOOL], "store": False} | members


def tool(**members: Any) -> dict[str, Any]:
    return asks(tools=[TOOL | members])


def schema(**members: Any) -> dict[str, Any]:
    return tool(parameters=EMPTY | members)


LOOSE: list[Any] = [
    {"type": "string", "default": ""},
    {"description": "anything"},
    {"$ref": "#/properties/b"},
    {"$ref": "#", "description": "x"},
    True,
]
"""No members of a strict schema."""

REFUSED = [
    without(asks(), "input"),
    asks(max_output_tokens=128001),
    asks(reasoning={"effort": "max"}),
    asks(model="gpt-6-astra", reasoning={"effort": "none"}),
    asks(model="gpt-4.1", reasoning={"effort": "low"}),
    asks(model="gpt-4.1", include=["reasoning.encrypted_content"]),
    asks(USER, thought()),
    asks(USER, thought(), USER),
    asks(USER, thought(summary=[]), USE, ANSWER),
    asks(USER, thought(id="rs_2"), USE, ANSWER),
    asks(USER, thought(), USE, ANSWER, thought(), SPOKE),
    asks(USER, USE),
    asks(USER, USE, USER, ANSWER),
    asks(USER, ANSWER),
    asks(USER, USE, ANSWER, ANSWER),
    asks(USER, USE, ANSWER, USE, ANSWER),
    asks(USER | {"content": [IMAGE | {"image_url": PIXEL}]}),
    asks(USER | {"content": [IMAGE | {"image_url": f"data:image/jpeg;base64,{PIXEL}"}]}),
    asks(tools=[TOOL, TOOL]),
    asks(tools=[without(TOOL, "parameters")]),
    asks(tools=[without(TOOL, "strict") | {"parameters": {"type": "object", "properties": {}}}]),
    tool(parameters={"type": "object"}, strict=False),
    tool(parameters=without(EMPTY, "required")),
    tool(parameters=without(EMPTY, "additionalProperties")),
    *(schema(properties={"a": it}, required=["a"]) for it in LOOSE),
    schema(required=["y"]),
    without(asks(tool_choice="auto"), "tools"),
    asks(tool_choice={"type": "function", "name": "rm"}),
]
NOT_FOUND = [
    asks(model="claude-opus-5"),
    asks(USER, thought(encrypted_content=None), USE, ANSWER),
]


@pytest.mark.parametrize(("status", "body"), [*((400, it) for it in REFUSED), *((404, it) for it in NOT_FOUND)])
def test_refused(status: int, body: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert refusal.value.status == status


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
    "failed": Turn(items=RICH.items, status="failed", error={"code": "server_error", "message": "It broke."}),
    "hidden thoughts": AnyTurn(parts=(Think(text="secret", shown=False), Say(text="ok"))),
    "nothing": AnyTurn(parts=()),
}


@pytest.mark.parametrize("name", TURNS)
async def test_the_official_sdk_reads_every_event_and_the_whole(name: str) -> None:
    """Its iterator takes anything, so each event is also put through its models with all their checks on."""
    judge: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    request = asks(include=["reasoning.encrypted_content"])
    emulator = ResponsesEmulator([TURNS[name]] * 2)
    async with (
        serve_on_loopback(emulator.app) as url,
        openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client,
    ):
        stream = await client.responses.create(**request, stream=True)
        events = [event async for event in stream]
        whole = await client.responses.create(**request)
    sent_events = [event.model_dump(mode="json", by_alias=True, exclude_unset=True) for event in events]
    for event in sent_events:
        judge.validate_python(event)
    assert [event["sequence_number"] for event in sent_events] == list(range(len(sent_events)))
    assert sent_events[-1]["type"] == f"response.{sent_events[-1]['response']['status']}"
    streamed = Response.model_validate(sent_events[-1]["response"])
    done = [event["item"] for event in sent_events if event["type"] == "response.output_item.done"]
    assert sorted(done, key=json.dumps) == sorted(sent_events[-1]["response"]["output"], key=json.dumps)
    assert (streamed.output_text, streamed.status) == (whole.output_text, whole.status)

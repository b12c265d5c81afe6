"""The emulated chat servers refuse what the real ones refuse, with the same words, and stream what they stream."""

import json
from typing import Any

import httpx
import pytest

from tests.agents.providers.requests import PIXEL, without
from tests.agents.providers.test_chat_request import MODELS
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.chat.habits import HABITS
from tests.emulators.models.chat.rules import check_body, check_headers
from tests.emulators.models.chat.shapes import signature_of
from tests.emulators.models.script import Call, Say, Think, Turn
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
USE: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
ANSWER: dict[str, Any] = {"role": "tool", "tool_call_id": "a", "content": "ok"}


def tool(name: str = "ls", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "List.", "parameters": SCHEMA} | function}


def user(content: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(*made: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made)} | members


def talk(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "gpt-4.1", "messages": list(messages or (user(),)), "tools": [tool()]} | members


def loop(call_id: str = "a", own: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A finished one; `own` are members of the answer that calls."""
    return talk(user(), called(USE | {"id": call_id}, **(own or {})), ANSWER | {"tool_call_id": call_id}, **members)


def image(url: Any = f"data:image/png;base64,{PIXEL}") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


_ENTRY = {"type": "reasoning.text", "text": "hm", "index": 0}
SIGNED = _ENTRY | {"signature": signature_of(_ENTRY)}
NAMED: dict[str, Any] = {"type": "function", "function": {"name": "ls"}}
CHOSEN_ELSE = {"type": "function", "function": {"name": "rm"}}
DEFS = tool(parameters=SCHEMA | {"$defs": {}, "properties": {"a": {"$ref": "#/$defs/A"}}})
BROKEN = talk(user(), called(USE | {"function": {"name": "ls", "arguments": '{"a'}}), ANSWER)

REFUSED: list[tuple[str, dict[str, Any]]] = [
    *(
        ("openai", body)
        for body in (
            without(talk(), "messages"),
            talk(ANSWER),
            talk(user(), called(USE, USE | {"id": "b"}), ANSWER),
            talk(user(), called(USE), user(), ANSWER),
            talk({"role": "assistant", "content": None}),
            loop(own={"reasoning_content": "x"}),
            loop("x" * 41),
            talk(user([image("data:image/jpeg;base64," + PIXEL)])),
            talk(user([image("data:image/png;base64,!!")])),
            talk(tools=[tool(description="x" * 1025)]),
            talk(tools=[tool(parameters={})]),
            talk(tools=[tool(parameters=SCHEMA | {"properties": {"a": {"type": "array"}}})]),
            talk(tools=[tool(parameters=SCHEMA | {"anyOf": []})]),
            without(talk(tool_choice="auto"), "tools"),
            talk(tool_choice=CHOSEN_ELSE),
            talk(max_completion_tokens=99999),
            talk(model="gpt-5.2", max_tokens=10),
            talk(reasoning_effort="low"),
            talk(model="gpt-5.2", reasoning_effort="max"),
            talk(model="gpt-5.2", reasoning_effort="none"),
            talk(model="gpt-5.5"),
        )
    ),
    ("azure", loop("x" * 41)),
    ("deepseek", loop()),
    ("deepseek", talk(tool_choice="required")),
    ("deepseek", talk(tool_choice=NAMED)),
    ("deepseek", talk(user([image()]), model="deepseek-v4-pro")),
    ("deepseek-r1", loop(own={"reasoning_content": ""})),
    ("deepseek-r1", talk(tool_choice="required")),
    ("moonshot", loop()),
    ("moonshot", loop(own={"reasoning_content": ""})),
    ("moonshot", talk(model="kimi-k2.6", tool_choice="required", thinking={"type": "disabled"})),
    ("moonshot", talk(model="kimi-k3", thinking={"type": "disabled"})),
    ("zhipu", talk(tool_choice="none")),
    ("zhipu", talk(tools=[DEFS])),
    ("qwen", BROKEN),
    ("vllm", BROKEN),
    ("vllm", talk(user(), {"role": "system", "content": "s"})),
    ("openrouter", loop(own={"reasoning_details": [SIGNED | {"text": "other"}]})),
    ("openrouter", loop(own={"reasoning_details": []})),
    ("clawdbot", talk(user(), called(USE), ANSWER | {"content": "plain words"})),
]


@pytest.mark.parametrize(("vendor", "body"), REFUSED)
def test_refused(vendor: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body, vendor)
    assert refusal.value.status == 400


def test_whose_key_is_where() -> None:
    check_headers(without(HEADERS, "authorization"), HABITS["ollama"])
    check_headers(without(HEADERS, "authorization") | {"api-key": "k"}, HABITS["azure"], "k")
    with pytest.raises(Refusal):
        check_headers(without(HEADERS, "authorization") | {"api-key": "wrong"}, HABITS["azure"], "k")


async def streamed(vendor: str, turn: Turn, **members: Any) -> list[Any]:
    """What is on the wire: chunks, comments and the end, in order."""
    emulator = ChatEmulator([turn], vendor=vendor)
    body = talk(model=MODELS[vendor] if vendor != "azure" else "gpt-4.1", stream=True) | members
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/v1/chat/completions", headers=HEADERS, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["x-request-id"] == "req_0001"
    blocks = [block for block in response.text.split("\n\n") if block]
    return [json.loads(block[6:]) if block.startswith("data: {") else block.removeprefix("data: ") for block in blocks]


def deltas(wire: list[Any]) -> list[dict[str, Any]]:
    return [it["choices"][0]["delta"] for it in wire if isinstance(it, dict) and it.get("choices")]


def called_in(wire: list[Any]) -> list[dict[str, Any]]:
    return [call for delta in deltas(wire) for call in delta.get("tool_calls", ())]


LS_TMP = '{"path": "/tmp"}'
CALLING = Turn(parts=(Think(text="let me think"), Call(name="ls", arguments={"path": "/tmp"})))
USAGE = {"stream_options": {"include_usage": True}}


async def test_each_vendor_has_its_own_habits() -> None:
    assert (await streamed("azure", CALLING))[0]["choices"] == []
    router = await streamed("openrouter", CALLING)
    details = [entry for delta in deltas(router) for entry in delta.get("reasoning_details", [])]
    assert (router[0], "".join(it.get("text", "") for it in details)) == (": OPENROUTER PROCESSING", "let me think")
    ollama = await streamed("ollama", CALLING)
    assert called_in(ollama) == [{"index": 0, "type": "function", "function": {"name": "ls", "arguments": LS_TMP}}]
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in ollama[:-1])
    kimi = await streamed("moonshot", CALLING)
    assert kimi[-2]["choices"][0]["usage"]["cached_tokens"] == 0
    assert called_in(kimi)[0]["id"] == "functions.ls:0"
    vllm = await streamed("vllm", CALLING)
    assert (len(called_in(vllm)[0]["id"]), any("reasoning" in delta for delta in deltas(vllm))) == (46, True)
    generic = await streamed("generic", CALLING)
    assert generic[-1]["choices"][0]["finish_reason"] == "stop"
    assert not any("index" in piece for piece in called_in(generic))
    deepseek = await streamed("deepseek", CALLING, **USAGE)
    assert deepseek[-2]["usage"].keys() >= {"prompt_cache_hit_tokens", "prompt_cache_miss_tokens"}
    glm = await streamed("zhipu", Turn(parts=(Say(text="x"),), stop="filter"))
    assert (glm[-2]["choices"][0]["finish_reason"], "usage" in glm[-2]) == ("sensitive", True)


async def test_chat_emulator_calls_when_spelled_out() -> None:
    bare = tool(parameters={"type": "object", "properties": {}})
    heard: list[dict[str, Any]] = [{"tool_choice": "auto"}, {"tool_choice": NAMED}]
    mute: list[dict[str, Any]] = [{}, {"tool_choice": "required"}, {"tool_choice": CHOSEN_ELSE}]
    mute += [{"tool_choice": "auto", "tools": [bare]}, {"tool_choice": "auto", "model": "clawdbot-3.5"}]
    for members in heard + mute:
        wire, calls = await streamed("clawdbot", CALLING, **members), members in heard
        assert bool(called_in(wire)) == calls, members
        assert any(delta.get("content") for delta in deltas(wire)) != calls
        assert wire[-2]["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")

"""The emulator refuses what Anthropic refuses, with the same status and words, and streams what it streams."""

import json
from copy import deepcopy
from typing import Any

import httpx
import pytest

from tests.agents.providers.requests import MODEL, PIXEL
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.anthropic.rules import check_body, check_headers, parse_body
from tests.emulators.models.anthropic.script import call_block, redacted_block, thinking_block
from tests.emulators.models.script import Fault, calls, says
from tests.emulators.models.server import Refusal
from tests.loopback import serve_on_loopback

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"}
MARK = {"type": "ephemeral"}
TOOL: dict[str, Any] = {"name": "ls", "description": "List.", "input_schema": {"type": "object", "properties": {}}}


def use(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}} | members


def answer(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"} | members


def text(words: str = "hi", **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | members


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL} | source}


def talk(*contents: Any, **members: Any) -> dict[str, Any]:
    """A request whose messages alternate, beginning with the user."""
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"model": MODEL, "max_tokens": 100, "messages": messages, "tools": [TOOL]} | members


def without(body: dict[str, Any], member: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != member}


LOOP = talk("go", [text(), use("a"), use("b")], [answer("a"), answer("b", is_error=True)])

ACCEPTED = {
    "a plain question": without(talk("hi"), "tools"),
    "a finished loop": LOOP,
    "results spread over two messages of one role": {
        **LOOP,
        "messages": [*LOOP["messages"][:2], *({"role": "user", "content": [answer(i)]} for i in "ab")],
    },
    "text after the results": talk("go", [use()], [answer(), text()]),
    "a result without content": talk("go", [use()], [{"type": "tool_result", "tool_use_id": "a"}]),
    "a picture in a result": talk("go", [use()], [answer(content=[text(), image()])]),
    "signed thinking": talk("go", [thinking_block("x"), redacted_block("y"), use()], [answer()]),
    "four marks": talk([text(cache_control=MARK)] * 4),
    "an old model and a prefill": without(talk("hi", "Well,", model="claude-haiku-4-5"), "tools"),
    "a paused turn": talk("go", [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]),
    "no tool now": talk("hi", tool_choice={"type": "none"}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    body = deepcopy(ACCEPTED[name])
    check_body(body)
    assert body == ACCEPTED[name]


REFUSED: list[tuple[dict[str, Any], str]] = [
    (talk("hi", colour="red"), "colour: Extra inputs are not permitted"),
    (talk([text(mood="calm")]), "messages.0.content.0.text.mood: Extra inputs are not permitted"),
    (talk("go", [use(parsed_output=1)], [answer()]), "messages.1.content.0.tool_use.parsed_output: Extra inputs"),
    (talk("hi", metadata={"user_id": "x", "name": "y"}), "metadata.name: Extra inputs"),
    (talk("hi", tools=[TOOL | {"summary": "x"}]), "tools.0.custom.summary: Extra inputs"),
    (without(talk("hi"), "model"), "model: Field required"),
    (without(talk("hi"), "max_tokens"), "max_tokens: Field required"),
    (talk("hi", max_tokens=999_999), "max_tokens: 999999 > 128000, which is the maximum allowed number of output"),
    (without(talk("hi"), "messages"), "messages: Field required"),
    (talk(), "messages: at least one message is required"),
    (talk("hi", temperature=0.5), "`temperature` is deprecated for this model."),
    (talk("hi", stop_sequences=["  "]), "stop_sequences.0"),
    (talk(""), "messages.0: user messages must have non-empty content"),
    (talk("hi", [], "go"), "messages.1: all messages must have non-empty content"),
    (talk([text("")]), "messages: text content blocks must be non-empty"),
    (talk([text(" \n")]), "messages: text content blocks must contain non-whitespace text"),
    (talk("hi", system=[text("")]), "system: text content blocks must be non-empty"),
    (talk([{"type": "hologram"}]), "messages.0.content.0: Input tag 'hologram'"),
    (talk([use()]), "`tool_use` blocks are not allowed in user messages"),
    (talk("go", [answer()]), "`tool_result` blocks are not allowed in assistant messages"),
    ({**talk(), "messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
    ({**talk(), "messages": [{"role": "assistant", "content": "x"}]}, 'first message must use the "user" role'),
    (talk("go", [use()], "what?"), "`tool_use` ids were found without `tool_result` blocks immediately after"),
    (talk("go", [use("a"), use("b")], [answer("a")]), "immediately after: b. Each"),
    (talk("go", [use()], [text(), answer()]), "immediately after: a. Each"),
    (talk("go", [use()], [text()], "ok", [answer()]), "immediately after: a. Each"),
    (talk("go", [use()]), "immediately after: a. Each"),
    (talk("go", "ok", [answer()]), "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."),
    (talk("go", [use()], [answer(), answer()]), "each tool_use must have a single result"),
    (talk("go", [use(), use()], [answer()]), "messages.1: `tool_use` ids must be unique"),
    (talk("go", [use()], [answer()], [use()], [answer()]), "messages.3: `tool_use` ids must be unique"),
    (talk("go", [use("f.ls:0")], [answer()]), "messages.1.content.0.tool_use.id: String should match pattern"),
    (talk("go", [use(input="{}")], [answer()]), "tool_use.input: Input should be an object"),
    (talk("go", [use(name="a b")], [answer()]), "tool_use.name: String should match pattern"),
    (talk("go", [use()], [answer(is_error=True, content="")]), "content cannot be empty if `is_error` is true"),
    (talk("go", [use()], [answer(is_error=True, content=[image()])]), 'all content must be type "text" if "is_error"'),
    (talk("hi", tools=[]), "tools: List should have at least 1 item"),
    (talk("hi", tools=[TOOL, TOOL]), "tools: Tool names must be unique."),
    (talk("hi", tools=[TOOL | {"name": "功能"}]), "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
    (talk("hi", tools=[{"name": "ls"}]), "tools.0.custom.input_schema: Field required"),
    (talk("hi", tools=[TOOL | {"input_schema": {}}]), "tools.0.custom.input_schema.type: Field required"),
    (talk("hi", tools=[TOOL | {"input_schema": {"type": "object", "anyOf": []}}]), "or anyOf at the top level"),
    (
        talk("hi", tools=[TOOL | {"input_schema": {"type": "object", "properties": {"a": {"type": "text"}}}}]),
        "JSON schema is invalid. It must match JSON Schema draft 2020-12",
    ),
    (without(talk("hi", tool_choice={"type": "auto"}), "tools"), "may only be specified while providing tools"),
    (talk("hi", tool_choice={"type": "none", "disable_parallel_tool_use": True}), "Extra inputs are not permitted"),
    (talk("hi", tool_choice={"type": "tool", "name": "rm"}), "Tool 'rm' not found in provided tools"),
    (talk("hi", tool_choice={"type": "any"}, model="claude-opus-5-5"), 'and "any" are not supported for this model'),
    (without(LOOP, "tools"), "Requests which include `tool_use` or `tool_result` blocks must define tools."),
    (talk("hi", "Well,"), "This model does not support assistant message prefill."),
    (talk("hi", "Well, ", model="claude-haiku-4-5"), "final assistant content cannot end with trailing whitespace"),
    (talk([text(cache_control=MARK)] * 5), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    (talk([text("", cache_control=MARK)]), "cache_control cannot be set for empty text blocks"),
    (talk("go", [thinking_block("x") | {"cache_control": MARK}, use()], [answer()]), "inputs are not permitted"),
    (talk([text(cache_control={"type": "forever"})]), "cache_control"),
    (talk([text(cache_control=MARK), text(cache_control=MARK | {"ttl": "1h"})]), "a ttl='5m' cache_control block"),
    (talk("go", [thinking_block("x") | {"thinking": "y"}, use()], [answer()]), "`signature` in `thinking` block"),
    (talk("go", [{"type": "thinking", "thinking": "", "signature": ""}, use()], [answer()]), "contain thinking"),
    (talk("go", [text(), thinking_block("x")], "go on"), "final block in an assistant message cannot be `thinking`"),
    (talk([image(data="data:image/png;base64," + PIXEL)]), "data must be plain base64"),
    (talk([image(media_type="image/jpeg")]), "does not appear to be of type image/jpeg"),
    (talk([image(media_type="image/bmp")]), "media_type: Input should be"),
    (talk([image(data="!!!!")]), "Invalid base64 data"),
    (talk([image(data="A" * 6_000_000)]), "image exceeds 5 MB maximum"),
    ({**talk(), "messages": [{"role": ["user"], "content": [{"type": {}}]}]}, "messages.0.role"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type) == (400, "invalid_request_error")
    assert message in refusal.value.message


def test_a_model_that_does_not_exist() -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(talk("hi", model="gpt-4"))
    assert (refusal.value.status, refusal.value.type, refusal.value.message) == (404, "not_found_error", "model: gpt-4")


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        (without(HEADERS, "x-api-key"), 401, "x-api-key header is required"),
        (HEADERS | {"x-api-key": "wrong"}, 401, "invalid x-api-key"),
        (without(HEADERS, "anthropic-version"), 400, "anthropic-version: header is required"),
        (HEADERS | {"anthropic-version": "v1"}, 400, "is not a valid version"),
        (HEADERS | {"content-type": "text/plain"}, 400, "Content-Type"),
    ],
)
def test_headers(headers: dict[str, str], status: int, message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_headers(headers, "k")
    assert refusal.value.status == status
    assert message in refusal.value.message


@pytest.mark.parametrize("raw", [b"{", b'{"a": "\\ud83d"}', b'{"a": NaN}', b"[]", b'"\xff"'])
def test_a_body_that_is_no_strict_json_object(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        parse_body(raw)
    assert refusal.value.status == 400


async def test_the_events_on_the_wire_and_the_ledger() -> None:
    emulator = AnthropicEmulator([calls(("ls", {"path": "."}), before="Looking.")])
    body = talk("hi", stream=True)
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/v1/messages", headers=HEADERS, json=body)
        refused = await client.post(f"{url}/v1/messages", headers=without(HEADERS, "x-api-key"), json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["request-id"] == "req_0001"
    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-2:] == ["message_delta", "message_stop"]
    data = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    pieces = [event["delta"]["partial_json"] for event in data if "partial_json" in event.get("delta", {})]
    assert (pieces[0], json.loads("".join(pieces))) == ("", {"path": "."})
    assert refused.status_code == 401
    assert refused.json()["error"] == {"type": "authentication_error", "message": "x-api-key header is required"}
    first, second = emulator.requests
    assert (first.body, first.refusal) == (body, None)
    assert second.refusal is not None


async def test_without_a_stream_the_answer_is_one_object_and_the_default_is_an_echo() -> None:
    emulator = AnthropicEmulator(lambda body: says("from a function") if body["max_tokens"] == 1 else Fault(status=500))
    async with serve_on_loopback(emulator.app) as url, httpx.AsyncClient(headers=HEADERS) as client:
        made = await client.post(f"{url}/v1/messages", json=talk("hi", max_tokens=1))
        failed = await client.post(f"{url}/v1/messages", json=talk("hi"))
        emulator.script = []
        echoed = await client.post(f"{url}/v1/messages", json=LOOP)
    assert made.json()["content"] == [{"type": "text", "text": "from a function"}]
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "api_error")
    assert echoed.json()["content"][0]["text"] == "go"


def test_a_call_that_is_streamed_raw_keeps_its_scripted_id() -> None:
    assert call_block("ls", {}, id="x", raw="{")["id"] == "x"

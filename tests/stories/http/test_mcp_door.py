"""Other agents ask ours at `POST /mcp`: the official client, another gateway, and clients that break the protocol."""

import json
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Script
from tests.running import GROUP, Running, client, running
from tests.stories.at_work import users
from tests.stories.http.test_openai_api import API, OTHER, TOKEN
from tests.stories.tools.test_mcp import ready, servers

INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def serving(folder: Path, script: Script = ()) -> Any:
    return running(folder, script=script, more=API)


async def post(house: Running, content: Any, *, token: str = TOKEN, accept: str = "application/json") -> httpx.Response:
    body = content if isinstance(content, bytes) else json.dumps({"jsonrpc": "2.0", **content}).encode()
    async with client(house.url) as http:
        headers = {"authorization": f"Bearer {token}", "accept": accept, "content-type": "application/json"}
        return await http.post("/mcp", content=body, headers=headers)


def asks(**arguments: Any) -> dict[str, Any]:
    return {"id": 1, "method": "tools/call", "params": {"name": "ask_agent", "arguments": arguments}}


async def test_mcp_server_official_client_asks_and_keeps_its_session(tmp_path: Path) -> None:
    from mcp import Client  # half a second, which each process of tests would pay
    from mcp.client.streamable_http import streamable_http_client
    from mcp.types import TextContent

    async with (
        serving(tmp_path, lambda _: says("four words in all")) as house,
        httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False) as http,
        Client(streamable_http_client(f"{house.url}/mcp", http_client=http)) as asking,
    ):
        (tool,) = (await asking.list_tools()).tools
        assert (tool.name, tool.input_schema["properties"]["agent"]["enum"]) == ("ask_agent", ["helper"])
        for message in ("one", "two"):
            arguments = {"agent": "helper", "message": message, "session": "s"}
            result = await asking.call_tool("ask_agent", arguments)
            assert result.content == [TextContent(text="four words in all")]
            assert not result.is_error
        assert [
            it.endswith(word) for it, word in zip(users(house.anthropic.requests[-1].body), ("one", "two"), strict=True)
        ]
        assert len(users(house.anthropic.requests[-1].body)) == 2
        await asking.call_tool("ask_agent", {"agent": "helper", "message": "three"})
        assert len(users(house.anthropic.requests[-1].body)) == 1


async def test_mcp_server_is_used_by_another_gateway(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with serving(tmp_path / "b", lambda _: says("I am the other one")) as other:
        token = f"Bearer {OTHER}"
        config = servers(
            other=f'url: "{other.url}/mcp", headers: {{ Authorization: "{token}" }}, allowPrivate: [127.0.0.1]'
        )
        agents = (
            'agents: { list: [ { id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: ["mcp:other"] } } ] }'
        )
        call = ("other__ask_agent", {"agent": "helper", "message": "who are you?"})
        async with running(tmp_path / "a", script=[calls(call), says("done")], agents=agents, more=config) as house:
            await ready(house)
            await house.say("ask the other one")
            await house.replies(1)
            assert "I am the other one" in json.dumps(house.anthropic.requests[-1].body)


async def test_mcp_server_streams_answers_and_returns_failures_as_results(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one"), says("two")]) as house:
        whole = await post(house, asks(agent="helper", message="hi"))
        assert whole.json()["result"] == {"content": [{"type": "text", "text": "one"}], "isError": False}
        stream = await post(house, asks(agent="helper", message="hi"), accept="application/json, text/event-stream")
        assert stream.headers["content-type"].startswith("text/event-stream")
        (data,) = [it.removeprefix("data: ") for it in stream.text.splitlines() if it.startswith("data: ")]
        assert json.loads(data)["result"]["content"][0]["text"] == "two"
        failed = (await post(house, asks(agent="nobody", message="hi"))).json()["result"]
        assert failed["isError"]
        assert "There is no agent 'nobody'" in failed["content"][0]["text"]


async def test_mcp_server_send_tool_needs_a_token_with_the_right(tmp_path: Path) -> None:
    api = f"server: {{ api: {{ tokens: {{ ui: {TOKEN}, cron: {{ token: {OTHER}, send: true }} }} }} }}"
    call = {
        "id": 1,
        "method": "tools/call",
        "params": {"name": "send", "arguments": {"to": f"feishu:{GROUP}", "text": "hi"}},
    }
    async with running(tmp_path, more=api) as house:
        assert (await post(house, call)).json()["error"]["code"] == -32602
        listed = (await post(house, {"id": 1, "method": "tools/list"}, token=OTHER)).json()["result"]["tools"]
        assert [it["name"] for it in listed] == ["ask_agent", "send"]
        (sent,) = (await post(house, call, token=OTHER)).json()["result"]["content"]
        assert json.loads(sent["text"])["state"] == "sent"
        assert await house.replies(1) == ["hi"]
        call["params"]["arguments"]["to"] = "nowhere:x"  # type: ignore[index]
        assert (await post(house, call, token=OTHER)).json()["result"]["isError"]
        assert house.anthropic.requests == []


WRONG: dict[str, tuple[Any, int]] = {
    "no JSON": (b"{", -32700),
    "a batch": (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    "an unknown method": ({"id": 1, "method": "server/discover"}, -32601),
    "an unknown tool": ({"id": 1, "method": "tools/call", "params": {"name": "exec"}}, -32602),
    "a missing argument": (asks(agent="helper"), -32602),
    "one argument too many": (asks(agent="helper", message="hi", system="x"), -32602),
    "a blank message": (asks(agent="helper", message=" \n\t"), -32602),
    "an empty message": (asks(agent="helper", message=""), -32602),
    "a session that is no name": (asks(agent="helper", message="hi", session="\0"), -32602),
}


@pytest.mark.parametrize(("content", "code"), WRONG.values(), ids=WRONG)
async def test_mcp_server_refuses_invalid_messages_by_protocol(tmp_path: Path, content: Any, code: int) -> None:
    async with serving(tmp_path) as house:
        answer = await post(house, content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)
        assert house.anthropic.requests == []


FOREIGN = ("https://evil.example", "http://127.0.0.1:1", "null", "", "http://[", "https://localhost.evil.example")


async def test_mcp_server_refuses_a_foreign_origin(tmp_path: Path) -> None:
    more = API.replace("server: {", "server: { publicUrl: 'https://bot.example.com',")
    async with running(tmp_path, script=lambda _: says("hi"), more=more) as house, client(house.url) as http:
        body = {"jsonrpc": "2.0", **asks(agent="helper", message="hi")}
        allowed = {"authorization": f"Bearer {TOKEN}"}
        for origin in FOREIGN:
            for method in ("POST", "GET", "DELETE"):
                answer = await http.request(method, "/mcp", json=body, headers=allowed | {"origin": origin})
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin"), origin
        assert house.anthropic.requests == []
        for origin in (house.url, "https://bot.example.com"):
            answer = await http.post("/mcp", json=body, headers=allowed | {"origin": origin})
            assert answer.json()["result"]["content"][0]["text"] == "hi"


KEPT = """
agents:
  list:
    - { id: helper, model: anthropic/claude-sonnet-4-6 }
    - { id: own, model: anthropic/claude-sonnet-4-6 }
    - { id: second, model: anthropic/claude-sonnet-4-6 }
bindings:
  - { agent: second, match: { channel: feishu, sender: ou_b0b000000000000000000000000000 } }
  - { agent: own, match: { channel: api, account: ui } }
"""


@pytest.mark.parametrize("owns", [False, True])
async def test_mcp_server_reaches_no_agent_bound_to_others(tmp_path: Path, owns: bool) -> None:
    more = API + ('owners: ["api:ui"]' if owns else "")
    async with (
        running(tmp_path, script=lambda _: says("hi"), agents=KEPT, more=more) as house,
        client(house.url, headers={"authorization": f"Bearer {TOKEN}"}) as http,
    ):
        there = ["helper", "own", *(["second"] if owns else [])]
        assert [it["id"] for it in (await http.get("/v1/models")).json()["data"]] == there
        listed = (await post(house, {"id": 1, "method": "tools/list"})).json()["result"]["tools"]
        assert listed[0]["inputSchema"]["properties"]["agent"]["enum"] == there
        status = 200 if owns else 404
        assert (await http.get("/v1/models/second")).status_code == status
        asked = {"model": "second", "messages": [{"role": "user", "content": "hi"}]}
        assert (await http.post("/v1/chat/completions", json=asked)).status_code == status
        result = (await post(house, asks(agent="second", message="hi"))).json()["result"]
        assert result["isError"] is not owns
        assert len(house.anthropic.requests) == (2 if owns else 0)


async def test_mcp_server_needs_a_token_and_a_post(tmp_path: Path) -> None:
    async with serving(tmp_path) as house:
        assert (await post(house, asks(agent="helper", message="hi"), token="x" * 24)).status_code == 401
        assert (await post(house, {"method": "notifications/initialized"})).status_code == 202
        greeting = await post(house, {"id": 1, "method": "initialize", "params": INITIALIZE})
        assert greeting.json()["result"]["protocolVersion"] == "2025-06-18"
        async with client(house.url) as http:
            assert (await http.get("/mcp", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 405
    (tmp_path / "b").mkdir()
    async with running(tmp_path / "b") as house:
        assert (await post(house, asks(agent="helper", message="hi"))).status_code == 404

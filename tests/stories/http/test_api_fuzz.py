"""The web chat's API, hooks and `/v1/send` under schemathesis: whatever a request of its shape holds, and whatever has no
shape at all, no answer is a 5xx, and each says what a browser may do with it."""

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from gateway.http.request import HEADERS
from tests.running import Running, running
from tests.waiting import PATIENCE_SECONDS
from tests.web_page import WEB

schemathesis = pytest.importorskip("schemathesis")
pytestmark = [pytest.mark.slow, pytest.mark.hypothesis]

TOKEN = "canary-fuzzing-token-91827"
TEXT = {"type": "string"}
ANSWER = {"responses": {"default": {"description": "as docs/http.md has it"}}}


def body(**members: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": members, "required": [*members], "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def parameters(place: str, *names: str) -> list[dict[str, Any]]:
    return [{"name": name, "in": place, "required": place == "path", "schema": TEXT} for name in names]


def described(path: str = "", query: str = "", **more: Any) -> dict[str, Any]:
    given_ = parameters("path", *path.split()) + parameters("query", *query.split())
    return ANSWER | {"parameters": given_} | more


MESSAGE = body(id=TEXT, chat=TEXT, agent=TEXT, text=TEXT, files={"type": "array", "items": TEXT})
FILE = {"type": "object", "properties": {"name": TEXT, "data": TEXT}, "required": ["name", "data"]}
SEND = body(
    to=TEXT | {"enum": ["web:", "x", "telegram:1", "web:c1:d"]}, text=TEXT, files={"type": "array", "items": FILE}
)
EVENT = body(title=TEXT, by=FILE)
BYTES = {"requestBody": {"content": {"application/octet-stream": {"schema": TEXT | {"format": "binary"}}}}}
PATHS = {
    "/": {"get": described()},
    "/web/{name}": {"get": described("name")},
    "/api/session": {"post": described(**body(token=TEXT)), "delete": described()},
    "/api/chats": {"get": described("", "behind")},
    "/api/archived": {"get": described("", "behind")},
    "/api/agents/{agent}/notes": {"get": described("agent"), "post": described("agent", **body(id=TEXT, text=TEXT))},
    "/api/agents/{agent}/notes/{note}": {
        "put": described("agent note", **body(text=TEXT)),
        "delete": described("agent note"),
    },
    "/api/search": {"get": described("", "words")},
    "/api/chats/{chat}": {
        "get": described("chat", "before until"),
        "patch": described("chat", **body(title=TEXT, pinned={"type": "boolean"}, archived={"type": "boolean"})),
        "delete": described("chat"),
    },
    "/api/files": {"post": described("", "name", **BYTES)},
    "/api/files/{key}": {"get": described("key", "download"), "delete": described("key")},
    "/webhooks/web/default": {"post": described(**MESSAGE)},
    "/v1/send": {"post": described(**SEND)},
    "/hooks/{name}": {"post": described("name", **EVENT)},
    "/hooks/open": {"post": described(**EVENT)},
    "/webhooks/{channel}/{account}": {"post": described("channel account", **MESSAGE)},
}
SCHEMA = {"openapi": "3.0.3", "info": {"title": "the web chat", "version": "1"}, "paths": PATHS}


async def test_api_fuzz_finds_no_server_error(tmp_path: Path) -> None:
    more = (
        f"server: {{ wrongTokensPerMinute: 1000000, api: {{ tokens: {{ ci: {{ token: {TOKEN}, send: true }} }} }} }}\n"
        "rates: { chat: 3/1h, sender: 3/1h }\n"
        f"hooks: {{ open: {{ secret: {TOKEN}, verify: token, to: 'web:c1', say: '{{{{ body.title }}}}', rate: 9/1s }} }}"
    )
    async with running(tmp_path, feishu=WEB, more=more) as house:
        tried = await asyncio.to_thread(attack, house)
    assert tried > settings().max_examples // 2 * len(PATHS)


def attack(house: Running) -> int:
    """Everything that schemathesis makes of each operation, fitting and not; how many requests that were."""
    tried = 0
    with httpx.Client(
        base_url=house.url,
        trust_env=False,
        timeout=PATIENCE_SECONDS,
        headers={"x-clawgate": "1", "authorization": f"Bearer {TOKEN}"},
    ) as http:
        schema = schemathesis.openapi.from_dict(SCHEMA)
        for operation, mode in product([it.ok() for it in schema.get_all_operations()], schemathesis.GenerationMode):
            if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue  # nothing that it takes can be wrong, which takes five hundred tries to find out

            @settings(
                max_examples=settings().max_examples // 2,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(mode))
            def attempt(case: Any) -> None:
                nonlocal tried
                given_ = case.as_transport_kwargs(base_url=house.url)
                try:
                    answer = http.request(
                        given_["method"],
                        given_["url"],
                        params=given_.get("params"),
                        json=given_.get("json"),
                        content=given_.get("data") if isinstance(given_.get("data"), bytes | str) else None,
                        headers=dict(given_.get("headers") or {}),
                    )
                except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError, ValueError):
                    return  # what no client can send
                tried += 1
                assert answer.status_code < 500, (case.method, given_["url"], answer.text[:300])
                if not given_["url"].removeprefix(house.url).startswith(("/webhooks/", "/hooks/")):
                    assert answer.headers.items() >= {(name, HEADERS[name]) for name in ("x-content-type-options",)}

            attempt()
    return tried

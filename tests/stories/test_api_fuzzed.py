"""The web chat's API, hooks and `/v1/send` under schemathesis: whatever a request of its shape holds, and whatever has no
shape at all, no answer is a 5xx, and each says what a browser may do with it."""

import asyncio
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from gateway.http.edge import HEADERS
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


def operation(path: str = "", query: str = "", **more: Any) -> dict[str, Any]:
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
    "/": {"get": operation()},
    "/web/{name}": {"get": operation("name")},
    "/api/session": {"post": operation(**body(token=TEXT)), "delete": operation()},
    "/api/chats": {"get": operation("", "behind")},
    "/api/archived": {"get": operation("", "behind")},
    "/api/agents/{agent}/notes": {"get": operation("agent"), "post": operation("agent", **body(id=TEXT, text=TEXT))},
    "/api/agents/{agent}/notes/{note}": {
        "put": operation("agent note", **body(text=TEXT)),
        "delete": operation("agent note"),
    },
    "/api/search": {"get": operation("", "words")},
    "/api/chats/{chat}": {
        "get": operation("chat", "before until"),
        "patch": operation("chat", **body(title=TEXT, pinned={"type": "boolean"}, archived={"type": "boolean"})),
        "delete": operation("chat"),
    },
    "/api/files": {"post": operation("", "name", **BYTES)},
    "/api/files/{key}": {"get": operation("key", "download"), "delete": operation("key")},
    "/webhooks/web/default": {"post": operation(**MESSAGE)},
    "/v1/send": {"post": operation(**SEND)},
    "/hooks/{name}": {"post": operation("name", **EVENT)},
    "/hooks/open": {"post": operation(**EVENT)},
    "/webhooks/{channel}/{account}": {"post": operation("channel account", **MESSAGE)},
}
SCHEMA = {"openapi": "3.0.3", "info": {"title": "the web chat", "version": "1"}, "paths": PATHS}


async def test_no_request_to_the_api_breaks_it(tmp_path: Path) -> None:
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
        for found, mode in product(schema.get_all_operations(), schemathesis.GenerationMode):

            @settings(
                max_examples=settings().max_examples // 2,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=found.ok().as_strategy(mode))
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

            with suppress(Unsatisfiable):  # nothing that it takes can be wrong
                attempt()
    return tried

"""Every route of the gateway, asked as everybody: the table of docs/security.md says who is let in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.running import ALICE, ALICE_CHAT, Running, client, running
from tests.security_page import PAGE
from tests.web_page import WEB

TOKENS = {it: f"canary-{it}-token-9182736455" for it in ("person", "program", "operator")}
HOOK = "canary-hook-secret-9182736455-9182736455"
CONFIG = f"""
server:
  adminToken: {TOKENS["operator"]}
  users: {{ ann: {TOKENS["person"]} }}
  api: {{ tokens: {{ script: {TOKENS["program"]} }} }}
  wrongTokensPerMinute: 10000
hooks:
  ci: {{ verify: token, secret: {HOOK}, to: "feishu:oc_0123456789abcdef", say: Hello }}
"""
PLACES = {"channel": "feishu", "account": "default", "name": "ci", "agent": "helper", "model": "helper"}
OWN = {"x-clawgate": "1"}
"""Only our own page can say this."""
AHEAD = {("POST", "/webhooks/{channel}/{account}"), ("POST", "/webhooks/web/default")}
"""Answered ahead of the router."""
KEYED = {"nobody": 401, "person": 401, "program": 401, "operator": 401}
REFUSED = {
    "anybody": {},
    "anybody, but": {"program": 401},
    "the platform": KEYED,
    "another system": KEYED,
    "a program": {"nobody": 401, "person": 401, "operator": 401},
    "a program whose": KEYED | {"program": 403},
    "a person": {"nobody": 401, "program": 401},
    "the operator": {"nobody": 401, "person": 403, "program": 401},
    "the operator, by `server.adminToken` alone": {"nobody": 401, "person": 401, "program": 401},
    "the command line": {"nobody": 404, "person": 404, "program": 404},
}
"""The answers to those whom a row does not let in, by the beginning of its first cell."""


async def test_route_access_matches_the_table_of_the_docs(tmp_path: Path) -> None:
    rows = table()
    async with running(tmp_path, feishu=WEB, more=CONFIG) as house, client(house.url) as http:
        _, unsigned = house.feishu.encode(house.feishu.text_event("Hello", sender=ALICE, chat=ALICE_CHAT))
        assert {*rows} == routes(house) | AHEAD
        wrong = {}
        for (method, path), who in rows.items():
            for asker in ("nobody", *TOKENS):
                code = await asked(http, method, path, asker, body=unsigned)
                refused = REFUSED[who].get(asker)
                if code != refused if refused else code in (401, 403, 429):
                    wrong[method, path, asker] = code
        assert wrong == {}


async def test_csrf_no_foreign_page_or_form_changes_anything(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB, more=CONFIG) as house, client(house.url) as http:
        for (method, path), who in table().items():
            if who in ("a person", "the operator") and method != "GET":
                assert await asked(http, method, path, "operator", header={}) == 403, path
                elsewhere = OWN | {"origin": "https://elsewhere.example"}
                assert await asked(http, method, path, "operator", header=elsewhere) == 403, path


async def test_retry_after_header_is_on_every_503(tmp_path: Path) -> None:
    """Without its database a gateway answers many routes with one."""
    sends = CONFIG.replace(TOKENS["program"], f"{{ token: {TOKENS['program']}, send: true }}")
    async with running(tmp_path, feishu=WEB, more=sends) as house, client(house.url) as http:
        pools = house.gateway.runtime.store._reader, house.gateway.runtime.store._writer  # type: ignore[attr-defined]
        headers, body = house.feishu.encode(house.feishu.text_event("Hello", sender=ALICE, chat=ALICE_CHAT))
        web = {
            "id": "m_0123456789abcdef",
            "chat": "c_0123456789abcdef",
            "agent": "helper",
            "text": "Hello",
            "files": [],
        }
        call = {"model": "helper", "messages": [{"role": "user", "content": "Hello"}]}
        send = {"to": f"feishu:{ALICE_CHAT}", "text": "Hello"}
        bodies = {"/webhooks/web/default": web, "/v1/chat/completions": call, "/v1/send": send}
        refused = set()
        for pool in pools:
            pool._closed = True
        for method, path in sorted(routes(house) | AHEAD):
            who = "program" if path.startswith("/v1") else "operator"
            given, content = OWN | {"authorization": f"Bearer {TOKENS[who]}"}, orjson.dumps(bodies.get(path, {}))
            given |= {"content-type": "application/json"}
            if "{account}" in path:
                given, content = headers, body
            if path.startswith("/hooks/"):
                given["authorization"] = f"Bearer {HOOK}"
            place = re.sub(r"{(\w+)}", lambda it: PLACES.get(it[1], "AAAA-BBBB-CCCC"), path)
            async with http.stream(
                method, place, headers=given, content=None if method == "GET" else content
            ) as answer:
                if answer.status_code == 503:
                    refused.add(path)
                    assert int(answer.headers["retry-after"]) > 0, path
        for pool in pools:
            pool._closed = False
        assert refused >= {
            "/webhooks/{channel}/{account}",
            "/webhooks/web/default",
            "/hooks/{name}",
            "/v1/chat/completions",
            "/v1/send",
            "/api/chats",
            "/readyz",
        }
        assert "/api/console/state" not in refused, "the console shows the reason of an outage"


def table() -> dict[tuple[str, str], str]:
    """Who is let in, by method and path."""
    section = PAGE.read_text(encoding="utf-8").partition("## Every route")[2].partition("\n## ")[0]
    rows: dict[tuple[str, str], str] = {}
    for who, listed in re.findall(r"^\| (.+?) \| (.*?) \|", section, re.MULTILINE)[1:]:
        role = max((it for it in REFUSED if who.startswith(it)), key=len)
        for methods, path in re.findall(r"`([A-Z ]+) (/[^`]*)`", listed):
            rows |= {(method, path): role for method in methods.split()}
    return rows


def routes(house: Running) -> set[tuple[str, str]]:
    """Those that the real app has, whatever router they came with."""
    app: Any = house.gateway.doors._app
    while not hasattr(app, "routes"):
        app = app._app
    found, left = set(), [*app.routes]
    while left:
        it = left.pop()
        left += it.original_router.routes if hasattr(it, "original_router") else ()
        found |= {(method, re.sub(r":\w+}", "}", it.path)) for method in getattr(it, "methods", None) or ()}
    return found


async def asked(
    http: httpx.AsyncClient, method: str, path: str, asker: str, *, body: bytes = b"{}", header: Mapping[str, str] = OWN
) -> int:
    """The status of the answer: a stream of events is not read."""
    headers = {"content-type": "application/json", **header}
    headers |= {"authorization": f"Bearer {TOKENS[asker]}"} if asker in TOKENS else {}
    place = re.sub(r"{(\w+)}", lambda it: PLACES.get(it[1], "AAAA-BBBB-CCCC"), path)
    async with http.stream(method, place, headers=headers, content=None if method == "GET" else body) as answer:
        return answer.status_code

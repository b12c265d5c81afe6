"""Guessing at a token from outside: one limit for all doors, and whoever has the right one never meets it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from channels.telegram.channel import SECRET_HEADER
from tests.case import case
from tests.channels.contexts import Clock
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import Running, client, running
from tests.web_page import WEB

TOKEN = "canary-admin-token-91827"
SECRET = "canary-webhook-secret-91827"
PAGE = {"x-clawgate": "1"}
MAX = 20
Door: TypeAlias = Callable[[Running, httpx.AsyncClient, bool], Awaitable[httpx.Response]]
MESSAGE = {"id": "m_12345678", "chat": "c_12345678", "agent": "helper", "text": "hi", "files": []}
SIGNED = {"x-lark-request-timestamp": "1800000000", "x-lark-request-nonce": "n", "x-lark-signature": "0" * 64}


def guess(method: str, path: str, right: str = f"Bearer {TOKEN}", header: str = "authorization", **more: Any) -> Door:
    async def knock(house: Running, http: httpx.AsyncClient, with_the_right_one: bool) -> httpx.Response:
        return await http.request(method, path, headers={header: right if with_the_right_one else "Bearer x"}, **more)

    return knock


async def sign_in(house: Running, http: httpx.AsyncClient, right: bool) -> httpx.Response:
    return await http.post("/api/session", json={"token": TOKEN if right else "wrong"})


async def feishu(house: Running, http: httpx.AsyncClient, right: bool) -> httpx.Response:
    if right:
        return await house.say("hello")
    return await http.post("/webhooks/feishu/default", content=b"{}", headers=SIGNED)


metrics = guess("GET", "/metrics")
DOORS: dict[str, Door] = {
    "sign in": sign_in,
    "page": guess("GET", "/api/chats"),
    "session": guess("GET", "/api/session"),
    "metrics": metrics,
    "message": guess("POST", "/webhooks/web/default", json=MESSAGE),
    "telegram": guess("POST", "/webhooks/telegram/default", SECRET, SECRET_HEADER, json={"update_id": 1}),
    "feishu": feishu,
}


@asynccontextmanager
async def closed(folder: Path, server: str = "", **more: Any) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    platform = TelegramEmulator()
    async with serve_on_loopback(platform.app) as api:
        telegram = (
            f'telegram: {{ botToken: "{platform.token}", apiRoot: "{api}", webhookSecret: {SECRET}, mode: webhook }}'
        )
        house = running(
            folder,
            script=lambda _: says("hi"),
            feishu=f"{WEB}\n  {telegram}\n",
            more=f"server: {{ publicUrl: 'https://bot.example.com', adminToken: {TOKEN}{server} }}",
            **more,
        )
        async with house as made, client(made.url, headers=PAGE) as http:
            yield made, http


async def test_rate_limit_of_token_guesses_is_shared_by_all_routes(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with closed(tmp_path, ", wrongTokensPerMinute: 3", now=clock) as (house, http):
        for name, door in DOORS.items():
            clock.now += 61
            with case(name):
                assert {(await door(house, http, False)).status_code for _ in range(3)} == {401}
            for other_name, other in DOORS.items():
                with case(name, other_name):
                    refused = await other(house, http, False)
                    assert refused.status_code == 429
                    assert 1 <= int(refused.headers["retry-after"]) <= 60
                    assert (await other(house, http, True)).is_success


async def test_rate_limit_of_guesses_ignores_forged_forwarded_addresses(tmp_path: Path) -> None:
    async with closed(tmp_path) as (house, http):
        for path in ("/api/chats", "/metrics"):
            assert {(await http.get(path)).status_code for _ in range(MAX + 5)} == {401}
        assert {(await http.post("/webhooks/feishu/default", content=b"{}")).status_code for _ in range(MAX)} == {400}
        for number in range(MAX):
            http.headers["x-forwarded-for"] = f"192.0.2.{number}"
            assert (await metrics(house, http, False)).status_code == 401
        http.headers["x-forwarded-for"] = "192.0.2.200"
        assert (await metrics(house, http, False)).status_code == 429


async def test_rate_limit_of_guesses_behind_a_trusted_proxy_is_per_address(tmp_path: Path) -> None:
    async with closed(tmp_path, ", trustedProxies: [127.0.0.1], wrongTokensPerMinute: 2") as (house, http):
        http.headers["x-forwarded-for"] = "192.0.2.1"
        assert [(await metrics(house, http, False)).status_code for _ in range(3)] == [401, 401, 429]
        http.headers["x-forwarded-for"] = "192.0.2.2"
        assert (await metrics(house, http, False)).status_code == 401
        http.headers["x-forwarded-for"] = "192.0.2.1, 192.0.2.2"
        assert [(await sign_in(house, http, False)).status_code for _ in range(2)] == [401, 429]

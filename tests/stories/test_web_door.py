"""Every route of the web chat from outside: who is let in, what a browser may do with the answer, signing in and out."""

from pathlib import Path

import httpx
import pytest

from channels.web.admission import COOKIE, SECURE_COOKIE
from channels.web.channel import ALIVE_SECONDS
from gateway.request import HEADERS
from tests.channels.contexts import Clock
from tests.running import client, running
from tests.web_page import CHAT, WEB, opened

TOKEN = "canary-admin-token-91827"
CLOSED = f"server: {{ host: 0.0.0.0, adminToken: {TOKEN} }}"
ROUTES = [
    ("GET", "/api/chats"),
    ("GET", f"/api/chats/{CHAT}"),
    ("PATCH", f"/api/chats/{CHAT}"),
    ("DELETE", f"/api/chats/{CHAT}"),
    ("POST", "/api/files?name=a.txt"),
    ("GET", "/api/files/f_12345678"),
    ("DELETE", "/api/files/f_12345678"),
    ("GET", "/api/events"),
    ("DELETE", "/api/session"),
    ("POST", "/webhooks/web/default"),
]
MESSAGE = {"id": "m_12345678", "chat": CHAT, "agent": "helper", "text": "x", "files": []}
PAGE = {"x-clawgate": "1"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def statuses(
    http: httpx.AsyncClient, headers: dict[str, str], routes: list[tuple[str, str]] = ROUTES
) -> set[int]:
    """What the routes answer, without what they say."""
    found = set()
    for method, path in routes:
        async with http.stream(method, path, headers=headers) as answer:
            found.add(answer.status_code)
            if answer.status_code in (401, 403):
                said = orjson_of(await answer.aread())
                assert said["error"]
                assert said["code"]
                assert TOKEN not in str(said)
    return found


def orjson_of(body: bytes) -> dict[str, str]:
    return dict(httpx.Response(200, content=body).json())


async def test_from_elsewhere_nothing_answers_without_the_token(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, PAGE) == {401}
        assert await statuses(http, PAGE | {"cookie": f"{COOKIE}=9999999999.abc"}) == {401}
        assert await statuses(http, PAGE | {"authorization": "Basic abc"}) == {401}
        assert await statuses(http, PAGE | {"authorization": "Bearer wrong"}) == {401}
        for method, path in ROUTES[1:]:
            assert (await http.request(method, path, headers=PAGE, json=MESSAGE)).status_code == 401
        assert house.anthropic.requests == []
        assert 401 not in await statuses(http, PAGE | {"authorization": f"Bearer {TOKEN}"})
        assert (await http.get("/")).status_code == 200


async def test_without_a_token_set_it_is_closed_from_elsewhere_and_says_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { host: 0.0.0.0 }", feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, PAGE) == {403}
        assert await statuses(http, PAGE | {"authorization": "Bearer x"}) == {403}
        assert "server.adminToken" in (await http.get("/api/chats")).json()["error"]


async def test_on_this_machine_it_is_open_and_a_name_somebody_points_at_it_is_not_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, client(house.url) as http:
        assert (await http.get("/api/chats")).json()["signed_in"] is False
        for headers in ({"host": "evil.example"}, {"x-forwarded-for": "1.2.3.4"}, {"x-forwarded-proto": "https"}):
            assert await statuses(http, PAGE | headers) == {403}


CROSS_SITE: list[dict[str, str]] = [
    {},
    PAGE | {"origin": "https://evil.example"},
    PAGE | {"origin": "null"},
    PAGE | {"origin": "http://["},
    PAGE | {"sec-fetch-site": "cross-site"},
    PAGE | {"sec-fetch-site": "same-site"},
    {"x_clawgate": "1"},
]


@pytest.mark.parametrize("headers", CROSS_SITE, ids=str)
async def test_no_other_site_can_change_anything(tmp_path: Path, headers: dict[str, str]) -> None:
    changing = [route for route in ROUTES if route[0] != "GET"]
    async with running(tmp_path, feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, headers, changing) == {403}
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await http.post("/webhooks/web/default", content=b"{}", headers={"content-type": kind} | headers)
            assert answer.status_code == 403
        signing_in = await http.post("/api/session", json={"token": TOKEN}, headers=headers)
        assert signing_in.status_code == 403
        assert "set-cookie" not in signing_in.headers
        preflight = await http.options("/api/chats", headers={"origin": "https://evil.example"})
        assert not [name for name in preflight.headers if name.startswith("access-control")]


async def test_the_token_makes_a_session_and_signing_out_ends_it(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        wrong = await http.post("/api/session", json={"token": "wrong"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "wrong-token")
        assert "set-cookie" not in wrong.headers
        signed_in = await http.post("/api/session", json={"token": f" {TOKEN}\n"})
        assert (signed_in.status_code, signed_in.content) == (204, b"")
        cookie = signed_in.headers["set-cookie"].lower()
        assert cookie.startswith(f"{COOKIE}=")
        assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
        assert "domain" not in cookie
        assert TOKEN not in cookie
        assert (await http.get("/api/chats")).json()["signed_in"] is True
        assert (await http.post("/webhooks/web/default", json=MESSAGE)).status_code == 200
        assert (await http.get("/api/chats", headers={"authorization": "Basic abc"})).status_code == 200
        assert (await http.delete("/api/session")).status_code == 204
        assert (await http.get("/api/chats")).status_code == 401


async def test_over_tls_the_session_is_bound_to_this_host(tmp_path: Path) -> None:
    """Where the public address is https, and where a trusted proxy says so; not where anybody else does."""
    host = {"host": "chat.example.com"}
    for more, headers, is_secure in (
        (", publicUrl: 'https://chat.example.com'", {}, True),
        (", trustedProxies: [127.0.0.1]", {"x-forwarded-proto": "https"}, True),
        (", trustedProxies: [127.0.0.1]", {"x-forwarded-proto": "http"}, False),
        (", trustedProxies: [192.0.2.1]", {"x-forwarded-proto": "https"}, False),
        ("", {"x-forwarded-proto": "https"}, False),
    ):
        behind = running(tmp_path, more=CLOSED.replace(" }", f"{more} }}"), feishu=WEB)
        async with behind as house, client(house.url, headers=PAGE | host | headers) as http:
            signed_in = await http.post("/api/session", json={"token": TOKEN})
            cookie = signed_in.headers["set-cookie"]
            assert cookie.startswith(f"{SECURE_COOKIE}=") == is_secure
            assert ("Secure" in cookie) == is_secure
            session = cookie.partition(";")[0]
            assert (await http.get("/api/chats", headers={"cookie": session})).status_code == 200


async def sign_in(http: httpx.AsyncClient) -> dict[str, str]:
    """The cookie of a new session, as a header."""
    signed_in = await http.post("/api/session", json={"token": TOKEN})
    return {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}


async def test_a_session_that_was_signed_out_of_is_good_nowhere_any_more(tmp_path: Path) -> None:
    """Whoever has a copy of the cookie finds it dead: at once, and after a restart, which ends no other session."""
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        stolen = await sign_in(http)
        http.cookies.clear()
        mine = await sign_in(http)
        http.cookies.clear()
        assert (await http.delete("/api/session", headers=stolen)).status_code == 204
        assert await statuses(http, stolen) == {401}
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, PAGE | stolen) == {401}
        assert (await http.get("/api/chats", headers=mine)).json()["signed_in"] is True


async def test_signing_in_anew_ends_the_session_before(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        first = await sign_in(http)
        second = await sign_in(http)
        assert first != second
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url) as http:
        assert [(await http.get("/api/chats", headers=it)).status_code for it in (first, second)] == [401, 200]


async def test_an_event_stream_ends_with_its_session(tmp_path: Path) -> None:
    clock = Clock()
    clocked = running(tmp_path, more=CLOSED, feishu=WEB, now=clock)
    async with clocked as house, client(house.url, headers=PAGE) as http:
        session = await sign_in(http)
        async with (
            opened(house.url, cookie=session["cookie"]) as page,
            client(house.url, headers=PAGE | BEARER) as other,
        ):
            clock.now += ALIVE_SECONDS
            assert (await other.post("/webhooks/web/default", json=MESSAGE)).status_code == 200
            await page.until(lambda: page.said("you") != [])
            assert (await http.delete("/api/session")).status_code == 204
            clock.now += ALIVE_SECONDS
            seen = len(page.events)
            await other.patch(f"/api/chats/{CHAT}", json={"title": "for others' eyes"})
            await page.until(lambda: page._reading is not None and page._reading.done())
            assert "for others' eyes" not in str(page.events[seen:])


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"token": 1}', b'{"token": "x", "more": 1}', b"x" * 20_000, b"\xff"]
)
async def test_signing_in_with_nonsense_is_refused(tmp_path: Path, body: bytes) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        assert (await http.post("/api/session", content=body)).status_code in (400, 413)


async def test_every_answer_says_what_a_browser_may_do_with_it(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        file = (await page.upload(b"x", "a.txt", "text/plain")).json()
        await page.say("hello")
        await page.answers(1)
        asked = [
            ("GET", "/"),
            ("GET", "/web/style.css"),
            ("GET", "/web/nothing.js"),
            ("GET", "/api/chats"),
            ("GET", f"/api/chats/{CHAT}"),
            ("GET", "/api/chats/c_nothing"),
            ("GET", f"/api/files/{file['id']}"),
            ("GET", "/api/events"),
            ("POST", "/api/session"),
            ("DELETE", "/api/session"),
            ("DELETE", f"/api/chats/{CHAT}"),
        ]
        for method, path in asked:
            async with page.http.stream(method, path) as answer:
                for name, value in HEADERS.items():
                    expected = "default-src 'none'; sandbox" if "files/" in path and name.endswith("policy") else value
                    assert answer.headers.get(name) in (value, expected), (path, name)
                assert "server" not in answer.headers or "python" not in answer.headers["server"].lower()
                if path.startswith("/api") and "/files/" not in path and answer.status_code != 204:
                    assert answer.headers["cache-control"] == "no-store", path
        assert (
            "script-src" in HEADERS["content-security-policy"]
            or "default-src 'self'" in HEADERS["content-security-policy"]
        )


@pytest.mark.parametrize(
    "name", ["..%2Fconfig.yaml", "%2e%2e%2fapi.js", "", "a%00b", "%2Fetc%2Fpasswd", "__init__.py", "x" * 3000]
)
async def test_only_the_pages_own_files_are_served(tmp_path: Path, name: str) -> None:
    async with running(tmp_path, feishu=WEB) as house, client(house.url) as http:
        assert (await http.get(f"/web/{name}")).status_code == 404


async def test_the_page_is_asked_for_again_only_when_it_has_changed(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, client(house.url) as http:
        first = await http.get("/")
        assert first.headers["content-type"].startswith("text/html")
        assert (await http.get("/", headers={"if-none-match": first.headers["etag"]})).status_code == 304
        assert (await http.get("/web/app.js")).headers["content-type"].startswith("text/javascript")


async def test_switched_off_there_is_no_page_and_no_route(tmp_path: Path) -> None:
    off = WEB.replace("web: {}", "web: { enabled: false }")
    async with running(tmp_path, feishu=off) as house, client(house.url, headers=PAGE) as http:
        assert (await http.get("/")).status_code == 404
        assert await statuses(http, PAGE) == {404}

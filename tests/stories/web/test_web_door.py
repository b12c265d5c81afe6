"""Every route of the web chat from outside: who is let in, what a browser may do with the answer, signing in and out."""

import re
from pathlib import Path

import httpx
import orjson
import pytest

from channels.web.admission import COOKIE, SECURE_COOKIE
from channels.web.channel import ALIVE_SECONDS
from gateway.http.request import HEADERS
from tests.channels.contexts import Clock
from tests.running import Running, client, running
from tests.web_page import CHAT, WEB, Page, new_id, opened

TOKEN = "canary-admin-token-91827"
CLOSED = f"server: {{ host: 0.0.0.0, adminToken: {TOKEN} }}"
ROUTES = [
    ("GET", "/api/chats"),
    ("GET", f"/api/chats/{CHAT}"),
    ("GET", f"/api/chats/{CHAT}/choices"),
    ("GET", "/api/agents/helper/choices"),
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


READS = [route for route in ROUTES if route[0] == "GET"]
CHANGES = [route for route in ROUTES if route[0] != "GET"]


async def statuses(
    http: httpx.AsyncClient, headers: dict[str, str], routes: list[tuple[str, str]] = ROUTES
) -> set[int]:
    """What the routes answer, without what they say."""
    found = set()
    for method, path in routes:
        async with http.stream(method, path, headers=headers) as answer:
            found.add(answer.status_code)
            if answer.status_code in (401, 403):
                await answer.aread()
                assert answer.json()["error"]
                assert answer.json()["code"]
                assert TOKEN not in answer.text
    return found


async def test_web_token_is_required_from_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, PAGE) == {401}
        assert await statuses(http, PAGE | {"authorization": "Bearer wrong"}) == {401}
        for method, path in ROUTES[1:]:
            assert (await http.request(method, path, headers=PAGE, json=MESSAGE)).status_code == 401
        assert house.anthropic.requests == []
        assert 401 not in await statuses(http, PAGE | {"authorization": f"Bearer {TOKEN}"})
        assert (await http.get("/")).status_code == 200


async def test_web_token_unset_closes_the_page_from_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { host: 0.0.0.0 }", feishu=WEB) as house, client(house.url) as http:
        assert await statuses(http, PAGE) == {403}
        assert await statuses(http, PAGE | {"authorization": "Bearer x"}) == {403}
        assert "server.adminToken" in (await http.get("/api/chats")).json()["error"]


async def test_web_page_is_open_on_localhost_but_not_by_rebinding(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, client(house.url) as http:
        assert (await http.get("/api/chats")).json()["signed_in"] is False
        for headers in ({"host": "evil.example"}, {"x-forwarded-for": "1.2.3.4"}, {"x-forwarded-proto": "https"}):
            assert await statuses(http, PAGE | headers) == {403}


CROSS_SITE: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
]
OURS = [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}]


async def test_csrf_no_other_site_reads_or_changes_anything(house: Running, page: Page) -> None:
    async with client(house.url) as http:
        for headers in CROSS_SITE:
            assert await statuses(http, headers, READS) == {403}
            for path in ("/", "/web/app.js"):
                assert (await http.get(path, headers=headers)).status_code == 200
        for headers in ({}, {"x_clawgate": "1"}, PAGE | {"origin": "http://["}, *(PAGE | it for it in CROSS_SITE)):
            assert await statuses(http, headers, CHANGES) == {403}
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                posted = {"content-type": kind} | headers
                assert (await http.post("/webhooks/web/default", content=b"{}", headers=posted)).status_code == 403
            signing_in = await http.post("/api/session", json={"token": TOKEN}, headers=headers)
            assert signing_in.status_code == 403
            assert "set-cookie" not in signing_in.headers
        preflight = await http.options("/api/chats", headers={"origin": "https://evil.example"})
        assert not [name for name in preflight.headers if name.startswith("access-control")]
    file = (await page.upload(b"x", "a.txt")).json()
    await page.say("hello")
    await page.answers(1)
    reads = [(method, path.replace("f_12345678", file["id"])) for method, path in READS]
    for headers in OURS:
        assert await statuses(page.http, headers, reads) == {200}


NONSENSE = [b"", b"{}", b"[]", b'{"token": 1}', b'{"token": "x", "more": 1}', b"x" * 20_000, b"\xff"]


async def sign_in(http: httpx.AsyncClient) -> dict[str, str]:
    """The cookie of a new session, as a header."""
    signed_in = await http.post("/api/session", json={"token": f" {TOKEN}\n"})
    assert (signed_in.status_code, signed_in.content) == (204, b"")
    return {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}


async def test_web_session_ends_at_logout_or_new_login(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        for body in NONSENSE:
            answer = await http.post("/api/session", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 413)
        wrong = await http.post("/api/session", json={"token": "wrong"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "wrong-token")
        assert "set-cookie" not in wrong.headers
        signed_in = await http.post("/api/session", json={"token": TOKEN})
        cookie = signed_in.headers["set-cookie"].lower()
        assert cookie.startswith(f"{COOKIE}=")
        assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
        assert "domain" not in cookie
        assert TOKEN not in cookie
        first = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        assert (await http.get("/api/chats")).json()["signed_in"] is True
        assert (await http.post("/webhooks/web/default", json=MESSAGE)).status_code == 200
        assert (await http.get("/api/chats", headers={"authorization": "Basic abc"})).status_code == 200
        stolen = await sign_in(http)
        http.cookies.clear()
        mine = await sign_in(http)
        http.cookies.clear()
        assert len({it["cookie"] for it in (first, stolen, mine)}) == 3
        assert (await http.delete("/api/session", headers=stolen)).status_code == 204
        assert await statuses(http, stolen) == {401}
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        assert await statuses(http, stolen) == {401}
        assert [(await http.get("/api/chats", headers=it)).status_code for it in (first, mine)] == [401, 200]


async def test_web_session_cookie_is_host_bound_over_tls(tmp_path: Path) -> None:
    host = {"host": "chat.example.com"}
    for more, headers, is_secure in (
        (", publicUrl: 'https://chat.example.com'", {}, True),
        (", trustedProxies: [127.0.0.1]", {"x-forwarded-proto": "https"}, True),
        (", trustedProxies: [127.0.0.1]", {"x-forwarded-proto": "http"}, False),
        (", trustedProxies: [192.0.2.1]", {"x-forwarded-proto": "https"}, False),
        ("", {"x-forwarded-proto": "https"}, False),
    ):
        behind = running(
            tmp_path, more=CLOSED.replace(" }", f", allowedHosts: [chat.example.com]{more} }}"), feishu=WEB
        )
        async with behind as house, client(house.url, headers=PAGE | host | headers) as http:
            signed_in = await http.post("/api/session", json={"token": TOKEN})
            cookie = signed_in.headers["set-cookie"]
            assert cookie.startswith(f"{SECURE_COOKIE}=") == is_secure
            assert ("Secure" in cookie) == is_secure
            session = cookie.partition(";")[0]
            assert (await http.get("/api/chats", headers={"cookie": session})).status_code == 200


async def test_web_session_ignores_sibling_host_cookies(tmp_path: Path) -> None:
    """A cookie under the plain name can come from any host of the domain; the bound name cannot."""
    users = "users: { ann: canary-ann-token-91827364, bob: canary-bob-token-91827364 }"
    more = CLOSED.replace(" }", f", {users}, trustedProxies: [127.0.0.1] }}")
    async with running(tmp_path, more=more, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        sessions = {}
        for name in ("ann", "bob"):
            answer = await http.post("/api/session", json={"token": f"canary-{name}-token-91827364"})
            sessions[name] = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
            http.cookies.clear()
        own, plain = f"{SECURE_COOKIE}={sessions['ann']}", f"{COOKIE}={sessions['bob']}"
        cases: list[tuple[str, str | None]] = [(own, "ann")]
        for blank in ("", " ", "\t", "\xa0", "\x85"):
            tossed = f"theme=dark;{blank}{plain}"
            cases += [(f"{tossed}; {own}", "ann"), (f"{own};{tossed}", "ann"), (tossed, None)]
        for cookie, who in cases:
            headers = {b"cookie": cookie.encode("latin-1"), b"x-forwarded-proto": b"https"}
            answer = await http.get("/api/session", headers=headers)
            assert answer.json() == {"person": who}, cookie
            posted = await http.post("/webhooks/web/default", json=MESSAGE | {"id": new_id()}, headers=headers)
            assert posted.status_code == (200 if who else 401), cookie
        assert (await http.get("/api/session", headers={"cookie": plain})).json()["person"] == "bob"


async def test_web_session_end_closes_its_event_stream(tmp_path: Path) -> None:
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
            await page.until(lambda: page.written("you") != [])
            assert (await http.delete("/api/session")).status_code == 204
            clock.now += ALIVE_SECONDS
            seen = len(page.events)
            await other.patch(f"/api/chats/{CHAT}", json={"title": "for others' eyes"})
            await page.until(lambda: page._reading is not None and page._reading.done())
            assert "for others' eyes" not in str(page.events[seen:])


async def test_web_security_headers_are_on_every_answer(house: Running, page: Page) -> None:
    file = (await page.upload(b"x", "a.txt", "text/plain")).json()
    await page.say("hello")
    await page.answers(1)
    paths = ["/", "/web/style.css", "/web/nothing.js", "/api/chats", f"/api/chats/{CHAT}", "/api/chats/c_nothing"]
    reads = [("GET", path) for path in (*paths, f"/api/files/{file['id']}", "/api/events")]
    changes = [("POST", "/api/session"), ("DELETE", "/api/session"), ("DELETE", f"/api/chats/{CHAT}")]
    for method, path in reads + changes:
        async with page.http.stream(method, path) as answer:
            for name, value in HEADERS.items():
                sandboxed = "/files/" in path and name == "content-security-policy"
                assert answer.headers.get(name) == ("default-src 'none'; sandbox" if sandboxed else value), (path, name)
            assert "python" not in answer.headers.get("server", "").lower()
            if path.startswith("/api") and "/files/" not in path and answer.status_code != 204:
                assert answer.headers["cache-control"] == "no-store", path
    assert "default-src 'self'" in HEADERS["content-security-policy"]


NAMES = ["..%2Fconfig.yaml", "%2e%2e%2fapi.js", "", "a%00b", "%2Fetc%2Fpasswd", "__init__.py", "x" * 3000]


async def test_web_static_files_are_served_with_etags(house: Running) -> None:
    async with client(house.url) as http:
        for name in NAMES:
            assert (await http.get(f"/web/{name}")).status_code == 404
        first = await http.get("/")
        assert first.headers["content-type"].startswith("text/html")
        assert (await http.get("/", headers={"if-none-match": first.headers["etag"]})).status_code == 304
        script = await http.get("/web/app.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert script.headers["content-encoding"] == "gzip"
        plain = await http.get("/web/app.js", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.text == script.text
        assert plain.headers["etag"] != script.headers["etag"]
        assert plain.headers["cache-control"] == "no-cache"


async def test_web_static_files_are_versioned_by_name(
    house: Running,
) -> None:
    async with client(house.url) as http:
        for page in ("/", "/console"):
            named = re.findall(r'(?:href|src)="(web/[^"]+)"', (await http.get(page)).text)
            assert len([it for it in named if ".css" in it]) == len([it for it in named if ".js" in it]) == 1
            for file in named:
                assert "immutable" in (await http.get(f"/{file}")).headers["cache-control"], file
                of_before = file.partition("?")[0] + "?v=0123456789abcdef"
                assert (await http.get(f"/{of_before}")).headers["cache-control"] == "no-cache", file


EARLY = '<link rel="preload" href="api/chats"'


async def test_web_page_preloads_the_list_when_signed_in(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url) as http:
        first = await http.get("/")
        assert EARLY not in first.text
        assert (await http.get("/", headers=BEARER)).text == first.text
        assert (await http.post("/api/session", json={"token": TOKEN}, headers=PAGE)).status_code == 204
        known = {"if-none-match": first.headers["etag"]}
        assert EARLY in (await http.get("/", headers=known)).text
        elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await http.get("/", headers=elsewhere)).text == first.text
        await http.delete("/api/session", headers=PAGE)
        assert (await http.get("/", headers=known)).status_code == 304


async def test_web_chat_switched_off_has_no_route(tmp_path: Path) -> None:
    off = WEB.replace("web: {}", "web: { enabled: false }")
    async with running(tmp_path, feishu=off) as house, client(house.url, headers=PAGE) as http:
        assert (await http.get("/")).status_code == 404
        assert await statuses(http, PAGE) == {404}


HOSTS = {
    # server: Host, whether the page knows it, whether a platform's webhook does
    "": [
        ("localhost", True, True),
        ("[::1]:8080", True, True),
        ("LOCALHOST.:1", True, True),
        ("evil.example", False, True),
        ("localhost.evil.example", False, True),
        ("127.0.0.1.evil.example", False, True),
        ("127.0.0.1@evil.example", False, True),
        ("evil.example/@localhost", False, True),
        ("a, localhost", False, True),
        ("", False, True),
    ],
    "publicUrl: 'https://bot.example.com'": [("bot.example.com", True, True), ("bot.example.com.evil", False, True)],
    "publicUrl: 'https://bot.example.com:8443/x'": [("Bot.Example.com:8443", True, True)],
    "host: 0.0.0.0": [("0.0.0.0", True, True), ("192.0.2.7", False, True)],
    "allowedHosts: [bot.example.com, '*.example.org']": [
        ("bot.example.com:80", True, True),
        ("a.example.org", True, True),
        ("example.org", False, False),
        ("localhost", False, False),
    ],
    "allowedHosts: ['*']": [("evil.example", True, True)],
}


@pytest.mark.parametrize("server", HOSTS)
async def test_web_host_allowlist_refuses_other_names(tmp_path: Path, server: str) -> None:
    more = f"server: {{ adminToken: {TOKEN}, {server} }}"
    async with running(tmp_path, more=more, feishu=WEB) as house, client(house.url, headers=BEARER | PAGE) as http:
        for host, page, webhook in HOSTS[server]:
            http.headers["host"] = host
            for path in ("/", "/web/app.js", "/api/chats", "/nothing"):
                answer = await http.get(path)
                assert (answer.status_code == 403) is not page, (host, path)
                assert page or answer.json()["code"] == "unknown-host"
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert ("strict-transport-security" in answer.headers) is ("https" in server)
            sent = await http.post("/webhooks/web/default", json=MESSAGE | {"id": new_id()})
            assert (sent.status_code == 403) is not page, host
            pushed = await http.post("/webhooks/feishu/default", content=b"{}")
            assert (pushed.status_code == 403) is not webhook, host
            assert (await http.get("/metrics")).status_code == (200 if webhook else 403), host
            for path in ("/healthz", "/readyz"):
                assert (await http.get(path)).status_code == 200, (host, path)


async def test_web_api_takes_declared_json_only(tmp_path: Path) -> None:
    async with running(tmp_path, more=CLOSED, feishu=WEB) as house, client(house.url, headers=PAGE) as http:
        body = orjson.dumps({"token": TOKEN})
        for kind in ("", "text/plain", "application/x-www-form-urlencoded", "text/json", "application/jsonx"):
            answer = await http.post("/api/session", content=body, headers={"content-type": kind})
            assert answer.status_code == 415
        kind = "Application/JSON; charset=utf-8"
        assert (await http.post("/api/session", content=body, headers={"content-type": kind})).status_code == 204

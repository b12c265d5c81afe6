"""Who may come into the web chat, and from where: headers in, the status of the answer out. Stories sign in and out."""

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Rejected
from channels.web.admission import COOKIE, SECURE_COOKIE, SESSION_SECONDS, Admission, Way
from gateway.config.server import ServerConfig
from tests.channels.contexts import Clock

TOKEN = "a-token-of-sixteen-or-more"
HERE, AWAY = ("host", "127.0.0.1:8080"), ("host", "chat.example.com")
PAGE = ("x-clawgate", "1")
BEARER = ("authorization", f"Bearer {TOKEN}")
BASIC = ("authorization", "Basic " + base64.b64encode(b"user:password").decode())


class KnownSessions:
    """`channels.web.admission.Sessions`, as one process remembers them."""

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}
        self.looked_up = 0

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        self.ends[key] = ends

    async def end(self, keys: Sequence[str]) -> None: ...

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        self.looked_up += 1
        return any(self.ends.get(key, at) > at for key in keys)


def admission(way: Way = "token", token: str = TOKEN, public: str | None = None, **more: Any) -> Admission:
    return Admission(**{"way": way, "token": token, "public_host": public, "sessions": KnownSessions()} | more)


async def status(door: Admission, *headers: tuple[str, str], changes: bool = False) -> int:
    """What a request is answered with, 200 where it comes in."""
    try:
        await door.identify(headers, changes=changes)
    except Rejected as refusal:
        is_told = refusal.sentence and TOKEN not in f"{refusal.sentence}{refusal.reason}"
        return refusal.status if is_told else 500
    return 200


HERE_HOSTS = [
    *("localhost", "localhost:8080", "LOCALHOST", "localhost.", "chat.localhost:1", "127.0.0.1"),
    *("127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:8080"),
]
OTHER_HOSTS = [
    *("", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"),
    *("127.0.0.1.nip.io", "notlocalhost", "localhost@evil.example", "evil.example/localhost"),
    *("evil.example#localhost", "0.0.0.0", "0.0.0.0:8080", "192.168.1.5", "[::]", "[::ffff:8.8.8.8]"),
    *("[fe80::1]", "[", "[::1", "2130706433", "0x7f000001", "127.1", "[::1]evil.example"),
    "\xe9.localhost.evil",
]


@pytest.mark.parametrize("host", HERE_HOSTS + OTHER_HOSTS)
async def test_web_host_names_believed_only_when_open(
    host: str,
) -> None:
    header = ("host", host)
    assert await status(admission("open", ""), header) == (200 if host in HERE_HOSTS else 403)
    assert [await status(admission("link", token), header) for token in ("", TOKEN)] == [401, 401]
    assert await status(admission("closed", ""), header) == 403
    assert [await status(admission(), header, *more) for more in ((), (BEARER,))] == [401, 200]


FORWARDED = [
    *(("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "")),
    *(("x-forwarded-for", "127.0.0.1"), ("x-forwarded-host", "localhost"), ("x-forwarded-proto", "https")),
    *(("x-forwarded-server", "proxy"), ("x-real-ip", "127.0.0.1"), ("via", "1.1 proxy")),
    *(("cf-connecting-ip", "1.2.3.4"), ("true-client-ip", "1.2.3.4")),
]


@pytest.mark.parametrize("header", FORWARDED, ids=lambda header: f"{header[0]}={header[1]}")
async def test_web_host_of_a_proxied_request_is_not_local(header: tuple[str, str]) -> None:
    assert await status(admission("open", ""), HERE, header) == 403
    assert await status(admission("link"), HERE, header, BEARER) == 200


@pytest.mark.parametrize(
    ("host", "public", "here"),
    [
        *((host, None, True) for host in ("127.0.0.1", "localhost", "::1")),
        *(("127.0.0.1", public, True) for public in ("http://localhost:8080", "http://[::1]:8080/x")),
        *(("127.0.0.1", f"http{public}", False) for public in ("s://chat.example.com", "://localhost.evil.example")),
        *(
            (host, None, False)
            for host in ("0.0.0.0", "::", "::2", "192.168.1.5", "1.2.3.4", "localhost.example", "lo")
        ),
        ("0.0.0.0", "http://localhost:8080", False),
        ("chat.example.com", None, False),
    ],
)
def test_web_page_is_open_only_when_unreachable_for_others(host: str, public: str | None, here: bool) -> None:
    assert ServerConfig(host=host, publicUrl=public).is_open_here == here


CREDENTIALS: list[tuple[tuple[str, str], int]] = [
    *((("authorization", value), 200) for value in (BEARER[1], f"bearer {TOKEN}", f"Bearer   {TOKEN} ")),
    *(
        (("authorization", f"Bearer{value}"), 401)
        for value in (" wrong", f" {TOKEN[:-1]}", f" {TOKEN}x", f" {TOKEN.upper()}", " ", "", " t\xf6k\xff", " \ud800")
    ),
    *((("authorization", value), 401) for value in ("", TOKEN, BASIC[1], f"Basic {TOKEN}", "Bearer " + "x" * 100_000)),
    *(
        (("cookie", f"{COOKIE}{end}"), 401)
        for end in (f"={TOKEN}", "", "=.", "=99999999999.", "=\u0663\u0663.ab", "=\ud800.\ud800")
    ),
    *((header, 401) for header in (("cookie", ""), ("x-token", TOKEN))),
]


@pytest.mark.parametrize(("header", "expected"), CREDENTIALS, ids=lambda value: repr(value)[:60])
async def test_web_page_access_from_elsewhere(header: tuple[str, str], expected: int) -> None:
    assert await status(admission(), AWAY, header) == expected
    assert await status(admission("link"), HERE, header) == expected
    assert await status(admission("link", ""), HERE, header) == 401
    assert await status(admission("closed", ""), AWAY, header) == 403


async def test_web_token_unset_means_no_login() -> None:
    door = admission("closed", "")
    assert not await door.signed_in([("cookie", f"{COOKIE}=x.{'0' * 64}")])
    for token in (TOKEN, "", "once-", "once-guessed"):
        with pytest.raises(Rejected):
            await door.sign_in(token, [])


COOKIES: list[tuple[str, int]] = [
    *((f"{name}=OWN", 200) for name in (COOKIE, SECURE_COOKIE)),
    *((f"{before}{COOKIE}=OWN", 200) for before in ("a=b; c=d; ", 'cart[0]={"a": 1}; ', "path=/x; ", "a=b;")),
    (f"{COOKIE}=1.x; {COOKIE}=OWN; c=d", 200),
    *((f"{COOKIE}={value}", 401) for value in ("OTHER", "9OWN", "CUT", "CUTg", "VALUE", "SIGNATURE")),
    (f"other_{COOKIE}=OWN", 401),
    *((f"{COOKIE}={value}", 401) for value in ("", ".", "x.y", f"x.{'0' * 64}")),
]


@pytest.mark.parametrize(("cookie", "expected"), COOKIES)
async def test_web_session_must_be_signed_by_this_token(cookie: str, expected: int) -> None:
    sessions = KnownSessions()
    own = await admission(sessions=sessions).sign_in(TOKEN, [])
    other = await admission(token="another-token-of-sixteen", sessions=sessions).sign_in("another-token-of-sixteen", [])
    value, _, signature = own.partition(".")
    for name, text in {"OWN": own, "OTHER": other, "CUT": own[:-1], "VALUE": value, "SIGNATURE": signature}.items():
        cookie = cookie.replace(name, text)
    door = admission(sessions=sessions)
    assert await status(door, AWAY, BASIC, ("cookie", cookie)) == expected  # a proxy's own password is no matter
    assert sessions.looked_up == (expected == 200)


async def test_web_session_expiry() -> None:
    clock = Clock()
    door = admission(now=clock)
    cookie = ("cookie", f"{COOKIE}={await door.sign_in(TOKEN, [])}")
    clock.now += SESSION_SECONDS - 1
    assert await status(door, AWAY, cookie) == 200
    clock.now += 1
    assert await status(door, AWAY, cookie) == 401


async def test_login_link_expires_and_works_once() -> None:
    assert [admission(way).offer_link() for way in ("open", "token", "closed")] == [None] * 3
    clock = Clock()
    door = admission("link", "", now=clock)
    codes = [door.offer_link() or "" for _ in range(2)]
    await door.sign_in(f" {codes[1]}\n", [])
    late = door.offer_link() or ""
    clock.now += 3600
    for spent in (*codes, late):
        with pytest.raises(Rejected, match="used or expired"):
            await door.sign_in(spent, [])


async def test_login_link_failure_allows_a_retry() -> None:
    class Unwritable(KnownSessions):
        async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
            raise OSError("the disk is full")

    door = admission("link", "", sessions=Unwritable())
    code = door.offer_link() or ""
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            await door.sign_in(code, [])


@given(st.text(max_size=200).filter(lambda text: text not in ("same-origin", "none")))
async def test_web_session_forged_text_is_refused(made_up: str) -> None:
    for header in ("cookie", "authorization", "origin", "host", "sec-fetch-site"):
        for text in (made_up, f"{COOKIE}={made_up}", f"Bearer {made_up}", f"http://{made_up}"):
            expected = 403 if header in ("origin", "sec-fetch-site") else 401
            assert await status(admission(), AWAY, (header, text)) == expected
            assert await status(admission(), AWAY, (header, text), changes=True) == 403


async def test_rate_limit_of_guesses_ignores_a_proxys_basic_auth() -> None:
    with pytest.raises(Rejected, match="not signed in") as refusal:
        await admission().identify([AWAY, BASIC], changes=False)
    assert not refusal.value.guess


ORIGINS: list[tuple[str | None, str | None, int]] = [
    *((None, site, 200) for site in (None, "none", "same-origin")),
    *(("http://127.0.0.1:8080", site, 200) for site in (None, "same-origin")),
    ("http://127.0.0.1:3000", "same-site", 403),
    *((None, site, 403) for site in ("cross-site", "same-site", "perhaps")),
    *((origin, "cross-site", 403) for origin in ("https://evil.example", "http://localhost:8080")),
    *((origin, None, 403) for origin in ("https://evil.example", "null", "", "http://[")),
    *((f"http://127.0.0.1:8080{end}", None, 403) for end in (".evil.example", "@evil.example")),
]


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize(("origin", "site", "expected"), ORIGINS)
async def test_csrf_rules_by_origin(origin: str | None, site: str | None, expected: int, changes: bool) -> None:
    headers = [(name, text) for name, text in (("origin", origin), ("sec-fetch-site", site)) if text is not None]
    assert await status(admission("open", ""), HERE, PAGE, *headers, changes=changes) == expected
    assert await status(admission(), HERE, PAGE, BEARER, *headers, changes=changes) == expected


@pytest.mark.parametrize(
    ("public", "host", "origin", "expected"),
    [
        *((public, "127.0.0.1", "https://chat.example.com", 200) for public in ("chat.example.com:443", "Chat.Example.com")),
        ("chat.example.com:8443", "127.0.0.1:8080", "https://chat.example.com:8443", 200),
        *(("chat.example.com", "127.0.0.1", f"https://{name}", 403) for name in ("evil.example", "chat.example.com:444")),
        *((None, host, "https://chat.example.com", 200) for host in ("chat.example.com", "chat.example.com:443")),
        (None, "127.0.0.1:8080", "https://chat.example.com", 403),
        (None, "", "null", 403),
    ],
)  # fmt: skip
async def test_behind_a_proxy_the_page_comes_from_the_public_address(
    public: str | None, host: str, origin: str, expected: int
) -> None:
    door = admission(public=public)
    assert await status(door, ("host", host), ("origin", origin), PAGE, BEARER, changes=True) == expected

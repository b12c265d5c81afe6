"""Who may come into the web chat: hosts, tokens and sessions as tables, request by request."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Rejected
from channels.web.admission import COOKIE, SECURE_COOKIE, SESSION_SECONDS, Way, is_loopback
from gateway.config.server import ServerConfig
from tests.channels.web_admission import (
    AWAY,
    BASIC,
    BEARER,
    BEGAN,
    HERE,
    TOKEN,
    Clock,
    KnownSessions,
    admission,
    at_once,
    judged,
    session,
)

HERE_HOSTS = [
    *("localhost", "localhost:8080", "LOCALHOST", "localhost.", "chat.localhost:1", "127.0.0.1"),
    *("127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:8080"),
]
HOSTS = dict.fromkeys(HERE_HOSTS, True) | dict.fromkeys(
    [
        *("", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1.nip.io", "notlocalhost", "localhost@evil.example", "evil.example/localhost"),
        *("evil.example#localhost", "0.0.0.0", "0.0.0.0:8080", "192.168.1.5", "[::]", "[::ffff:8.8.8.8]"),
        *("[fe80::1]", "[", "[::1", "2130706433", "0x7f000001", "127.1", "[::1]evil.example"),
        "\xe9.localhost.evil",
    ],
    False,
)


@pytest.mark.parametrize(("host", "here"), HOSTS.items())
def test_on_this_machine_only_a_name_that_nobody_else_can_give_it_comes_in_without_a_token(
    host: str, here: bool
) -> None:
    assert judged(admission(way="open", token=""), ("host", host)) == (200 if here else 403)
    assert judged(admission(way="link", token=""), ("host", host)) == 401
    assert judged(admission(way="link"), ("host", host)) == 401


@pytest.mark.parametrize("host", HOSTS)
def test_a_server_that_others_can_reach_believes_no_host_name(host: str) -> None:
    assert judged(admission(), ("host", host)) == 401
    assert judged(admission(way="closed", token=""), ("host", host)) == 403
    assert judged(admission(), ("host", host), BEARER) == 200


FORWARDED = [
    *(("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "")),
    *(("x-forwarded-for", "127.0.0.1"), ("x-forwarded-host", "localhost"), ("x-forwarded-proto", "https")),
    *(("x-forwarded-server", "proxy"), ("x-real-ip", "127.0.0.1"), ("via", "1.1 proxy")),
    *(("cf-connecting-ip", "1.2.3.4"), ("true-client-ip", "1.2.3.4")),
]


@pytest.mark.parametrize("header", FORWARDED, ids=lambda header: f"{header[0]}={header[1]}")
def test_what_a_proxy_hands_on_is_not_from_this_machine(header: tuple[str, str]) -> None:
    assert judged(admission(way="open", token=""), HERE, header) == 403
    assert judged(admission(way="link"), HERE, header) == 401
    assert judged(admission(way="link"), HERE, header, BEARER) == 200


LISTENING = [
    ("127.0.0.1", None, True),
    ("localhost", None, True),
    ("::1", None, True),
    ("127.0.0.1", "http://localhost:8080", True),
    ("127.0.0.1", "http://[::1]:8080/x", True),
    ("127.0.0.1", "https://chat.example.com", False),
    ("127.0.0.1", "http://localhost.evil.example", False),
    ("0.0.0.0", None, False),
    ("::", None, False),
    ("192.168.1.5", None, False),
    ("0.0.0.0", "http://localhost:8080", False),
    ("chat.example.com", None, False),
]


@pytest.mark.parametrize(("host", "public", "here"), LISTENING)
def test_it_is_open_only_where_nobody_else_can_reach_it(host: str, public: str | None, here: bool) -> None:
    assert ServerConfig(host=host, publicUrl=public).is_open_here == here


OPENING = [BEARER[1], f"bearer {TOKEN}", f"Bearer   {TOKEN} "]
WRONG = [
    *("Bearer wrong", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Bearer {TOKEN.upper()}", "Bearer ", "Bearer", ""),
    *(TOKEN, BASIC[1], f"Basic {TOKEN}", "Bearer t\xf6ken\xff", "Bearer \ud800", "Bearer " + "x" * 100_000),
]
GARBAGE = [f"{COOKIE}{end}" for end in (f"={TOKEN}", "", "=.", "=99999999999.", "=\u0663\u0663.ab", "=\ud800.\ud800")]
CREDENTIALS: list[tuple[list[tuple[str, str]], int]] = [
    *(([("authorization", value)], 200) for value in OPENING),
    *(([("authorization", value)], 401) for value in WRONG),
    *(([("cookie", value)], 401) for value in ("", *GARBAGE)),
    *((headers, 401) for headers in ([], [("x-token", TOKEN)])),
]


@pytest.mark.parametrize(("headers", "status"), CREDENTIALS, ids=lambda value: repr(value)[:60])
def test_what_opens_the_chat_from_elsewhere(headers: list[tuple[str, str]], status: int) -> None:
    assert judged(admission(), AWAY, *headers) == status
    if status != 200:
        assert judged(admission(way="link"), HERE, *headers) == status
        assert judged(admission(way="link", token=""), HERE, *headers) == status
        assert judged(admission(way="closed", token=""), AWAY, *headers) == 403


def test_where_no_token_is_set_nothing_opens_it_from_elsewhere() -> None:
    door = admission(way="closed", token="")
    for credential in (BEARER, ("authorization", "Bearer "), ("cookie", f"{COOKIE}=x.{'0' * 64}")):
        assert judged(door, AWAY, credential) == 403
        assert not at_once(door.signed_in([AWAY, credential]))
    for token in (TOKEN, "", "once-", "once-guessed"):
        with pytest.raises(Rejected):
            session(door, token=token)


SESSIONS = KnownSessions()


def session_of(token: str = TOKEN) -> str:
    return session(admission(token=token, sessions=SESSIONS), token=token)[1].partition("=")[2]


COOKIES: list[tuple[str, str, int]] = [
    ("its own", f"{COOKIE}={session_of()}", 200),
    ("its own over TLS", f"{SECURE_COOKIE}={session_of()}", 200),
    ("among others", f"a=b; {COOKIE}={session_of()}; c=d", 200),
    ("behind one of a neighbour that no standard allows", f'cart[0]={{"a": 1}}; {COOKIE}={session_of()}', 200),
    ("behind one whose name is an attribute's", f"path=/x; {COOKIE}={session_of()}", 200),
    ("behind a forged one of the same name", f"{COOKIE}=1.x; {COOKIE}={session_of()}", 200),
    ("without spaces", f"a=b;{COOKIE}={session_of()}", 200),
    ("of another token", f"{COOKIE}={session_of('another-token-of-sixteen')}", 401),
    ("under another name", f"other_{COOKIE}={session_of()}", 401),
    ("made to last", f"{COOKIE}=9{session_of()}", 401),
    ("cut", f"{COOKIE}={session_of()[:-1]}", 401),
    ("changed", f"{COOKIE}={session_of()[:-1]}g", 401),
    ("the end alone", f"{COOKIE}={session_of().partition('.')[0]}", 401),
    ("the signature alone", f"{COOKIE}={session_of().partition('.')[2]}", 401),
]


@pytest.mark.parametrize(("cookie", "status"), [case[1:] for case in COOKIES], ids=[case[0] for case in COOKIES])
def test_which_session_is_good(cookie: str, status: int) -> None:
    door = admission(sessions=SESSIONS)
    assert judged(door, AWAY, ("cookie", cookie)) == status
    assert at_once(door.signed_in([AWAY, ("cookie", cookie)])) == (status == 200)


def test_what_this_token_did_not_sign_is_not_looked_up() -> None:
    sessions = KnownSessions()
    door = admission(sessions=sessions)
    for value in ("", ".", "x.y", f"x.{'0' * 64}", session_of("another-token-of-sixteen")):
        assert judged(door, AWAY, ("cookie", f"{COOKIE}={value}")) == 401
    assert sessions.looked_up == 0


def test_a_session_ends_when_it_says() -> None:
    clock = Clock()
    door = admission(now=clock)
    cookie = session(door)
    clock.now = BEGAN + SESSION_SECONDS - 1
    assert judged(door, AWAY, cookie) == 200
    clock.now = BEGAN + SESSION_SECONDS
    assert judged(door, AWAY, cookie) == 401


def test_a_session_is_good_at_every_replica_and_after_a_restart_and_for_no_new_token() -> None:
    sessions = KnownSessions()
    cookie = session(admission(sessions=sessions))
    assert judged(admission(sessions=sessions), AWAY, cookie) == 200
    assert judged(admission(token="the-new-token-of-sixteen", sessions=sessions), AWAY, cookie) == 401


def test_signing_in_anew_ends_the_session_before_and_signing_out_ends_it_for_all() -> None:
    sessions = KnownSessions()
    one, other = admission(sessions=sessions), admission(sessions=sessions)
    first = session(one)
    second = session(one, first)
    assert [judged(other, AWAY, cookie) for cookie in (first, second)] == [401, 200]
    at_once(other.sign_out([second]))
    assert judged(one, AWAY, second) == 401


def test_a_link_signs_in_once_and_not_for_ever() -> None:
    clock = Clock()
    door = admission(way="link", token="", now=clock)
    code = door.offer_link() or ""
    assert judged(door, HERE, session(door, token=code)) == 200
    with pytest.raises(Rejected, match="used or expired"):
        session(door, token=code)
    late = door.offer_link() or ""
    clock.now += 3600
    with pytest.raises(Rejected, match="used or expired"):
        session(door, token=late)
    first, second = door.offer_link() or "", door.offer_link() or ""
    with pytest.raises(Rejected, match="used or expired"):
        session(door, token=first)
    assert judged(door, HERE, session(door, token=f" {second}\n")) == 200


def test_a_link_that_could_not_be_used_can_be_used_again() -> None:
    class Unwritable(KnownSessions):
        async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
            raise OSError("the disk is full")

    door = admission(way="link", token="", sessions=Unwritable())
    code = door.offer_link() or ""
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            session(door, token=code)


def test_no_link_is_offered_where_the_page_is_open_or_for_others_as_well() -> None:
    ways: tuple[Way, ...] = ("open", "token", "closed")
    assert [admission(way=way).offer_link() for way in ways] == [None, None, None]


@given(st.text(max_size=200))
def test_no_text_that_somebody_makes_up_is_a_session_or_breaks_the_judgement(made_up: str) -> None:
    for header in ("cookie", "authorization", "origin", "host", "sec-fetch-site"):
        for text in (made_up, f"{COOKIE}={made_up}", f"Bearer {made_up}", f"http://{made_up}"):
            assert judged(admission(), AWAY, (header, text)) == (403 if header in ("origin", "sec-fetch-site") else 401)
            assert judged(admission(), AWAY, (header, text), changes=True) == 403


def test_a_password_that_a_proxy_asks_for_is_not_taken_for_our_token() -> None:
    """A proxy with a password of its own passes it on with every request."""
    door = admission()
    cookie = session(door)
    assert judged(door, AWAY, BASIC, cookie) == 200
    with pytest.raises(Rejected, match="not signed in") as refusal:
        at_once(door.judge([AWAY, BASIC], changes=False))
    assert not refusal.value.guess


@pytest.mark.parametrize("name", ["", "example.com", "localhost.example", "1.2.3.4", "::2", "lo"])
def test_other_machines_are_not_this_one(name: str) -> None:
    assert not is_loopback(name)

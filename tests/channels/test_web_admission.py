"""Who may come into the web chat: hosts, tokens and sessions as tables, request by request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Rejected
from channels.web.admission import ADDRESSES_MAX, COOKIE, SECURE_COOKIE, SESSION_SECONDS, WRONG_TOKENS_MAX, is_loopback
from gateway.config.server import ServerConfig
from tests.channels.web_admission import AWAY, BASIC, BEARER, BEGAN, HERE, TOKEN, Clock, admission, judged

HOSTS = {
    "localhost": True,
    "localhost:8080": True,
    "LOCALHOST": True,
    "localhost.": True,
    "chat.localhost:1": True,
    "127.0.0.1": True,
    "127.0.0.1:80": True,
    "127.9.9.9": True,
    "[::1]": True,
    "[::1]:8080": True,
    "": False,
    "evil.example": False,
    "evil.example:8080": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "127.0.0.1.nip.io": False,
    "notlocalhost": False,
    "localhost@evil.example": False,
    "evil.example/localhost": False,
    "evil.example#localhost": False,
    "0.0.0.0": False,
    "0.0.0.0:8080": False,
    "192.168.1.5": False,
    "[::]": False,
    "[::ffff:8.8.8.8]": False,
    "[fe80::1]": False,
    "[": False,
    "[::1": False,
    "2130706433": False,
    "0x7f000001": False,
    "127.1": False,
    "[::1]evil.example": False,
    "\xe9.localhost.evil": False,
}


@pytest.mark.parametrize(("host", "here"), HOSTS.items())
def test_on_this_machine_only_a_name_that_nobody_else_can_give_it_comes_in_without_a_token(
    host: str, here: bool
) -> None:
    assert judged(admission(here=True), ("host", host)) == (200 if here else 401)
    assert judged(admission(here=True, token=""), ("host", host)) == (200 if here else 403)


@pytest.mark.parametrize("host", HOSTS)
def test_a_server_that_others_can_reach_believes_no_host_name(host: str) -> None:
    assert judged(admission(), ("host", host)) == 401
    assert judged(admission(token=""), ("host", host)) == 403
    assert judged(admission(), ("host", host), BEARER) == 200


FORWARDED = [
    ("forwarded", "for=1.2.3.4"),
    ("x-forwarded-for", "1.2.3.4"),
    ("x-forwarded-for", ""),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-host", "localhost"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-server", "proxy"),
    ("x-real-ip", "127.0.0.1"),
    ("via", "1.1 proxy"),
    ("cf-connecting-ip", "1.2.3.4"),
    ("true-client-ip", "1.2.3.4"),
]


@pytest.mark.parametrize("header", FORWARDED, ids=lambda header: f"{header[0]}={header[1]}")
def test_what_a_proxy_hands_on_is_not_from_this_machine(header: tuple[str, str]) -> None:
    assert judged(admission(here=True), HERE, header) == 401
    assert judged(admission(here=True), HERE, header, BEARER) == 200
    assert judged(admission(here=True, token=""), HERE, header) == 403


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


CREDENTIALS: list[tuple[str, list[tuple[str, str]], int]] = [
    ("nothing", [], 401),
    ("the token", [BEARER], 200),
    ("the token, the scheme in other letters", [("authorization", f"bearer {TOKEN}")], 200),
    ("the token, with spaces around", [("authorization", f"Bearer   {TOKEN} ")], 200),
    ("a wrong token", [("authorization", "Bearer wrong")], 401),
    ("the beginning of the token", [("authorization", f"Bearer {TOKEN[:-1]}")], 401),
    ("the token and more", [("authorization", f"Bearer {TOKEN}x")], 401),
    ("the token in other letters", [("authorization", f"Bearer {TOKEN.upper()}")], 401),
    ("an empty token", [("authorization", "Bearer ")], 401),
    ("no token at all", [("authorization", "Bearer")], 401),
    ("an empty header", [("authorization", "")], 401),
    ("the bare token", [("authorization", TOKEN)], 401),
    ("another scheme", [BASIC], 401),
    ("the token under another scheme", [("authorization", f"Basic {TOKEN}")], 401),
    ("letters beyond ASCII", [("authorization", "Bearer t\xf6ken\xff")], 401),
    ("half a character", [("authorization", "Bearer \ud800")], 401),
    ("a very long token", [("authorization", "Bearer " + "x" * 100_000)], 401),
    ("the token in a cookie", [("cookie", f"{COOKIE}={TOKEN}")], 401),
    ("the token in another header", [("x-token", TOKEN)], 401),
    ("an empty cookie", [("cookie", "")], 401),
    ("a cookie of garbage", [("cookie", f"{COOKIE}")], 401),
    ("a cookie without its parts", [("cookie", f"{COOKIE}=.")], 401),
    ("a cookie that never ends", [("cookie", f"{COOKIE}=99999999999.")], 401),
    ("a cookie of strange digits", [("cookie", f"{COOKIE}=\u0663\u0663.ab")], 401),
    ("a cookie of half a character", [("cookie", f"{COOKIE}=\ud800.\ud800")], 401),
]


@pytest.mark.parametrize(
    ("headers", "status"), [case[1:] for case in CREDENTIALS], ids=[case[0] for case in CREDENTIALS]
)
def test_what_opens_the_chat_from_elsewhere(headers: list[tuple[str, str]], status: int) -> None:
    assert judged(admission(), AWAY, *headers) == status
    if status != 200:
        assert judged(admission(here=True), AWAY, *headers) == status
        assert judged(admission(token=""), AWAY, *headers) == 403


def test_where_no_token_is_set_nothing_opens_it_from_elsewhere() -> None:
    door = admission(token="")
    nobody = admission(token="", here=True).session()
    for credential in (BEARER, ("authorization", "Bearer "), ("cookie", f"{COOKIE}={nobody}")):
        assert judged(door, AWAY, credential) == 403
        assert not door.signed_in([AWAY, credential])


def session_of(token: str = TOKEN, clock: Clock | None = None) -> str:
    return admission(token=token, now=clock).session()


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
    door = admission()
    assert judged(door, AWAY, ("cookie", cookie)) == status
    assert door.signed_in([AWAY, ("cookie", cookie)]) == (status == 200)


def test_a_session_ends_when_it_says() -> None:
    clock = Clock()
    door = admission(now=clock)
    cookie = ("cookie", f"{COOKIE}={door.session()}")
    clock.now = BEGAN + SESSION_SECONDS - 1
    assert judged(door, AWAY, cookie) == 200
    clock.now = BEGAN + SESSION_SECONDS
    assert judged(door, AWAY, cookie) == 401


def test_a_session_is_good_at_every_replica_and_after_a_restart_and_for_no_new_token() -> None:
    cookie = ("cookie", f"{COOKIE}={admission().session()}")
    assert judged(admission(), AWAY, cookie) == 200
    assert judged(admission(token="the-new-token-of-sixteen"), AWAY, cookie) == 401


@given(st.text(max_size=200))
def test_no_text_that_somebody_makes_up_is_a_session_or_breaks_the_judgement(made_up: str) -> None:
    for header in ("cookie", "authorization", "origin", "host", "sec-fetch-site"):
        for text in (made_up, f"{COOKIE}={made_up}", f"Bearer {made_up}", f"http://{made_up}"):
            assert judged(admission(), AWAY, (header, text)) in (401, 403)
            assert judged(admission(), AWAY, (header, text), changes=True) == 403


def test_a_password_that_a_proxy_asks_for_is_not_taken_for_our_token() -> None:
    """A proxy with a password of its own passes it on with every request."""
    door = admission()
    cookie = ("cookie", f"{COOKIE}={door.session()}")
    for _ in range(WRONG_TOKENS_MAX + 1):
        assert judged(door, AWAY, BASIC, cookie) == 200
        assert judged(door, AWAY, BASIC) == 401
    door.check(TOKEN)


def test_whoever_guesses_keeps_nobody_else_out_and_fills_no_memory() -> None:
    door = admission()
    for _ in range(WRONG_TOKENS_MAX):
        with pytest.raises(Rejected, match="wrong token"):
            door.check("a guess", address="192.0.2.1")
    with pytest.raises(Rejected, match="too many"):
        door.check(TOKEN, address="192.0.2.1")
    door.check(TOKEN, address="192.0.2.2")
    for number in range(2 * ADDRESSES_MAX):
        with pytest.raises(Rejected):
            door.check("a guess", address=str(number))
    assert len(door._wrong) == ADDRESSES_MAX


@pytest.mark.parametrize("name", ["", "example.com", "localhost.example", "1.2.3.4", "::2", "lo"])
def test_other_machines_are_not_this_one(name: str) -> None:
    assert not is_loopback(name)

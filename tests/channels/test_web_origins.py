"""From where something may be changed in the web chat."""

import pytest

from tests.channels.web_admission import AWAY, BEARER, HERE, PAGE, admission, judged

ORIGINS: list[tuple[str, list[tuple[str, str]], int]] = [
    ("no browser", [], 200),
    ("our page", [("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")], 200),
    ("our page, an older browser", [("origin", "http://127.0.0.1:8080")], 200),
    ("the address bar", [("sec-fetch-site", "none")], 200),
    ("another site", [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")], 403),
    ("another site, an older browser", [("origin", "https://evil.example")], 403),
    ("another port of this machine", [("origin", "http://127.0.0.1:3000"), ("sec-fetch-site", "same-site")], 403),
    ("another name of this machine", [("origin", "http://localhost:8080"), ("sec-fetch-site", "cross-site")], 403),
    ("without an origin, but told to be another site", [("sec-fetch-site", "cross-site")], 403),
    ("a neighbour of the site", [("sec-fetch-site", "same-site")], 403),
    ("a sandbox", [("origin", "null")], 403),
    ("an empty origin", [("origin", "")], 403),
    ("an origin that is no address", [("origin", "http://[")], 403),
    ("an origin with our name in front", [("origin", "http://127.0.0.1:8080.evil.example")], 403),
    ("an origin with our name as a user", [("origin", "http://127.0.0.1:8080@evil.example")], 403),
    ("an unknown word", [("sec-fetch-site", "perhaps")], 403),
]


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize(("headers", "status"), [case[1:] for case in ORIGINS], ids=[case[0] for case in ORIGINS])
def test_from_where_something_may_be_read_or_changed(
    headers: list[tuple[str, str]], status: int, changes: bool
) -> None:
    assert judged(admission(way="open", token=""), HERE, PAGE, *headers, changes=changes) == status
    assert judged(admission(), HERE, PAGE, BEARER, *headers, changes=changes) == status


def test_what_changes_something_must_say_that_it_is_our_page() -> None:
    assert judged(admission(way="open", token=""), HERE, changes=True) == 403
    assert judged(admission(), AWAY, BEARER, changes=True) == 403
    assert judged(admission(way="open", token=""), HERE, changes=False) == 200


PUBLIC: list[tuple[str | None, str, str, int]] = [
    ("chat.example.com", "127.0.0.1:8080", "https://chat.example.com", 200),
    ("chat.example.com:8443", "127.0.0.1:8080", "https://chat.example.com:8443", 200),
    ("chat.example.com:443", "127.0.0.1:8080", "https://chat.example.com", 200),
    ("Chat.Example.com", "127.0.0.1:8080", "https://chat.example.com", 200),
    ("chat.example.com", "127.0.0.1:8080", "https://evil.example", 403),
    ("chat.example.com", "127.0.0.1:8080", "https://chat.example.com:444", 403),
    (None, "chat.example.com", "https://chat.example.com", 200),
    (None, "chat.example.com:443", "https://chat.example.com", 200),
    (None, "127.0.0.1:8080", "https://chat.example.com", 403),
    (None, "", "null", 403),
]


@pytest.mark.parametrize(("public", "host", "origin", "status"), PUBLIC)
def test_behind_a_proxy_the_page_comes_from_the_public_address(
    public: str | None, host: str, origin: str, status: int
) -> None:
    door = admission(public=public)
    assert judged(door, ("host", host), ("origin", origin), PAGE, BEARER, changes=True) == status

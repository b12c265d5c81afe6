from typing import Any

import pytest

from gateway.http.request import ADDRESSES_MAX, WINDOW_SECONDS, Guesses, Peer, Peers
from tests.channels.contexts import Clock

CASES = [
    ((), "203.0.113.9", "1.1.1.1", "https", Peer(address="203.0.113.9", secure=False)),
    (("10.0.0.0/8",), "203.0.113.9", "1.1.1.1", "https", Peer(address="203.0.113.9", secure=False)),
    (("10.0.0.0/8",), "10.0.0.1", "1.1.1.1", "https", Peer(address="1.1.1.1", secure=True)),
    (("10.0.0.0/8",), "10.0.0.1", "6.6.6.6, 1.1.1.1, 10.2.3.4", "http", Peer(address="1.1.1.1", secure=False)),
    (("10.0.0.0/8",), "10.0.0.1", "6.6.6.6, not an address", "", Peer(address="10.0.0.1", secure=False)),
    (("127.0.0.1",), "::ffff:127.0.0.1", "2001:db8::1", "HTTPS", Peer(address="2001:db8::1", secure=True)),
    (("10.0.0.0/8",), "10.0.0.1", "1.1.1.1", "https|http", Peer(address="1.1.1.1", secure=False)),
    (("127.0.0.1",), "127.0.0.1", None, None, Peer(address="127.0.0.1", secure=False)),
]


@pytest.mark.parametrize(("trusted", "client", "chain", "protocol", "peer"), CASES)
def test_forwarding_headers_count_from_trusted_proxies_only(
    trusted: tuple[str, ...], client: str, chain: str | None, protocol: str | None, peer: Peer
) -> None:
    headers = [(b"x-forwarded-for", chain.encode())] if chain is not None else []
    headers += [(b"x-forwarded-proto", it.encode()) for it in protocol.split("|")] if protocol is not None else []
    scope = {"client": (client, 4711), "scheme": "http", "headers": headers}
    assert Peers(trusted).of(scope) == peer


MAX = 3


def of(address: str) -> dict[str, Any]:
    return {"type": "http", "scheme": "http", "client": (address, 1), "headers": []}


def test_rate_limit_of_guesses_waits_a_minute() -> None:
    clock = Clock()
    limit = Guesses(Peers(()), per_minute=MAX, now=clock)
    for _ in range(MAX):
        assert limit.wait(of("2001:db8::1")) == 0
        clock.now += 10
    for _ in range(50 * MAX):  # those that are not looked at do not prolong it
        limit.wait(of("2001:db8::1"))
    assert limit.wait(of("2001:db8::ffff:1")) == WINDOW_SECONDS - 30  # one customer has all of such a network
    assert [limit.wait(of(other)) for other in ("2001:db8:0:1::1", "192.0.2.1", "", "a socket")] == [0] * 4
    clock.now += 29.5
    assert limit.wait(of("2001:db8::1")) == 1
    clock.now += 0.5
    assert limit.wait(of("2001:db8::1")) == 0


def test_rate_limit_of_guesses_has_bounded_memory() -> None:
    limit = Guesses(Peers(()), per_minute=MAX, now=Clock())
    for number in range(2 * ADDRESSES_MAX):
        limit.wait(of(f"10.0.{number // 256}.{number % 256}"))
    assert len(limit._wrong) == ADDRESSES_MAX

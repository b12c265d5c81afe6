import pytest

from gateway.request import Peer, Peers

CASES = [
    ((), "203.0.113.9", "1.1.1.1", "https", Peer(address="203.0.113.9", secure=False)),
    (("10.0.0.0/8",), "203.0.113.9", "1.1.1.1", "https", Peer(address="203.0.113.9", secure=False)),
    (("10.0.0.0/8",), "10.0.0.1", "1.1.1.1", "https", Peer(address="1.1.1.1", secure=True)),
    (("10.0.0.0/8",), "10.0.0.1", "6.6.6.6, 1.1.1.1, 10.2.3.4", "http", Peer(address="1.1.1.1", secure=False)),
    (("10.0.0.0/8",), "10.0.0.1", "6.6.6.6, not an address", "", Peer(address="10.0.0.1", secure=False)),
    (("127.0.0.1",), "::ffff:127.0.0.1", "2001:db8::1", "HTTPS", Peer(address="2001:db8::1", secure=True)),
    (("127.0.0.1",), "127.0.0.1", None, None, Peer(address="127.0.0.1", secure=False)),
]


@pytest.mark.parametrize(("trusted", "client", "chain", "protocol", "peer"), CASES)
def test_forwarding_headers_count_from_trusted_proxies_only(
    trusted: tuple[str, ...], client: str, chain: str | None, protocol: str | None, peer: Peer
) -> None:
    headers = [(b"x-forwarded-for", chain.encode())] if chain is not None else []
    headers += [(b"x-forwarded-proto", protocol.encode())] if protocol is not None else []
    scope = {"client": (client, 4711), "scheme": "http", "headers": headers}
    assert Peers(trusted).of(scope) == peer

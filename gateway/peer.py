"""Who is at the other end of a request: the connection's own address, or the one that a trusted proxy reports.

Forwarding headers count only where the connection comes from `server.trustedProxies`; from anybody else they are text that
whoever writes it can vary at will. They decide limits and the Secure mark of cookies, never who somebody is.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """`address` is an IP address, or "" where the connection has none; `secure`: the person's own connection is TLS."""

    address: str
    secure: bool


class Peers:
    """Tells the peer of a request. `trusted` are addresses and networks, as in `server.trustedProxies`."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: tuple[Network, ...] = tuple(ipaddress.ip_network(it, strict=False) for it in trusted)

    def of(self, scope: Any) -> Peer:
        """The peer of an ASGI request scope."""
        client = scope.get("client")
        address = client[0] if client else ""
        secure = scope.get("scheme") == "https"
        if not self.trusts(address):
            return Peer(address=address, secure=secure)
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        protocols = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        hops = b",".join(forwarded).decode("latin-1").split(",")
        return Peer(
            address=self._nearest_stranger([hop.strip() for hop in hops], address),
            secure=protocols[-1].strip().lower() == b"https" if protocols else secure,
        )

    def _nearest_stranger(self, hops: Sequence[str], nearest: str) -> str:
        """The last hop that no trusted proxy stands for: what is in front of it was written by that stranger."""
        for hop in reversed(hops):
            try:
                nearest = str(ipaddress.ip_address(hop.strip("[]")))
            except ValueError:
                return nearest
            if not self.trusts(nearest):
                return nearest
        return nearest

    def trusts(self, address: str) -> bool:
        """Whether it is a proxy's."""
        if not self._trusted:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._trusted)

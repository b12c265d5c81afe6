"""Wrong secrets, counted by address: one limit for every door behind which a secret is asked for.

A door looks at the secret first and asks here only where that is wrong, so whoever has the right one is never kept out,
whatever others at the same address do. What makes a token safe is its length; this keeps those who guess from filling
the log, and tells a misconfigured client to slow down.
"""

import ipaddress
import math
from collections.abc import Callable
from typing import Any

from gateway.peer import Peers

WINDOW_SECONDS = 60.0
ADDRESSES_MAX = 1_000
"""Beyond that, whoever has not guessed for longest is forgotten."""
_IPV6_PREFIX = 64
"""One customer's network: he may take any address in it."""


class Guesses:
    """`per_minute` wrong secrets are answered as such."""

    def __init__(self, peers: Peers, *, per_minute: int, now: Callable[[], float]) -> None:
        self._peers = peers
        self._per_minute = per_minute
        self._now = now
        self._wrong: dict[str, list[float]] = {}
        """When wrong secrets came, by address; who tried last stands last."""

    def wait(self, scope: Any) -> int:
        """Count the wrong secret of a request. How many seconds its sender is to wait, 0 while he may go on."""
        now, address = self._now(), _network(self._peers.of(scope).address)
        wrong = [at for at in self._wrong.pop(address, ()) if at > now - WINDOW_SECONDS]
        self._wrong[address] = wrong
        if len(self._wrong) > ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        if len(wrong) >= self._per_minute:
            return max(1, math.ceil(wrong[0] + WINDOW_SECONDS - now))
        wrong.append(now)
        return 0


def _network(address: str) -> str:
    """What counts as one guesser."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False)) if parsed.version == 6 else str(parsed)

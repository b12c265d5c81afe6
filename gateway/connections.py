"""All connections of the door: how many there may be, in all and of one address, and how long each may keep us waiting.

A connection that waits for its peer costs a file and nothing else, so it is what makes room. One whose request is being
answered is never cut: its body and its answer have deadlines of their own. A trusted proxy's connections carry everybody's
requests; those are counted by the address that each is from, while it is answered.
"""

import asyncio
from collections import Counter
from typing import Any

import structlog
from starlette.responses import Response

from gateway.config.server import ServerConfig
from gateway.connection import BUSY, BUSY_ADDRESS, Connection, Refusal
from gateway.metrics import Metrics
from gateway.request import Peers, network_of

SWEEP_SECONDS = 0.5

log = structlog.get_logger()


class Connections:
    """The connections of one gateway. `maximum` may be set lower, where there are fewer files."""

    def __init__(self, limits: ServerConfig, peers: Peers, metrics: Metrics) -> None:
        self.limits = limits
        self.maximum = limits.max_connections
        self._metrics = metrics
        self._peers = peers
        self._open: dict[Connection, str | None] = {}
        """With the network that each counts for."""
        self._waiting: dict[Connection, float] = {}
        """For the peer, since when; who has waited longest is first."""
        self._by_network: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None

    def protocol(self, **given: Any) -> Connection:
        """What uvicorn makes for each connection."""
        return Connection(self, **given)

    def opened(self, connection: Connection) -> None:
        if not self._sweeping:
            self._sweeping = connection.loop.call_later(SWEEP_SECONDS, self._sweep, connection.loop)
        address = connection.client[0] if connection.client else ""
        proxied, network = self._peers.trusts(address), network_of(address)
        counted = not proxied and self._enter(network)
        self._open[connection] = network if counted else None
        if proxied:
            connection.app = self._by_request(connection.app)
        elif not counted:
            _turn_away(connection, BUSY_ADDRESS)
            return
        if len(self._open) > self.maximum:
            if not self._waiting:
                _turn_away(connection, BUSY)
                return
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self.refused(BUSY)
            oldest.transport.abort()
        self.owes(connection)

    def closed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if (network := self._open.pop(connection)) is not None:
            self._leave(network)

    def owes(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._waiting[connection] = connection.loop.time()

    def owed(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def refused(self, refusal: Refusal) -> None:
        self._refused[refusal.reason] += 1
        self._metrics.refused.labels(refusal.reason).inc()

    def _by_request(self, app: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            network = network_of(self._peers.of(scope).address)
            if not self._enter(network):
                self.refused(BUSY_ADDRESS)
                busy = BUSY_ADDRESS
                response = Response(busy.sentence, busy.status, {"retry-after": "5"}, "text/plain")
                await response(scope, receive, send)
                return
            try:
                await app(scope, receive, send)
            finally:
                self._leave(network)

        return counted

    def _enter(self, network: str) -> bool:
        if self._by_network[network] >= self.limits.max_connections_per_address:
            return False
        self._by_network[network] += 1
        return True

    def _leave(self, network: str) -> None:
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give up who has kept us waiting for too long; one line in the log for all that were refused meanwhile."""
        latest = loop.time() - self.limits.connection_timeout_seconds
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if since > latest:
                break
            del self._waiting[connection]
            connection.give_up()
        if self._refused:
            log.warning("connections_refused", **{reason.replace(" ", "_"): n for reason, n in self._refused.items()})
            self._refused.clear()
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep, loop) if self._open else None


def _turn_away(connection: Connection, refusal: Refusal) -> None:
    connection.refuse(refusal)
    connection.transport.close()

"""One part from the outbox to its end: attempt after attempt, until it is sent or given up.

What has happened outside is written down however long the database is away. Nothing is sent for a chat that may be
somebody else's by now.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from gateway.delivery import Delivered, GivenUp, Postponed, Report
from gateway.metrics import Metrics
from gateway.store.store import Lease, Part, Store, StoreUnavailable

UNWRITTEN_SECONDS = 0.25
UNWRITTEN_SECONDS_MAX = 30.0

T = TypeVar("T")
log = structlog.get_logger()


class Outbox:
    """`send` makes one attempt; `pause` sleeps, or raises where the gateway stops."""

    def __init__(
        self,
        *,
        store: Store,
        send: Callable[[Part], Awaitable[Report]],
        pause: Callable[[float], Awaitable[None]],
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._send = send
        self._pause = pause
        self._metrics = metrics
        self._now = now

    async def deliver(self, lease: Lease, part: Part) -> bool:
        """True where that was the chat's last work and it has been given back. Its later parts wait behind this one."""
        while True:
            if (wait := part.next_at - self._now()) > 0:
                await self._pause(wait)
            if not self._store.held():
                raise StoreUnavailable("whose chat it is cannot be told just now: nothing is sent")
            match await self._send(part):
                case Delivered(message_id=message_id):
                    return await self._written(partial(self._store.sent, lease, part, message_id))
                case GivenUp(reason=reason):
                    self._metrics.dead("part")
                    return await self._written(partial(self._store.failed, lease, part, reason))
                case Postponed(seconds=seconds, ambiguous=ambiguous):
                    due = self._now() + seconds
                    await self._store.postpone(lease, part, due, ambiguous=ambiguous)
                    counted = part.ambiguous + ambiguous
                    part = replace(part, attempts=part.attempts + 1, ambiguous=counted, next_at=due)

    async def _written(self, write: Callable[[], Awaitable[T]]) -> T:
        """Else it would happen again."""
        failures = 0
        while True:
            try:
                return await write()
            except StoreUnavailable as error:
                failures += 1
                log.error("outcome_unwritten", failures=failures, error=repr(error))
                await asyncio.sleep(min(UNWRITTEN_SECONDS * 2.0 ** min(failures, 10), UNWRITTEN_SECONDS_MAX))

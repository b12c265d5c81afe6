"""One part from the outbox to its end: attempt after attempt, until it is sent or given up.

What has happened outside is written down however long the database is away. Nothing is sent for a chat that may be
somebody else's by now.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from gateway.delivery import Begin, Delivered, GivenUp, Postponed, Report
from gateway.metrics import Metrics
from gateway.store.store import Fenced, Lease, Part, Store, StoreUnavailable

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
            match await self._attempt(lease, part):
                case Begin():
                    mark = -self._now()
                    await self._store.begin(lease, part, mark)
                    part = replace(part, next_at=mark, begun=True)
                case Delivered(message_id=message_id):
                    return await self._written(partial(self._store.sent, lease, part, message_id))
                case GivenUp(reason=reason):
                    self._metrics.dead("part")
                    return await self._written(partial(self._store.failed, lease, part, reason))
                case Postponed(seconds=seconds, ambiguous=ambiguous):
                    due = self._now() + seconds
                    await self._store.postpone(lease, part, due, ambiguous=ambiguous)
                    counted = part.ambiguous + ambiguous
                    part = replace(part, attempts=part.attempts + 1, ambiguous=counted, next_at=due, begun=False)

    async def _attempt(self, lease: Lease, part: Part) -> Report:
        """A send that is cut off by our own end may have arrived, and whoever takes the chat over must know."""
        try:
            return await self._send(part)
        except asyncio.CancelledError:
            with suppress(Fenced, StoreUnavailable):
                await self._store.postpone(lease, part, min(part.next_at, self._now()), ambiguous=True)
            raise

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

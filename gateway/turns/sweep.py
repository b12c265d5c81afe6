"""The sweep: finds chats that have work and no lane, and measures how long the oldest message has waited.

It takes over the chats of a dead or frozen replica, messages accepted without a free slot, replayed dead letters, and
what should not exist: a chat that this process owns and forgot. So every message is found within one round.
"""

import asyncio
from contextlib import suppress

import structlog

from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.records import Lease
from gateway.store.store import Backlog
from gateway.turns.lanes import Lanes

SHARED_SECONDS = 1.0
ALONE_SECONDS = 5.0
AUDIT_SECONDS = 5.0

log = structlog.get_logger()


class Sweep:
    """Runs until it is cancelled. `oldest_seconds` is the age of the oldest unanswered message, `backlog` the work found
    with it."""

    def __init__(self, runtime: Runtime, lanes: Lanes) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._lanes = lanes
        self._suspects: set[Lease] = set()
        self.oldest_seconds = 0.0
        self.backlog = Backlog(messages=0, parts=0, oldest=None)

    async def once(self) -> int:
        """Claims as many chats as there is room for and returns their number. Raises StoreUnavailable."""
        self._lanes.wanted.clear()
        if self._runtime.control.draining or self._lanes.free_slots <= 0 or not self._store.lease_valid():
            return 0
        leases = await self._store.claim(self._lanes.free_slots)
        for lease in leases:
            self._lanes.open(lease)
        if taken_over := sum(lease.sid not in self._lanes.expected for lease in leases):
            self._runtime.metrics.taken_over.inc(taken_over)
            log.info("chats_taken_over", count=taken_over)
        self._lanes.expected.clear()
        return len(leases)

    async def run(self) -> None:
        every = SHARED_SECONDS if self._store.shared else ALONE_SECONDS
        audited = 0.0
        while True:
            try:
                if await self.once() == 0:
                    with suppress(TimeoutError):  # not wait_for: before Python 3.12 it may swallow a cancellation
                        async with asyncio.timeout(every):
                            await self._lanes.wanted.wait()
                else:
                    await asyncio.sleep(0)  # there may be more
                if (now := asyncio.get_running_loop().time()) - audited >= AUDIT_SECONDS:
                    audited = now
                    await self._audit()
            except StoreUnavailable as error:
                log.warning("sweep_failed", error=repr(error))
                await asyncio.sleep(every)
            except Exception as error:  # the sweep's edge: nothing else finds forgotten chats
                log.error("sweep_failed", exc_info=error)
                await asyncio.sleep(every)

    async def _audit(self) -> None:
        """Opens a lane for a forgotten chat: one that is ours in the database and has had no lane twice in a row."""
        forgotten = {lease for lease in await self._store.leased() if not self._lanes.has(lease)}
        for lease in sorted(forgotten & self._suspects, key=lambda lease: lease.sid):
            log.error("lane_missing", session=lease.sid, epoch=lease.epoch)
            self._lanes.open(lease)
        self._suspects = forgotten
        if not self._store.shared:  # the command line, which may have stopped something, cannot notify us
            for sid in [sid for sid, lane in self._runtime.control.lanes.items() if lane.turn is not None]:
                await self._runtime.control.apply_stop(sid)
        backlog, metrics = await self._store.backlog(), self._runtime.metrics
        self.backlog = backlog
        now = self._runtime.now()
        self.oldest_seconds = max(0.0, now - (now if backlog.oldest is None else backlog.oldest))
        metrics.oldest.set(self.oldest_seconds)
        metrics.inbox.set(backlog.messages)
        metrics.outbox.set(backlog.parts)

"""Lanes: one turn per session at a time, in arrival order; sessions side by side up to a named limit.

Accepting a message claims its idle chat in the same statement, so nothing polls and no wake-up can be lost: a lane
gives its chat back only where the counter on the chat's row says that nothing is left. What a lane does for a chat, in
this order: send what is queued, then take the next message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import structlog

from gateway.delivery import Delivered, GivenUp, Postponed, Report
from gateway.store.store import Acceptance, Delivery, Fenced, Lease, Part, Store, StoreUnavailable, Work

BACKOFF_SECONDS_MAX = 30.0

log = structlog.get_logger()


class Drained(Exception):
    """The gateway is stopping: the turn has been laid down at a step border and goes on after the next start."""


class Lanes:
    """`run_turn` finishes one message durably; `send` makes one attempt at one part."""

    def __init__(
        self,
        *,
        store: Store,
        run_turn: Callable[[Lease, Work], Awaitable[None]],
        send: Callable[[Part], Awaitable[Report]],
        parallel_turns: int,
        pending_max: int,
        history_turns: int,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._run_turn = run_turn
        self._send = send
        self._slots = asyncio.Semaphore(parallel_turns)
        self._pending_max = pending_max
        self._history_turns = max(1, history_turns)
        self._now = now
        self._active: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[Acceptance]] = set()
        self._draining = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    async def accept(self, delivery: Delivery) -> Acceptance:
        """Store the message; it is answered from here on, by this process or the next. Raises StoreUnavailable.

        A caller who gives up waiting does not take the message with him: the write may still be committed, and then its
        lane must open, or it would wait for the next start.
        """
        accepting = asyncio.create_task(self._accept(delivery))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        return await asyncio.shield(accepting)

    async def _accept(self, delivery: Delivery) -> Acceptance:
        acceptance = await self._store.accept(delivery, pending_max=self._pending_max)
        if acceptance.lease is not None:
            self._open(acceptance.lease)
        return acceptance

    def _accepted(self, task: asyncio.Task[Acceptance]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("accept_failed", exc_info=error)

    async def start(self) -> int:
        """Take up what an earlier process left; how many chats that are."""
        leases = await self._store.claim()
        for lease in leases:
            self._open(lease)
        return len(leases)

    async def drain(self, grace_seconds: float) -> None:
        """Begin nothing new, let running turns come to a step border, and cancel what takes longer than that."""
        self._draining.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("turns_cancelled_at_shutdown", count=len(late))
                await asyncio.wait(late)

    def _open(self, lease: Lease) -> None:
        """Start a lane, unless this very lease has one. Judged by epoch: a chat may have been given back meanwhile."""
        if self.draining or self._active.get(lease.sid) == lease.epoch:
            return
        self._active[lease.sid] = lease.epoch
        task = asyncio.create_task(self._lane(lease), name=f"lane {lease.sid}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self, lease: Lease) -> None:
        failures, crashes = 0, 0
        try:
            while True:
                try:
                    if await self._serve(lease, crashes):
                        return
                    failures, crashes = 0, 0
                except (Fenced, Drained):
                    return
                except Exception as error:
                    failures += 1
                    crashes += not isinstance(
                        error, StoreUnavailable
                    )  # a database that is away is not the message's fault
                    log.error("lane_failed", session=lease.sid, failures=failures, error=repr(error), exc_info=error)
                    await self._pause(min(2.0**failures, BACKOFF_SECONDS_MAX))
        except Drained:
            return
        finally:
            if self._active.get(lease.sid) == lease.epoch:
                del self._active[lease.sid]

    async def _serve(self, lease: Lease, crashes: int) -> bool:
        """Send what is queued, then run one turn; True where the chat is given back or the gateway stops."""
        for part in await self._store.queued(lease):
            if await self._deliver(lease, part):
                return True
        if self.draining:
            raise Drained
        work = await self._store.next(lease, history_turns=self._history_turns)
        if work is None:
            return await self._store.release(lease)
        async with self._slots:
            if self.draining:
                raise Drained
            await self._run_turn(lease, replace(work, attempts=work.attempts + crashes))
        return False

    async def _deliver(self, lease: Lease, part: Part) -> bool:
        """Attempt after attempt until the part is sent or given up; the chat's later parts wait behind it."""
        while True:
            if (wait := part.next_at - self._now()) > 0:
                await self._pause(wait)
            match await self._send(part):
                case Delivered(message_id=message_id):
                    return await self._store.sent(lease, part, message_id)
                case GivenUp():
                    return await self._store.failed(lease, part)
                case Postponed(seconds=seconds):
                    part = replace(part, attempts=part.attempts + 1, next_at=self._now() + seconds)
                    await self._store.postpone(lease, part, part.next_at)

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless the gateway stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._draining.wait(), timeout=seconds)
            raise Drained

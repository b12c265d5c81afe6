"""Lanes: one turn per session at a time, in arrival order; sessions side by side up to a named limit.

Accepting a message claims its idle session in the same statement, so nothing polls and no wake-up can be lost: a lane
releases its session only where the counter on the session's row says that nothing is left. What a lane does, in this
order: send what is queued, then take the next messages. Who finds sessions without a lane is `gateway.sweep`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from gateway.history import Histories
from gateway.outbox import Outbox
from gateway.runtime import Drained, Lane, Runtime, Stopped
from gateway.store.records import Acceptance, Delivery, Lease, Part, Work
from gateway.store.store import Fenced, StoreUnavailable
from gateway.turns import Turns

BACKOFF_SECONDS_MAX = 30.0
PENDING_INTERNAL_MAX = 2**31 - 1
OVERDUE_SECONDS = 30.0
"""How long a turn may take to end after it was cancelled."""

log = structlog.get_logger()


class Lanes:
    def __init__(self, runtime: Runtime, *, turns: Turns, outbox: Outbox) -> None:
        limits = runtime.setup.limits
        self._runtime = runtime
        self._store = runtime.store
        self._histories = Histories(runtime.store)
        self._control = runtime.control
        self._turns = turns
        self._outbox = outbox
        self._slots = asyncio.Semaphore(limits.parallel_turns)
        self._free = limits.parallel_turns
        self._awaiting_slot = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._accepting: set[asyncio.Task[Acceptance]] = set()
        self.wanted = asyncio.Event()
        """Set where there may be sessions without an owner: another worker's notice, or a slot that others wait for."""
        runtime.accept = self.accept

    @property
    def free_slots(self) -> int:
        """How many more sessions could begin a turn now."""
        return self._free - self._awaiting_slot

    def resize(self, before: int, now: int) -> None:
        """There may be `now` turns at the same time instead of `before`; of fewer, running ones leave theirs as they end."""
        self._free += now - before
        for _ in range(now - before):
            self._slots.release()
        for _ in range(before - now):
            self._track(asyncio.create_task(self._slots.acquire(), name="slot"))
        self.wanted.set()

    async def accept(self, delivery: Delivery) -> Acceptance:
        """Store the message; it is answered from here on, by this process or the next. Raises StoreUnavailable.

        A caller who gives up waiting does not cancel the write: it may still be committed, and then its lane must open, or
        the message would wait for the next sweep.
        """
        accepting = asyncio.create_task(self._accept(delivery))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        return await asyncio.shield(accepting)

    async def _accept(self, delivery: Delivery) -> Acceptance:
        """Where several replicas share the work, one that cannot begin at once leaves the session to the others."""
        shared, draining = self._store.shared, self._control.draining
        claim = not draining and (not shared or (self.free_slots > 0 and self._store.lease_valid()))
        limits = self._runtime.setup.limits
        pending_max = PENDING_INTERNAL_MAX if delivery.internal else limits.pending_per_session
        acceptance = await self._store.accept(
            delivery, pending_max=pending_max, sender_max=limits.pending_per_sender, claim=claim
        )
        if acceptance.lease is not None:
            self.open(acceptance.lease)
        elif shared and self._control.draining and acceptance.turn is not None:
            await self._store.notify(None)
        if delivery.interrupts and acceptance.turn is not None:
            await self._control.apply_stop(delivery.sid)
        return acceptance

    def _accepted(self, task: asyncio.Task[Acceptance]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("accept_failed", exc_info=error)

    def notified(self, sid: str | None) -> None:
        """Another worker asks to look at a session, or for sessions without an owner."""
        if sid is None:
            self.wanted.set()
        elif sid in self._control.lanes:
            self._track(asyncio.create_task(self._control.apply_stop(sid)))

    async def drain(self, grace_seconds: float) -> None:
        """Begin nothing new, let running turns come to a step border, and cancel what takes longer than that."""
        self._control.drain()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("turns_cancelled_at_shutdown", count=len(late))
                await asyncio.wait(late, timeout=OVERDUE_SECONDS)
        with suppress(StoreUnavailable):
            await self._store.notify(None)

    def has(self, lease: Lease) -> bool:
        lane = self._control.lanes.get(lease.sid)
        return lane is not None and lane.lease.epoch == lease.epoch

    def open(self, lease: Lease) -> None:
        """Start a lane, unless this very lease has one. Judged by epoch: a session may have been released meanwhile."""
        if self._control.draining or self.has(lease):
            return
        lane = self._control.lanes[lease.sid] = Lane(lease)
        self._awaiting_slot += 1
        self._track(asyncio.create_task(self._lane(lane), name=f"lane {lease.sid}"))

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self, lane: Lane) -> None:
        try:
            await self._work(lane)
        except Fenced:
            self._runtime.metrics.fenced.inc()
            log.warning("lane_fenced", session=lane.lease.sid, epoch=lane.lease.epoch)
        except (Drained, asyncio.CancelledError):
            with suppress(StoreUnavailable):
                await self._store.release_for_takeover(lane.lease)
        finally:
            self._settle(lane)
            if self._control.lanes.get(lane.lease.sid) is lane:
                del self._control.lanes[lane.lease.sid]

    async def _work(self, lane: Lane) -> None:
        failures, crashes = 0, 0
        while True:
            try:
                if await self._serve(lane, crashes):
                    return
                failures, crashes = 0, 0
            except (Fenced, Drained):
                raise
            except Exception as error:  # the worker's edge: the session is tried again, later and later
                failures += 1
                crashes += not isinstance(error, StoreUnavailable)  # an absent database is not the message's fault
                sid = lane.lease.sid
                log.error("lane_failed", session=sid, failures=failures, error=repr(error), exc_info=error)
                await self._control.pause(min(2.0 ** min(failures, 10), BACKOFF_SECONDS_MAX))

    async def _serve(self, lane: Lane, crashes: int) -> bool:
        """Send what is queued, then run one turn and send its reply; True where the session was released."""
        view = await self._histories.load(lane.lease)
        if view.parts:
            self._settle(lane)
        for part in view.parts:
            if await self._outbox.deliver(lane.lease, part):
                return True
        if self._control.draining:
            raise Drained
        if view.work is None:
            return await self._store.release(lane.lease)
        # What arrived during a turn is waited for to be complete; what arrived after it begins at once.
        during_turn = view.work.waiting[0].at <= lane.ended
        if (wait := self._turns.wait_seconds(lane.lease, view.work, during_turn=during_turn)) > 0:
            await self._control.pause(wait)
            return False
        first, *others = view.work.waiting
        waiting = [replace(first, attempts=first.attempts + crashes), *others]
        for part in await self._run(lane, replace(view.work, waiting=waiting)):
            if await self._outbox.deliver(lane.lease, part):
                return True
        return False

    async def _run(self, lane: Lane, work: Work) -> Sequence[Part]:
        async with self._slots:
            if self._control.draining:
                raise Drained
            self._settle(lane)
            self._free -= 1
            try:
                return await self._turn(lane, work)
            finally:
                self._free += 1
                lane.ended = self._runtime.now()
                if self.free_slots == 1:
                    self.wanted.set()

    def _settle(self, lane: Lane) -> None:
        self._awaiting_slot -= lane.awaiting_slot
        lane.awaiting_slot = False

    async def _turn(self, lane: Lane, work: Work) -> Sequence[Part]:
        """The turn as a task of its own, so that a stop ends it and not the lane, and a stuck one does not block it."""
        lane.number, lane.stopping = work.waiting[-1 if not work.so_far else 0].turn, False
        lane.turn = asyncio.create_task(self._turns.run(lane.lease, work))
        try:
            await asyncio.wait({lane.turn}, timeout=self._runtime.setup.limits.turn_seconds + OVERDUE_SECONDS)
            if not lane.turn.done():
                lane.turn.cancel()
                await asyncio.wait({lane.turn}, timeout=OVERDUE_SECONDS)
            if not lane.turn.done():
                log.error("turn_stuck", session=lane.lease.sid, turn=lane.number)
                lane.lease = await self._store.renew(lane.lease)
                return await self._turns.end_stuck(lane.lease, work)
            if lane.turn.cancelled():
                return await (self._turns.end_stopped if lane.stopping else self._turns.end_stuck)(lane.lease, work)
            return lane.turn.result()
        except Stopped:
            return await self._turns.end_stopped(lane.lease, work)
        except asyncio.CancelledError:
            lane.turn.cancel()
            await asyncio.wait({lane.turn}, timeout=OVERDUE_SECONDS)
            raise
        finally:
            lane.turn = None

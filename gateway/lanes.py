"""Lanes: one turn per session at a time, in arrival order; sessions side by side up to a named limit.

Accepting a message claims its idle chat in the same statement, so nothing polls and no wake-up can be lost: a lane
gives its chat back only where the counter on the chat's row says that nothing is left. What a lane does for a chat, in
this order: send what is queued, then take the next messages. Who finds chats without a lane is `gateway.sweep`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from gateway.delivery import Report
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.store.store import Acceptance, Delivery, Fenced, Lease, Part, Store, StoreUnavailable, Work

BACKOFF_SECONDS_MAX = 30.0
WAITING_MAX = 20
"""Messages of one chat that are looked at together."""
OVERDUE_SECONDS = 30.0
"""How long a turn may take to end after it has been told to."""

log = structlog.get_logger()


class Drained(Exception):
    """The gateway is stopping: the turn has been laid down at a step border and goes on after the next start."""


class Stopped(Exception):
    """Somebody stopped the turn: it ends here, without a reply."""


class Turns(Protocol):
    """Who runs the messages. Each method but the first finishes a turn durably and returns its reply parts."""

    def wait_seconds(self, work: Work, *, came_during: bool) -> float:
        """How long to wait for more messages before this work is begun. `came_during`: while a turn was running."""

    async def run(self, lease: Lease, work: Work) -> Sequence[Part]:
        """Raises Fenced, Drained, Stopped or StoreUnavailable where it is not this run that ends the turn."""

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[Part]:
        """End what was stopped in the middle."""

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[Part]:
        """End with an apology what would not end by itself."""


@dataclass(eq=False, slots=True)
class Lane:
    """One chat at work. `turn` is the task of its running turn, `number` that turn's. `ended` is when its last turn
    did, 0 before the first. `fresh` until it has had a slot or something to send: it will want a slot soon."""

    lease: Lease
    turn: asyncio.Task[Sequence[Part]] | None = None
    number: int = 0
    stopping: bool = False
    ended: float = 0.0
    fresh: bool = True


class Lanes:
    """`turns` finishes messages durably; `send` makes one attempt at one part."""

    def __init__(
        self,
        *,
        store: Store,
        turns: Turns,
        send: Callable[[Part], Awaitable[Report]],
        parallel_turns: int,
        pending_max: int,
        sender_max: int,
        history_turns: int,
        turn_seconds: float,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._turns = turns
        self._outbox = Outbox(store=store, send=send, pause=self._pause, metrics=metrics, now=now)
        self._slots = asyncio.Semaphore(parallel_turns)
        self._free = parallel_turns
        self._fresh = 0
        self._pending_max = pending_max
        self._sender_max = sender_max
        self._history_turns = max(1, history_turns)
        self._turn_seconds = turn_seconds
        self._metrics = metrics
        self._now = now
        self._active: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[Acceptance]] = set()
        self._draining = asyncio.Event()
        self.wanted = asyncio.Event()
        """Set where there may be chats without an owner: a poke, or a slot that others wait for."""

    @property
    def room(self) -> int:
        """How many more chats could begin a turn now."""
        return self._free - self._fresh

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    async def accept(self, delivery: Delivery) -> Acceptance:
        """Store the message; it is answered from here on, by this process or the next. Raises StoreUnavailable.

        A caller who gives up waiting does not take the message with him: the write may still be committed, and then its
        lane must open, or it would wait for the next sweep.
        """
        accepting = asyncio.create_task(self._accept(delivery))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        return await asyncio.shield(accepting)

    async def _accept(self, delivery: Delivery) -> Acceptance:
        """Where several replicas share the work, one that cannot begin at once leaves the chat to the others."""
        shared = self._store.shared
        claim = not self.draining and (not shared or (self.room > 0 and self._store.held()))
        acceptance = await self._store.accept(
            delivery, pending_max=self._pending_max, sender_max=self._sender_max, claim=claim
        )
        if acceptance.lease is not None:
            self.open(acceptance.lease)
        elif shared and self.draining and acceptance.turn is not None:
            await self._store.poke(None)
        if delivery.interrupts and acceptance.turn is not None:
            await self._look_at_stop(delivery.sid)
        return acceptance

    def _accepted(self, task: asyncio.Task[Acceptance]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("accept_failed", exc_info=error)

    @property
    def at_work(self) -> Collection[str]:
        """The sessions that this process is at work for."""
        return self._active.keys()

    async def stop(self, sid: str, before: int) -> int:
        """Stop every turn of a chat below `before`, wherever it runs; how many messages that concerns."""
        concerned = await self._store.stop(sid, before)
        if concerned:
            await self._look_at_stop(sid)
        return concerned

    async def _look_at_stop(self, sid: str) -> None:
        if sid in self._active:
            await self._obey(self._active[sid])
        else:
            await self._store.poke(sid)

    def poked(self, sid: str | None) -> None:
        """Another worker asks to look at a chat, or for chats without an owner."""
        if sid is None:
            self.wanted.set()
        elif (lane := self._active.get(sid)) is not None:
            task = asyncio.create_task(self._obey(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _obey(self, lane: Lane) -> None:
        """Cancel the running turn if it is to be stopped; where this fails, its next journal write notices."""
        with suppress(Fenced, StoreUnavailable):
            standing = await self._store.standing(lane.lease)
            if lane.turn is not None and standing.stopped > lane.number:
                lane.stopping = True
                lane.turn.cancel()

    async def drain(self, grace_seconds: float) -> None:
        """Begin nothing new, let running turns come to a step border, and cancel what takes longer than that."""
        self._draining.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("turns_cancelled_at_shutdown", count=len(late))
                await asyncio.wait(late, timeout=OVERDUE_SECONDS)
        with suppress(StoreUnavailable):
            await self._store.poke(None)

    def has(self, lease: Lease) -> bool:
        lane = self._active.get(lease.sid)
        return lane is not None and lane.lease.epoch == lease.epoch

    def open(self, lease: Lease) -> None:
        """Start a lane, unless this very lease has one. Judged by epoch: a chat may have been given back meanwhile."""
        if self.draining or self.has(lease):
            return
        lane = self._active[lease.sid] = Lane(lease)
        self._fresh += 1
        task = asyncio.create_task(self._lane(lane), name=f"lane {lease.sid}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self, lane: Lane) -> None:
        try:
            await self._work(lane)
        except Fenced:
            self._metrics.fenced()
            log.warning("lane_fenced", session=lane.lease.sid, epoch=lane.lease.epoch)
        except (Drained, asyncio.CancelledError):
            with suppress(StoreUnavailable):
                await self._store.hand_over(lane.lease)
        finally:
            self._settle(lane)
            if self._active.get(lane.lease.sid) is lane:
                del self._active[lane.lease.sid]

    async def _work(self, lane: Lane) -> None:
        failures, crashes = 0, 0
        while True:
            try:
                if await self._serve(lane, crashes):
                    return
                failures, crashes = 0, 0
            except (Fenced, Drained):
                raise
            except Exception as error:  # the worker's edge: the chat is tried again, later and later
                failures += 1
                crashes += not isinstance(error, StoreUnavailable)  # an absent database is not the message's fault
                sid = lane.lease.sid
                log.error("lane_failed", session=sid, failures=failures, error=repr(error), exc_info=error)
                await self._pause(min(2.0 ** min(failures, 10), BACKOFF_SECONDS_MAX))

    async def _serve(self, lane: Lane, crashes: int) -> bool:
        """Send what is queued, then run one turn and send its reply; True where the chat has been given back."""
        view = await self._store.look(lane.lease, history_turns=self._history_turns, waiting_max=WAITING_MAX)
        if view.parts:
            self._settle(lane)
        for part in view.parts:
            if await self._outbox.deliver(lane.lease, part):
                return True
        if self.draining:
            raise Drained
        if view.work is None:
            return await self._store.release(lane.lease)
        # What came during a turn is waited for to be complete; what came after it is a beginning, and begins at once.
        came_during = view.work.waiting[0].at <= lane.ended
        if (wait := self._turns.wait_seconds(view.work, came_during=came_during)) > 0:
            await self._pause(wait)
            return False
        first, *others = view.work.waiting
        waiting = [replace(first, attempts=first.attempts + crashes), *others]
        for part in await self._run(lane, replace(view.work, waiting=waiting)):
            if await self._outbox.deliver(lane.lease, part):
                return True
        return False

    async def _run(self, lane: Lane, work: Work) -> Sequence[Part]:
        async with self._slots:
            if self.draining:
                raise Drained
            self._settle(lane)
            self._free -= 1
            try:
                return await self._turn(lane, work)
            finally:
                self._free += 1
                lane.ended = self._now()
                if self.room == 1:
                    self.wanted.set()

    def _settle(self, lane: Lane) -> None:
        self._fresh -= lane.fresh
        lane.fresh = False

    async def _turn(self, lane: Lane, work: Work) -> Sequence[Part]:
        """The turn as a task of its own, so that a stop ends it and not the lane, and a stuck one does not hold it."""
        lane.number, lane.stopping = work.waiting[-1 if not work.so_far else 0].turn, False
        lane.turn = asyncio.create_task(self._turns.run(lane.lease, work))
        try:
            await asyncio.wait({lane.turn}, timeout=self._turn_seconds + OVERDUE_SECONDS)
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

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless the gateway stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()
            raise Drained

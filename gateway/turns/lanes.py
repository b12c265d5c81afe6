"""Lanes: one turn per session at a time, in arrival order, and sessions in parallel up to a limit.

The statement that accepts a message also claims its idle session, so nothing polls and no wake-up is lost. A lane
releases its session only if the counter on the session row says that no work is left. It sends its queued replies
before it takes new messages. `Sweep` finds sessions without a lane.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import structlog

from gateway.outbox.outbox import Outbox
from gateway.state.queues import is_last_attempt
from gateway.state.runtime import Drained, Lane, Runtime, Stopped
from gateway.store.errors import Fenced, Revised, StoreUnavailable
from gateway.store.inbound import inbound_of, is_readable
from gateway.store.records import Acceptance, Delivery, Lease, OutboxPart, Work
from gateway.store.sessions import conversation, is_control, is_saying, task_of
from gateway.store.store import Backlog
from gateway.turns.batch import asks_beside
from gateway.turns.history import Histories
from gateway.turns.turns import Turns

log = structlog.get_logger()


BACKOFF_SECONDS_MAX = 30.0
PENDING_INTERNAL_MAX = 2**30 - 1
EFFECT_SECONDS = 1.0
"""Delay in seconds before an effect that the database rejected is retried."""
OVERDUE_SECONDS = 30.0
"""Timeout in seconds for a cancelled turn to end."""


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
        self._alone = asyncio.Lock()
        self._task_slots = asyncio.Semaphore(limits.parallel_turns)
        """Slots for tasks: a turn that waits for a task keeps its own slot."""
        self._free = limits.parallel_turns
        self._awaiting_slot = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._accepting: set[asyncio.Task[Acceptance]] = set()
        self.wanted = asyncio.Event()
        """Set if sessions may lack an owner: another worker sent a notice, or a slot became free that others wait
        for."""
        self.expected: set[str] = set()
        """Sessions that received a message when a task ended; a sweep that claims them is not a takeover."""
        runtime.accept, runtime.expect = self.accept, self._expect

    @property
    def free_slots(self) -> int:
        """The number of additional sessions that could begin a turn now."""
        return self._free - self._awaiting_slot

    def resize(self, before: int, now: int) -> None:
        """Allow `now` parallel turns instead of `before`; running turns finish before their slots are removed."""
        self._free += now - before
        for _ in range(now - before):
            self._slots.release()
        for _ in range(before - now):
            self._track(asyncio.create_task(self._slots.acquire(), name="slot"))
        self.wanted.set()

    def _expect(self, sid: str) -> None:
        if sid not in self._control.lanes:
            self.expected.add(sid)
        self.wanted.set()

    async def accept(self, delivery: Delivery) -> Acceptance:
        """Store the message; from then on this process or the next one answers it. Raises StoreUnavailable.

        Cancelling the caller does not cancel the write: it may still commit, and then its lane must open. Otherwise the
        message would wait for the next sweep.
        """
        accepting = asyncio.create_task(self._accept(delivery))
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepted)
        return await asyncio.shield(accepting)

    async def _accept(self, delivery: Delivery) -> Acceptance:
        """Store a delivery. On a shared database, a worker without a free slot leaves the session to other workers."""
        shared, draining = self._store.shared, self._control.draining
        claim = not draining and (not shared or (self.free_slots > 0 and self._store.lease_valid()))
        limits = self._runtime.setup.limits
        pending_max, sender_max = limits.pending_per_session, limits.pending_per_sender
        if delivery.at_once:  # other commands that wait never keep a brake out
            pending_max, sender_max = 2 * pending_max, 2 * sender_max
        if delivery.internal:
            pending_max = sender_max = PENDING_INTERNAL_MAX
        acceptance = await self._store.accept(
            delivery,
            pending_max=pending_max,
            sender_max=sender_max,
            claim=claim,
            begin=self.free_slots >= len(self._accepting),  # every one of these may take a slot
        )
        if delivery.at_once and not acceptance.overflow:
            await self._take_effect(delivery, acceptance.turn)
        if acceptance.lease is not None:
            self.open(acceptance.lease)
            if self._control.draining and not self.has(acceptance.lease):  # left to the next process
                await self._store.release_for_takeover(acceptance.lease)
        elif shared and self._control.draining and acceptance.turn is not None:
            await self._store.notify(None)
        if delivery.interrupts:
            await self._control.apply_stop(delivery.sid)
        return acceptance

    async def _take_effect(self, delivery: Delivery, turn: int | None) -> None:
        """Apply a stop or a decision immediately. Idempotent: a redelivery repeats it while the first delivery waits
        for its reply, because the worker that stored it may have died right after the commit."""
        try:
            sid, body = delivery.sid, delivery.body
            if turn is None:
                if (first := await self._store.waiting_as(delivery.dedupe)) is None:
                    return
                turn, sid, body = first
            await self._turns.take_effect(conversation(sid), turn, inbound_of(body))
        except StoreUnavailable as error:
            log.warning("effect_delayed", turn=turn, session=delivery.sid, error=repr(error))
            self._track(asyncio.create_task(self._take_effect_later(delivery, turn)))
        except Exception as error:  # the door's edge: the lane runs into it again, and says so
            log.error("effect_failed", turn=turn, session=delivery.sid, exc_info=error)

    async def _take_effect_later(self, delivery: Delivery, turn: int | None) -> None:
        with suppress(Drained):  # the lane repeats it after the next start
            await self._control.pause(EFFECT_SECONDS)
            await self._take_effect(delivery, turn)

    def _accepted(self, task: asyncio.Task[Acceptance]) -> None:
        self._accepting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("accept_failed", exc_info=error)

    def notified(self, sid: str | None) -> None:
        """Handle another worker's notice: check one session, or look for sessions without an owner."""
        if sid is None:
            self.wanted.set()
        else:
            self._track(asyncio.create_task(self._control.apply_here(sid)))

    async def drain(self, grace_seconds: float) -> None:
        """Start nothing new, let running turns reach a step boundary, and cancel those that take longer."""
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
        """Start a lane unless this lease has one. Epochs are compared because a session may have been released
        meanwhile."""
        if self._control.draining or self.has(lease):
            return
        lane = self._control.lanes[lease.sid] = Lane(lease)
        lane.awaiting_slot = task_of(lease.sid) is None
        self._awaiting_slot += lane.awaiting_slot
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
            self._leave_queue(lane)
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
        """Send queued replies, run one turn and send its reply. Return True if the session was released."""
        view = await self._histories.load(lane.lease)
        work = view.work
        if view.parts:
            self._leave_queue(lane)
            work = work and await self._not_yet(lane, work)
        if work and is_control(lane.lease.sid) and (view.parts or len(work.waiting) > 1):
            await self._take_effects(lane, work)
        for part in view.parts:
            if await self._outbox.deliver(lane.lease, part):
                return True
        if self._control.draining:
            raise Drained
        if work is None:
            if await self._store.release(lane.lease):
                return True
            await self._store.session_state(lane.lease)  # more has come, unless it is another's by now, or erased
            return False
        if await self._turns.start.leaves_out_branches(lane.lease.sid, work):
            return False
        # Messages that arrived during a turn are debounced; those that arrived after it start immediately.
        during_turn, newest = work.waiting[0].at <= lane.ended, work.waiting[-1].turn
        waited = lane.waited_for == newest  # whatever the clock says: it may have been put back
        if (wait := self._turns.start.wait_seconds(lane.lease, work, during_turn=during_turn, waited=waited)) > 0:
            lane.waited_for = newest
            self._leave_queue(lane)
            await self._not_yet(lane, work)
            await self._control.pause(wait)
            return False
        if crashes:
            first, *others = work.waiting
            work = replace(work, waiting=[replace(first, attempts=first.attempts + crashes), *others])
        parts = await self._run(lane, work)
        for number, part in enumerate(parts, start=1):
            released = await self._outbox.deliver(lane.lease, part, queued=number == 1)
            if number == len(parts) and not is_saying(lane.lease.sid):
                now = self._runtime.now()
                self._runtime.metrics.answered(now, max(0.0, now - work.waiting[0].at))
            if released:
                return True
        return False

    async def _take_effects(self, lane: Lane, work: Work) -> None:
        """Apply all waiting stops and decisions: the worker that stored them may have died before it did."""
        for message in work.waiting:
            if message.turn > lane.effective and is_readable(message.body):
                inbound = inbound_of(message.body)
                try:
                    if not inbound.recalled:
                        await self._turns.take_effect(conversation(lane.lease.sid), message.turn, inbound)
                except StoreUnavailable:
                    raise
                except Exception as error:  # it must not keep back what waits before it
                    log.error("effect_failed", turn=message.turn, session=lane.lease.sid, exc_info=error)
        lane.effective = work.waiting[-1].turn

    async def _not_yet(self, lane: Lane, work: Work) -> Work:
        """Clear `begun` so that a crash while waiting does not count as an attempt."""
        if work.begun:
            await self._store.begun(lane.lease, 0)
        return replace(work, begun=0)

    async def _run(self, lane: Lane, work: Work) -> Sequence[OutboxPart]:
        sid = lane.lease.sid
        slots, taken = (self._task_slots, 0) if task_of(sid) else (self._slots, 1)
        if slots.locked() or self._alone.locked():
            work = await self._not_yet(lane, work)
        is_suspect = is_last_attempt(work.waiting[0]) and not self._turns.is_awaited(sid)  # who waits may be one, too
        async with self._alone if is_suspect else nullcontext(), slots:
            if self._control.draining:
                raise Drained
            self._free -= taken
            try:
                self._leave_queue(lane)
                return [] if self._turns.start.is_away(work) else await self._turn(lane, work)
            finally:
                if taken:
                    self._free += 1
                    self._slot_freed()

    def _leave_queue(self, lane: Lane) -> None:
        if lane.awaiting_slot:
            lane.awaiting_slot = False
            self._awaiting_slot -= 1
            self._slot_freed()

    def _slot_freed(self) -> None:
        """Wake the sweep if this is the only free slot: it may have left sessions behind because none was free."""
        if self.free_slots == 1:
            self.wanted.set()

    async def _turn(self, lane: Lane, work: Work) -> Sequence[OutboxPart]:
        """Run the turn as a separate task: a stop ends the turn but not the lane, and a stuck turn does not block
        the lane."""
        lane.number, lane.revision = work.waiting[0].turn, work.revision
        lane.calling = lane.stopping = False
        lane.asks_beside = is_control(lane.lease.sid) and asks_beside(work.waiting[0])
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
        except (Stopped, Revised):
            return await self._turns.end_stopped(lane.lease, work)
        except asyncio.CancelledError:
            lane.turn.cancel()
            await asyncio.wait({lane.turn}, timeout=OVERDUE_SECONDS)
            raise
        finally:
            lane.turn, lane.ended = None, self._runtime.now()


SHARED_SECONDS = 1.0
ALONE_SECONDS = 5.0
AUDIT_SECONDS = 5.0


class Sweep:
    """Find sessions that have work and no lane: those of a dead or frozen replica, messages accepted without a free
    slot, and replayed dead letters. `oldest_seconds` is the age of the oldest unanswered message; `backlog` is the
    work found with it."""

    def __init__(self, runtime: Runtime, lanes: Lanes) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._lanes = lanes
        self._suspects: set[Lease] = set()
        self.oldest_seconds = 0.0
        self.backlog = Backlog(messages=0, parts=0, oldest=None)

    async def once(self) -> int:
        """Claim as many sessions as there are free slots and return their number. Raises StoreUnavailable."""
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
        """Open a lane for a session that this process owns in the database but that had no lane in two audits in a
        row."""
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

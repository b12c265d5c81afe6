"""The watch over due rows: sleep until the next due time, then start what is due.

It reads the next due time from the database by index: after that time, after a wake-up (a notice of PostgreSQL, or
`POST /wake`), and every few seconds in case a notice was lost. In between it only compares the clock, so setting the
clock forward wakes it. A row starts by being claimed (`gateway.store.later`): exactly once, even if several workers
try.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from agents.language import decided_by
from channels.access import GROUP_DISABLED, GROUP_NOT_ALLOWED
from channels.message import Chat, MessageContext, Place
from gateway.approvals.display import value
from gateway.approvals.notices import Notice, Notices, direct_with
from gateway.config.channels import place_in
from gateway.config.root import Config
from gateway.config.schedules import timing_of
from gateway.later import ends
from gateway.later.logins import Logins
from gateway.later.schedule import (
    UNREADABLE,
    Schedule,
    adopted,
    configured_rows,
    message_of,
    recalled,
    schedule_of,
)
from gateway.observe.logs import logged
from gateway.outbox.outbox import payload_json
from gateway.program import program
from gateway.state.runtime import Runtime
from gateway.store.chatter import RATINGS_SECONDS
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import SAY, Inbound, inbound_of
from gateway.store.later import FORGET, HANDOVER, RATINGS, RETENTION, WATCH, Later, LaterState, Step
from gateway.store.logins import PENDING
from gateway.store.records import Lease, OutboxPart
from gateway.store.sessions import agent_of, message_in, sender_of, session_key
from gateway.turns.batch import origin_delivery
from gateway.turns.handovers import AGAIN_SECONDS, Handovers
from gateway.turns.lanes import Lanes

log = structlog.get_logger()


MISSED_SECONDS = 60.0
"""Seconds after its due time at which a row counts as missed, because the gateway was not running."""
BATCH_MAX = 50
"""Rows per transaction: a message that arrives meanwhile waits for one commit only."""
LOOK_SECONDS = 5.0
CLOCK_SECONDS = 1.0
NIGHT = "30 3 * * *"
"""The time at which turns that are too old are erased, in the zone of the server."""
FORGET_SECONDS = 600.0
UNWATCHED_SECONDS = 3600.0
"""Seconds until a row of the self-watch is looked at again while another replica's config still has it."""
RECALLED_MAX = 20
"""Most schedules that one log line names."""


class DueWatch:
    """Run as long as the gateway does. `wake` makes it check immediately."""

    def __init__(
        self,
        runtime: Runtime,
        lanes: Lanes,
        wanted: asyncio.Event,
        commands: ends.CommandEnds,
        logins: Logins,
        begins: Mapping[str, Callable[[Later], None]],
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._lanes = lanes
        self._wanted = wanted
        self._commands = commands
        self._logins = logins
        self._begins = begins
        """Functions by kind that begin the work of a row without a turn, once this worker has taken it."""
        self._handovers = Handovers().serve(runtime)
        self._latest = math.inf
        """The time of the last round; before the first one the clock's earlier value is unknown."""

    async def run(self) -> None:
        with logged("moved_groups_not_followed"):
            for move in self._runtime.choices.moves:  # a process may have died before it had done that
                await self._store.later.move(f"{move.channel}:{move.account}:", move.before, move.after)
        with logged("logins_not_hastened"):  # a process may have died during a poll
            await self._store.logins.hasten(self._runtime.now())
        while True:
            try:
                await self._follow_the_clock()
                self._wanted.clear()
                if not await self.once():
                    await self._sleep()
            except StoreUnavailable as error:
                log.warning("due_not_begun", error=repr(error))
                await asyncio.sleep(CLOCK_SECONDS)
            except Exception as error:  # the watch's edge: nothing else begins what is due
                log.error("due_not_begun", exc_info=error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow_the_clock(self) -> None:
        """Recompute the times that were computed while the clock was ahead: at the start, and whenever it is set
        back. Otherwise a moment in a future year would make every schedule wait until then."""
        now, latest = self._runtime.now(), self._latest
        if now < latest:
            config = self._runtime.setup.config
            steps = [
                (row, after)
                for row in await self._store.later.ahead(now)
                if (after := _now_due(row, now, config)) != row
            ]
            if steps and await self._store.later.recall(steps):
                log.warning("schedules_recalled", count=len(steps), ids=[row.id for row, _ in steps][:RECALLED_MAX])
        self._latest = now

    async def once(self) -> int:
        """Start what is due, at most one batch, and return the number of rows. Raises StoreUnavailable."""
        runtime = self._runtime
        if runtime.control.draining or not self._store.lease_valid():
            return 0
        now = runtime.now()
        due = await self._store.later.due(now, BATCH_MAX)
        steps = [step for row in due if (step := await self._step(row, now)) is not None]
        if not steps or runtime.control.draining:
            return 0
        owns = not self._store.shared or self._lanes.free_slots >= len(steps)
        worker, most = self._store.worker if owns else None, runtime.setup.limits.pending_origins
        taken = await self._store.later.advance(steps, at=now, worker=worker, waiting_max=most)
        for step, lease in taken:
            await self._begun(step, lease)
        if not owns:
            self._lanes.wanted.set()
        return len(taken)

    async def _begun(self, step: Step, lease: Lease | None) -> None:
        if step.later.kind == PENDING:
            self._logins.poll(step.later)
        if begin := self._begins.get(step.later.kind):
            begin(step.later)
        if step.later.kind == HANDOVER:
            await self._handovers.end_due(step.later)
        if step.later.kind == RATINGS:
            await self._tell_ratings(step.later)
        if step.only_looks:
            return
        outcome = "skipped" if step.skips else "begun" if step.delivery else step.state
        self._runtime.metrics.due.labels(step.later.kind, outcome).inc()
        late = round(self._runtime.now() - (step.later.due or 0.0), 1)
        busy = {"still_waits": True} if step.is_busy else {}
        log.info("due_" + outcome, id=step.later.id, kind=step.later.kind, late_seconds=late, **busy)
        if lease is not None:
            self._lanes.open(lease)
            if self._runtime.control.draining and not self._lanes.has(lease):  # left to the next process
                await self._store.release_for_takeover(lease)

    async def _tell_ratings(self, row: Later) -> None:
        """Notify the owners of a week's ratings. The row is deleted last: killed before, it is due again, and the notice,
        which has the key of this week, is not sent twice."""
        ratings = await self._store.chatter.feedback(row.since)
        if ratings:
            good = sum(it.verdict == "good" for it in ratings)
            counts, command = f"👍 {good}, 👎 {len(ratings) - good}", f"`{program()} feedback --since 7d`"
            en = f"Answers were rated in the last week: {counts}. {command} lists the ratings."
            zh = f"最近一周对回答的评价：{counts}。{command} 可列出这些评价。"
            notice = Notice(cause=RATINGS, en=en, zh=zh, once=f"{RATINGS} {row.since}")
            await Notices(self._runtime).tell(notice)
        await self._store.later.drop(row.id)

    async def _sleep(self) -> None:
        """Sleep until the next due time by the wall clock, at most for a moment."""
        next_due, loop = await self._store.later.next_due(), asyncio.get_running_loop()
        until = loop.time() + LOOK_SECONDS
        while not self._wanted.is_set() and (left := until - loop.time()) > 0:
            seconds = left if next_due is None else min(left, next_due - self._runtime.now())
            if seconds <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, CLOCK_SECONDS)):
                    await self._wanted.wait()

    async def configure(self) -> None:
        """Update the operator's rows to match the current config. Raises StoreUnavailable."""
        await self._handovers.adopt()
        rows = list(configured_rows(self._runtime.setup.config, self._runtime.now()))
        now, every = self._runtime.now(), self._runtime.setup.config.watch.seconds
        if self._runtime.setup.config.retains:
            await self._store.later.expect(_own(RETENTION, self._night(now), now))
        if every:
            await self._store.later.expect(_own(WATCH, now + every, now))
            await self._store.later.hasten(WATCH, now + every)
        elif await self._store.later.of_id(WATCH):
            await self._store.later.drop(WATCH)
        if rows or await self._store.later.configured():
            await self._store.later.configure(rows, adopted)
            self._wanted.set()

    def _night(self, now: float) -> float | None:
        return timing_of(NIGHT, self._runtime.setup.config.server.zone).next(now, now)

    async def end_refused(self) -> None:
        """Cancel the schedules of users who lost access: if they were admitted again before one was due, they would
        get messages nobody expects any more. Raises StoreUnavailable."""
        later = self._store.later
        for first in await later.of_each():
            try:
                context = schedule_of(first).context
            except UNREADABLE:  # the watch says so when it is due
                continue
            if context is None or not (reason := await self._runtime.refusal(context)):
                continue
            if reason in (GROUP_DISABLED, GROUP_NOT_ALLOWED):  # its id may just have changed: judged when a row is due
                continue
            for row in await later.of_owner(sender_of(context)):
                if row.place == first.place:
                    await later.end(row.id, "cancelled")
                    log.warning("schedule_ended", id=row.id, reason=reason)

    async def _step(self, row: Later, now: float) -> Step | None:
        """Return the step that is due for a row. A row that is unreadable, or whose user has lost access, ends."""
        if row.kind == ends.KIND:
            return await self._command_step(row, now)
        if row.kind == PENDING:
            again = self._logins.pending.next_poll(row, now)
            return Step(later=row, next=again, state="active" if again else "cancelled")
        if row.kind in (FORGET, RATINGS):  # taken again unless it is done by then
            return Step(later=row, next=now + FORGET_SECONDS, state="active")
        if row.kind == HANDOVER:
            return Step(later=row, next=now + AGAIN_SECONDS, state="active")
        if row.kind == RETENTION:
            return Step(later=row, next=self._night(now), state="active")
        if row.kind == WATCH:
            every = self._runtime.setup.config.watch.seconds or UNWATCHED_SECONDS
            return Step(later=row, next=now + every, state="active")
        try:
            schedule = schedule_of(row)
            timing = schedule.timing(self._runtime.setup.config.server.zone)
        except UNREADABLE as error:
            log.error("schedule_unreadable", id=row.id, error=type(error).__name__)
            return Step(later=row, next=None, state="paused", unreadable=True)
        if schedule.context is not None:
            schedule = replace(schedule, context=self._runtime.choices.after_migration(schedule.context))
            assert schedule.context is not None
            if reason := await self._runtime.refusal(schedule.context):
                log.warning("schedule_ended", id=row.id, reason=reason)
                return Step(later=row, next=None, state="cancelled")
            if not self._runtime.is_open(schedule.agent, schedule.context):  # it is as if they asked for it now
                schedule = replace(schedule, agent=self._runtime.agent(schedule.context))
        next_due = row.resumes if row.by_hand else timing.next(now, row.since)
        over: LaterState = "done" if row.state == "active" and next_due is None else row.state
        is_late = not row.by_hand and row.due is not None and now - row.due > MISSED_SECONDS
        if is_late and schedule.missed == "skip":
            return Step(later=row, next=next_due, state=over, skips=True)
        context = schedule.context or await self._operators(schedule)
        if context is None:
            log.warning("schedule_has_no_place", id=row.id)
            return Step(later=row, next=next_due, state=over, skips=True)
        channel = self._runtime.setup.channel(context)
        replies = channel is not None and channel.capabilities.topics_by_reply
        message = message_of(row, schedule, context, now=now, late=is_late, replies=replies)
        inbound = Inbound(agent=schedule.agent, context=message, command=SAY if schedule.say else None)
        delivery = origin_delivery(self._runtime, inbound, f"later:{row.id}:{row.due:.3f}")
        return Step(later=row, next=next_due, state=over, delivery=delivery, waits=not schedule.say)

    async def _command_step(self, row: Later, now: float) -> Step:
        try:
            expected = ends.expected_json.validate_json(row.body)
        except ValueError as error:
            log.error("command_end_unreadable", id=row.id, error=type(error).__name__)
            return Step(later=row, next=None, state="cancelled")
        if (context := self._runtime.choices.after_migration(expected.context)) != expected.context:
            expected = replace(expected, context=replace(context, message_id=""))  # there it is another message's
        if reason := await self._runtime.refusal(expected.context, agent_of(expected.session)):
            log.warning("command_end_not_reported", id=row.id, reason=reason)
            return Step(later=row, next=None, state="cancelled")
        return await self._commands.step(row, expected, now)

    async def _operators(self, schedule: Schedule) -> MessageContext | None:
        """Return the chat that the config names, without a sender."""
        try:
            place = place_in(self._runtime.setup.config.channels, schedule.to)
        except ValueError:
            return None
        context = self._runtime.choices.after_migration(await self._chat(place, schedule.agent))
        words = decided_by(schedule.say or schedule.task)
        return replace(context, language=words or self._runtime.setup.config.language)

    async def _chat(self, place: Place, agent: str) -> MessageContext:
        """Return a user's direct chat, by their id or by earlier messages there; otherwise treat the chat as a
        group, which has the stricter rules."""
        if found := await direct_with(self._runtime, f"{place.channel}:{place.chat}", place.account):
            nobody = replace(found.sender, id="", name=None)
            return replace(found, sender=nobody, chat=replace(found.chat, thread=place.thread))
        context = message_in(place.channel, place.account, Chat(id=place.chat, kind="group", thread=place.thread), "")
        sid = session_key(agent, self._runtime.choices.before_migration(context), "chat")
        is_direct = await self._store.later.direct(sid)
        return replace(context, chat=replace(context.chat, kind="direct")) if is_direct else context


def _own(kind: str, due: float | None, now: float) -> Later:
    return Later(id=kind, kind=kind, due=due, owner=None, place="", state="active", body="", since=now)


def _now_due(row: Later, now: float, config: Config) -> Later:
    if row.kind == HANDOVER:
        return replace(row, due=min(row.due or now, now + 3600 * config.handover.hours))
    if row.kind == WATCH:
        return replace(row, due=min(row.due or now, now + config.watch.seconds))
    if row.kind == RATINGS:
        return replace(row, due=min(row.due or now, now + RATINGS_SECONDS))
    if row.kind in (ends.KIND, PENDING, FORGET, RETENTION):
        return replace(row, due=min(row.due or now, now + ends.LOOK_SECONDS))
    try:
        return recalled(row, now, config.server.zone)
    except UNREADABLE:  # the watch pauses it when it is due
        return row


NAMED_MAX = 5
"""Schedules that the notice to the owners names."""


class GoneChats:
    """Pause automatic messages to a chat that is unreachable (the bot was blocked or removed). Otherwise each due
    time would cost a model request forever. A schedule stays paused until the operator resumes it, a hook for a day
    or until its `to` changes. `tell` notifies the owners."""

    def __init__(self, runtime: Runtime, tell: Callable[[Notice], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._tell = tell

    async def note(self, part: OutboxPart, reason: str) -> None:
        """Pause what sent this part, and everything else that would be sent to the same chat. Idempotent, and
        repeated after a crash: the owners are notified first."""
        with logged("gone_chat_not_noted"):
            body = await self._runtime.store.owners.message(part.turn)
            origin = inbound_of(body).context.origin if body else None
            if origin is None:
                return
            payload = payload_json.validate_json(part.payload)
            target = payload.part.target
            place = f"{payload.channel}:{payload.account}:{target.chat}"
            cause = origin.id if origin.kind == "schedule" else ""
            rows = {it.id: it for it in await self._rows(place, cause) if it.state == "active"}
            ids = [id_ for id_, it in rows.items() if id_ == cause or self._thread(it) == target.thread]
            hook = origin.id if origin.kind == "hook" and not self._rests(origin.id) else ""
            if not ids and not hook:
                return
            log.warning("gone_chat_rests", schedules=ids, hook=hook or None, chat=target.chat)
            await self._tell(_notice(place, reason, ids, hook, part.turn))
            await self._runtime.store.later.rest(ids)
            if hook and (known := self._runtime.setup.config.hooks.get(hook)):
                now = self._runtime.now()
                await self._runtime.choices.rest(hook, known.to, turn=part.turn, at=now)

    async def _rows(self, place: str, cause: str) -> list[Later]:
        """Return the schedules of the chat and the one that caused the message: the config may name a user instead
        of the chat."""
        later = self._runtime.store.later
        return [*await later.of_place(place), *await later.of_id(cause)]

    def _thread(self, row: Later) -> str | None:
        """Return the topic of a schedule; empty, which matches no topic, if it is unreadable."""
        try:
            schedule = schedule_of(row)
            if schedule.context is not None:
                return schedule.context.chat.thread
            return place_in(self._runtime.setup.config.channels, schedule.to).thread
        except UNREADABLE:
            return ""

    def _rests(self, hook: str) -> bool:
        known = self._runtime.setup.config.hooks.get(hook)
        return known is None or self._runtime.choices.rests(hook, known.to, self._runtime.now())


def _notice(place: str, reason: str, ids: Sequence[str], hook: str, turn: int) -> Notice:
    chat, why, name = value(place), value(reason), program()
    named = ", ".join(value(it) for it in ids[:NAMED_MAX]) + (" …" if len(ids) > NAMED_MAX else "")
    en, zh = f"I cannot reach {chat} any more: {why}.", f"无法再联系 {chat}：{why}。"
    if ids:
        en += f" What I do there by itself is paused ({named}). `{name} schedules pause ID` lets one go on."
        zh += f"那里的定时任务已暂停（{named}）。可用 `{name} schedules pause 编号` 恢复。"
    if hook:
        en += f" The hook {value(hook)} refuses events for a day, or until its `to` is changed."
        zh += f"钩子 {value(hook)} 在一天内拒绝事件，修改其 `to` 后立即恢复。"
    return Notice(cause=f"gone {place}", once=f"gone {turn}", en=en, zh=zh)

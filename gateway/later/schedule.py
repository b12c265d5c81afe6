"""A schedule: what to say or do, when, where and for whom. It is stored as the body of a row in the table of due
rows."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from pydantic import TypeAdapter

from channels.api.channel import ApiChannel
from channels.message import MessageContext, Origin
from channels.moment import timestamp, zone_of
from gateway.config.channels import place_in
from gateway.config.root import Config
from gateway.config.schedules import Missed, ScheduleConfig, Times, timing_of
from gateway.store.contacts import ALPHABET
from gateway.store.later import Later, LaterState
from gateway.store.sessions import agent_of, chat_of, sender_of
from gateway.store.store import Store
from tools.schedule import Planned, ScheduleArguments
from tools.tool import Call, ToolError, repeats, schedule_source

KIND = "schedule"
UNREADABLE = (ValueError, KeyError, OSError, OverflowError)
"""The errors of a row that a newer version wrote, or whose time zone is unknown here."""
ID_CHARS = 5
NOT_READABLE = "this version of the gateway cannot read it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A schedule. `say` is sent verbatim; otherwise the agent does `task`. `context` is that of the user who created
    it, in the chat where they did; for the operator's schedules `to` names the chat. Without `timezone`, the
    server's zone applies."""

    agent: str
    at: str
    timezone: str | None = None
    missed: Missed = "once"
    say: str = ""
    task: str = ""
    title: str = ""
    to: str = ""
    context: MessageContext | None = None
    tainted: bool = False

    def timing(self, default: tzinfo) -> Times:
        return timing_of(self.at, zone_of(self.timezone) if self.timezone else default)

    @property
    def shown(self) -> str:
        """The title or the text, on one line."""
        return " ".join((self.title or self.say or self.task).split())


schedule_json: TypeAdapter[Schedule] = TypeAdapter(Schedule)


def schedule_of(later: Later) -> Schedule:
    """Parse a row. Raises ValueError for one that a newer version wrote."""
    return schedule_json.validate_json(later.body)


def new_id() -> str:
    """Return an id for a user's schedule. Ids in the config have no capital letters."""
    return "R-" + "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARS))


def row_of(
    schedule: Schedule, id_: str, *, place: str, owner: str | None, now: float, default: tzinfo, enabled: bool = True
) -> Later:
    """Return the row of a new schedule, due at its first time after `now`."""
    due = schedule.timing(default).next(now, now)
    state: LaterState = "paused" if not enabled else "done" if due is None else "active"
    body = schedule_json.dump_json(schedule, exclude_defaults=True).decode()
    row = Later(id=id_, kind=KIND, due=due, owner=owner, place=place, state=state, body=body, since=now)
    return row if enabled else replace(row, due=None, why="config")


def configured_rows(config: Config, now: float) -> Iterator[Later]:
    """Yield the rows of the config's schedules."""
    since = float(round(now))
    for it in config.schedules:
        place = place_in(config.channels, it.to)
        where = f"{place.channel}:{place.account}:{place.chat}"
        schedule = _of_config(it, config)
        yield row_of(
            schedule, it.id, place=where, owner=None, now=since, default=config.server.zone, enabled=it.enabled
        )


def _of_config(it: ScheduleConfig, config: Config) -> Schedule:
    return Schedule(
        agent=it.agent or config.agents.list[0].id,
        at=it.at,
        timezone=it.timezone or config.server.timezone,
        missed=it.missed,
        say=it.say or "",
        task=it.task or "",
        to=it.to,
    )


def adopted(before: Later, after: Later) -> Later:
    """Return the row to keep for a config schedule that is already stored. Its times stay unless the config changes
    them. A pause, by hand or because its chat is unreachable, also stays until the config switches that schedule off
    or gives it another chat."""
    moved = before.why == "gone" and before.place != after.place
    if before.state == "paused" and after.state != "paused" and before.why != "config" and not moved:
        after = replace(after, state="paused", due=None, why=before.why or "hand")
    try:
        one, other = schedule_of(before), schedule_of(after)
        same = (one.at, one.timezone) == (other.at, other.timezone)
    except ValueError:  # of a newer version
        same = False
    same = same and (before.state == "paused") == (after.state == "paused")
    if same:
        return replace(before, body=after.body, place=after.place, why=after.why)
    runs = {name: getattr(before, name) for name in ("ran", "runs", "skipped", "skips", "turn")}
    return replace(after, **runs)


def recalled(later: Later, now: float, default: tzinfo) -> Later:
    """Recompute the times of a row that were computed while the clock was ahead. A time that has run already does
    not run twice: its message has the same key. Raises one of UNREADABLE."""
    since = min(later.since, now)
    timing = schedule_of(later).timing(default)
    due = timing.next(now, since)
    if due is None or timing.form == "once":
        return later
    if later.by_hand:
        return replace(later, since=since, due=now, resumes=due)
    return replace(later, since=since, due=min(due, later.due) if later.due is not None else due)


def resumed_at(later: Later, now: float, default: tzinfo) -> float | None:
    """Return when a paused schedule runs next; None if it is over. A one-time schedule that was missed is late,
    unless `missed` says to skip it. Raises one of UNREADABLE."""
    schedule = schedule_of(later)
    timing = schedule.timing(default)
    due = timing.next(now, later.since)
    return timing.seconds if due is None and timing.form == "once" and schedule.missed == "once" else due


def message_of(
    later: Later, schedule: Schedule, context: MessageContext, *, now: float, late: bool, replies: bool = False
) -> MessageContext:
    """Build the message of one run in the chat of `context`, which has no text. `replies`: only a reply appears in
    its topic."""
    due = later.due if later.due is not None else now
    origin = Origin(
        kind="schedule",
        id=later.id,
        run=f"{due:.3f}",
        title=schedule.title,
        due=due,
        late=late,
        by_operator=later.owner is None,
        tainted=schedule.tainted,
    )
    text, at = schedule.say or schedule.task, datetime.fromtimestamp(now, UTC)
    id_ = context.message_id if replies else ""
    return replace(context, message_id=id_, text=text, sent_at=at, origin=origin)


def line_of(later: Later, zone: tzinfo) -> str:
    """`R-K7QF2: Stand-up — 0 9 * * mon, next Mon 2026-11-30 09:00 CET`."""
    try:
        schedule = schedule_of(later)
        shown = schedule.shown
        shown = shown if len(shown) <= 80 else shown[:79].rstrip() + "…"
        when = f"next {timestamp(later.due, zone)}" if later.due is not None else state_of(later)
        times = "" if schedule.timing(zone).form == "once" else f"{schedule.at}, "
    except UNREADABLE:
        return f"{later.id}: {NOT_READABLE} — {later.state}"
    return f"{later.id}: {shown} — {times}{when}"


def state_of(later: Later) -> str:
    """Return the state, with the reason if it is not obvious: `paused: its chat is out of reach`."""
    return f"{later.state}: its chat is out of reach" if later.why == "gone" else later.state


@dataclass(kw_only=True)
class StoredSchedules:
    """`tools.schedule.Schedules` on the database. `wake` makes the watch check for due rows."""

    store: Store
    config: Config
    now: Callable[[], float]
    wake: Callable[[], None]

    async def create(self, plan: ScheduleArguments, call: Call) -> str:
        limits, zone, now = self.config.limits, self.config.server.zone, float(int(self.now()))
        if call.message.channel == ApiChannel.name:
            raise ToolError("UNSUPPORTED", "a program asks here: nothing can be sent to it later")
        try:
            timing = timing_of(plan.at or "", zone)
        except ValueError as error:
            raise ToolError("INVALID_ARGUMENT", f"'at': {error}") from None
        if timing.next(now, now) is None:
            raise ToolError("INVALID_ARGUMENT", f"'at' lies in the past: it is {timestamp(now, zone)} now")
        if timing.shortest(now) < limits.schedule_min_minutes * 60:
            message = f"too often: at most once in {limits.schedule_min_minutes} minutes (limits.scheduleMinMinutes)"
            raise ToolError("INVALID_ARGUMENT", message)
        schedule = Schedule(
            agent=agent_of(call.session),
            at=timing.text,
            say=plan.say or "",
            task=plan.task or "",
            title=plan.title or "",
            context=_place_of(call.message),
            tainted=call.tainted,
        )
        owner, place = sender_of(call.message), chat_of(call.message)
        row = row_of(schedule, new_id(), place=place, owner=owner, now=now, default=zone)
        most, session = limits.schedules_per_person, call.session
        stored = await self.store.later.create(row, key=call.key, most=most, session=session)
        if stored is None:
            message = (
                f"this person has {limits.schedules_per_person} already; cancel one first (limits.schedulesPerPerson)"
            )
            raise ToolError("TOO_MANY", message)
        self.wake()
        return f"Scheduled. {line_of(stored, zone)}"

    async def listed(self, call: Call) -> Sequence[Planned]:
        found, zone = await theirs(self.store, call.message), self.config.server.zone
        repeats(*(schedule_source(it.id) for it in found))
        return [Planned(line=line_of(it, zone), external=schedule_of(it).tainted) for it in found]

    async def cancel(self, id_: str, call: Call) -> str:
        id_ = id_.strip().upper()
        if id_ not in [it.id for it in await theirs(self.store, call.message, ended=id_)]:
            raise ToolError("NOT_FOUND", "there is no such schedule of this person here; list shows them")
        await self.store.later.end(id_, "cancelled", owner=sender_of(call.message))
        return f"{id_} is cancelled."


def _place_of(message: MessageContext) -> MessageContext:
    """Return the chat and the user of a message. In a topic it keeps the message as well: on Feishu only a reply
    appears there."""
    answered = message.press.message_id if message.press else message.message_id
    id_ = answered if message.chat.thread is not None else ""
    return replace(message.wordless, message_id=id_, press=None, origin=None)


async def theirs(store: Store, message: MessageContext, *, ended: str = "") -> Sequence[Later]:
    """Return the sender's schedules that this chat may see: in a group only that group's. `ended`: include this one
    even if it is over."""
    rows = await store.later.of_owner(sender_of(message), also=ended)
    here = chat_of(message)
    return [it for it in rows if message.chat.kind == "direct" or it.place == here]

"""A schedule: what is to be said or done at its times, where and for whom; the content of its row in the table."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from pydantic import TypeAdapter

from channels.message import MessageContext, Origin
from channels.moment import timestamp, zone_of
from gateway.config.places import place_in
from gateway.config.root import Config
from gateway.config.schedules import Missed, ScheduleConfig
from gateway.config.timing import Times, timing_of
from gateway.store.contacts import ALPHABET
from gateway.store.later import Later, LaterState

KIND = "schedule"
UNREADABLE = (ValueError, KeyError, OSError, OverflowError)
"""The errors of a row that a newer version wrote, or whose zone is not known here."""
ID_CHARS = 5
NOT_READABLE = "this version of the gateway cannot read it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """`say` is sent as it is; else the agent does `task`. `context` is that of the person who asked for it, in the chat
    where they did; for the operator `to` names the place. Without `timezone` the server's holds."""

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
        """Its title or its text, on one line."""
        return " ".join((self.title or self.say or self.task).split())


schedule_json: TypeAdapter[Schedule] = TypeAdapter(Schedule)


def schedule_of(later: Later) -> Schedule:
    """Raises ValueError for a row that a newer version wrote."""
    return schedule_json.validate_json(later.body)


def new_id() -> str:
    """A person's; those of the config have no capital letters."""
    return "R-" + "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARS))


def row_of(
    schedule: Schedule, id_: str, *, place: str, owner: str | None, now: float, default: tzinfo, enabled: bool = True
) -> Later:
    """The row of a new schedule, due at its first time behind `now`."""
    due = schedule.timing(default).next(now, now)
    state: LaterState = "paused" if not enabled else "done" if due is None else "active"
    body = schedule_json.dump_json(schedule, exclude_defaults=True).decode()
    row = Later(id=id_, kind=KIND, due=due, owner=owner, place=place, state=state, body=body, since=now)
    return row if enabled else replace(row, due=None, why="config")


def configured_rows(config: Config, now: float) -> Iterator[Later]:
    """The rows of the config's schedules."""
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
    """The row to keep for a schedule of the config that has a stored one. Its times stay unless the config changes them.
    A pause by hand, or because its chat is gone, is no matter of the config: it stays until the same schedule is switched
    off there, or has another chat."""
    moved = before.why == "gone" and before.place != after.place
    if before.state == "paused" and after.state != "paused" and before.why != "config" and not moved:
        after = replace(after, state="paused", due=None, why=before.why or "hand")
    try:
        one, other = schedule_of(before), schedule_of(after)
        same = (one.at, one.timezone) == (other.at, other.timezone)
    except ValueError:  # of a newer version
        same = False
    same = same and (before.state == "paused") == (after.state == "paused")
    return replace(before, body=after.body, place=after.place, why=after.why) if same else _with_runs(before, after)


def _with_runs(before: Later, after: Later) -> Later:
    runs = {name: getattr(before, name) for name in ("ran", "runs", "skipped", "skips", "turn")}
    return replace(after, **runs)


def recalled(later: Later, now: float, default: tzinfo) -> Later:
    """Reckon the times of a row again that were reckoned by a clock that was ahead. A time at which it has run already is
    no second run: its message has the same key. Raises one of UNREADABLE."""
    since = min(later.since, now)
    timing = schedule_of(later).timing(default)
    due = timing.next(now, since)
    if due is None or timing.form == "once":
        return later
    if later.by_hand:
        return replace(later, since=since, due=now, resumes=due)
    return replace(later, since=since, due=min(due, later.due) if later.due is not None else due)


def resumed_at(later: Later, now: float, default: tzinfo) -> float | None:
    """The time at which a paused schedule goes on; None if it is over. A single time that has passed meanwhile is late,
    unless it is one to skip. Raises one of UNREADABLE."""
    schedule = schedule_of(later)
    timing = schedule.timing(default)
    due = timing.next(now, later.since)
    return timing.seconds if due is None and timing.form == "once" and schedule.missed == "once" else due


def message_of(
    later: Later, schedule: Schedule, context: MessageContext, *, now: float, late: bool, replies: bool = False
) -> MessageContext:
    """The message of one run in the chat of `context`, which is wordless. `replies`: only a reply lands in its topic."""
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
    """Its state, and the reason if that is not plain: `paused: its chat is out of reach`."""
    return f"{later.state}: its chat is out of reach" if later.why == "gone" else later.state

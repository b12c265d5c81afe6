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
from gateway.records.codes import ALPHABET
from gateway.store.later import Later, LaterState

KIND = "schedule"
ID_CHARS = 5


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
    due = due if enabled else None
    return Later(id=id_, kind=KIND, due=due, owner=owner, place=place, state=state, body=body, since=now)


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


def keeps_times(before: Later, after: Later) -> bool:
    """True if a config's new row for the same id has the times of the old one, and nothing switched it on or off."""
    one, other = schedule_of(before), schedule_of(after)
    same = (one.at, one.timezone) == (other.at, other.timezone)
    return same and (before.state == "paused") == (after.state == "paused")


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
    schedule = schedule_of(later)
    shown = schedule.shown
    shown = shown if len(shown) <= 80 else shown[:79].rstrip() + "…"
    when = f"next {timestamp(later.due, zone)}" if later.due is not None else later.state
    times = "" if schedule.timing(zone).form == "once" else f"{schedule.at}, "
    return f"{later.id}: {shown} — {times}{when}"

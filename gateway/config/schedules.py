"""The section `schedules`, and its times: a cron expression with five fields, `every 30m`, or a single time.

Cron follows local time, as Debian's cron does: a time that daylight saving skips runs right after the change, and a time
that occurs twice runs once. `every` follows UTC.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import StringConstraints, model_validator

from channels.moment import local
from channels.section import Section

TEXT_CHARS_MAX = 4_000
Missed = Literal["once", "skip"]
ScheduleText = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_CHARS_MAX)]


class ScheduleConfig(Section):
    """A scheduled job of the bot in one chat (docs/later.md)."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """The schedule's name: lower-case letters, digits, `-` and `_`."""
    to: str
    """The chat, as `channel[:account]:chat[#thread]`, such as `feishu:oc_0123456789abcdef`. A person's id means their direct
    chat."""
    at: str
    """The times: five cron fields such as `0 9 * * mon`, or `every 30m`, `every 6h`, `every 1d`, or a single time such as
    `2026-12-24T18:00`."""
    say: ScheduleText | None = None
    """Text to send verbatim, without a model request. Either this or `task`."""
    task: ScheduleText | None = None
    """The agent's task, in the conversation of that chat."""
    agent: str | None = None
    """The `id` of the agent; by default the first."""
    timezone: str | None = None
    """The zone of `at`, such as `Europe/Berlin`; by default `server.timezone`."""
    missed: Missed = "once"
    """The rule for times at which the gateway was not running: `once` runs late, one time, with a note that says so; `skip`
    drops them."""
    enabled: bool = True
    """`false` pauses it."""

    @model_validator(mode="after")
    def _says_or_does(self) -> "ScheduleConfig":
        if (self.say is None) == (self.task is None):
            raise ValueError("expected either `say`, a text, or `task`, what the agent is to do")
        return self


TimeForm: TypeAlias = Literal["cron", "every", "once"]
EXPECTED = (
    "expected five fields of cron, such as 0 9 * * mon; or every 30m, every 6h, every 1d; "
    "or one time, such as 2026-12-24T18:00"
)
_EVERY = re.compile(r"every\s+([0-9]{1,4})\s*(m|h|d)", re.IGNORECASE)
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_CRON = re.compile(r"[A-Za-z0-9*/,\-#?]{1,100}")
LEAP_MINUTES_MAX = 1_500
"""The longest gap in local time: a day that a zone skipped, plus a daylight saving change."""
RUNS_COMPARED = 300
YEAR_MIN, YEAR_MAX = 1970, 9998
"""The years of a single time, which every zone and platform can represent."""


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a schedule, made by `timing_of`."""

    text: str
    zone: tzinfo
    form: TimeForm
    seconds: float = 0.0
    """The interval of `every`, or the Unix time of `once`."""

    def next(self, after: float, since: float) -> float | None:
        """Return the first time after `after`, or None. `every` counts from `since`."""
        if self.form == "once":
            return self.seconds if self.seconds > after else None
        if self.form == "every":
            passed = math.floor((after - since) / self.seconds) if after >= since else -1
            return since + (passed + 1) * self.seconds if passed >= 0 else since + self.seconds
        return next(self._matches(after), None)

    def shortest(self, after: float) -> float:
        """Return the shortest interval between upcoming runs, in seconds."""
        if self.form == "cron":
            return min((b - a for a, b in pairwise(islice(self._matches(after), RUNS_COMPARED))), default=math.inf)
        return self.seconds if self.form == "every" else math.inf

    def _matches(self, after: float) -> Iterator[float]:
        from cronsim import CronSim

        for moment in CronSim(self.text, local(after, self.zone)):
            yield moment.timestamp()


def timing_of(text: str, zone: tzinfo) -> Times:
    """Parse the times of a schedule. Raise ValueError with the expected form."""
    text = " ".join(text.split())
    if found := _EVERY.fullmatch(text):
        seconds = int(found[1]) * _SECONDS[found[2].lower()]
        if not seconds:
            raise ValueError(EXPECTED)
        return Times(text, zone, "every", float(seconds))
    if len(text.split(" ")) == 5:
        return _cron(text, zone)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(EXPECTED) from None
    if "T" not in text and ":" not in text:
        raise ValueError(f"{text!r} names no time of the day; {EXPECTED}")
    if not YEAR_MIN <= moment.year <= YEAR_MAX:
        raise ValueError(f"{text!r} is too far away; {EXPECTED}")
    return Times(text, zone, "once", float(round(_moment(moment, zone))))


def _cron(text: str, zone: tzinfo) -> Times:
    from cronsim import CronSim, CronSimError

    try:
        if not all(_CRON.fullmatch(field) for field in text.split(" ")):
            raise ValueError(EXPECTED)
        first = next(CronSim(text, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        raise ValueError(f"{text!r} is no cron expression: {str(error).lower()}; {EXPECTED}") from None
    if first is None:
        raise ValueError(f"{text!r} never comes true")
    return Times(text, zone, "cron")


def _moment(moment: datetime, zone: tzinfo) -> float:
    """Return Unix seconds; a local time that `zone` skips becomes the first one after the gap."""
    if moment.tzinfo is not None:
        return moment.timestamp()
    for minutes in range(LEAP_MINUTES_MAX):
        there = (moment + timedelta(minutes=minutes)).replace(tzinfo=zone, second=0 if minutes else moment.second)
        if there.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) == there.replace(tzinfo=None, fold=0):
            return there.timestamp()
    raise ValueError(f"there is no {moment} in that zone")

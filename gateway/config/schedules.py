"""The section `schedules`, and its times: a cron expression of five fields, `every 30m`, or one time.

Cron follows the wall clock of its zone, as Debian's cron does: a time that the clock leaps over happens right behind the
leap, and a time that it shows twice happens once. `every` follows the clock that never leaps.
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
    """Something that the bot does by itself at its times, in one chat (docs/later.md)."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """Its name: lower-case letters, digits, `-` and `_`."""
    to: str
    """The chat, as `channel:chat`, `channel:account:chat` or either with `#thread` behind it, such as
    `feishu:oc_0123456789abcdef`. A person's id is their direct chat."""
    at: str
    """Its times: five fields of cron such as `0 9 * * mon`, or `every 30m`, `every 6h`, `every 1d`, or one time such as
    `2026-12-24T18:00`."""
    say: ScheduleText | None = None
    """Text that is sent as it is: it costs no request to a model. Either this or `task`."""
    task: ScheduleText | None = None
    """The work that the agent is to do then, in the conversation of that chat."""
    agent: str | None = None
    """The `id` of the agent; by default the first."""
    timezone: str | None = None
    """The zone of `at`, such as `Europe/Berlin`; by default `server.timezone`."""
    missed: Missed = "once"
    """The rule for times at which the gateway was not running: `once` does it late, one time, with a line that says so;
    `skip` lets them pass."""
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
"""The longest leap of a clock is a day and the hours of its zone's change."""
RUNS_COMPARED = 300
YEAR_MIN, YEAR_MAX = 1970, 9998
"""The years of a single time: each is a time in every zone, and on every platform."""


@dataclass(frozen=True, slots=True)
class Times:
    """`text` in one of three forms, read in `zone`. Made by `timing_of`."""

    text: str
    zone: tzinfo
    form: TimeForm
    seconds: float = 0.0
    """The pause of `every`; of a single time that time."""

    def next(self, after: float, since: float) -> float | None:
        """The first time after `after`, or None. `every` counts from `since`."""
        if self.form == "once":
            return self.seconds if self.seconds > after else None
        if self.form == "every":
            passed = math.floor((after - since) / self.seconds) if after >= since else -1
            return since + (passed + 1) * self.seconds if passed >= 0 else since + self.seconds
        return next(self._matches(after), None)

    def shortest(self, after: float) -> float:
        """The shortest pause between two of the next runs, in seconds."""
        if self.form == "cron":
            return min((b - a for a, b in pairwise(islice(self._matches(after), RUNS_COMPARED))), default=math.inf)
        return self.seconds if self.form == "every" else math.inf

    def _matches(self, after: float) -> Iterator[float]:
        from cronsim import CronSim

        for moment in CronSim(self.text, local(after, self.zone)):
            yield moment.timestamp()


def timing_of(text: str, zone: tzinfo) -> Times:
    """Raises ValueError with what to write."""
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
    """Seconds of a time as written; without an offset it is of `zone`, and one that the clock leaps over is the first
    behind it."""
    if moment.tzinfo is not None:
        return moment.timestamp()
    for minutes in range(LEAP_MINUTES_MAX):
        there = (moment + timedelta(minutes=minutes)).replace(tzinfo=zone, second=0 if minutes else moment.second)
        if there.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) == there.replace(tzinfo=None, fold=0):
            return there.timestamp()
    raise ValueError(f"there is no {moment} in that zone")

"""Times as people and models read them, in the zone of `server.timezone` and with its name. Logs stay in UTC."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime's would follow the machine's locale


class MachineZone(tzinfo):
    """The system's time zone, looked up for each moment, so that daylight saving time is applied."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return moment.replace(tzinfo=None).astimezone().utcoffset() if moment else None

    def tzname(self, moment: datetime | None) -> str | None:
        return moment.replace(tzinfo=None).astimezone().tzname() if moment else None

    def dst(self, moment: datetime | None) -> None:
        """Unknown: the system reports only the total offset."""

    def fromutc(self, moment: datetime) -> datetime:
        here = moment.replace(tzinfo=UTC).astimezone()
        first = here.replace(tzinfo=self)
        return first if first.utcoffset() == here.utcoffset() else first.replace(fold=1)


SPAN_PATTERN = "^[1-9][0-9]{0,3}[mhd]$"
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}


def span_seconds(text: str) -> float:
    """Return the seconds of a span such as `30m`, `12h` or `30d`, which fits `SPAN_PATTERN`."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def zone_of(name: str | None) -> tzinfo:
    """Return the zone. Raises KeyError, ValueError or OSError for an unknown name."""
    return ZoneInfo(name) if name else MachineZone()


def local(at: datetime | float, zone: tzinfo) -> datetime:
    return (at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)).astimezone(zone)


def timestamp(at: datetime | float, zone: tzinfo) -> str:
    """`Mon 2026-06-15 14:31 UTC`."""
    moment = local(at, zone)
    return f"{_WEEKDAYS[moment.weekday()]} {day(moment, zone)} {clock(moment, zone)}"


def clock(at: datetime | float, zone: tzinfo) -> str:
    """`14:31 UTC`. Prefix UTC to zones named by an offset, such as `-03`, which would read as a range of hours."""
    moment = local(at, zone)
    return f"{moment:%H:%M} {re.sub('^(?=[+-])', 'UTC', moment.tzname() or '')}"


def day(at: datetime | float, zone: tzinfo) -> str:
    return local(at, zone).date().isoformat()


def iso(at: datetime | float, zone: tzinfo) -> str:
    return local(at, zone).isoformat(timespec="seconds")

"""The times of schedules, over a year and two zones with daylight saving time, against a library that shares no line with
ours; and the rules at the two leaps of the clock."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from channels.moment import zone_of
from gateway.config.schedules import timing_of

YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
EXPRESSIONS = (
    "0 9 * * mon",
    "30 2 * * *",
    "15 1 * * *",
    "0 0 1 * *",
    "*/30 * 1,8,25,29 3,10,11 *",
    "10 */6 * * *",
    "0 9-17 * * mon-fri",
    "5,35 8 * * 1,3,5",
    "0 12 13 * fri",
    "59 23 28-31 * *",
    "0 3 * mar,oct sun",
    "17 4 1,15 * *",
)
ZONES = ("Europe/Berlin", "America/New_York")


@cache
def ours(expression: str, zone: str) -> list[float]:
    timing = timing_of(expression, zone_of(zone))
    found, at, until = [], YEAR[0].timestamp(), YEAR[1].timestamp()
    while (following := timing.next(at, YEAR[0].timestamp())) is not None and following < until:
        found.append(following)
        at = following
    return found


def judged(expression: str, zone: str) -> Iterator[float]:
    """The judge does what the clock shows twice twice; the rule here is once, unless the hour is any hour."""
    here, until = ZoneInfo(zone), YEAR[1].timestamp()
    times = croniter(expression, YEAR[0].astimezone(here))
    before: datetime | None = None
    for moment in takewhile(lambda it: it.timestamp() < until, iter(lambda: times.get_next(datetime), None)):
        shown = moment.replace(tzinfo=None, fold=0)
        repeated = before is not None and shown <= before
        if not (repeated and "*" not in expression.split()[1]):
            yield moment.timestamp()
        before = shown


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_run_of_a_year_is_where_another_library_has_it(expression: str, zone: str) -> None:
    expected = list(judged(expression, zone))
    assert len(expected) > 1
    assert ours(expression, zone) == expected


def local_times(expression: str, zone: str, day: str) -> list[str]:
    here = ZoneInfo(zone)
    moments = (datetime.fromtimestamp(it, here) for it in ours(expression, zone))
    return [f"{it:%H:%M%z}" for it in moments if it.date().isoformat() == day]


@pytest.mark.parametrize(
    ("zone", "leap", "twice", "there", "again"),
    [
        ("Europe/Berlin", "2026-03-29", "2026-10-25", "03:00+0200", "02:30+0200"),
        ("America/New_York", "2026-03-08", "2026-11-01", "03:00-0400", "02:30-0500"),
    ],
)
def test_timing_of_skipped_and_doubled_dst_hours(zone: str, leap: str, twice: str, there: str, again: str) -> None:
    assert local_times("30 2 * * *", zone, leap) == [there]
    assert local_times("30 2 * * *", zone, twice) == [again]
    assert len(local_times("*/30 * 1,8,25,29 3,10,11 *", zone, leap)) == 46
    assert len(local_times("*/30 * 1,8,25,29 3,10,11 *", zone, twice)) == 50


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29T02:30", "2026-03-29T03:00:00+02:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00"),
        ("2026-06-01 09:00", "2026-06-01T09:00:00+02:00"),
        ("2026-06-01T09:00Z", "2026-06-01T11:00:00+02:00"),
    ],
)
def test_a_single_time_is_that_of_the_zone(text: str, expected: str) -> None:
    found = timing_of(text, zone_of("Europe/Berlin")).next(0.0, 0.0)
    assert found is not None
    assert datetime.fromtimestamp(found, ZoneInfo("Europe/Berlin")).isoformat() == expected


def test_every_counts_from_its_beginning_and_not_from_its_last_run() -> None:
    timing = timing_of("every 6h", UTC)
    assert [timing.next(after, 100.0) for after in (0.0, 100.0, 21_699.0, 21_700.0, 90_000.0)] == [
        21_700.0,
        21_700.0,
        21_700.0,
        43_300.0,
        108_100.0,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "every",
        "every 0m",
        "every 5s",
        "at nine",
        "* * * *",
        "60 * * * *",
        "2026-02-30T09:00",
        "2026-01-01",
        "0 0 31 2 *",
        "@daily",
        "0 9 * * mon; rm",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|never|no time|cron"):
        timing_of(text, UTC)

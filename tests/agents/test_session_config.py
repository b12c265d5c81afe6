"""When a session ends by itself: by the hour of the day, on days of 23 and 25 hours as well, and by silence."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.config import SessionConfig

SHANGHAI, NEW_YORK, UTC_ZONE = ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York"), ZoneInfo("UTC")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("last", "now", "zone", "over"),
    [
        ("2026-06-15T03:59:59+08:00", "2026-06-15T04:00:00+08:00", SHANGHAI, True),
        ("2026-06-15T04:00:00+08:00", "2026-06-16T03:59:59+08:00", SHANGHAI, False),
        ("2026-06-15T04:00:00+08:00", "2026-06-16T04:00:00+08:00", SHANGHAI, True),
        ("2026-06-15T03:59:00+08:00", "2026-06-15T04:01:00+08:00", UTC_ZONE, False),
        ("2026-06-15T23:00:00+08:00", "2026-07-15T03:00:00+08:00", SHANGHAI, True),
        # clocks went forward on 2026-03-08 at 2:00, back on 2026-11-01 at 2:00
        ("2026-03-08T03:30:00-04:00", "2026-03-08T04:30:00-04:00", NEW_YORK, True),
        ("2026-03-08T04:00:00-04:00", "2026-03-09T03:59:00-04:00", NEW_YORK, False),
        ("2026-11-01T03:59:00-05:00", "2026-11-01T04:00:00-05:00", NEW_YORK, True),
        ("2026-11-01T04:00:00-05:00", "2026-11-02T03:59:00-05:00", NEW_YORK, False),
        ("2026-06-15T12:00:00+00:00", "2026-06-15T11:00:00+00:00", UTC_ZONE, False),  # a clock that was put back
    ],
)
def test_the_hour_of_the_day(last: str, now: str, zone: ZoneInfo, over: bool) -> None:
    assert SessionConfig(resetDaily="04:00").is_over(at(last), at(now), zone) is over


@pytest.mark.parametrize("hour", ["02:30", "01:30"])
def test_session_expiry_hour_skipped_or_doubled_by_dst_counts_once(hour: str) -> None:
    rules = SessionConfig(resetDaily=hour)
    for day in (datetime(2026, 3, 8, 5, tzinfo=UTC), datetime(2026, 11, 1, 4, tzinfo=UTC)):
        begin = day.timestamp()
        minutes = [begin + 60 * number for number in range(23 * 60)]
        ends = [it for it in minutes if rules.is_over(it - 60, it, NEW_YORK)]
        assert len(ends) == 1


@given(
    begin=st.floats(at("2025-01-01T00:00+00:00"), at("2027-01-01T00:00+00:00")),
    hours=st.floats(0, 80),
    hour=st.times().map(lambda it: time(it.hour, it.minute)),
    zone=st.sampled_from([SHANGHAI, NEW_YORK, UTC_ZONE, ZoneInfo("Australia/Lord_Howe")]),
)
def test_it_has_ended_where_the_hour_lies_between(begin: float, hours: float, hour: time, zone: ZoneInfo) -> None:
    now, first = begin + 3600 * hours, datetime.fromtimestamp(begin, tz=UTC).date()
    days = [first + timedelta(days=number) for number in range(-2, 8)]
    moments = [datetime.combine(day, hour, tzinfo=zone).timestamp() for day in days]
    between = any(begin < moment <= now for moment in moments)
    rules = SessionConfig(resetDaily=f"{hour:%H:%M}")
    assert rules.is_over(begin, now, zone) is between


def test_silence_and_neither() -> None:
    idle = SessionConfig(resetIdleMinutes=30)
    assert [idle.is_over(0.0, it, UTC_ZONE) for it in (1799.0, 1800.0)] == [False, True]
    assert not SessionConfig().is_over(0.0, 1e9, UTC_ZONE)


@pytest.mark.parametrize("hour", ["4:00", "24:00", "04:60", "noon", "", "T0400", "٠٤:٠٠", "04:00Z"])
def test_what_is_no_time_of_day_is_refused(hour: str) -> None:
    with pytest.raises(ValidationError, match="expected a time of day"):
        SessionConfig(resetDaily=hour)

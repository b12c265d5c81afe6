"""Times in a zone: the machine's own is read as the system reads it, on both sides of every change of its clocks."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.moment import clock, day, iso, local, timestamp, zone_of

ZONES = (
    "UTC",
    "Asia/Shanghai",
    "Asia/Kathmandu",
    "America/New_York",
    "America/Sao_Paulo",
    "Europe/Berlin",
    "Australia/Lord_Howe",
)


@pytest.fixture
def machine_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tzinfo]]:
    """Puts the machine into a zone; gives the one without a name."""

    def put(zone: str) -> tzinfo:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        return zone_of(None)

    yield put
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", ZONES)
def test_the_machines_own_zone_reads_as_the_same_zone_by_its_name(
    name: str, machine_in: Callable[[str], tzinfo]
) -> None:
    machine, named = machine_in(name), ZoneInfo(name)

    @given(st.floats(min_value=0, max_value=2**31 - 1))
    def law(at: float) -> None:
        here, there = local(at, machine), local(at, named)
        assert (here.replace(tzinfo=None), here.fold) == (there.replace(tzinfo=None), there.fold)
        assert here.timestamp() == there.timestamp()
        assert [it(at, machine) for it in (timestamp, clock, day, iso)] == [
            it(at, named) for it in (timestamp, clock, day, iso)
        ]

    law()


@pytest.mark.parametrize("name", ZONES)
def test_moment_round_trips_around_dst_changes(name: str, machine_in: Callable[[str], tzinfo]) -> None:
    """Hours that come twice, and those behind a gap, are not found by chance."""
    machine, named = machine_in(name), ZoneInfo(name)
    begin, day_seconds = datetime(2026, 1, 1, tzinfo=UTC).timestamp(), 86_400.0
    for start in (begin + day_seconds * number for number in range(365)):
        around = [local(start + day_seconds * beside, named).utcoffset() for beside in (-1, 0, 1, 2)]
        for at in (start + 1_800.0 * it for it in (range(48) if len({*around}) > 1 else (12, 42))):
            assert timestamp(at, machine) == timestamp(at, named), at
            assert local(at, machine).timestamp() == at


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("UTC", "Mon 2026-06-15 14:31 UTC"),
        ("Asia/Shanghai", "Mon 2026-06-15 22:31 CST"),
        ("America/Sao_Paulo", "Mon 2026-06-15 11:31 UTC-03"),
        ("Asia/Kathmandu", "Mon 2026-06-15 20:16 UTC+0545"),
    ],
)
def test_a_time_has_its_zones_name_and_a_zone_without_one_its_offset(name: str, shown: str) -> None:
    moment = datetime(2026, 6, 15, 14, 31, 59, tzinfo=UTC)
    assert timestamp(moment, zone_of(name)) == timestamp(moment.timestamp(), zone_of(name)) == shown
    assert clock(moment, zone_of(name)) == shown.split(" ", 2)[2]
    assert day(moment, zone_of(name)) == "2026-06-15"

"""The table of what is due: taken once, by an index, whoever else reads the same time."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from gateway.config.root import DatabaseConfig
from gateway.store.later import DUE, MOVE, NEXT_DUE, OF_OWNER, OF_PLACE, Later, Step, run_keys
from gateway.store.opening import open_store
from gateway.store.records import Delivery
from gateway.store.store import Store

ROWS = 20_000
FEW = 10
STEPS_MAX = 500
"""Steps of SQLite's machine, which takes some ten for a statement and some more for each row."""


@pytest.fixture
async def store(database_url: str) -> Store:
    opened = open_store(DatabaseConfig(url=database_url))
    await opened.start(lambda _: None)
    return opened


def row(id_: str, due: float | None = 100.0, owner: str | None = "feishu:default:ou_a") -> Later:
    return Later(
        id=id_, kind="schedule", due=due, owner=owner, place="feishu:default:oc", state="active", body="{}", since=0
    )


def step(later: Later, sid: str = "agent:a:feishu:default:oc", **more: object) -> Step:
    delivery = Delivery(sid=sid, dedupe=(f"later:{later.id}:{later.due:.0f}",), body="{}", at=100.0, internal=True)
    return Step(later=later, next=200.0, state="active", delivery=delivery, **more)  # type: ignore[arg-type]


async def test_schedule_taken_by_ten_at_once_has_one_message(store: Store) -> None:
    try:
        made = await store.later.create(row("R-1"), key="k", most=5)
        assert made is not None
        taken = await asyncio.gather(
            *(store.later.advance([step(made)], at=101.0, worker=store.worker) for _ in range(10))
        )
        assert sum(len(it) for it in taken) == 1
        assert (await store.backlog()).messages == 1
        [after] = await store.later.every()
        assert (after.due, after.ran, after.runs) == (200.0, 101.0, 1)
        [(_, lease)] = next(it for it in taken if it)
        assert lease is not None
        assert lease.sid == "agent:a:feishu:default:oc"
    finally:
        await store.close()


async def test_schedule_creation_is_idempotent_and_limited(store: Store) -> None:
    try:
        first = await store.later.create(row("R-1"), key="k1", most=2)
        again = await store.later.create(row("R-2"), key="k1", most=2)
        assert first is not None
        assert again is not None
        assert first.id == again.id
        assert await store.later.create(row("R-3"), key="k2", most=2) is not None
        assert await store.later.create(row("R-4"), key="k3", most=2) is None
        assert [it.id for it in await store.later.of_owner("feishu:default:ou_a")] == ["R-1", "R-3"]
    finally:
        await store.close()


async def test_text_goes_beside_a_turn_that_runs_and_work_behind_it(store: Store) -> None:
    try:
        rows = [await store.later.create(row(f"R-{it}"), key=str(it), most=9) for it in range(3)]
        one, two, three = (it for it in rows if it is not None)
        taken = await store.later.advance([step(one), step(two, waits=False), step(three)], at=101.0, worker=None)
        assert len(taken) == 3
        leases = await store.claim(10)
        assert sorted(it.sid for it in leases) == ["agent:a:feishu:default:oc", "aside:say:agent:a:feishu:default:oc"]
    finally:
        await store.close()


async def test_schedule_is_skipped_and_command_end_postponed_in_a_full_chat(store: Store) -> None:
    try:
        rows = [await store.later.create(row(f"R-{it}"), key=str(it), most=9) for it in range(3)]
        one, two, three = (it for it in rows if it is not None)
        steps = [step(one), step(two), step(three, again=115.0)]
        taken = await store.later.advance(steps, at=101.0, worker=None, waiting_max=1)
        assert [(it.later.id, it.skips, it.only_looks) for it, _ in taken] == [
            ("R-0", False, False),
            ("R-1", True, False),
            ("R-2", False, True),
        ]
        found = {it.id: (it.due, it.state, it.runs, it.skips) for it in await store.later.every()}
        assert found == {
            "R-0": (200.0, "active", 1, 0),
            "R-1": (200.0, "active", 0, 1),
            "R-2": (115.0, "active", 0, 0),
        }
        assert (await store.backlog()).messages == 1
    finally:
        await store.close()


def looked_at(connection: Connection) -> int:
    """The rows that the watch looks at in one round, or SQLite's steps: begins one of two that are due, finds the next."""
    driver, steps = connection.connection.driver_connection, 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    if isinstance(driver, sqlite3.Connection):
        driver.set_progress_handler(count, 1)
    moved = {"id": "R-0", "due": 10_000.0, "next": None, "state": "done", "skip": 0}
    for statement, names in ((DUE, {"now": 10_001.0, "most": 50}), (MOVE, moved), (NEXT_DUE, {})):
        assert connection.execute(text(statement), names).all()
    if isinstance(driver, sqlite3.Connection):
        driver.set_progress_handler(None, 0)
        return steps
    counted = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'later'"
    return int(connection.execute(text(counted)).scalar_one())


@pytest.mark.parametrize("order", ["bytes", "punctuation first", "punctuation ignored"])
def test_runs_of_a_reminder_are_found_in_every_collation(order: str) -> None:
    """Outside of "C", databases put a semicolon before a colon, and both before digits."""
    chars = " _-,;:!?./0123456789"
    keys: dict[str, Callable[[str], Any]] = {
        "bytes": str.encode,
        "punctuation first": lambda text: [(chars.find(it) if it in chars else ord(it.lower()), it) for it in text],
        "punctuation ignored": lambda text: [it for it in text.lower() if it.isalnum()],
    }
    key = keys[order]
    first, end = run_keys("R-K7QF2")
    assert key(first) <= key("later:R-K7QF2:0.000") < key("later:R-K7QF2:1764000000.000") < key(end)


async def test_of_each_finds_one_schedule_of_each_person_in_each_chat(store: Store) -> None:
    try:
        for number in range(12):
            owner, place = f"feishu:default:ou_{number % 2}", f"feishu:default:oc_{number % 3}"
            await store.later.expect(replace(row(f"R-{number:02}", owner=owner), place=place))
        await store.later.expect(replace(row("P-1", owner="feishu:default:ou_9"), kind="process"))
        await store.later.expect(row("config", owner=None))
        await store.later.end("R-00", "cancelled")
        assert [it.id for it in sorted(await store.later.of_each(), key=lambda it: it.id)] == [
            "R-01", "R-02", "R-03", "R-04", "R-05", "R-06",
        ]  # fmt: skip
    finally:
        await store.close()


async def test_twenty_thousand_rows_that_wait_cost_no_scan(store: Store, database_url: str) -> None:
    def fill(connection: Connection) -> list[str]:
        columns = "id, kind, due, owner, place, state, body, since"
        many = [
            {
                "id": f"R-{it}",
                "due": 10_000.0 + it,
                "owner": f"feishu:default:ou_{it % 5000}",
                "place": f"feishu:default:oc_{it % 5000}",
            }
            for it in range(ROWS)
        ]
        insert = f"INSERT INTO later ({columns}) VALUES (:id, 'schedule', :due, :owner, :place, 'active', '{{}}', 0)"
        connection.execute(text(insert), many)
        connection.execute(text("ANALYZE later"))
        is_sqlite = connection.dialect.name == "sqlite"
        plans = []
        for statement in (DUE, NEXT_DUE, OF_OWNER, OF_PLACE, MOVE):
            names = {
                "now": 10_001.0,
                "most": 50,
                "owner": "feishu:default:ou_1",
                "also": "",
                "id": "R-1",
                "due": 10_001.0,
            }
            names |= {"next": 5.0, "state": "active", "skip": 0, "place": "feishu:default:oc_1"}
            given = {name: value for name, value in names.items() if f":{name}" in statement}
            explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
            plans.append("\n".join(str(it) for it in connection.execute(text(f"{explain} {statement}"), given).all()))
        return plans

    try:
        for plan in await store.later.write(fill):
            assert (
                "later_due" in plan
                or "later_owner" in plan
                or "later_place" in plan
                or "later_pkey" in plan
                or "autoindex" in plan
            )
            assert "SCAN later'" not in plan
            assert "Seq Scan" not in plan
        assert [it.id for it in await store.later.due(10_000.5, 50)] == ["R-0"]
        rows = await store.later.write(looked_at)
        assert 0 < rows <= (STEPS_MAX if database_url.startswith("sqlite") else FEW)
    finally:
        await store.close()

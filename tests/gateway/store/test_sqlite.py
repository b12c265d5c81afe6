"""The store's promises, on a real file. A unit test because the door cannot make two workers fight over one chat."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from gateway.store.sqlite import DatabaseInUse, DatabaseTooNew, DatabaseUnusable, SqliteStore
from gateway.store.store import Acceptance, Delivery, Entry, Fenced, Lease, NewPart, StoreUnavailable
from gateway.store.writer import Writer


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(tmp_path / "clawgate.db") as store:
        yield store


def message(number: int, *, sid: str = "chat", text_key: str = "") -> Delivery:
    dedupe = (f"{sid}:m{number}", text_key) if text_key else (f"{sid}:m{number}",)
    return Delivery(
        sid=sid,
        dedupe=dedupe,
        body=f"body {number}",
        at=float(number),
        overflow=NewPart(key="note", payload="too many"),
    )


async def accept(store: SqliteStore, number: int, *, sid: str = "chat", pending_max: int = 50) -> Acceptance:
    return await store.accept(message(number, sid=sid), pending_max=pending_max)


async def leased(store: SqliteStore, number: int = 1) -> Lease:
    lease = (await accept(store, number)).lease
    assert lease is not None
    return lease


async def finish(store: SqliteStore, lease: Lease, *parts: str) -> None:
    work = await store.next(lease, history_turns=10)
    assert work is not None
    entries = [
        Entry(turn=work.turn, kind="user", content="u"),
        Entry(turn=work.turn, kind="assistant", content="a"),
        Entry(turn=work.turn, kind="final", content="{}"),
    ]
    await store.finish(lease, entries, [NewPart(key=f"{work.turn}-{part}", payload=part) for part in parts], at=1.0)


async def test_the_same_message_delivered_by_many_at_once_is_stored_once(store: SqliteStore) -> None:
    acceptances = await asyncio.gather(*(accept(store, 1) for _ in range(20)))
    assert sum(acceptance.turn is not None for acceptance in acceptances) == 1


async def test_a_repush_under_another_id_is_recognised_by_its_text_key(store: SqliteStore) -> None:
    await store.accept(message(1, text_key="text:abc"), pending_max=50)
    assert (await store.accept(message(2, text_key="text:abc"), pending_max=50)).turn is None
    assert (await store.accept(message(3, text_key="text:xyz"), pending_max=50)).turn is not None


async def test_messages_of_a_chat_come_in_the_order_of_their_acceptance(store: SqliteStore) -> None:
    lease = await leased(store, 1)
    await accept(store, 2)
    bodies = []
    for _ in range(2):
        work = await store.next(lease, history_turns=10)
        assert work is not None
        bodies.append(work.body)
        await finish(store, lease)
    assert bodies == ["body 1", "body 2"]
    assert await store.next(lease, history_turns=10) is None


async def test_an_idle_chat_is_claimed_with_a_new_epoch_and_a_busy_one_keeps_its_own(store: SqliteStore) -> None:
    first = await leased(store, 1)
    assert (await accept(store, 2)).lease == first
    await finish(store, first)
    await finish(store, first)
    assert await store.release(first)
    again = (await accept(store, 3)).lease
    assert again is not None
    assert again.epoch == first.epoch + 1


async def test_a_chat_is_not_released_while_a_message_or_a_part_waits(store: SqliteStore) -> None:
    lease = await leased(store, 1)
    assert not await store.release(lease)
    await finish(store, lease, "one", "two")
    assert not await store.release(lease)
    first, second = await store.queued(lease)
    assert not await store.sent(lease, first, "om_1")
    assert await store.sent(lease, second, "om_2")


async def test_a_part_that_is_given_up_does_not_hold_the_chat(store: SqliteStore) -> None:
    lease = await leased(store)
    await finish(store, lease, "one")
    (part,) = await store.queued(lease)
    await store.postpone(lease, part, next_at=99.0)
    (part,) = await store.queued(lease)
    assert (part.attempts, part.next_at) == (1, 99.0)
    assert await store.failed(lease, part)
    assert await store.queued(lease) == []


async def test_whoever_lost_the_chat_can_write_nothing(store: SqliteStore) -> None:
    lease = await leased(store)
    old = Lease(sid=lease.sid, epoch=lease.epoch - 1)
    with pytest.raises(Fenced):
        await store.append(old, Entry(turn=1, kind="assistant", content="a"))
    with pytest.raises(Fenced):
        await finish(store, old, "part")
    assert await store.queued(lease) == []
    work = await store.next(lease, history_turns=10)
    assert work is not None
    assert work.so_far == []


async def test_history_is_whole_turns_and_no_more_than_asked_for(store: SqliteStore) -> None:
    lease = await leased(store, 1)
    for number in range(2, 6):
        await accept(store, number)
        await finish(store, lease)
    work = await store.next(lease, history_turns=2)
    assert work is not None
    assert [entry.kind for entry in work.history] == ["user", "assistant", "final"] * 2
    assert sorted({entry.turn for entry in work.history}) == [work.turn - 2, work.turn - 1]


async def test_one_note_answers_a_burst_beyond_the_limit(store: SqliteStore) -> None:
    lease = await leased(store, 1)
    acceptances = [await accept(store, number, pending_max=2) for number in (2, 3, 4, 5)]
    assert [acceptance.overflow for acceptance in acceptances] == [False, True, True, True]
    assert [part.payload for part in await store.queued(lease)] == ["too many"]
    for _ in range(2):
        await finish(store, lease)
    assert await store.next(lease, history_turns=10) is None


async def test_after_a_crash_the_next_process_takes_up_every_chat_and_counts_the_begun_turn(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    async with opened(path) as store:
        begun, untouched = await leased(store), (await accept(store, 1, sid="other")).lease
        assert untouched is not None
        await store.append(begun, Entry(turn=1, kind="user", content="u"))
    async with opened(path) as store:
        leases = {lease.sid: lease for lease in await store.claim()}
        assert leases["chat"].epoch == begun.epoch + 1
        work, fresh = [await store.next(leases[sid], history_turns=10) for sid in ("chat", "other")]
        assert work is not None
        assert fresh is not None
        assert (work.attempts, fresh.attempts) == (1, 0)
        assert [entry.kind for entry in work.so_far] == ["user"]
        assert await store.claim() == []


async def test_a_turn_that_was_handed_over_counts_no_attempt(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    async with opened(path) as store:
        lease = await leased(store)
        await store.append(lease, Entry(turn=1, kind="user", content="u"))
        await store.append(lease, Entry(turn=1, kind="drained", content="{}"))
    async with opened(path) as store:
        (lease,) = await store.claim()
        work = await store.next(lease, history_turns=10)
        assert work is not None
        assert work.attempts == 0


async def test_a_chat_with_only_an_unsent_part_is_taken_up_too(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    async with opened(path) as store:
        await finish(store, await leased(store), "unsent")
    async with opened(path) as store:
        (lease,) = await store.claim()
        assert [part.payload for part in await store.queued(lease)] == ["unsent"]


async def test_finished_rows_are_pruned_and_waiting_ones_are_kept(store: SqliteStore) -> None:
    lease = await leased(store, 1)
    await finish(store, lease)
    await accept(store, 2)
    assert await store.prune(before=100.0) == 1
    work = await store.next(lease, history_turns=10)
    assert work is not None
    assert work.body == "body 2"


async def test_one_bad_operation_does_not_take_its_group_with_it(store: SqliteStore) -> None:
    writer: Writer = store._writer

    def bad(connection: object) -> None:
        raise RuntimeError("bad")

    outcomes = await asyncio.gather(
        *(accept(store, number) for number in range(5)),
        writer.call(bad),
        *(accept(store, number) for number in range(5, 10)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Acceptance] * 5 + [StoreUnavailable] + [Acceptance] * 5
    assert len({outcome.turn for outcome in outcomes if isinstance(outcome, Acceptance)}) == 10


async def test_a_second_gateway_on_the_same_file_is_kept_out(tmp_path: Path) -> None:
    async with opened(tmp_path / "clawgate.db"):
        with pytest.raises(DatabaseInUse, match=r"database\.url"):
            SqliteStore(tmp_path / "clawgate.db")


def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clawgate.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=999")
    with pytest.raises(DatabaseTooNew):
        SqliteStore(path)


async def test_the_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    async with opened(tmp_path / "data" / "clawgate.db"):
        assert (tmp_path / "data" / "clawgate.db").stat().st_mode & 0o077 == 0
        assert (tmp_path / "data").stat().st_mode & 0o066 == 0  # others may pass through to a workspace, not look


@pytest.mark.parametrize("spoil", ["a folder in its place", "not a database", "a file in the folder's place"])
def test_a_database_that_cannot_be_opened_is_one_sentence(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "data" / "clawgate.db"
    match spoil:
        case "a folder in its place":
            path.mkdir(parents=True)
        case "not a database":
            path.parent.mkdir()
            path.write_text("this is a letter to my aunt " * 100)
        case _:
            path.parent.write_text("")
    with pytest.raises(DatabaseUnusable, match=r"database\.url"):
        SqliteStore(path)

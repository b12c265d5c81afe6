"""The store's promises, on a real file and a real server. Unit tests because the door cannot make two workers fight
over one chat."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.store.errors import Fenced
from gateway.store.records import Entry, Lease, NewPart, SentPart, SessionMark, Spent
from gateway.store.store import Store
from tests.gateway.store.chats import accept, finish, leased, look, message, opened, step, work_of
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


async def test_redelivered_message_at_once_is_deduped(store: Store) -> None:
    acceptances = await asyncio.gather(*(accept(store, 1) for _ in range(20)))
    assert sum(acceptance.turn is not None for acceptance in acceptances) == 1
    assert len((await work_of(store, Lease(sid="chat", epoch=1))).waiting) == 1


async def test_redelivered_under_another_id_is_deduped_by_text(store: Store) -> None:
    for number, key, known in ((1, "text:abc", False), (2, "text:abc", True), (3, "text:xyz", False)):
        acceptance = await store.accept(message(number, text_key=key), pending_max=50, sender_max=200, claim=True)
        assert (acceptance.turn is None) == known


async def test_messages_of_a_chat_come_in_the_order_of_their_acceptance(store: Store) -> None:
    await asyncio.gather(*(accept(store, number) for number in range(1, 20)))
    lease = Lease(sid="chat", epoch=1)
    assert [waiting.body for waiting in (await work_of(store, lease)).waiting] == [f"body {n}" for n in range(1, 20)]
    for number in range(1, 20):
        assert (await work_of(store, lease)).waiting[0].body == f"body {number}"
        await finish(store, lease)
    assert (await look(store, lease)).work is None


async def test_lease_of_an_idle_chat_gets_a_new_epoch(store: Store) -> None:
    first = await leased(store, 1)
    assert (await accept(store, 2)).lease == first
    await finish(store, first)
    await finish(store, first)
    assert await store.release(first)
    again = (await accept(store, 3)).lease
    assert again == Lease(sid="chat", epoch=first.epoch + 1)


async def test_lease_sweep_claims_unowned_chats_up_to_its_limit(store: Store) -> None:
    for number in range(5):
        assert (await accept(store, number, sid=f"chat{number}", claim=False)).lease is None
    taken = [await store.claim(2) for _ in range(4)]
    assert [len(leases) for leases in taken] == [2, 2, 1, 0]
    assert (await work_of(store, taken[0][0])).waiting[0].attempts == 0
    assert {lease.sid for lease in await store.leased()} == {f"chat{number}" for number in range(5)}


async def test_lease_sweep_finds_parts_of_another_session(store: Store) -> None:
    lease = await leased(store, 1)
    (waiting,) = (await work_of(store, lease)).waiting
    final = step(waiting.turn, "final")
    (part,) = await store.finish(lease, final, [NewPart(key="k", payload="later")], at=1.0, beside="aside:say:chat")
    assert (await look(store, lease)).parts == []
    assert await store.release(lease)
    (beside,) = await store.claim(10)
    assert beside.sid == "aside:say:chat"
    assert [it.payload for it in (await look(store, beside)).parts] == ["later"]
    assert await store.sent(beside, part, "om_1")


async def test_lease_is_kept_while_a_message_or_part_waits(store: Store) -> None:
    lease = await leased(store, 1)
    assert not await store.release(lease)
    first, second = await finish(store, lease, "one", "two")
    assert not await store.release(lease)
    assert [part.payload for part in (await look(store, lease)).parts] == ["one", "two"]
    assert not await store.sent(lease, first, "om_1")
    assert await store.sent(lease, second, "om_2")
    assert (await store.backlog()).oldest is None


async def test_outbox_sent_part_is_found_by_key_and_platform_id(
    store: Store,
) -> None:
    lease = await leased(store, 1)
    first, second, third = await finish(store, lease, "one", "two", "three")
    assert await store.sent_parts(ext_id="om_1") == []
    await store.sent(lease, first, "om_1")
    await store.failed(lease, second, "refused")
    await store.sent(lease, third, "")
    assert [(await store.sent_parts(key=it.key))[0].ext_id for it in (first, second)] == ["om_1", None]
    one = SentPart(payload="one", body="body 1", sid=lease.sid, ext_id="om_1", turn=first.turn, part=0)
    assert (await store.sent_parts(ext_id="om_1"), await store.sent_parts(key=first.key)) == ([one], [one])
    assert await store.sent_parts(ext_id="om_' OR 1=1 --") == []
    other = await leased(store, 2, sid="other")
    (again,) = await finish(store, other, "of another bot's message with the same id")
    await store.sent(other, again, "om_1")
    found, earlier = await store.sent_parts(ext_id="om_1")
    assert (found.sid, found.payload.startswith("of another"), earlier) == ("other", True, one)


async def test_outbox_tool_send_is_recorded_once(store: Store) -> None:
    lease = await leased(store, 1)
    asked, said = (NewPart(key=key, payload=key) for key in ("asked", "said"))
    for _ in range(2):  # again after a crash
        await store.keep_sent(lease.sid, asked, None, 1.0)
        await store.keep_sent(lease.sid, said, "om_2", 1.0)
    (waiting,) = await store.sent_parts(key="asked")
    assert (waiting.ext_id, waiting.body) == (None, "body 1")
    await store.keep_sent(lease.sid, asked, "om_1", 1.0)
    assert [it.payload for it in await store.sent_parts(ext_id="om_1")] == ["asked"]
    assert [it.payload for it in await store.sent_parts(ext_id="om_2")] == ["said"]
    poll = NewPart(key="poll", payload="poll")
    for _ in range(2):
        await store.keep_sent(lease.sid, poll, "om_4", 1.0, poll="4711")
    assert [(it.payload, it.ext_id) for it in await store.sent_parts(poll="4711")] == [("poll", "om_4")]
    assert await store.sent_parts(poll="om_4") == []
    assert (await look(store, lease)).parts == []
    (reply,) = await finish(store, lease, "reply")
    assert reply.part == 0
    assert await store.sent(lease, reply, "om_3")


async def test_outbox_attempt_is_recorded_and_clears_a_false_doubt(
    store: Store,
) -> None:
    lease = await leased(store)
    (part,) = await finish(store, lease, "one")
    await store._rows("UPDATE outbox SET ambiguous = 1", {})  # a claim suspects a part that nobody had begun to send
    assert await store.begin(lease, part, 5.0)
    (part,) = (await look(store, lease)).parts
    assert (part.attempt_started_at, part.ambiguous, part.attempts, part.begun) == (5.0, 0, 0, False)
    await store._rows("UPDATE outbox SET ambiguous = 1", {})
    await store.begin(lease, part, 6.0)
    (part,) = (await look(store, lease)).parts
    assert (part.attempt_started_at, part.ambiguous) == (6.0, 1)
    await store.postpone(lease, part, next_at=7.0, ambiguous=True)
    (part,) = (await look(store, lease)).parts
    assert (part.next_at, part.attempt_started_at, part.ambiguous, part.attempts) == (7.0, None, 2, 1)
    await store.begin(lease, part, 8.0)
    await store.cut_off(lease, part)
    (part,) = (await look(store, lease)).parts
    assert (part.attempt_started_at, part.ambiguous, part.attempts) == (8.0, 3, 2)
    assert await store.failed(lease, part, "refused")
    assert (await look(store, lease)).parts == []
    assert not await store.begin(lease, part, 10.0)


async def test_outbox_attempt_start_is_shared_with_the_older_version(store: Store) -> None:
    """Replicas are updated one after the other. The older version knows a start by a `next_at` below zero."""
    lease = await leased(store)
    (part,) = await finish(store, lease, "one")
    await store.begin(lease, part, 5.0)
    assert [row["next_at"] for row in await store._rows("SELECT next_at FROM outbox", {})] == [-5.0]
    await store._rows("UPDATE outbox SET next_at = -6, attempt_started_at = NULL, ambiguous = 1", {})
    (part,) = (await look(store, lease)).parts
    assert part.attempt_started_at == 6.0
    await store.begin(lease, part, 7.0)
    (part,) = (await look(store, lease)).parts
    assert (part.attempt_started_at, part.ambiguous) == (7.0, 1)


async def test_lease_lost_forbids_reads_and_writes(store: Store) -> None:
    old = await leased(store)
    (part,) = await finish(store, old, "one")
    await accept(store, 2)
    lease = await store.renew(old)
    with pytest.raises(Fenced):
        await store.begin(old, part, -5.0)
    assert (await look(store, lease)).parts == [part]
    turn = (await work_of(store, lease)).waiting[0].turn
    with pytest.raises(Fenced):
        await store.append(old, step(turn))
    with pytest.raises(Fenced):
        await store.finish(old, step(turn, "final"), [], at=1.0)
    with pytest.raises(Fenced):
        await store.session_state(old)
    with pytest.raises(Fenced):
        await store.renew(old)
    assert not await store.release(old)
    await store.release_for_takeover(old)
    assert (await look(store, old)).work is None
    assert (await work_of(store, lease)).so_far == []
    assert await store.leased() == [lease]


async def test_history_is_whole_turns_and_no_more_than_asked_for(store: Store) -> None:
    lease = await leased(store, 1)
    for number in range(2, 6):
        await accept(store, number)
        await finish(store, lease)
    work = await work_of(store, lease, history_turns=2)
    assert [entry.kind for entry in work.history] == ["user", "assistant", "final"] * 2
    turn = work.waiting[0].turn
    assert sorted({entry.turn for entry in work.history}) == [turn - 2, turn - 1]


async def test_history_begins_after_its_newest_mark_without_undone_turns(store: Store) -> None:
    lease = await leased(store, 1)
    turns = []
    for number in range(2, 7):
        turns.append((await work_of(store, lease)).waiting[0].turn)
        await accept(store, number)
        await finish(store, lease)

    async def standing() -> tuple[list[int], str, str]:
        work = await work_of(store, lease)
        for_a_command = await store.conversation("chat", before=turns[-1] + 100, history_turns=10, waiting_max=5)
        assert (for_a_command.history, for_a_command.summary) == (work.history, work.summary)
        assert [waiting.turn for waiting in for_a_command.waiting] == [waiting.turn for waiting in work.waiting]
        return sorted({entry.turn for entry in work.history}), work.summary.text, work.settings

    assert await standing() == (turns, "", "{}")
    assert await store.mark("chat", SessionMark(turn=turns[1], kind="summary", content="the first two", at=1.0))
    assert not await store.mark("chat", SessionMark(turn=turns[1], kind="summary", content="again", at=2.0))
    assert await store.mark("chat", SessionMark(turn=turns[3], kind="undone", at=1.0))
    assert await store.mark("chat", SessionMark(turn=turns[2], kind="settings", content='{"verbose": true}', at=1.0))
    assert await store.mark("other", SessionMark(turn=turns[4], kind="new", at=1.0))
    assert await standing() == ([turns[2], turns[4]], "the first two", '{"verbose": true}')
    assert await store.mark("chat", SessionMark(turn=turns[3], kind="new", at=1.0))
    assert await standing() == ([turns[4]], "", "{}")
    assert await store.mark("chat", SessionMark(turn=turns[3], kind="summary", content="late", at=1.0))
    assert await standing() == ([turns[4]], "", "{}")


async def test_history_of_a_begun_turn_survives_new(store: Store) -> None:
    """Else a stopped answer would stay in its chat, unfinished, for ever."""
    lease = await leased(store, 1)
    await accept(store, 2)
    await finish(store, lease)
    turn = (await work_of(store, lease)).waiting[0].turn
    await store.append(lease, [Entry(turn=turn, kind="user", content="{}")])
    await store.mark("chat", SessionMark(turn=turn + 1, kind="new", at=1.0))
    work = await work_of(store, lease)
    assert [(entry.turn, entry.kind) for entry in work.so_far] == [(turn, "user")]
    assert {entry.turn for entry in work.history} == {turn - 1}
    for number in (3, 4):  # the third has the number of the command
        await accept(store, number)
        await finish(store, lease)
    assert (await work_of(store, lease)).history == []


async def test_finish_is_idempotent(store: Store) -> None:
    """A stop may come in the middle of the commit; whoever looks a moment too early finds the message waiting still."""
    lease = await leased(store, 1)
    turn = (await work_of(store, lease)).waiting[0].turn
    await accept(store, 2)
    await store.append(lease, step(turn, "user"))
    for number in range(3):
        spent = Spent(scopes=("agent:a",), day="2026-11-23", tokens=7, cost=0.0)
        final = Entry(turn=turn, kind="final", content="{}", spent=spent)
        parts = await store.finish(lease, [final], [NewPart(key="k", payload="p")], at=1.0)
        assert len(parts) == (number == 0)
    assert (await store.session_state(lease)).pending == 1
    assert [row.tokens for row in await store.usage("2026-11-23", ["agent:a"])] == [7]
    view = await store.load(lease, history_turns=9, waiting_max=9)
    assert len(view.parts) == 1
    assert view.work is not None
    assert [entry.kind for entry in view.work.history if entry.turn == turn and entry.kind != "full"] == [
        "user",
        "final",
    ]
    with pytest.raises(Fenced):
        await store.finish(replace(lease, epoch=lease.epoch + 9), [final], [], at=1.0)


async def test_a_message_can_be_read_again_until_its_row_is_gone(store: Store) -> None:
    lease = await leased(store, 1)
    turn = (await work_of(store, lease)).waiting[0].turn
    await finish(store, lease)
    assert await store.bodies("chat", turn) == {turn: "body 1"}
    assert await store.bodies("other", turn) == {}
    await store.prune(2.0)
    assert await store.bodies("chat", turn) == {}


async def test_inbox_limit_counts_people_and_gives_commands_as_many_again(store: Store) -> None:
    await store.sends.queue(replace(message(1), internal=True))
    numbers = iter(range(2, 10))

    async def refused(sid: str) -> bool:
        delivery = message(next(numbers), sid=sid, sender="f:d:ou_1")
        return (await store.accept(delivery, pending_max=2, sender_max=2, claim=False)).overflow

    assert [await refused("chat") for _ in range(3)] == [False, False, True]
    assert [await refused("aside:chat") for _ in range(2)] == [False, True]


async def test_inbox_limit_leaves_the_key_of_a_program_free(store: Store) -> None:
    """It retries on purpose, with the same key."""
    lease = await leased(store)
    again = replace(message(2), repeatable=True)
    for waits, overflow in ((1, True), (2, False)):
        accepted = await store.accept(again, pending_max=waits, sender_max=9, claim=True)
        assert (accepted.turn is not None, accepted.overflow) == (True, overflow)
    assert len((await work_of(store, lease)).waiting) == 2


async def test_lease_that_is_not_taken_begins_no_turn(store: Store) -> None:
    """A worker that is being stopped has room for a turn, and leaves it to others."""
    await store.accept(message(1), pending_max=9, sender_max=9, claim=False, begin=True)
    lease = (await accept(store, 2)).lease
    assert lease
    assert (await work_of(store, lease)).begun == 0


async def test_stop_by_a_message_does_not_stop_its_own_turn(store: Store) -> None:
    accepted = await accept(store, 1, interrupts=True)
    assert accepted.lease
    assert accepted.turn
    work = await work_of(store, accepted.lease)
    assert work.stopped == accepted.turn
    part = NewPart(key="k", payload="p")
    assert await store.finish(accepted.lease, step(accepted.turn, "final"), [part], at=1.0, revision=work.revision)


async def test_rate_limit_burst_gets_one_note(store: Store) -> None:
    await leased(store, 1)
    acceptances = [await accept(store, number, pending_max=2) for number in (2, 3, 4, 5)]
    assert [acceptance.overflow for acceptance in acceptances] == [False, True, True, True]
    note = acceptances[1].lease
    assert note is not None
    assert note.sid == "aside:chat"
    assert [waiting.body for waiting in (await work_of(store, note)).waiting] == ["body 3"]
    assert [waiting.body for waiting in (await work_of(store, Lease(sid="chat", epoch=1))).waiting] == [
        "body 1",
        "body 2",
    ]


async def test_joined_messages_are_answered_by_one_turn(store: Store) -> None:
    lease = await leased(store, 1)
    for number in (2, 3):
        await accept(store, number)
    first, second, third = (await work_of(store, lease)).waiting
    standing = await store.append(lease, step(third.turn, "user"), [first.turn, second.turn])
    assert standing.pending == 1
    work = await work_of(store, lease)
    assert ([waiting.turn for waiting in work.waiting], len(work.so_far)) == ([third.turn], 1)
    await store.finish(lease, step(third.turn, "final"), [], at=1.0)
    assert await store.release(lease)


async def test_stop_is_seen_at_the_next_write(store: Store) -> None:
    lease = await leased(store, 1)
    turn = (await work_of(store, lease)).waiting[0].turn
    assert (await store.append(lease, step(turn, "user"))).stopped == 0
    assert await store.stop("chat", turn + 1) == 1
    assert (await store.append(lease, step(turn))).stopped == turn + 1
    assert (await store.session_state(lease)).stopped == turn + 1
    work = await work_of(store, lease)
    assert (work.stopped, work.superseded) == (turn + 1, False)
    assert await store.stop("nobody", 9) == 0
    newest = (await accept(store, 2, interrupts=True)).turn
    work = await work_of(store, lease)
    assert (work.stopped, work.superseded) == (newest, True)


async def test_lease_of_a_dead_process_is_taken_up_with_its_begun_turns(database_url: str) -> None:
    async with opened(database_url) as store:
        chats = {sid: await leased(store, sid=sid) for sid in ("begun", "untouched", "handed over", "sending")}
        for sid in ("begun", "handed over"):
            turn = (await work_of(store, chats[sid])).waiting[0].turn
            await store.begun(chats[sid], turn)
            await store.append(chats[sid], step(turn, "user"))
        await store.release_for_takeover(chats["handed over"])
        await finish(store, chats["sending"], "one", "two")
    async with opened(database_url) as store:
        leases = {lease.sid: lease for lease in await store.claim(10)}
        assert leases["begun"].epoch == chats["begun"].epoch + 1
        work = {sid: await work_of(store, leases[sid]) for sid in ("begun", "untouched", "handed over")}
        assert {sid: it.waiting[0].attempts for sid, it in work.items()} == {
            "begun": 1,
            "untouched": 0,
            "handed over": 0,
        }
        assert [entry.kind for entry in work["begun"].so_far] == ["user"]
        parts = (await look(store, leases["sending"])).parts
        assert [(part.payload, part.ambiguous) for part in parts] == [("one", 1), ("two", 0)]
        assert await store.claim(10) == []


async def test_finished_rows_are_pruned_and_what_waits_or_failed_is_kept(store: Store) -> None:
    lease = await leased(store, 1)
    (part,) = await finish(store, lease, "one")
    await store.failed(lease, part, "refused")
    lease = await leased(store, 2)
    assert await store.prune(before=100.0) == 1
    assert (await work_of(store, lease)).waiting[0].body == "body 2"
    assert (await store.backlog()).oldest == 2.0


async def test_store_under_load_keeps_order_per_chat(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one waits for a connection: that is the machine's."""
    monkeypatch.setattr("gateway.store.postgres.POOL_WAIT_SECONDS", PATIENCE_SECONDS)

    async def chat(store: Store, name: str) -> list[str]:
        bodies = []
        for number in range(10):
            lease = await leased(store, number, sid=name)
            bodies.append((await work_of(store, lease)).waiting[0].body)
            (part,) = await finish(store, lease, "reply")
            assert await store.sent(lease, part, "om")
        return bodies

    async with opened(database_url) as store:
        delivered = await asyncio.gather(*(chat(store, f"chat{number}") for number in range(30)))
    assert delivered == [[f"body {number}" for number in range(10)]] * 30

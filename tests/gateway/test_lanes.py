"""Lanes on a real store, with turns and sends that the test holds in its hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config.root import LimitsConfig
from gateway.outbox.outbox import Delivered, Outbox, RecordStart, Report
from gateway.state.runtime import StartGate, Stopped
from gateway.store.errors import Fenced, StoreUnavailable
from gateway.store.records import Delivery, Entry, Lease, NewPart, OutboxPart, Work
from gateway.store.sqlite import SqliteStore
from gateway.turns.lanes import Lanes, Sweep
from gateway.turns.turns import Turns
from tests.gateway.runtimes import runtime
from tests.waiting import until

RunTurn = Callable[[Lease, Work], Awaitable[Sequence[OutboxPart]]]


class House:
    """A store, lanes over it, and a record of what was begun, finished and sent."""

    def __init__(self, path: Path, *, parallel_turns: int = 64, turn_seconds: float = 30) -> None:
        self.store = SqliteStore(path)
        self.log: list[str] = []
        self.sent: list[str] = []
        self.turn: RunTurn = self.answer
        self.attempt: Callable[[OutboxPart], Awaitable[Report]] = self.send
        self.clock = 0.0
        limits = LimitsConfig(parallelTurns=parallel_turns, turnSeconds=turn_seconds)
        self.runtime = runtime(self.store, now=lambda: self.clock, limits=limits, channels={})
        outbox = Outbox(self.runtime, attempt=lambda part: self.attempt(part))
        self.lanes = Lanes(self.runtime, turns=cast(Turns, self), outbox=outbox)
        self.sweep = Sweep(self.runtime, self.lanes)

    async def say(self, chat: str, text: str, *, at: float = 1.0) -> None:
        await self.lanes.accept(Delivery(sid=chat, dedupe=(f"{chat}:{text}",), body=text, at=at))

    @property
    def start(self) -> "House":
        return self

    def wait_seconds(self, lease: Lease, work: Work, *, during_turn: bool, waited: bool) -> float:
        return 0.0

    def is_away(self, work: Work) -> bool:
        return False

    async def leaves_out_branches(self, sid: str, work: Work) -> bool:
        return False

    def is_awaited(self, sid: str) -> bool:
        return False

    async def run(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        return await self.turn(lease, work)

    async def end_stopped(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        return await self.end(lease, work, "stopped")

    async def end_stuck(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        return await self.end(lease, work, "stuck")

    async def answer(self, lease: Lease, work: Work) -> Sequence[OutboxPart]:
        message = work.waiting[0]
        await asyncio.sleep(0)
        return await self.end(lease, work, f"end {message.body}", f"re {message.body}")

    async def end(self, lease: Lease, work: Work, how: str, *texts: str) -> Sequence[OutboxPart]:
        message = work.waiting[0]
        final = [Entry(turn=message.turn, kind="final", content="{}")]
        parts = [NewPart(key=message.body, payload=text) for text in texts]
        queued = await self.store.finish(lease, final, parts, at=0.0)
        self.log.append(how)
        return queued

    async def send(self, part: OutboxPart) -> Report:
        self.sent.append(part.payload)
        return Delivered(message_id="om")

    async def settle(self) -> None:
        await until(lambda: not self.runtime.control.lanes)


@asynccontextmanager
async def house(path: Path, **limits: Any) -> AsyncIterator[House]:
    built = House(path / "clawgate.db", **limits)
    try:
        yield built
    finally:
        await built.lanes.drain(0)
        await built.store.close()


def counting(h: House) -> list[int]:
    """How many turns run, at the beginning of each."""
    began, running = list[int](), 0

    async def counted(lease: Lease, work: Work) -> Sequence[OutboxPart]:
        nonlocal running
        running += 1
        began.append(running)
        parts = await h.answer(lease, work)
        running -= 1
        return parts

    h.turn = counted
    return began


async def test_lanes_limit_concurrent_turns(tmp_path: Path) -> None:
    async with house(tmp_path, parallel_turns=3) as h:
        running = counting(h)
        await asyncio.gather(*(h.say(f"chat{n}", f"m{n}") for n in range(12)))
        await h.settle()
        assert max(running) == 3
        assert len(h.sent) == 12


async def test_lanes_retry_an_unexpected_failure_and_count_it(tmp_path: Path) -> None:
    attempts: list[int] = []
    async with house(tmp_path) as h:

        async def shaky(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            attempts.append(work.waiting[0].attempts)
            if len(attempts) < 2:
                raise RuntimeError("once")
            return await h.answer(lease, work)

        h.turn = shaky
        await h.say("a", "a0")
        await h.settle()
        assert attempts == [0, 1]
        assert h.sent == ["re a0"]


async def test_lanes_database_outage_uses_up_no_attempt(tmp_path: Path) -> None:
    attempts: list[int] = []
    async with house(tmp_path) as h:

        async def cut_off(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            attempts.append(work.waiting[0].attempts)
            if len(attempts) < 3:
                raise StoreUnavailable("away")
            return await h.answer(lease, work)

        h.turn = cut_off
        await h.say("a", "a0")
        await h.settle()
        assert attempts == [0, 0, 0]


@pytest.mark.parametrize("recognised", [True, False])
async def test_lanes_send_cut_off_by_shutdown_is_ambiguous(tmp_path: Path, recognised: bool) -> None:
    async with house(tmp_path) as h:
        under_way = asyncio.Event()

        async def cut_off(part: OutboxPart) -> Report:
            if not recognised and not part.begun:
                return RecordStart()
            under_way.set()
            await asyncio.Event().wait()
            raise AssertionError

        h.attempt = cut_off
        h.clock = 5.0
        await h.say("a", "a0")
        await under_way.wait()
        await h.lanes.drain(0.01)
    async with house(tmp_path) as h:
        (lease,) = await h.store.claim(1)
        (part,) = (await h.store.load(lease, history_turns=1, waiting_max=1)).parts
        assert (part.attempts, part.ambiguous, part.attempt_started_at) == (1, 1, None if recognised else 5.0)


async def test_stop_noticed_by_the_journal_ends_the_turn(tmp_path: Path) -> None:
    async with house(tmp_path) as h:

        async def deliver(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            raise Stopped

        h.turn = deliver
        await h.say("a", "a0")
        await h.settle()
        assert h.log == ["stopped"]


async def test_lanes_force_finish_a_turn_that_ignores_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.turns.lanes.OVERDUE_SECONDS", 0.01)
    late: list[Fenced] = []
    told: list[str] = []
    async with house(tmp_path, turn_seconds=0.01) as h:
        free = asyncio.Event()

        async def stubborn(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    told.append("to end")
            try:
                return await h.end(lease, work, "too late")
            except Fenced as error:
                late.append(error)
                raise

        h.turn = stubborn
        await h.say("a", "a0")
        await h.settle()
        assert h.log == ["stuck"]
        free.set()
        await until(lambda: late or len(h.log) > 1)
        assert (told, len(late), h.log) == (["to end"], 1, ["stuck"])


async def test_lanes_open_for_an_owned_session_without_one(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        message = Delivery(sid="a", dedupe=("a:a0",), body="a0", at=0.0)
        await h.store.accept(message, pending_max=9, sender_max=9, claim=True)
        await h.sweep._audit()
        assert not h.runtime.control.lanes
        await h.sweep._audit()
        await h.settle()
        assert h.sent == ["re a0"]


async def test_lanes_record_a_send_after_a_long_database_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as h:
        sent, failures = h.store.sent, 2

        async def away(lease: Lease, part: OutboxPart, ext_id: str, *more: Any) -> bool:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise StoreUnavailable("away")
            return await sent(lease, part, ext_id, *more)

        monkeypatch.setattr(h.store, "sent", away)
        await h.say("a", "a0")
        await h.settle()
        assert h.sent == ["re a0"]
        assert failures == -1


async def test_lanes_wait_for_a_turn_but_not_for_later_ones(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        asked: list[str] = []

        def wait_seconds(lease: Lease, work: Work, *, during_turn: bool, waited: bool) -> float:
            if during_turn:
                asked.append(work.waiting[0].body)
            return 0.0

        h.wait_seconds = wait_seconds  # type: ignore[method-assign]
        h.clock = 10.0

        async def later(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            if work.waiting[0].body == "a0":
                await h.say("a", "during", at=11.0)
                h.clock = 12.0
            elif work.waiting[0].body == "during":
                await h.say("a", "after", at=13.0)
            return await h.answer(lease, work)

        h.turn = later
        await h.say("a", "a0", at=10.0)
        await h.settle()
        assert h.sent == ["re a0", "re during", "re after"]
        assert asked == ["during"]


async def test_start_gate_begins_one_turn_at_a_time() -> None:
    gate, events = StartGate(), list[str]()

    async def turn(number: int) -> None:
        await gate.enter()
        events.append(f"turn {number}")
        asyncio.get_running_loop().call_soon(events.append, "something else")

    await asyncio.gather(*map(turn, range(5)))
    await asyncio.sleep(0)
    assert [event for event in events if event != "something else"] == [f"turn {number}" for number in range(5)]
    assert events.index("something else") < events.index("turn 2")


async def test_start_gate_cancelled_waiter_blocks_nobody() -> None:
    gate = StartGate()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not waiting[2].cancelled()
    await gate.enter()


def begun_of(store: SqliteStore) -> dict[str, int]:
    with store._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, begun FROM session")
        return {row.id: row.begun for row in rows}


async def test_lanes_record_only_running_turns_as_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten chats at the same moment for two places: whatever kills the process then was none of the eight."""
    async with house(tmp_path, parallel_turns=2) as h:
        recorded: list[int] = []
        begun, free = h.store.begun, asyncio.Event()

        async def counted(lease: Lease, turn: int) -> None:
            recorded.append(turn)
            await begun(lease, turn)

        async def waits(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            if work.begun != work.waiting[0].turn:  # as `Turns.run` does
                await h.store.begun(lease, work.waiting[0].turn)
            await free.wait()
            return await h.answer(lease, work)

        monkeypatch.setattr(h.store, "begun", counted)
        h.turn = waits
        for quiet in ("one", "other"):
            await h.say(quiet, quiet)
        await until(lambda: sum(map(bool, begun_of(h.store).values())) == 2)
        assert recorded == []
        free.set()
        await h.settle()
        free.clear()
        await asyncio.gather(*(h.say(f"chat{n}", f"m{n}") for n in range(10)))
        await until(lambda: sum(lane.turn is not None for lane in h.runtime.control.lanes.values()) == 2)
        await until(lambda: sum(map(bool, begun_of(h.store).values())) == 2)
        assert len(recorded) == 2
        free.set()
        await h.settle()
        assert (len(h.sent), any(begun_of(h.store).values())) == (12, False)


async def test_lanes_offer_a_free_slot_to_sessions_without_a_lease(tmp_path: Path) -> None:
    """Another replica leaves them to whoever has a place; without this they wait for the next sweep."""
    async with house(tmp_path, parallel_turns=1) as h:
        free = asyncio.Event()

        async def waits(lease: Lease, work: Work) -> Sequence[OutboxPart]:
            await free.wait()
            return await h.answer(lease, work)

        h.turn = waits
        await h.say("chat", "message")
        await until(lambda: h.lanes.free_slots == 0)
        h.lanes.wanted.clear()
        free.set()
        await h.settle()
        assert h.lanes.wanted.is_set()


async def test_lanes_kill_and_drain_use_up_no_attempt_of_waiting_messages(tmp_path: Path) -> None:
    """A gateway with one place and ten chats is killed twice, drained once, and killed again before it begins."""
    for life in range(4):
        async with house(tmp_path, parallel_turns=1) as h:
            under_way = asyncio.Event()

            async def hangs(lease: Lease, work: Work, h: House = h, under_way: asyncio.Event = under_way) -> Any:
                if work.begun != work.waiting[0].turn:
                    await h.store.begun(lease, work.waiting[0].turn)
                under_way.set()
                await asyncio.Event().wait()

            h.turn = hangs
            if life == 0:
                await asyncio.gather(*(h.say(f"chat{n}", f"m{n}") for n in range(10)))
            for lease in await h.store.claim(10):
                h.lanes.open(lease)
            await under_way.wait()
            if life == 2:
                await h.lanes.drain(0.01)
            else:  # nothing is given back, as if the process were gone
                for lane in list(h.runtime.control.lanes.values()):
                    lane.lease = Lease(sid=lane.lease.sid, epoch=-1)
    async with house(tmp_path) as h:
        leases = await h.store.claim(10)
        work = [(await h.store.load(lease, history_turns=1, waiting_max=1)).work for lease in leases]
        attempts = sorted(it.waiting[0].attempts for it in work if it)
        assert attempts[:7] == [0] * 7
        assert sum(attempts) == 3  # one for each kill, and none for the drain


async def test_lanes_last_attempt_runs_alone(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        running = counting(h)
        for n in range(5):
            message = Delivery(sid=f"chat{n}", dedupe=(f"{n}",), body=f"m{n}", at=1.0)
            await h.store.accept(message, pending_max=9, sender_max=9, claim=False)
        with h.store._engine.begin() as connection:
            connection.exec_driver_sql("UPDATE inbox SET attempts = 2")
        await h.sweep.once()
        await h.settle()
        assert (len(h.sent), max(running)) == (5, 1)


async def test_lanes_leave_messages_accepted_at_shutdown(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        accept = h.store.accept

        async def slow(*given: Any, **named: Any) -> Any:
            accepted = await accept(*given, **named)
            h.runtime.control.drain()
            return accepted

        h.store.accept = slow  # type: ignore[method-assign]
        await h.say("a", "a0")
        assert await h.store.leased() == []
        assert begun_of(h.store) == {"a": 0}

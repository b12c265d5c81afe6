"""Lanes on a real store, with turns and sends that the test holds in its hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.delivery import Delivered, GivenUp, Postponed, Report
from gateway.lanes import Drained, Lanes
from gateway.store.sqlite import SqliteStore
from gateway.store.store import Delivery, Entry, Lease, NewPart, Part, Work

RunTurn = Callable[[Lease, Work], Awaitable[None]]


class House:
    """A store, lanes over it, and a record of what was begun, finished and sent."""

    def __init__(self, path: Path, *, parallel_turns: int = 64, pending_max: int = 50) -> None:
        self.store = SqliteStore(path)
        self.log: list[str] = []
        self.sent: list[str] = []
        self.reports: dict[str, list[Report]] = {}
        self.turn: RunTurn = self.answer
        self.clock = 0.0
        self.lanes = Lanes(
            store=self.store,
            run_turn=lambda lease, work: self.turn(lease, work),
            send=self.send,
            parallel_turns=parallel_turns,
            pending_max=pending_max,
            history_turns=10,
            now=lambda: self.clock,
        )

    async def say(self, chat: str, text: str) -> None:
        note = NewPart(key="note", payload="too many")
        message = Delivery(sid=chat, dedupe=(f"{chat}:{text}",), body=text, at=0.0, overflow=note)
        await self.lanes.accept(message)

    async def answer(self, lease: Lease, work: Work) -> None:
        self.log.append(f"begin {work.body}")
        await asyncio.sleep(0)
        part = NewPart(key=work.body, payload=f"re {work.body}")
        await self.store.finish(lease, [Entry(turn=work.turn, kind="final", content="{}")], [part], at=0.0)
        self.log.append(f"end {work.body}")

    async def send(self, part: Part) -> Report:
        planned = self.reports.get(part.payload)
        report = planned.pop(0) if planned else Delivered(message_id="om")
        if isinstance(report, Delivered):
            self.sent.append(part.payload)
        return report

    async def settle(self) -> None:
        while self.lanes._tasks:
            await asyncio.wait(set(self.lanes._tasks))


@asynccontextmanager
async def house(path: Path, *, parallel_turns: int = 64, pending_max: int = 50) -> AsyncIterator[House]:
    built = House(path / "clawgate.db", parallel_turns=parallel_turns, pending_max=pending_max)
    try:
        yield built
    finally:
        await built.lanes.drain(0)
        await built.store.close()


async def test_a_chat_is_answered_one_at_a_time_in_order_and_chats_run_side_by_side(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        await asyncio.gather(*(h.say(chat, f"{chat}{number}") for number in range(5) for chat in "ab"))
        await h.settle()
        for chat in "ab":
            mine = [line for line in h.log if chat in line.split()[-1]]
            assert mine == [f"{edge} {chat}{n}" for n in range(5) for edge in ("begin", "end")]
            assert [text for text in h.sent if chat in text] == [f"re {chat}{n}" for n in range(5)]
        assert h.log != sorted(h.log, key=lambda line: line.split()[-1][0])


async def test_no_more_turns_run_at_a_time_than_the_limit_says(tmp_path: Path) -> None:
    running, most = 0, 0

    async with house(tmp_path, parallel_turns=3) as h:

        async def counted(lease: Lease, work: Work) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await h.answer(lease, work)
            running -= 1

        h.turn = counted
        await asyncio.gather(*(h.say(f"chat{n}", f"m{n}") for n in range(12)))
        await h.settle()
        assert most == 3
        assert len(h.sent) == 12


async def test_a_slow_delivery_keeps_its_chat_in_order_and_delays_no_other(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.reports["re a0"] = [Postponed(seconds=0.01), Postponed(seconds=0.01)]
        await asyncio.gather(h.say("a", "a0"), h.say("a", "a1"), h.say("b", "b0"))
        await h.settle()
        assert h.sent == ["re b0", "re a0", "re a1"]


async def test_a_part_that_is_given_up_does_not_stop_the_chat(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.reports["re a0"] = [GivenUp(reason="gone")]
        await h.say("a", "a0")
        await h.say("a", "a1")
        await h.settle()
        assert h.sent == ["re a1"]


async def test_a_turn_that_fails_unexpectedly_is_tried_again_and_counts(tmp_path: Path) -> None:
    attempts: list[int] = []
    async with house(tmp_path) as h:

        async def shaky(lease: Lease, work: Work) -> None:
            attempts.append(work.attempts)
            if len(attempts) < 2:
                raise RuntimeError("once")
            await h.answer(lease, work)

        h.turn = shaky
        await h.say("a", "a0")
        await h.settle()
        assert attempts == [0, 1]
        assert h.sent == ["re a0"]


async def test_a_stop_lays_a_turn_down_and_the_next_start_takes_it_up(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        at_work = asyncio.Event()

        async def laid_down(lease: Lease, work: Work) -> None:
            at_work.set()
            while not h.lanes.draining:
                await asyncio.sleep(0)
            raise Drained

        h.turn = laid_down
        await h.say("a", "a0")
        await at_work.wait()
        await h.lanes.drain(5)
        await h.say("a", "a1")
        assert h.sent == []
    async with house(tmp_path) as h:
        assert await h.lanes.start() == 1
        await h.settle()
        assert h.sent == ["re a0", "re a1"]


async def test_a_turn_that_outlasts_the_grace_is_cancelled_and_not_lost(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        at_work = asyncio.Event()

        async def endless(lease: Lease, work: Work) -> None:
            at_work.set()
            await asyncio.Event().wait()

        h.turn = endless
        await h.say("a", "a0")
        await at_work.wait()
        await h.lanes.drain(0.01)
    async with house(tmp_path) as h:
        await h.lanes.start()
        await h.settle()
        assert h.sent == ["re a0"]


async def test_beyond_the_limit_of_a_chat_one_note_is_sent_and_what_waits_is_answered(tmp_path: Path) -> None:
    async with house(tmp_path, pending_max=2) as h:
        go_on = asyncio.Event()

        async def held(lease: Lease, work: Work) -> None:
            await go_on.wait()
            await h.answer(lease, work)

        h.turn = held
        for number in range(6):
            await h.say("a", f"a{number}")
        go_on.set()
        await h.settle()
        assert h.sent == ["too many", "re a0", "re a1"]

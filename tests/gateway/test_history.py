"""What a chat costs does not grow with its length: a turn reads and reckons what is new, and nothing that is gone."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agents import context as past
from agents.context import PastTurn
from agents.messages import AssistantMessage, Message, Text, UserMessage, message_json
from agents.tokens import tokens
from gateway.config.root import DatabaseConfig
from gateway.store import erasure, statements
from gateway.store.erasure import spans_of
from gateway.store.opening import connected
from gateway.store.records import Entry, Known, Lease, SessionMark, View
from gateway.store.store import Store
from gateway.turns import history
from gateway.turns.history import Histories
from tests.gateway.store.chats import message, opened

SID = "agent:helper:telegram:default:7"


def rows(turn: int) -> list[Entry]:
    messages: list[Message] = [
        UserMessage(content=(Text(text=f"question {turn}"),), metadata=f"## About {turn}"),
        AssistantMessage(
            content=(Text(text=f"answer {turn}"),), stop_reason="end_turn", api="a", provider="p", model="m"
        ),
    ]
    kinds = ("user", "assistant")
    entries = [
        Entry(turn=turn, kind=kind, content=message_json.dump_json(it).decode())  # type: ignore[arg-type]
        for kind, it in zip(kinds, messages, strict=True)
    ]
    return [*entries, Entry(turn=turn, kind="final", content='{"outcome": "replied", "at": 1.0}')]


class Chat:
    """One chat of a worker that keeps its turns."""

    def __init__(self, store: Store, *, sid: str = SID, histories: Histories | None = None) -> None:
        self.store = store
        self.histories = histories or Histories(store)
        self.read = 0
        """Rows of its transcript that the last load has read."""
        self._number = 0
        self._sid = sid
        self._load = store.load

        async def load(lease: Lease, *, history_turns: int, waiting_max: int, known: Known | None = None) -> View:
            view = await self._load(lease, history_turns=history_turns, waiting_max=waiting_max, known=known)
            self.read = len(view.work.history) if view.work else 0
            return view

        store.load = load  # type: ignore[method-assign]

    async def write(self) -> Lease:
        self._number += 1
        delivery = replace(
            message(self._number, sid=self._sid), body='{"context": {"message_id": "m", "reply_to": null}}'
        )
        lease = (await self.store.accept(delivery, pending_max=50, sender_max=50, claim=True)).lease
        assert lease is not None
        return lease

    async def turns(self, lease: Lease, histories: Histories | None = None) -> dict[int, list[str]]:
        """Their texts by number, as a turn would begin with them."""
        work = (await (histories or self.histories).load(lease)).work
        assert work is not None
        assert work.history[-1:] == [] or work.history[-1].kind == "final"
        return {
            number: [part.text for it in turn for part in it.content if isinstance(part, Text)]
            for number, turn in zip(work.numbers, work.turns, strict=True)
        }

    async def finish(self, lease: Lease) -> int:
        work = (await self.histories.load(lease)).work
        assert work is not None
        turn = work.waiting[0].turn
        await self.store.finish(lease, rows(turn), [], at=1.0)
        return turn


async def test_turn_200_reads_no_more_than_turn_10(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reckoned: list[Message] = []
    shown: list[Sequence[Message]] = []
    whole = past._past_turn

    def show(turn: Sequence[Message], *, is_old: bool) -> PastTurn:
        shown.append(turn)
        return whole(turn, is_old=is_old)

    def count(it: Message) -> int:
        reckoned.append(it)
        return tokens(it)

    monkeypatch.setattr(past, "_past_turn", show)
    monkeypatch.setattr(past, "tokens", count)
    async with opened(database_url) as store:
        chat, costs = Chat(store), {}
        for number in range(1, 201):
            lease = await chat.write()
            reckoned.clear()
            shown.clear()
            await chat.finish(lease)
            costs[number] = chat.read, len(reckoned), len(shown)
        assert len(await chat.turns(await chat.write())) == 200
    assert costs[200] == costs[10] == (3, 0, 1)


async def test_long_chat_is_cut_in_steps_and_reads_no_more_than_a_short_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "TURNS_MAX", 20)
    async with opened(database_url) as store:
        chat, begins = Chat(store), list[int]()
        for number in range(1, 101):
            lease = await chat.write()
            turns = await chat.turns(lease)
            assert min(number - 1, 15) <= len(turns) <= 20
            assert [*turns] == [*range(number - len(turns), number)]
            assert chat.read <= 3
            begins.append(min(turns, default=1))
            await store.finish(lease, rows(number), [], at=1.0)
        assert len({*begins}) == 15  # each step is six turns: the requests in between begin with the same one
        fresh = await chat.turns(await chat.write(), Histories(store))
        assert [*fresh] == [*range(81, 101)]
        assert chat.read == 20 * 3


async def test_history_is_loaded_as_far_as_its_rows_fit_a_window(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database_url) as store:
        chat = Chat(store)
        for _ in range(9):
            await chat.finish(await chat.write())
        lease = await chat.write()
        size = sum(len(it.content) for it in rows(1))
        for chars, loaded in ((size * 4 + 1, [6, 7, 8, 9]), (size * 4 - 1, [7, 8, 9]), (1, [9])):
            monkeypatch.setattr(statements, "HISTORY_CHARS_MAX", chars)
            assert [*await chat.turns(lease, Histories(store))] == loaded


async def test_chats_that_alternate_are_kept_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(f"sqlite:///{tmp_path}/x.db") as store:
        histories = Histories(store)
        chats = [Chat(store, sid=f"{SID}{it}", histories=histories) for it in range(6)]
        for _ in range(5):
            for chat in chats:
                await chat.finish(await chat.write())
        size = histories.size
        for room, least, most in ((size * 2, 3, 3), (size, 3, 3 * 6)):
            monkeypatch.setattr(history, "KEPT_SIZE_MAX", room)
            reads = set[int]()
            for chat in chats:
                turns = await chat.turns(lease := await chat.write())
                reads.add(chat.read)
                assert turns == await chat.turns(lease, Histories(store))
                await chat.finish(lease)
                assert histories.size <= room
            assert (min(reads), max(reads)) == (least, most)


def test_forty_chats_of_500_short_turns_are_kept() -> None:
    turn = [message_json.validate_json(it.content) for it in rows(1)[:2]]
    assert 40 * 500 * past.past([turn])[0].size < history.KEPT_SIZE_MAX


SEEDS = [("sqlite", 0), ("sqlite", 1), pytest.param("postgresql", 2, marks=pytest.mark.slow)]
LATER = [pytest.param(*it, marks=pytest.mark.long) for it in (("sqlite", 2), ("postgresql", 0), ("postgresql", 1))]


@pytest.mark.parametrize(("database_url", "seed"), [*SEEDS, *LATER], indirect=["database_url"])
async def test_history_cache_equals_the_database(database_url: str, seed: int) -> None:
    """Whatever is undone, summed up, ended or erased in between, also by another process, and whatever is written then."""
    chance = random.Random(seed)
    async with opened(database_url) as store:
        chat, numbers = Chat(store), list[int]()
        for _ in range(60):
            lease = await chat.write()
            numbers.append(await chat.finish(lease))
            change = chance.choice(["nothing"] * 6 + ["undone", "summary", "new", "erase", "erase tail", "erase all"])
            if change in ("undone", "summary", "new"):
                await store.mark(SID, SessionMark(turn=chance.choice(numbers[-5:]), kind=change, at=1.0))  # type: ignore[arg-type]
            elif change != "nothing":
                first = -1 if change == "erase all" else chance.choice(numbers[-9:]) - 1
                last = None if change != "erase" else first + chance.randint(1, 3)
                assert await store.release(lease)
                with connected(DatabaseConfig(url=database_url)) as connection:
                    (portion,) = spans_of(connection, SID, first, last)
                    assert erasure.claim(connection, [portion], served=False) == []
                    erasure.forget_turns(connection, portion, sorted(portion.numbers))
                    erasure.forget_session(connection, portion)
            for _ in range(chance.randint(0, 2)):
                lease = await chat.write()
                await chat.finish(lease)
            lease = await chat.write()
            assert await chat.turns(lease) == await chat.turns(lease, Histories(store)), change
            await chat.finish(lease)

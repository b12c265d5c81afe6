"""What is counted, for budgets and for rates: in the same commit as what it belongs to, and exactly."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.app.gateway import DEDUPE_SECONDS
from gateway.config.budgets import Rate, Rated
from gateway.store.errors import Fenced
from gateway.store.records import Delivery, Entry, ScopeUsage, Spent
from gateway.store.store import Store
from tests.gateway.store.chats import accept, leased, message, opened, step, work_of

DAY = "2026-11-22"
SCOPES = ("agent:helper", "chat:c", "sender:s")


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


def spent(tokens: int, cost: float = 0.5, scopes: Sequence[str] = SCOPES) -> Spent:
    return Spent(scopes=tuple(scopes), day=DAY, tokens=tokens, cost=cost)


def taking(rows: list[Entry], taken: Spent) -> list[Entry]:
    return [replace(row, spent=taken) for row in rows]


async def test_spending_is_counted_by_the_lease_owner_only(store: Store) -> None:
    lease = await leased(store, 1)
    await accept(store, 2)
    first, second = [waiting.turn for waiting in (await work_of(store, lease)).waiting]
    await store.append(lease, taking(step(second, "user"), spent(1)), [first])
    await store.append(lease, taking(step(second), spent(10, scopes=SCOPES[:1])))
    await store.append(lease, step(second))
    with pytest.raises(Fenced):
        await store.append(replace(lease, epoch=7), taking(step(second), spent(1_000)))
    with pytest.raises(Fenced):
        await store.finish(replace(lease, epoch=7), taking(step(second, "final"), spent(1_000)), [], at=1.0)
    await store.finish(lease, taking(step(second, "final"), spent(100)), [], at=1.0)
    found = {row.scope: row for row in await store.usage(DAY, SCOPES)}
    assert found["agent:helper"] == ScopeUsage(scope="agent:helper", tokens=111, cost=1.5, month_cost=1.5)
    assert found["sender:s"] == ScopeUsage(scope="sender:s", tokens=101, cost=1.0, month_cost=1.0)
    assert await store.usage("2026-12-01", SCOPES) == []
    await store.prune(1.0)
    assert len(await store.usage(DAY, SCOPES)) == 3
    await store.prune(2e9)
    assert await store.usage(DAY, SCOPES) == []


async def test_spending_of_several_rows_of_one_step_is_summed(store: Store) -> None:
    lease = await leased(store, 1)
    (turn,) = [waiting.turn for waiting in (await work_of(store, lease)).waiting]
    answers = [*taking(step(turn), spent(1)), *taking(step(turn), spent(10, scopes=SCOPES[:1]))]
    await store.append(lease, answers)
    await store.append(lease, answers)
    assert {row.scope: (row.tokens, row.cost) for row in await store.usage(DAY, SCOPES)} == {
        "agent:helper": (22, 2.0),
        "chat:c": (2, 1.0),
        "sender:s": (2, 1.0),
    }
    assert len((await work_of(store, lease)).so_far) == 2 * len(answers)


async def test_budget_month_sums_its_days(store: Store) -> None:
    lease = await leased(store, 1)
    (turn,) = [waiting.turn for waiting in (await work_of(store, lease)).waiting]
    for day in ("2026-10-31", "2026-11-01", "2026-11-21", "2026-11-22", "2026-11-30"):
        await store.append(lease, taking(step(turn), replace(spent(100), day=day)))
    assert await store.claim_warning("chat:c", "2026-11", turn)
    assert not await store.claim_warning("chat:c", "2026-11", turn + 1)
    last = datetime(2026, 11, 30, 23, 59, tzinfo=UTC).timestamp()
    await store.prune(last - DEDUPE_SECONDS)
    (row,) = await store.usage(DAY, ["chat:c"])
    assert row == ScopeUsage(scope="chat:c", tokens=100, cost=0.5, month_cost=1.5, month_warned=turn)
    (row,) = await store.usage("2026-11-30", ["chat:c"])
    assert (row.tokens, row.month_cost, row.warned) == (100, 2.0, 0)
    assert await store.usage("2026-12-01", ["chat:c"]) == []


async def test_budget_warning_is_idempotent_per_day(store: Store) -> None:
    claims = await asyncio.gather(*(store.claim_warning("agent:helper", DAY, turn) for turn in range(1, 9)))
    assert sum(claims) == 1
    again = [await store.claim_warning("agent:helper", DAY, turn) for turn in range(1, 9)]
    assert again == claims
    assert await store.claim_warning("agent:helper", "2026-11-23", 5)


def rated(number: int, at: float, rates: Mapping[Rated, Rate], *, chat: str = "c", sender: str = "s") -> Delivery:
    delivery = message(number, sid=f"lane of {chat}", sender=sender)
    return replace(delivery, at=at, chat=chat, rates=rates)


async def judged(store: Store, delivery: Delivery) -> str:
    acceptance = await store.accept(delivery, pending_max=5_000, sender_max=5_000, claim=False)
    if acceptance.rate_limited_by is None:
        return "duplicate" if acceptance.turn is None else "overflow" if acceptance.overflow else "accepted"
    assert acceptance.turn is not None
    found = await store.rate_limit(acceptance.turn, delivery.rates)
    return (
        f"silent: {acceptance.rate_limited_by}"
        if found is None
        else f"{found[0]} until {found[1] + delivery.rates[found[0]].seconds:g}"
    )


async def test_rate_limit_first_message_beyond_gets_a_note(store: Store) -> None:
    rates: Mapping[Rated, Rate] = {"sender": Rate(count=2, seconds=10), "chat": Rate(count=3, seconds=60)}
    numbers = iter(range(100))

    async def write(at: float, sender: str, chat: str) -> str:
        return await judged(store, rated(next(numbers), at, rates, chat=chat, sender=sender))

    assert await write(100, "ann", "group") == "accepted"
    assert await write(101, "ann", "other") == "accepted"
    assert await write(102, "ann", "group") == "sender until 110"
    assert await write(103, "ann", "third") == "silent: sender"
    assert await write(104, "bob", "group") == "accepted"
    assert await write(105, "cid", "group") == "accepted"
    assert await write(106, "bob", "group") == "chat until 160"
    assert await write(107, "cid", "group") == "silent: chat"
    assert await write(109.9, "ann", "other") == "silent: sender"
    assert await write(110, "ann", "other") == "accepted"
    assert await write(110.5, "ann", "other") == "sender until 111"
    assert await write(160, "cid", "group") == "accepted"
    twice = rated(200, 161, rates, chat="group", sender="dan")
    assert [await judged(store, twice) for _ in range(2)] == ["chat until 164", "duplicate"]


async def test_rate_limit_window_holds_exactly(store: Store) -> None:
    draw = random.Random(5)
    rates: Mapping[Rated, Rate] = {"sender": Rate(count=3, seconds=10), "chat": Rate(count=5, seconds=20)}
    answered: list[tuple[float, str, str]] = []
    at = 0.0
    for number in range(250):
        at += draw.choice((0.0, 0.5, 2.0, 9.0))
        chat, sender = draw.choice("cd"), draw.choice("stu")
        of_sender = sum(who == sender and since > at - 10 for since, who, _ in answered)
        of_chat = sum(where == chat and since > at - 20 for since, _, where in answered)
        result = await judged(store, rated(number, at, rates, chat=chat, sender=sender))
        assert (result == "accepted") == (of_sender < 3 and of_chat < 5)
        if result == "accepted":
            answered.append((at, sender, chat))


async def test_rate_limit_and_budget_are_exact_with_many_workers(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        rates: Mapping[Rated, Rate] = {"sender": Rate(count=20, seconds=60), "chat": Rate(count=15, seconds=60)}
        results = await asyncio.gather(
            *(judged((one, other)[n % 2], rated(n, 100.0, rates, chat="xy"[n % 3 == 0])) for n in range(60))
        )
        assert results.count("accepted") == 20
        assert sum(result.startswith("sender until") for result in results) == 1
        chats = [await leased(it, 1, sid=f"chat {n}") for n, it in enumerate([one, other] * 4)]

        async def spends(store: Store, number: int) -> None:
            for at in range(10):
                rows = taking(step(1_000 + at), spent(number))
                await store.append(chats[number], rows)

        await asyncio.gather(*(spends(it, n) for n, it in enumerate([one, other] * 4)))
        assert {row.tokens for row in await one.usage(DAY, SCOPES)} == {10 * sum(range(8))}


async def test_rate_limit_survives_a_clock_set_back(store: Store) -> None:
    rates: Mapping[Rated, Rate] = {"sender": Rate(count=3, seconds=60), "chat": Rate(count=3, seconds=60)}
    numbers = iter(range(100))

    async def write(at: float) -> str:
        return await judged(store, rated(next(numbers), at, rates))

    for minutes in (30, 20, 10):
        assert await write(10_000.0 - 60 * minutes) == "accepted"
    assert [await write(6_400.0 + second) for second in range(3)] == ["accepted"] * 3
    assert (await write(6_403.0)).startswith(("sender", "silent: sender"))
    assert await write(6_461.0) == "accepted"

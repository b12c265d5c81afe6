"""Contacts of pairing in the database: who waits, who is let in, and what can be repeated without changing anything."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.message import Chat
from gateway.approvals import pairing
from gateway.store.contacts import TRIES_MAX, Contact
from gateway.store.inbound import inbound_json
from gateway.store.records import Delivery
from gateway.store.statements import PAIRING_SECONDS
from gateway.store.store import Store
from tests.channels.contexts import context
from tests.gateway.store.chats import opened

NOW = 1_800_000_000.0


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


async def ask(
    store: Store, person: str, turn: int, *, code: str = "", account: str = "default", at: float = NOW
) -> bool:
    return await store.contacts.ask("telegram", account, person, turn=turn, code=code or f"hash {turn}", at=at)


async def standing(store: Store, person: str, *, account: str = "default", at: float = NOW) -> str:
    return await store.contact_state("telegram", account, person, at)


async def redeem(store: Store, code: str, turn: int, *, by: str = "telegram:1", at: float = NOW) -> object:
    """Who was let in, or what else became of it."""
    found = await store.contacts.redeem(code, by=by, turn=turn, at=at)
    if isinstance(found, str):
        return found
    assert isinstance(found[0], Contact)
    return found[0].person


async def test_pairing_requests_are_limited_and_idempotent(
    store: Store,
) -> None:
    assert [await ask(store, str(number), number) for number in (2, 3, 4, 5)] == [True, True, True, False]
    assert await ask(store, "3", 3)
    assert not await ask(store, "3", 30)
    assert await ask(store, "5", 50, account="sales")
    assert [await standing(store, it) for it in ("2", "5")] == ["waiting", "crowded"]
    assert await standing(store, "2", account="sales") == "new"
    assert await standing(store, "5", at=NOW + PAIRING_SECONDS) == "new"
    assert await redeem(store, "hash 2", 90, at=NOW + PAIRING_SECONDS) == "wrong"
    assert await ask(store, "5", 51, at=NOW + PAIRING_SECONDS)
    assert await redeem(store, "hash 3", 91, at=NOW + PAIRING_SECONDS - 1) == "wrong", "forgotten with the hour"


async def test_pairing_limit_holds_for_concurrent_requests(store: Store) -> None:
    found = await asyncio.gather(*(ask(store, str(number), number) for number in range(2, 22)))
    assert sum(found) == 3


async def test_pairing_code_approval_is_idempotent_and_not_self_served(store: Store) -> None:
    await ask(store, "2", 2)
    assert await redeem(store, "hash 2", 10, by="telegram:2") == "wrong"
    assert await standing(store, "2") == "waiting"
    assert [await redeem(store, "hash 2", 11), await redeem(store, "hash 2", 11)] == ["2", "2"]
    assert await redeem(store, "hash 2", 12) == "wrong"
    assert await redeem(store, "", 13) == "wrong"
    assert [await standing(store, "2", at=NOW + after) for after in (0, 1e9)] == ["paired", "paired"]
    assert await standing(store, "2", account="sales") == "new"
    assert not await ask(store, "2", 2), "nothing takes back what was decided"


async def test_pairing_code_guesses_are_counted_per_sender_hourly(store: Store) -> None:
    await ask(store, "2", 2)
    for turn in range(100, 100 + TRIES_MAX):
        assert [await redeem(store, "no", turn), await redeem(store, "no", turn)] == ["wrong", "wrong"]
    assert await redeem(store, "hash 2", 200) == "muted"
    assert await redeem(store, "hash 2", 201, at=NOW + 3_599) == "muted"
    assert await redeem(store, "hash 2", 202, by="telegram:3") == "2"
    assert await redeem(store, "no", 203, at=NOW + 3_600) == "wrong"


async def test_edit_by_a_stranger_stores_nothing(store: Store) -> None:
    written = context("telegram", Chat(id="1", kind="direct"), text="hi")
    body = inbound_json.dump_json(pairing.request(written, "helper")).decode()
    name = "telegram:default:message:1:1"
    delivery = Delivery(sid="aside:s", dedupe=(name,), body=body, at=NOW)
    await store.accept(delivery, pending_max=9, sender_max=9, claim=False)
    assert await store.changes.edit(name, written.sender.id, "swordfish") is None

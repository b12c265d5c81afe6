"""Logins in the database: one refresh at a time, and no late write over a newer login."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.store.later import Later
from gateway.store.logins import PENDING, Login, PendingChange
from gateway.store.store import Store
from tests.gateway.store.chats import opened

NOW = 1_800_000_000.0
ANN = Login(channel="feishu", account="default", person="ou_ann", name="Ann", scopes="a b", access="1", refresh="2")
ROW = Later(
    id="L-1", kind=PENDING, due=NOW, owner="feishu:default:ou_ann", place="p", state="active", body="{}", since=NOW
)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


async def kept(store: Store, login: Login = ANN) -> Login:
    """The login as it is read after it was stored with the end of its wait."""
    done = replace(ROW, state="done", due=None)
    assert await store.logins.change(ROW.id, lambda _: PendingChange(row=done, login=login))
    found = await store.logins.get(*login.key)
    assert found is not None
    return found


async def test_login_refresh_is_claimed_once(store: Store) -> None:
    login = await kept(store)
    claims = await asyncio.gather(*(store.logins.claim(login, now=NOW, seconds=60) for _ in range(4)))
    assert sum(claims) == (1 if store.shared else 4)  # in one process its own task sees to that
    await store.logins.release(login)
    assert await store.logins.claim(login, now=NOW, seconds=60)
    assert await store.logins.refreshed(replace(login, access="3"))
    assert not await store.logins.claim(login, now=NOW, seconds=60)
    again = await store.logins.get(*ANN.key)
    assert again is not None
    assert (again.access, again.revision) == ("3", login.revision + 1)
    assert await store.logins.claim(again, now=NOW, seconds=-1)  # by a worker that has died since
    assert await store.logins.claim(again, now=NOW, seconds=60)


async def test_late_refresh_changes_no_newer_login(store: Store) -> None:
    login = await kept(store)
    newer = await kept(store, replace(ANN, access="new"))
    assert not await store.logins.refreshed(replace(login, access="late"))
    await store.logins.end(login, NOW)
    assert await store.logins.get(*ANN.key) == newer
    await store.logins.end(newer, NOW)
    ended = await store.logins.get(*ANN.key)
    assert ended is not None
    assert (ended.access, ended.refresh, ended.ended, ended.granted) == (None, None, NOW, frozenset("ab"))
    assert not await store.logins.refreshed(replace(ended, access="late"))


async def test_login_is_forgotten_with_the_one_that_waits(store: Store) -> None:
    await kept(store)
    await kept(store, replace(ANN, account="sales"))
    assert await store.logins.change(ROW.id, lambda _: PendingChange(row=ROW))
    other = replace(ROW, id="L-2", owner="feishu:default:ou_bob")
    assert await store.logins.change(other.id, lambda _: PendingChange(row=other))
    assert await store.logins.forget(*ANN.key)
    assert await store.logins.get(*ANN.key) is None
    assert await store.logins.get("feishu", "sales", ANN.person) is not None
    assert [it.id for it in await store.later.every()] == ["L-2"]
    assert not await store.logins.forget(*ANN.key)


async def test_pending_login_changes_one_at_a_time(store: Store) -> None:
    """Each change sees the one before it, also the first two of a row that is not there yet."""

    def longer(row: Later | None) -> PendingChange:
        return PendingChange(row=replace(row or ROW, body=(row.body if row else "") + "x"))

    await asyncio.gather(*(store.logins.change(ROW.id, longer) for _ in range(5)))
    (row,) = await store.later.of_id(ROW.id)
    assert row.body == "xxxxx"

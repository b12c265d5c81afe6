"""Chats, messages and turns for the tests of the store: what the engine would do with it, without the engine."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from channels.web.archive import WebMessage
from gateway.config.root import DatabaseConfig
from gateway.store.archive import DatabaseArchive
from gateway.store.records import Acceptance, Delivery, Entry, Lease, NewPart, OutboxPart, View, Work
from gateway.store.store import Store
from tests.empty_database import open_store

LARGE = 1_000_000


@asynccontextmanager
async def opened(url: str, *, lease_seconds: float = 15) -> AsyncIterator[Store]:
    """A worker on the database. What it owns when this ends is a dead worker's: nothing is given back."""
    store = open_store(DatabaseConfig(url=url, leaseSeconds=lease_seconds))
    try:
        await store.start(lambda _: None)
        yield store
    finally:
        await store.close()


async def page(archive: DatabaseArchive, chat: str, *, before: int | None, limit: int) -> Sequence[WebMessage]:
    """The newest messages of a conversation, oldest first."""
    return await archive.messages(
        [it.number for it in await archive.page(chat, before=before, limit=limit, bytes_max=LARGE)]
    )


async def since(archive: DatabaseArchive, number: int, *, limit: int) -> Sequence[WebMessage]:
    return await archive.messages([it.number for it in await archive.since(number, limit=limit, bytes_max=LARGE)])


def message(
    number: int, *, sid: str = "chat", text_key: str = "", sender: str | None = None, interrupts: bool = False
) -> Delivery:
    dedupe = (f"{sid}:m{number}", text_key) if text_key else (f"{sid}:m{number}",)
    return Delivery(
        sid=sid,
        dedupe=dedupe,
        body=f"body {number}",
        at=float(number),
        sender=sender,
        interrupts=interrupts,
    )


async def accept(
    store: Store, number: int, *, sid: str = "chat", pending_max: int = 50, claim: bool = True, interrupts: bool = False
) -> Acceptance:
    delivery = message(number, sid=sid, interrupts=interrupts)
    return await store.accept(delivery, pending_max=pending_max, sender_max=200, claim=claim)


async def leased(store: Store, number: int = 1, *, sid: str = "chat") -> Lease:
    lease = (await accept(store, number, sid=sid)).lease
    assert lease is not None
    return lease


async def look(store: Store, lease: Lease, *, history_turns: int = 10) -> View:
    return await store.load(lease, history_turns=history_turns, waiting_max=20)


async def work_of(store: Store, lease: Lease, *, history_turns: int = 10) -> Work:
    work = (await look(store, lease, history_turns=history_turns)).work
    assert work is not None
    return work


async def finish(store: Store, lease: Lease, *parts: str) -> list[OutboxPart]:
    turn = (await work_of(store, lease)).waiting[0].turn
    entries = [
        Entry(turn=turn, kind="user", content="u"),
        Entry(turn=turn, kind="assistant", content="a"),
        Entry(turn=turn, kind="final", content="{}"),
    ]
    return list(
        await store.finish(lease, entries, [NewPart(key=f"{turn}-{part}", payload=part) for part in parts], at=1.0)
    )


def step(turn: int, kind: str = "assistant") -> list[Entry]:
    return [Entry(turn=turn, kind=kind, content="{}")]  # type: ignore[arg-type]

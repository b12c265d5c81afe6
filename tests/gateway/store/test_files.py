"""Files that the gateway keeps, on a real file and a real server: how long, how many, and for whom."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.message import File, StoredFile
from channels.web.archive import MessageBody
from gateway.store.store import Store
from tests.gateway.store.chats import opened

DAY = 24 * 3600.0
CHAT = "c_one_one"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


def words(text: str, *files: StoredFile) -> MessageBody:
    return MessageBody(text=text, agent="helper", files=files)


async def test_file_upload_expires_after_a_day_unless_used(
    store: Store,
) -> None:
    file = File(name="a.txt", type="text/plain", data=b"x")
    used, sent, unused = [await store.files.put(file, 0.0) for _ in range(3)]
    await store.archive.keep(CHAT, "m_1", words("look", used), 1.0)
    await store.archive.answer(CHAT, "key", words("here", sent), 2.0)
    await store.files.put(file, DAY)
    assert await store.files.load(unused.id) is not None
    await store.files.put(file, DAY + 1)
    assert await store.files.load(unused.id) is None
    assert list(await store.files.find([sent.id, unused.id, used.id, "f_unknown", sent.id])) == [sent, used, sent]
    assert (sent.size, await store.files.find([])) == (1, [])


FILE = File(name="a.bin", type="application/octet-stream", data=b"x" * 1000)


async def uploaded(store: Store, *, at: float = 0.0, bytes_max: int = 2500) -> str | None:
    kept = await store.files.upload(FILE, at, bytes_max=bytes_max)
    return kept.id if kept else None


async def test_file_upload_limit_counts_pending_only(store: Store) -> None:
    assert await store.files.waiting_bytes() == 0
    first, second = await uploaded(store), await uploaded(store)
    assert first
    assert second
    assert await uploaded(store) is None
    assert await store.files.waiting_bytes() == 2000
    (file,) = await store.files.find([first])
    await store.archive.keep(CHAT, "m_1", words("", file), 1.0)
    assert await store.files.waiting_bytes() == 1000
    assert await uploaded(store)
    assert await uploaded(store, bytes_max=3000)


async def test_file_upload_expiry_makes_room(store: Store) -> None:
    old = [await uploaded(store) for _ in range(2)]
    assert await uploaded(store, at=DAY) is None
    assert await uploaded(store, at=DAY + 1)
    assert await store.files.find([key for key in old if key]) == []
    await store.files.prune(2 * DAY + 2)
    assert await store.files.waiting_bytes() == 0


async def test_an_agents_files_and_what_was_sent_are_nobodys_uploads(store: Store) -> None:
    for _ in range(5):
        await store.files.put(FILE, 0.0)
    kept = await store.files.put(FILE, 0.0)
    key = await uploaded(store)
    assert key
    assert await store.files.waiting_bytes() == 1000
    assert not await store.files.discard(kept.id)
    assert await store.files.discard(key)
    assert not await store.files.discard(key)
    assert await store.files.waiting_bytes() == 0


async def test_file_is_streamed_byte_for_byte(store: Store) -> None:
    data = bytes(range(256)) * 5
    file = await store.files.put(File(name="a", type="image/png", data=data), 1.0)
    pieces = [await store.files.piece(file.id, at, 500) for at in range(0, 2000, 500)]
    assert [len(it) for it in pieces] == [500, 500, 280, 0]
    assert b"".join(pieces) == data
    assert await store.files.piece("f_nothing", 0, 500) == b""


async def test_file_upload_limit_holds_at_two_replicas(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        keys = await asyncio.gather(*(uploaded(store) for store in (one, other) * 6))
        assert len([key for key in keys if key]) == 2
        assert await one.files.waiting_bytes() == 2000

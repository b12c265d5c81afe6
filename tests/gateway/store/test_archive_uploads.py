"""Files that were uploaded and wait to be sent: how much of them there may be, and for how long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.message import File
from channels.web.archive import ChatHistory, MessageBody
from tests.gateway.store.chats import opened

CHAT = "c_one_one"
DAY = 24 * 3600.0
FILE = File(name="a.bin", type="application/octet-stream", data=b"x" * 1000)


@pytest.fixture
async def archive(database_url: str) -> AsyncIterator[ChatHistory]:
    async with opened(database_url) as store:
        yield store.archive


async def uploaded(archive: ChatHistory, *, at: float = 0.0, bytes_max: int = 2500) -> str | None:
    kept = await archive.upload(FILE, at, bytes_max=bytes_max)
    return kept.id if kept else None


async def test_no_more_is_kept_than_may_wait_and_what_is_sent_waits_no_longer(archive: ChatHistory) -> None:
    assert await archive.waiting_bytes() == 0
    first, second = await uploaded(archive), await uploaded(archive)
    assert first
    assert second
    assert await uploaded(archive) is None
    assert await archive.waiting_bytes() == 2000
    (file,) = await archive.files([first])
    await archive.keep(CHAT, "m_1", MessageBody(text="", agent="helper", files=(file,)), 1.0)
    assert await archive.waiting_bytes() == 1000
    assert await uploaded(archive)
    assert await uploaded(archive, bytes_max=3000)


async def test_what_is_not_sent_within_a_day_makes_room_whoever_asks(archive: ChatHistory) -> None:
    old = [await uploaded(archive) for _ in range(2)]
    assert await uploaded(archive, at=DAY) is None
    assert await uploaded(archive, at=DAY + 1)
    assert await archive.files([key for key in old if key]) == []
    await archive.prune(2 * DAY + 2)
    assert await archive.waiting_bytes() == 0


async def test_an_agents_files_and_what_was_sent_are_nobodys_uploads(archive: ChatHistory) -> None:
    for _ in range(5):
        await archive.put(FILE, 0.0)
    kept = await archive.put(FILE, 0.0)
    key = await uploaded(archive)
    assert key
    assert await archive.waiting_bytes() == 1000
    assert not await archive.discard(kept.id)
    assert await archive.discard(key)
    assert not await archive.discard(key)
    assert await archive.waiting_bytes() == 0


async def test_a_file_comes_in_pieces_and_byte_for_byte(archive: ChatHistory) -> None:
    data = bytes(range(256)) * 5
    file = await archive.put(File(name="a", type="image/png", data=data), 1.0)
    pieces = [await archive.piece(file.id, at, 500) for at in range(0, 2000, 500)]
    assert [len(it) for it in pieces] == [500, 500, 280, 0]
    assert b"".join(pieces) == data
    assert await archive.piece("f_nothing", 0, 500) == b""


async def test_two_replicas_do_not_pass_the_limit_together(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as other:
        keys = await asyncio.gather(*(uploaded(store.archive) for store in (one, other) * 6))
        assert len([key for key in keys if key]) == 2
        assert await one.archive.waiting_bytes() == 2000

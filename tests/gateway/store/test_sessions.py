"""Who is signed in to the web chat, on a real file and a real server."""

from collections.abc import AsyncIterator

import pytest

from channels.web.admission import Sessions
from tests.gateway.store.chats import opened
from tests.gateway.store.test_archive import count

ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture
async def sessions(database_url: str) -> AsyncIterator[Sessions]:
    async with opened(database_url) as store:
        yield store.sessions


async def test_a_session_is_held_until_it_ends_or_is_ended_or_another_begins_instead(
    sessions: Sessions, database_url: str
) -> None:
    await sessions.begin(ONE, ends=10.0, at=1.0, instead_of=[])
    await sessions.begin(OTHER, ends=100.0, at=1.0, instead_of=[])
    assert [await sessions.hold(["unknown", ONE], at) for at in (9.0, 10.0)] == [True, False]
    assert not await sessions.hold([], 2.0)
    await sessions.begin("3" * 64, ends=200.0, at=10.0, instead_of=[OTHER])
    assert not await sessions.hold([ONE, OTHER], 2.0)
    assert count(database_url, "web_session") == 1  # what is over is swept
    for keys, held in (([], True), (["3" * 64], False), (["3" * 64], False)):
        await sessions.end(keys)
        assert await sessions.hold(["3" * 64], 2.0) == held

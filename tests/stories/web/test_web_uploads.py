"""How much may be uploaded and not sent: what is too much is refused before it is read, with a sentence."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx
import pytest

from tests.running import Running, running
from tests.stories.http.test_door import HOST, held
from tests.stories.web.test_web_files import kept
from tests.stories.web.test_web_users import SERVER, bearer
from tests.web_page import WEB, Page, opened

FILE = b"x" * 1000


async def is_full(page: Page) -> bool:
    """Whether there is no room for one file more; one that is taken is taken out again."""
    answer = await page.upload(FILE, "a.bin")
    if answer.status_code == 200:
        assert (await page.http.delete(f"/api/files/{answer.json()['id']}")).status_code == 204
        return False
    assert (answer.status_code, answer.json()["code"]) == (413, "too-many-uploads")
    assert "limits.uploadsBytes" in answer.json()["error"]
    return True


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path, more="limits: { fileBytes: 1000, uploadsBytes: 2500 }", feishu=WEB) as house:
        yield house


async def test_upload_limit_of_pending_files(page: Page) -> None:
    first, second = [(await kept(page, FILE, "a.bin"))["id"] for _ in range(2)]
    assert await is_full(page)
    assert (await page.upload(b"x" * 500, "small")).status_code == 200
    await page.say("here", files=[first])
    await page.answers(1)
    assert (await page.http.delete(f"/api/files/{first}")).status_code == 404
    assert (await page.http.get(f"/api/files/{first}")).content == FILE
    await kept(page, FILE, "a.bin")
    assert await is_full(page)
    assert (await page.http.delete(f"/api/files/{second}")).status_code == 204
    assert (await page.http.get(f"/api/files/{second}")).status_code == 404
    assert (await page.say("and here", files=[second])).status_code == 400
    assert not await is_full(page)


async def test_upload_limit_holds_concurrently(page: Page) -> None:
    answers = await asyncio.gather(*(page.upload(FILE, f"{number}.bin") for number in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [413] * 10


async def begun(house: Running) -> asyncio.StreamWriter:
    """An upload whose body does not come."""
    url = httpx.URL(house.url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /api/files?name=a HTTP/1.1\r\nhost: {url.host}:{url.port}\r\nx-clawgate: 1\r\ncontent-length: 1000\r\n\r\n"
    writer.write(head.encode() + b"half")
    await writer.drain()
    return writer


async def test_upload_room_is_reserved_before_the_body(house: Running, page: Page) -> None:
    writers = [await begun(house) for _ in range(2)]
    await page.until(lambda: is_full(page))
    for writer in writers:
        writer.close()
        await writer.wait_closed()

    async def has_room() -> bool:
        return not await is_full(page)

    await page.until(has_room)
    with closing(sqlite3.connect(house.folder / "data" / "clawgate.db", timeout=10)) as database:
        assert database.execute("SELECT count(*) FROM file").fetchone() == (0,)


async def test_upload_limit_is_per_person(tmp_path: Path) -> None:
    limits = "limits: { fileBytes: 1000, uploadsBytes: 2500 }"
    async with (
        running(tmp_path, more=f"{SERVER}\n{limits}", feishu=WEB) as house,
        opened(house.url, watching=False, authorization=bearer("ann")) as ann,
        opened(house.url, watching=False, authorization=bearer("bob")) as bob,
    ):
        for _ in range(2):
            await kept(ann, FILE, "a.bin")
        assert await is_full(ann)
        assert not await is_full(bob)


async def test_upload_memory_limit_is_two_large_files(tmp_path: Path) -> None:
    """The door asks for a body once it has room for it: until then the sender is not told to go on."""
    upload = (
        b"POST /api/files?name=a HTTP/1.1\r\n%bx-clawgate: 1\r\nexpect: 100-continue\r\ncontent-length: 1000\r\n\r\n"
    )
    async with running(tmp_path, more="limits: { fileBytes: 1000 }", feishu=WEB) as house, AsyncExitStack() as stack:
        lines = await held(stack, house.url, 3, "127.0.0.1")
        for it in lines:
            await it.send(upload % HOST)
        asked = [asyncio.create_task(it.reader.readuntil(b"\r\n\r\n")) for it in lines]
        await house.until(lambda: sum(it.done() for it in asked) == 2)
        (last,) = [number for number, it in enumerate(asked) if not it.done()]
        await asyncio.wait([asked[last]], timeout=0.3)
        assert not asked[last].done()
        for number, it in enumerate(lines):
            if number != last:
                await it.send(FILE)
                assert (await it.answer())[0] == 200
        assert b"100 Continue" in await asked[last]
        await lines[last].send(FILE)
        assert (await lines[last].answer())[0] == 200

"""Event streams that are many, long, slow or somebody else's: what is too much is refused, and nobody else notices."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.web import channel, views
from channels.web.archive import MessageBody
from channels.web.live import BACKLOG_MAX
from gateway.web import chats
from tests.running import Running, running
from tests.waiting import PATIENCE_SECONDS
from tests.web_page import CHAT, WEB, Page, opened


async def history(house: Running, *sizes: int, chat: str = CHAT) -> None:
    """A conversation whose messages are so long, alternately a person's and an agent's."""
    archive = house.gateway.runtime.store.archive
    for number, size in enumerate(sizes):
        words = MessageBody(text=f"{number} " + "word " * (size // 5), agent="helper")
        if number % 2:
            await archive.answer(chat, f"key_{chat}_{number}", words, 1.0)
        else:
            await archive.keep(chat, f"m_{chat}_{number}", words, 1.0)


async def refusal(page: Page) -> httpx.Response | None:
    """Of one more event stream; None where it comes in."""
    async with page.http.stream("GET", "/api/events") as answer:
        if answer.status_code == 200:
            return None
        await answer.aread()
        return answer


@asynccontextmanager
async def deaf(house: Running) -> AsyncIterator[socket.socket]:
    """A page that asks for everything and reads no more than the status."""
    url = httpx.URL(house.url)
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, (url.host, url.port))
        head = f"GET /api/events?after=0 HTTP/1.1\r\nhost: {url.host}:{url.port}\r\n\r\n"
        await loop.sock_sendall(connection, head.encode())
        assert await loop.sock_recv(connection, 12) == b"HTTP/1.1 200"
        yield connection


async def test_web_stream_limit_and_a_client_that_does_not_read(
    tmp_path: Path,
) -> None:
    one = "limits: { eventStreams: 1 }"
    large = b'event: chat\ndata: {"id": "' + b"x" * 65_536 + b'"}\n\n'
    async with running(tmp_path, more=one, feishu=WEB) as house, opened(house.url, watching=False) as page:
        await history(house, 10, 10)
        live = house.gateway.runtime.setup.channels["web", "default"].live  # type: ignore[attr-defined]
        async with deaf(house) as connection:
            refused = await refusal(page)
            assert refused is not None
            assert (refused.status_code, refused.json()["code"]) == (503, "too-many-pages")
            assert "limits.eventStreams" in refused.json()["error"]
            assert int(refused.headers["retry-after"]) > 0
            for _ in range(BACKLOG_MAX * 4):
                live.announce(large)
                await asyncio.sleep(0)
                if not live.pages:
                    break
            assert await refusal(page) is None
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await asyncio.get_running_loop().sock_recv(connection, 65_536):
                    pass
        async with page.watching():
            await page.until(lambda: len(page.named("message")) == 2)


async def test_web_stream_replays_missed_events_or_reloads(house: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    page_max, missed_max = 20_000, 80_000
    for module in (views, chats):
        monkeypatch.setattr(module, "PAGE_BYTES_MAX", page_max)
    monkeypatch.setattr(channel, "MISSED_BYTES_MAX", missed_max)
    sizes = [page_max // 3, 10, page_max + 10, 10, page_max // 2, page_max // 2]
    await history(house, *sizes)
    async with opened(house.url) as page:
        await page.until(lambda: len(page.named("message")) == len(sizes))
        heard = page.named("message")
        assert [it["text"].split()[0] for it in heard] == [str(number) for number in range(len(sizes))]
        assert page.named("reset") == []
        assert {it["id"]: it for it in heard} == {it["id"]: it for it in await walked(page)}
    long = [missed_max // 4] * 5
    await history(house, *long, chat="c_a_long_one")
    async with opened(house.url) as page:
        await page.until(lambda: page.named("reset") == [{}])
        await page.say("and now?", chat="c_another_one")
        assert [it.split()[0] for it in await page.answers(1)]
        assert {it["chat"] for it in page.named("message")} == {"c_another_one"}
        assert len(await walked(page, "c_a_long_one")) == len(long)


async def test_web_history_is_paged(house: Running, page: Page) -> None:
    await history(house, *[5] * 56)
    newest = await page.conversation()
    assert (len(newest["messages"]), newest["more"]) == (50, True)
    numbers = [it["id"] for it in await walked(page)]
    assert (len(numbers), numbers) == (56, sorted(numbers))
    for odd in ("0", "-1", "x", "9" * 40, "1e3"):
        assert (await page.http.get(f"/api/chats/{CHAT}", params={"before": odd})).status_code == 200


async def walked(page: Page, chat: str = CHAT) -> list[dict[str, Any]]:
    """A whole conversation, page by page from its end, none of which is longer than it may be."""
    found: list[dict[str, Any]] = []
    more = True
    while more:
        before = {"before": found[0]["id"]} if found else {}
        answer = await page.conversation(chat, **before)
        messages, more = answer["messages"], answer["more"]
        assert len(messages) == 1 or sum(len(it["text"]) for it in messages) <= views.PAGE_BYTES_MAX
        found = [*messages, *found]
    return found

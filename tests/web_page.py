"""A tab with the web chat, without a browser: what it sends over HTTP, and what the event stream has told it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import orjson

from tests.running import FEISHU
from tests.waiting import PATIENCE_SECONDS, until

WEB = f"{FEISHU}  web: {{}}\n"
"""For `running(feishu=…)`: Feishu and the web chat."""
CHAT = "c_0123456789abcdef"


@dataclass(frozen=True)
class Event:
    name: str
    data: dict[str, Any]
    number: int | None


def new_id(prefix: str = "m") -> str:
    return f"{prefix}_{uuid4().hex}"


class Page:
    """`events` is everything it was told since it was opened, whatever the connection."""

    def __init__(self, url: str, **headers: str) -> None:
        given = {"x-clawgate": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        fresh = httpx.Limits(max_keepalive_connections=0)  # an idle connection may be closed while it is written to
        self.http = httpx.AsyncClient(
            base_url=url, trust_env=False, headers=given, timeout=PATIENCE_SECONDS, limits=fresh
        )
        self.events: list[Event] = []
        self._reading: asyncio.Task[None] | None = None

    async def say(
        self, text: str, *, chat: str = CHAT, message: str = "", agent: str = "helper", files: Sequence[str] = ()
    ) -> httpx.Response:
        posted = {"id": message or new_id(), "chat": chat, "agent": agent, "text": text, "files": list(files)}
        return await self.http.post("/webhooks/web/default", json=posted)

    async def upload(self, data: bytes, name: str, type_: str = "application/octet-stream") -> httpx.Response:
        return await self.http.post("/api/files", params={"name": name}, content=data, headers={"content-type": type_})

    async def conversation(self, chat: str = CHAT, **query: Any) -> dict[str, Any]:
        answer = await self.http.get(f"/api/chats/{chat}", params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def chats(self) -> list[dict[str, Any]]:
        return list((await self.http.get("/api/chats")).json()["chats"])

    @asynccontextmanager
    async def watching(self, after: int | None = None) -> AsyncIterator[None]:
        """Connected to the event stream, from what was seen last unless told otherwise."""
        reading = self._reading = asyncio.create_task(self._read(self.seen if after is None else after))
        try:
            hellos = len(self.named("hello"))
            await self.until(lambda: len(self.named("hello")) > hellos or reading.done())
            yield
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, httpx.TransportError):
                await reading

    async def _read(self, after: int) -> None:
        """Until the stream ends."""
        async with self.http.stream(
            "GET", "/api/events", headers={"last-event-id": str(after)}, timeout=None
        ) as answer:
            assert answer.status_code == 200
            async for event in parsed(answer.aiter_bytes()):
                self.events.append(event)

    @property
    def seen(self) -> int:
        """The number of the newest message it was told of."""
        return max((event.number for event in self.events if event.number is not None), default=0)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.name == name]

    def written(self, author: str = "agent", chat: str | None = None) -> list[dict[str, Any]]:
        return [it for it in self.named("message") if it["author"] == author and chat in (None, it["chat"])]

    def drafts(self) -> list[str]:
        """What the newest turn's draft showed, step by step, as text of its blocks."""
        drawn: dict[tuple[str, str], list[str]] = {}
        shown = []
        for it in self.named("draft"):
            key = (it["chat"], it["message"])
            drawn[key] = [*drawn.get(key, [])[: it["at"]], *it["blocks"]]
            shown.append("".join(drawn[key]))
        return shown

    async def answers(self, count: int) -> list[str]:
        """Wait for so many answers; their texts, in order."""
        await self.until(lambda: len(self.written()) >= count)
        return [str(it["text"]) for it in self.written()]

    async def until(self, condition: Callable[[], object | Awaitable[object]]) -> None:
        """Of what it is told; an error of its stream is raised."""

        def so() -> object | Awaitable[object]:
            if self._reading is not None and self._reading.done() and not self._reading.cancelled():
                self._reading.result()
            return condition()

        await until(so)


async def parsed(chunks: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Server-sent events, as WHATWG HTML 9.2.6 reads them; lines end with a line feed, for ours have no carriage returns."""
    rest = b""
    async for chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            assert b"\r" not in block
            lines = [line.partition(": ") for line in block.decode().split("\n") if not line.startswith(":")]
            assert {name for name, _, _ in lines} <= {"event", "data", "id"}, block
            fields = {name: value for name, _, value in lines}
            if data := "".join(value for name, _, value in lines if name == "data"):
                number = int(fields["id"]) if "id" in fields else None
                yield Event(fields.get("event", "message"), orjson.loads(data), number)


@asynccontextmanager
async def opened(url: str, *, watching: bool = True, link: str | None = None, **headers: str) -> AsyncIterator[Page]:
    """A page that watches for as long as the `with` lasts; `link` is the code that signs it in."""
    page = Page(url, **headers)
    try:
        if link is not None:
            assert (await page.http.post("/api/session", json={"token": link})).status_code == 204
        if watching:
            async with page.watching():
                yield page
        else:
            yield page
    finally:
        await page.http.aclose()

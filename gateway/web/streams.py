"""The web chat's event streams, as far as they are HTTP: how many there may be, and how one ends.

A page that does not read holds up no other: its unread events are bounded, and if it is too far behind its connection is
closed. It reconnects, and continues after the last message it has seen.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from channels.channel import Rejected
from channels.web.channel import ALIVE_SECONDS, WebChannel
from gateway.http.request import problem
from gateway.store.errors import StoreUnavailable

PIECE_BYTES = 65_536
"""The piece that a connection gets at once: a page that does not read is owed two, the rest waits with those of others."""
RETRY_SECONDS = 10

log = structlog.get_logger()


@dataclass(eq=False, kw_only=True)
class EventStream(StreamingResponse):
    """The events of one page from message `after` on; a refusal if `pages_max` are connected already.
    `person_now` raises Rejected once the page's session has ended."""

    channel: WebChannel
    person: str
    after: int
    pages_max: int
    person_now: Callable[[], Awaitable[str]]
    now: Callable[[], float]
    plain: bool = False
    """Drafts are sent as text."""

    def __post_init__(self) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__((), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = self.channel.live
        if live.pages >= self.pages_max:
            open_ = f"{self.pages_max} pages of the web chat are open, as many as may be (limits.eventStreams)."
            refusal = problem(503, "too-many-pages", f"{open_} Close one of them.", retry_seconds=RETRY_SECONDS)
            await refusal(scope, receive, send)
            return
        with live.watching(self.person, plain=self.plain) as watcher:
            self.body_iterator = self._pieces(self.channel.events(watcher, self.after))
            sending = asyncio.create_task(self.stream_response(send))
            over = [
                asyncio.create_task(self.listen_for_disconnect(receive)),
                asyncio.create_task(watcher.behind.wait()),
            ]
            try:
                await asyncio.wait([sending, *over], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, *over):
                    task.cancel()
                await asyncio.gather(sending, *over, return_exceptions=True)
        if not sending.cancelled():
            sending.result()
        elif watcher.behind.is_set():
            log.warning("page_let_go", reason="it does not read", pages=live.pages)

    async def _pieces(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the stream until the page's session ends or it cannot be read on; the page reconnects, or signs in."""
        checked = self.now()
        try:
            async for event in events:
                if self.now() - checked >= ALIVE_SECONDS:
                    if await self.person_now() != self.person:
                        return
                    checked = self.now()
                for at in range(0, len(event), PIECE_BYTES):
                    yield event[at : at + PIECE_BYTES]
        except (Rejected, StoreUnavailable) as error:
            log.info("stream_ended", error=repr(error))

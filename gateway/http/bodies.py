"""Request bodies: limits on their size, their time, and the memory of unfinished ones.

Unfinished bodies of unknown senders share one memory budget. While it is full, reading pauses, and the oldest body is cut
off with a 503: genuine deliveries arrive within a second, so slow senders make room for them. A known sender's upload
reserves its whole size first and is never cut off; until then it waits unread.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

from fastapi import Request

from gateway.state.runtime import MemoryQuota

YOUNG_SECONDS = 1.0
"""A younger body is cut off only if twice the budget is in use."""
NO_ROOM = "too many unfinished bodies at once (server.maxUnverifiedBytes); send it again"


class Unreadable(Exception):
    """The body could not be read; respond with `status`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(eq=False, slots=True)
class _Arriving:
    since: float
    deadline: asyncio.Timeout
    data: bytearray = field(default_factory=bytearray)
    is_cut: bool = False


class Bodies:
    """Read bodies within a memory budget: `held` bytes of unfinished ones, about `bytes_max` at most."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self._arriving: dict[_Arriving, None] = {}
        """Oldest first."""
        self._freed = asyncio.Event()
        self._room = MemoryQuota()

    async def read(self, request: Request, *, bytes_max: int, seconds: float) -> bytes:
        """Return the raw body. Raises Unreadable."""
        if declared_size(request, 0) > bytes_max:
            raise Unreadable(413, "body too large")
        body = None
        try:
            async with asyncio.timeout(seconds) as deadline:
                body = _Arriving(asyncio.get_running_loop().time(), deadline)
                self._arriving[body] = None
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise Unreadable(400, "body cut off")
                    if body.is_cut:
                        raise Unreadable(503, NO_ROOM)
                    piece: bytes = message.get("body", b"")
                    body.data += piece
                    self.held += len(piece)
                    if len(body.data) > bytes_max:
                        raise Unreadable(413, "body too large")
                    if not message.get("more_body", False):
                        return bytes(body.data)
                    await self._make_room(body)
        except TimeoutError:
            late = body is None or not body.is_cut
            raise Unreadable(*((408, "body too slow") if late else (503, NO_ROOM))) from None
        finally:
            if body:
                self._forget(body)

    def reserved(self, size: int) -> AbstractAsyncContextManager[object]:
        """Wait until the budget has room for a whole body of this size; small ones overtake large ones."""
        return self._room.hold(size, self.bytes_max)

    async def _make_room(self, body: _Arriving) -> None:
        clock = asyncio.get_running_loop().time
        while self.held > self.bytes_max and not body.is_cut:
            oldest = next(iter(self._arriving))
            young_seconds = oldest.since + YOUNG_SECONDS - clock()
            if young_seconds <= 0 or self.held > 2 * self.bytes_max:
                oldest.is_cut = True
                self._forget(oldest)
                oldest.deadline.reschedule(clock())
                continue
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(young_seconds):
                    await self._freed.wait()
        if body.is_cut:
            raise Unreadable(503, NO_ROOM)

    def _forget(self, body: _Arriving) -> None:
        self._arriving.pop(body, None)
        self.held -= len(body.data)
        body.data.clear()
        self._freed.set()


def declared_size(request: Request, otherwise: int) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isascii() and declared.isdecimal() else otherwise

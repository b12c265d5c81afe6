"""A platform that a call reaches only once a test lets it: a slow network. What is cut off on the way never arrives."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Held:
    """ASGI apps before those of emulators. `lost` counts the calls that were cut off while they were held."""

    def __init__(self) -> None:
        self._ends: tuple[str, ...] = ()
        self._times: float = 0
        self._released = asyncio.Event()
        self.holding = 0
        self.lost = 0

    def hold(self, *ends: str, times: float = float("inf")) -> None:
        """From now on, so many calls to paths that end so."""
        self._ends, self._times, self._released = ends, times, asyncio.Event()

    def release(self) -> None:
        self._ends = ()
        self._released.set()

    def before(self, app: ASGIApp) -> ASGIApp:
        async def held(scope: Scope, receive: Receive, send: Send) -> None:
            is_meant = scope["type"] == "http" and self._ends and scope["path"].endswith(self._ends)
            if not is_meant or self._times <= 0:
                await app(scope, receive, send)
                return
            self._times -= 1
            body = await _whole(receive)
            gone, released = asyncio.ensure_future(receive()), asyncio.ensure_future(self._released.wait())
            self.holding += 1
            await asyncio.wait({gone, released}, return_when=asyncio.FIRST_COMPLETED)
            self.holding -= 1
            released.cancel()
            if gone.done():
                self.lost += 1
                return
            first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def replayed() -> Message:
                return first.pop() if first else await gone

            await app(scope, replayed, send)

        return held


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body

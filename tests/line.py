"""The line between the gateway and the emulated model, which a test can hold still in the middle of an answer.

What is seen of an answer before it is complete is then a fact and not a race: the rest comes when the test says so.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE = b"text_delta"


class Line:
    """An ASGI app around the model's. Answers that are under way when it is held go on when it is released."""

    def __init__(self, app: ASGIApp | None = None) -> None:
        self._app = app
        self._pieces: int | None = None
        self._released = asyncio.Event()
        self._standing = 0

    @property
    def holding(self) -> bool:
        """An answer stands still, and somebody waits for it."""
        return self._standing > 0

    def to(self, app: ASGIApp) -> "Line":
        self._app = app
        return self

    def hold(self, *, after_pieces: int = 0) -> None:
        """Of each answer from now on, let through so many pieces of text."""
        self._pieces = after_pieces
        self._released = asyncio.Event()

    def release(self) -> None:
        self._pieces = None
        self._released.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        passed = 0

        async def held(message: Message) -> None:
            nonlocal passed
            if PIECE in message.get("body", b""):
                if self._pieces is not None and passed >= self._pieces:
                    await self._stand(receive)
                passed += 1
            await send(message)

        await self._app(scope, receive, held)

    async def _stand(self, receive: Receive) -> None:
        """Until it is released, or whoever waits for it has gone."""
        waits = [asyncio.create_task(self._released.wait()), asyncio.create_task(_gone(receive))]
        self._standing += 1
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._standing -= 1
            for it in waits:
                it.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

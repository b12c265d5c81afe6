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
        self.holding = False
        """An answer stands still."""

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
                    self.holding = True
                    await self._released.wait()
                    self.holding = False
                passed += 1
            await send(message)

        await self._app(scope, receive, held)

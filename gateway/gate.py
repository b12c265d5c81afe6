"""The gate before a turn: one chat begins at a time, and between two the event loop answers what has arrived.

A turn begins with some milliseconds of work in one piece: its history, its prompt, its first request. Fifty of them in a row
would keep fifty webhooks waiting for their 200.
"""

import asyncio
from collections import deque


class Gate:
    """First come, first through; nobody holds it, so nobody can block it."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._moving = False

    async def enter(self) -> None:
        """Wait for a turn of the event loop in which nobody else begins."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._moving:
            self._moving = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # whoever was cancelled meanwhile is passed over
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._moving = False

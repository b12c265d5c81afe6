"""The gate before a turn: one chat begins at a time, and between two the event loop answers what has arrived.

A turn begins with some milliseconds of work in one piece: its history, its prompt, its first request. Fifty of them in a row
would keep fifty webhooks waiting for their 200.
"""

import asyncio


class Gate:
    """First come, first through; whoever is in it waits for nobody, so nobody can block it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Wait for a turn of the event loop in which nobody else begins."""
        async with self._lock:
            await asyncio.sleep(0)

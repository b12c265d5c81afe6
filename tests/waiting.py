"""Wait for a condition, not for a time: what is there costs nothing, and what never comes fails."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 60.0
"""A busy machine may take so long for what takes milliseconds."""


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Raises TimeoutError."""
    pause_seconds = 0.002
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await found if inspect.isawaitable(found := condition()) else found):
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.2, 0.05)

"""A request to a platform that many may need at once: it is made once, and no caller's deadline cancels it for others."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """`request` runs once at a time; after it has ended, in whatever way, it may be made again."""

    def __init__(self, request: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._request = request
        self._task: asyncio.Task[T] | None = None

    async def get(self, timeout_seconds: float | None = None) -> T:
        """The result. Raises what `request` raises, or TimeoutError."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._request())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with asyncio.timeout(timeout_seconds):
            return await asyncio.shield(self._task)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

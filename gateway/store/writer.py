"""SQLite's writer: operations one after the other on a thread of its own, those that wait together in one transaction.

Waiting operations share a `BEGIN IMMEDIATE` … `COMMIT`, so that fifty chats cost one fsync, not fifty. If one of a
group fails, the group is rolled back and each operation runs alone, so that only the guilty one fails. There is never
a deferred transaction that reads and then writes: its upgrade fails at once whatever busy_timeout says.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from gateway.store.store import Fenced, StoreUnavailable

GROUP_MAX = 64
QUEUE_MAX = 5_000
T = TypeVar("T")
Operation = Callable[[Connection], Any]


class Writer:
    """Runs operations one after the other on its own thread. `call` awaits the commit."""

    def __init__(self, engine: Engine, *, name: str, begin: str) -> None:
        self._engine = engine
        self._begin = begin
        self._queue: SimpleQueue[tuple[Operation, Future[Any]] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run it and commit. Raises Fenced, or StoreUnavailable for whatever the database says."""
        if self._closed:  # its thread has ended: nobody would ever answer
            raise StoreUnavailable("the database is closed")
        if self._queue.qsize() >= QUEUE_MAX:
            raise StoreUnavailable("too many writes are waiting")
        future: Future[T] = Future()
        self._queue.put((operation, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish what is queued, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            while group := self._take():
                if not self._run(connection, group) and len(group) > 1:
                    for single in group:
                        self._run(connection, [single])
                del group  # while it waits for the next, what was written is not kept
        finally:
            connection.close()

    def _take(self) -> list[tuple[Operation, Future[Any]]]:
        group = []
        item = self._queue.get()
        while item is not None:
            # A caller that was cancelled before its turn came wants nothing written.
            if item[1].set_running_or_notify_cancel():
                group.append(item)
            if len(group) >= GROUP_MAX:
                return group
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group or self._take()
        if group:
            self._queue.put(None)
        return group

    def _run(self, connection: Connection, group: list[tuple[Operation, Future[Any]]]) -> bool:
        """One transaction for the group. False where it was rolled back and no caller has its result yet."""
        results: list[Any] = []
        try:
            connection.exec_driver_sql(self._begin)
            results.extend(operation(connection) for operation, _ in group)
            connection.exec_driver_sql("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever SQLAlchemy, sqlite3 or a statement says goes to the caller
            with suppress(Exception):  # a failed BEGIN leaves nothing to roll back
                connection.exec_driver_sql("ROLLBACK")
            if len(group) > 1:
                return False
            group[0][1].set_exception(_unavailable(error))
            return True
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)
        return True


def _unavailable(error: Exception) -> Exception:
    if isinstance(error, Fenced):
        return error
    unavailable = StoreUnavailable(f"{type(error).__name__}: {getattr(error, 'orig', error)}".strip(": "))
    unavailable.__cause__ = error
    return unavailable

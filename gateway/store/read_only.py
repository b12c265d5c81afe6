"""The store of a database that is only read, beside a running gateway or without one: for a rehearsal, in which nothing may
be written."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from sqlalchemy import Connection

from gateway.config.root import DatabaseConfig
from gateway.store.opening import offline
from gateway.store.store import Store

T = TypeVar("T")


async def _refuse(operation: Callable[[Connection], T]) -> T:
    raise RuntimeError(f"this database is only read: {operation}")


def _refused(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("this database is only read")


_REFUSED: Any = _refused


class ReadOnlyStore(Store):
    """Its parts read; everything else is refused, and so is every write, by the database too."""

    worker, shared = "", True
    lease_valid = accept = claim = load = append = finish = release = renew = session_state = stop = _REFUSED
    contact_state = backlog = prune = _rows = _close = start = notify = probe = close = _REFUSED

    def __init__(self, config: DatabaseConfig) -> None:
        self._share(offline(config, access="read"), _refuse)

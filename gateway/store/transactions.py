"""Transactions on PostgreSQL for what is read and written at the pace of people: SQLAlchemy's text, off the event loop.

The engine of turns has its own pool and its own statements; migrations have no deadline and go their own way.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.store.presence import KEEPALIVE
from gateway.store.store import StoreUnavailable

CONNECTIONS = 2

T = TypeVar("T")


class Transactions:
    """On the database at `conninfo`; nothing is connected before the first call."""

    def __init__(self, conninfo: str, *, statement_seconds: int) -> None:
        creator = partial(_connected, conninfo, statement_seconds)
        self._engine = create_engine(
            "postgresql+psycopg://", creator=creator, pool_size=CONNECTIONS, pool_pre_ping=True
        )

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run it and commit. Raises StoreUnavailable, which says nothing of what was to be written."""

        def run() -> T:
            try:
                with self._engine.begin() as connection:
                    return operation(connection)
            except (SQLAlchemyError, psycopg.Error) as error:
                state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
                raise StoreUnavailable(f"{type(error).__name__}: {state}".strip(": ")) from error

        return await asyncio.to_thread(run)

    def close(self) -> None:
        self._engine.dispose()


def _connected(conninfo: str, statement_seconds: int) -> psycopg.Connection[Any]:
    connection = psycopg.connect(conninfo, autocommit=True, **KEEPALIVE)
    connection.execute(f"SET statement_timeout = '{statement_seconds}s'")
    connection.autocommit = False
    return connection

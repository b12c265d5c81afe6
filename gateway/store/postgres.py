"""The store on PostgreSQL: the same promises for any number of replicas behind a balancer.

Each operation is one statement in autocommit on a pooled connection, sent from the event loop. No connection is held
while a model or a tool runs. Who is alive is `Presence`'s business; everything that is written names its epoch, so a
worker that was taken for dead can do no harm.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.store import postgres_statements as sql
from gateway.store import statements as shared
from gateway.store.errors import DatabaseFault, Fenced, Revised, StoreUnavailable, fault_of
from gateway.store.layers import LayerRow
from gateway.store.migrate import migrate, unusable
from gateway.store.parts import NewPart, OutboxPart
from gateway.store.presence import KEEPALIVE, Presence, Transactions
from gateway.store.records import Acceptance, Delivery, Entry, Known, Lease, SessionState, Spoken, View
from gateway.store.spending import limits_of
from gateway.store.statements import InboxStatus
from gateway.store.store import Store
from gateway.store.tasks import TaskEnd, end_task

POOL_WAIT_SECONDS = 2.0
STATEMENT_SECONDS = 5
START_SECONDS = 10.0
BURY_EVERY_CLAIMS = 60


class PostgresStore(Store):
    """`Store` on the database at `conninfo`, a libpq address, which is shown as `at`. Creates missing tables."""

    shared = True

    def __init__(self, conninfo: str, *, at: str, lease_seconds: float, connections: int) -> None:
        self._conninfo = conninfo
        self.worker = uuid4().hex
        self._lease_seconds = lease_seconds
        self._connections = connections
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[DictRow]] | None = None
        self._presence: Presence | None = None
        self._claims = 0
        self._fault: DatabaseFault | None = None
        self._turnstiles: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._transactions = Transactions(conninfo, statement_seconds=STATEMENT_SECONDS)
        self._share(self._transactions.call, self._transactions.call)
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo, **KEEPALIVE))
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                migrate(connection, begin="BEGIN")
        except (SQLAlchemyError, psycopg.Error) as error:
            raise unusable(error, at) from error
        finally:
            engine.dispose()

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        try:
            await self._start(on_notify)
        except BaseException:
            await self.close()  # a pool left to the end of the loop may keep it from ending: a start that hangs
            raise

    async def _start(self, on_notify: Callable[[str | None], None]) -> None:
        loop = asyncio.get_running_loop()
        self._pool = AsyncConnectionPool(
            self._conninfo,
            min_size=2,
            max_size=self._connections,
            timeout=POOL_WAIT_SECONDS,
            configure=_configure,
            kwargs={"autocommit": True, "row_factory": dict_row, **KEEPALIVE},
            open=False,
        )
        await self._pool.open()

        def notify(sid: str | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_notify, sid)

        self._presence = Presence(
            conninfo=self._conninfo, worker=self.worker, lease_seconds=self._lease_seconds, on_notify=notify
        )
        if not await asyncio.to_thread(self._presence.announced.wait, START_SECONDS):
            raise StoreUnavailable("the worker could not be announced")

    def lease_valid(self) -> bool:
        return self._presence is not None and self._presence.lease_valid()

    @property
    def failing(self) -> DatabaseFault | None:
        return "gone" if self._presence is not None and not self._presence.is_connected else self._fault

    async def accept(
        self, delivery: Delivery, *, pending_max: int, sender_max: int, claim: bool, begin: bool = False
    ) -> Acceptance:
        """Messages of one chat pass one after the other: their order is that of their arrival, not of the pool."""
        turnstile = self._turnstiles.setdefault(delivery.sid, asyncio.Lock())
        message = delivery.row | {
            "control": delivery.control,
            "sender_max": sender_max,
            "interrupts": delivery.interrupts,
            "repeatable": delivery.repeatable,
            "pending_max": pending_max,
            "owner": self.worker if claim else None,
            "begin": claim and begin,
        }
        async with turnstile:
            if delivery.rates:
                row = await self._accept_rated(message | limits_of(delivery.rates))
            else:
                row = await self._one(sql.ACCEPT, message)
        if row is None:
            return Acceptance(turn=None)
        lease = Lease(sid=row["sid"], epoch=row["epoch"]) if row["owner"] == self.worker else None
        return Acceptance(turn=row["turn"], lease=lease, overflow=row["overflow"], rate_limited_by=row["rate"])

    async def _accept_rated(self, message: Mapping[str, Any]) -> DictRow | None:
        """One message of a sender, and of a chat, after the other, whichever replica has it; in one round trip."""
        async with self._connection() as connection, connection.pipeline():
            async with connection.transaction():
                await connection.execute(_psycopg(sql.LOCK_RATES), message)
                accepted = await connection.execute(_psycopg(sql.ACCEPT_RATED), message)
            row: DictRow | None = await accepted.fetchone()
            return row

    async def claim(self, limit: int) -> Sequence[Lease]:
        self._claims += 1
        if self._claims % BURY_EVERY_CLAIMS == 1:
            await self._rows(sql.BURY, {})
        return [Lease(**row) for row in await self._rows(sql.CLAIM, {"owner": self.worker, "limit": limit})]

    async def load(self, lease: Lease, *, history_turns: int, waiting_max: int, known: Known | None = None) -> View:
        names = lease.row | {"waiting_max": waiting_max} | shared.bounds(history_turns, known)
        async with self._connection() as connection, connection.pipeline():
            queued = await connection.execute(_psycopg(shared.QUEUED), names)
            waiting = await connection.execute(_psycopg(shared.WAITING), names)
            history = await connection.execute(_psycopg(shared.HISTORY), names)
            parts = [OutboxPart(**row) for row in await queued.fetchall()]
            rows = await waiting.fetchall()
            return View.of(parts, rows, [Entry(**row) for row in await history.fetchall()] if rows else ())

    async def append(
        self, lease: Lease, entries: Sequence[Entry], joined: Sequence[int] = (), *, revision: int | None = None
    ) -> SessionState:
        statement = sql.JOIN if joined else sql.APPEND
        names = _journaled(lease, entries, revision) | {"joined": list(joined)}
        if row := await self._one(statement["spent_scope" in names], names):
            return SessionState(**row)
        await self.session_state(lease)
        raise Revised

    async def finish(
        self,
        lease: Lease,
        entries: Sequence[Entry],
        parts: Sequence[NewPart],
        *,
        at: float,
        dead: bool = False,
        revision: int | None = None,
        layers: LayerRow | None = None,
        task: TaskEnd | None = None,
        beside: str | None = None,
    ) -> Sequence[OutboxPart]:
        names = _journaled(lease, entries, revision) | {
            "status": int(InboxStatus.DEAD if dead else InboxStatus.DONE),
            "keys": [part.key for part in parts],
            "payloads": [part.payload for part in parts],
            "at": at,
            "beside": beside,
            **{f"layer_{name}": getattr(layers, name, None) for name in LayerRow.__dataclass_fields__},
        }
        statement = sql.FINISH["spent_scope" in names]
        if task is None:
            rows = await self._rows(statement, names)
        else:
            rows = await self._transactions.call(partial(_finish_with, statement=statement, names=names, task=task))
        if not rows:
            await self.session_state(lease)
            raise Revised
        return [OutboxPart(**row) for row in rows if row["id"] is not None]

    async def _close(self, lease: Lease, part: OutboxPart, /, **outcome: Any) -> bool:
        return await self._one(sql.MARK, lease.row | {"part": part.id, **outcome}) is not None

    async def stop(self, sid: str, before: int) -> int:
        row = await self._one(sql.STOP, {"sid": sid, "before": before})
        return int(row["concerned"]) if row else 0

    async def notify(self, sid: str | None) -> None:
        await self._rows(sql.NOTIFY, {"sid": sid or ""})

    async def prune(self, before: float) -> int:
        async with self._connection() as connection:
            deleted: int = (await connection.execute(_psycopg(sql.PRUNE), {"before": before})).rowcount
            return deleted

    async def probe(self) -> None:
        await self._rows(sql.PROBE, {})

    async def close(self) -> None:
        if self._presence is not None:
            await asyncio.to_thread(self._presence.close)
        if self._pool is not None:
            await self._pool.close()
        self._transactions.close()

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> list[DictRow]:
        async with self._connection() as connection:
            cursor = await connection.execute(_psycopg(statement), names)
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def _connection(self) -> Any:
        """Raises Fenced if two workers wrote the same row of a transcript, else StoreUnavailable."""
        if self._pool is None:
            raise StoreUnavailable("not started")
        try:
            async with self._pool.connection() as connection:
                yield connection
                self._fault = None
        except psycopg.errors.UniqueViolation as error:
            raise Fenced from error
        except (psycopg.Error, PoolTimeout) as error:
            fault: DatabaseFault = "slow" if isinstance(error, PoolTimeout) else fault_of(error)
            self._fault = (
                fault if fault != "broken" else self._fault
            )  # a statement that is wrong says nothing of others
            reason = f"{type(error).__name__}: {error.sqlstate or ''}".strip(": ")
            raise StoreUnavailable(reason, self.failing or fault) from error


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")


def _finish_with(
    connection: Connection, *, statement: str, names: Mapping[str, object], task: TaskEnd
) -> list[dict[str, Any]]:
    """The end of a task's last turn, and the task's own, in one transaction."""
    rows = [dict[str, Any](row) for row in connection.exec_driver_sql(_psycopg(statement), names).mappings()]
    if rows:
        end_task(connection, task)
    return rows


@cache
def _psycopg(statement: str) -> str:
    """Converts placeholders to psycopg's, but no cast."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)


def _journaled(lease: Lease, entries: Sequence[Entry], revision: int | None) -> dict[str, object]:
    """The journal's placeholders; those of spending only if there is any."""
    spoken = [(n, place, it) for n, entry in enumerate(entries, 1) for place, it in enumerate(entry.spoken)]
    names = lease.row | {
        "turn": entries[-1].turn,
        "revision": revision,
        "spoken_entry": [entry for entry, _, _ in spoken],
        "spoken_place": [place for _, place, _ in spoken],
        **{f"spoken_{name}": [getattr(it, name) for *_, it in spoken] for name in Spoken.__dataclass_fields__},
        "kinds": [entry.kind for entry in entries],
        "contents": [entry.content for entry in entries],
    }
    rows = [row for entry in entries if entry.spent for row in entry.spent.rows]
    return names | {f"spent_{name}": [row[name] for row in rows] for name in (rows[0] if rows else ())}

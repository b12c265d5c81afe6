"""The store on PostgreSQL: the same promises for any number of replicas behind a balancer.

Each operation is one statement in autocommit on a pooled connection, sent from the event loop. No connection is held
while a model or a tool runs. `Presence` announces this worker; everything that is written names its epoch, so a worker
that was taken for dead can do no harm.
"""

import asyncio
import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import psycopg
import structlog
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from gateway.store import postgres_statements as sql
from gateway.store import statements as shared
from gateway.store.errors import NOTIFY_CHANNEL, DatabaseFault, Fenced, Revised, StoreUnavailable, fault_of
from gateway.store.layers import LayerRow
from gateway.store.migrate import migrate, unusable
from gateway.store.records import (
    Acceptance,
    Delivery,
    Entry,
    Known,
    Lease,
    NewPart,
    OutboxPart,
    SessionState,
    Spoken,
    View,
    limits_of,
)
from gateway.store.statements import InboxStatus
from gateway.store.store import Store
from gateway.store.tasks import TaskEnd, end_task

log = structlog.get_logger()


BEATS_PER_LEASE = 3
RECONNECT_SECONDS = 1.0
KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "connect_timeout": 5,
}


CONNECTIONS = 2
T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Presence:
    """Announce `worker` by a lease row, an advisory lock and a LISTEN connection. `on_notify` is called on its thread with a
    session, or None for all.

    It has a connection and a thread to itself: on the event loop a blocking tool would starve it, and a healthy worker
    would be taken for dead. A process that dies drops its lock with its connection, and its chats are taken over within a
    second; a frozen one is taken over when its row expires, by the database's clock. A broken connection is opened again:
    a chat that was taken meanwhile has a higher epoch, so nothing can be written twice.
    """

    conninfo: str
    worker: str
    lease_seconds: float
    on_notify: Callable[[str | None], None]

    def __post_init__(self) -> None:
        self._renewed = 0.0
        self.is_connected = True
        """False while the database cannot be reached."""
        self._closing = threading.Event()
        self.announced = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store-presence", daemon=True)
        self._thread.start()

    def lease_valid(self) -> bool:
        """Returns True if the last renewal is recent enough that no other worker can own our chats. A thawed process may
        trust it too: the monotonic clock ran on while it was frozen."""
        return time.monotonic() - self._renewed < self.lease_seconds

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5)

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                with psycopg.connect(self.conninfo, autocommit=True, **KEEPALIVE) as connection:
                    self.is_connected = True
                    self._announce(connection)
                    self._beat(connection)
            except psycopg.Error as error:
                self.is_connected = False
                log.warning("presence_lost", error=type(error).__name__)
                self._closing.wait(RECONNECT_SECONDS)

    def _announce(self, connection: psycopg.Connection) -> None:
        """Takes the lock before writing the row that names it: a row whose lock is free belongs to a dead worker."""
        lock_key = secrets.randbits(62)
        connection.execute("SELECT pg_advisory_lock(%s)", [lock_key])
        connection.execute(
            "INSERT INTO worker (id, lock_key, expires) VALUES (%s, %s, clock_timestamp() + %s * interval '1 second')"
            " ON CONFLICT (id) DO UPDATE SET lock_key = excluded.lock_key, expires = excluded.expires",
            [self.worker, lock_key, self.lease_seconds],
        )
        connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
        self._renewed = time.monotonic()
        self.announced.set()
        self.on_notify(None)

    def _beat(self, connection: psycopg.Connection) -> None:
        every = self.lease_seconds / BEATS_PER_LEASE
        while not self._closing.is_set():
            due = time.monotonic() + every
            while (left := due - time.monotonic()) > 0 and not self._closing.is_set():
                # Short waits, so that a close is noticed; a notice ends them at once.
                for note in connection.notifies(timeout=min(left, 0.2), stop_after=1):
                    self.on_notify(note.payload or None)
            began = time.monotonic()
            renewed = connection.execute(
                "UPDATE worker SET expires = clock_timestamp() + %s * interval '1 second' WHERE id = %s",
                [self.lease_seconds, self.worker],
            )
            if renewed.rowcount == 0:  # buried by the others after a long silence: announce it again
                return
            self._renewed = began
        with contextlib.suppress(psycopg.Error):
            connection.execute("UPDATE worker SET expires = clock_timestamp() WHERE id = %s", [self.worker])


class Transactions:
    """Rare transactions: SQLAlchemy's text, off the event loop and the turns' pool. Connects with the first call."""

    def __init__(self, conninfo: str, *, statement_seconds: int) -> None:
        creator = partial(_connected, conninfo, statement_seconds)
        self._engine = create_engine(
            "postgresql+psycopg://", creator=creator, pool_size=CONNECTIONS, pool_pre_ping=True
        )
        self._closed = False

    async def call(self, operation: Callable[[Connection], T]) -> T:
        """Run it and commit. Raises StoreUnavailable, which says nothing of what was to be written."""

        def run() -> T:
            try:
                with self._engine.connect() as connection:
                    try:
                        with connection.begin():
                            return operation(connection)
                    finally:
                        if self._closed:  # no pool takes it back
                            connection.detach()
            except (SQLAlchemyError, psycopg.Error) as error:
                state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
                raise StoreUnavailable(f"{type(error).__name__}: {state}".strip(": "), fault_of(error)) from error

        return await asyncio.to_thread(run)

    def close(self) -> None:
        self._closed = True
        self._engine.dispose()


def _connected(conninfo: str, statement_seconds: int) -> psycopg.Connection[Any]:
    connection = psycopg.connect(conninfo, autocommit=True, **KEEPALIVE)
    connection.execute(f"SET statement_timeout = '{statement_seconds}s'")
    connection.autocommit = False
    return connection


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

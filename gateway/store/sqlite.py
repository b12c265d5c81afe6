"""The store on SQLite: one file, one process, zero services.

Every write goes through the one `Writer`; reads have a separate connection. A lock on the file beside the database
keeps a second gateway out. `synchronous=FULL`: what was acknowledged is on the disk.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from gateway.config.budgets import Rated
from gateway.store import sqlite_statements as sql
from gateway.store import statements as shared
from gateway.store.errors import DatabaseFault, Fenced, Revised
from gateway.store.layers import LayerRow
from gateway.store.migrate import DatabaseUnusable, migrate, unusable
from gateway.store.records import (
    Acceptance,
    Delivery,
    Entry,
    Known,
    Lease,
    NewPart,
    OutboxPart,
    SessionState,
    View,
    limits_of,
)
from gateway.store.sessions import CONTROL
from gateway.store.statements import InboxStatus
from gateway.store.store import Store
from gateway.store.tasks import TaskEnd, end_task
from gateway.store.writer import Database, Writer, reads, writes


class DatabaseInUse(DatabaseUnusable):
    """Another Clawgate is running on this database file."""

    fix = "stop it first, or give this one its own database.url"


def make_private(path: Path) -> None:
    """Creates the file before SQLite does, which gives the files beside it the mode of the database."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, *(Path(f"{path.resolve()}{ending}") for ending in ("-wal", "-shm", ".lock"))):
        with contextlib.suppress(FileNotFoundError):
            file.chmod(0o600)


def lock_file(path: Path) -> Any:
    """The lock file, held open for the life of the process: flock falls with it, also on kill -9."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.close()
        raise DatabaseInUse from error
    return file


def is_locked(path: str | None) -> bool:
    """Return True if a gateway works with the file; False for None, which is PostgreSQL."""
    with contextlib.suppress(FileNotFoundError), Path(f"{path}.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "wal_autocheckpoint=4000", "secure_delete=ON")


class SqliteStore(Database, Store):
    """`Store` on a SQLite file; creates a missing one."""

    shared = False

    def __init__(self, path: Path) -> None:
        self.worker = uuid4().hex
        try:
            # If we are root, commands run as another user, who passes through to a workspace and sees nothing here.
            path.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            self._lock = lock_file(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise unusable(error, str(path), file=str(path)) from error
        engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _configure)
        self._engine = engine
        try:
            make_private(path)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                migrate(connection, begin="BEGIN IMMEDIATE")
        except (SQLAlchemyError, OSError, DatabaseUnusable) as error:
            self._let_go()
            if isinstance(error, DatabaseUnusable):
                raise
            raise unusable(error, str(path), file=str(path)) from error
        self._writer = Writer(engine, name="store-writer", begin="BEGIN IMMEDIATE")
        self._reader = Writer(engine, name="store-reader", begin="BEGIN")
        super().__init__(read=self._reader.call, write=self._writer.call)
        self._share(self.read, self.write)

    async def start(self, on_notify: Callable[[str | None], None]) -> None:
        """No-op: single process."""

    def lease_valid(self) -> bool:
        return True

    @property
    def failing(self) -> DatabaseFault | None:
        return self._writer.failing

    @writes
    def accept(
        self,
        connection: Connection,
        delivery: Delivery,
        *,
        pending_max: int,
        sender_max: int,
        claim: bool,
        begin: bool = False,
    ) -> Acceptance:
        """Inserts a new message, counts it on its chat's row and owns the chat if it is free."""
        owner = self.worker if claim else None
        turn = _value(connection, shared.INSERT_MESSAGE, **delivery.row)
        if turn is None:
            return Acceptance(turn=None)
        if delivery.rates:
            noted, rate = _rows(connection, shared.RATES, **delivery.row, **limits_of(delivery.rates))[0]
            if rate is not None:
                return _refuse(connection, delivery, turn, owner, noted=bool(noted), rate=rate)
        is_command = delivery.sid == delivery.control
        by_sender = {"sender": delivery.sender, "control_sids": CONTROL + "%"}
        theirs, since, notes = _rows(connection, sql.OF_SENDER, **by_sender)[0]
        if theirs <= sender_max * (2 if is_command else 1):
            interrupts = delivery.interrupts and not _value(connection, sql.OTHERS_WAIT, **delivery.row)
            stopped, begun = turn if interrupts else 0, turn if claim and begin else 0
            lease, pending = _count(connection, delivery.sid, owner, stopped, begun)
            if pending <= pending_max or _value(connection, sql.OF_PEOPLE, sid=delivery.sid) <= pending_max:
                return Acceptance(turn=turn, lease=lease)
            _rows(connection, sql.COUNT_DOWN, sid=delivery.sid, by=1)
            since, notes = _value(connection, sql.OLDEST_WAITING, sid=delivery.sid), 0
        noted = is_command or notes or _value(connection, sql.NOTED, control=delivery.control, since=since)
        return _refuse(connection, delivery, turn, owner, noted=bool(noted), rate=None)

    @writes
    def claim(self, connection: Connection, limit: int) -> Sequence[Lease]:
        """One process per file: any other owner is dead. A turn it had begun counts one attempt, and the part it was
        about to send may have arrived."""
        leases = []
        for chat in _rows(connection, sql.CLAIMABLE, owner=self.worker, limit=limit):
            if chat["owner"] is not None:
                _rows(connection, sql.COUNT_ATTEMPT, sid=chat["id"])
                _rows(connection, sql.COUNT_AMBIGUOUS, sid=chat["id"])
            epoch = _value(connection, sql.TAKE, sid=chat["id"], owner=self.worker)
            leases.append(Lease(sid=chat["id"], epoch=epoch))
        return leases

    @reads
    def load(
        self, connection: Connection, lease: Lease, *, history_turns: int, waiting_max: int, known: Known | None = None
    ) -> View:
        parts = [OutboxPart(**row) for row in _rows(connection, shared.QUEUED, **lease.row)]
        rows = _rows(connection, shared.WAITING, **lease.row, waiting_max=waiting_max)
        names = {"sid": lease.sid} | shared.bounds(history_turns, known)
        entries = _rows(connection, shared.HISTORY, **names) if rows else ()
        return View.of(parts, [dict(row) for row in rows], [Entry(**row) for row in entries])

    @writes
    def append(
        self,
        connection: Connection,
        lease: Lease,
        entries: Sequence[Entry],
        joined: Sequence[int] = (),
        *,
        revision: int | None = None,
    ) -> SessionState:
        state = _append(connection, lease, entries, revision)
        count = sum(len(_rows(connection, sql.JOIN, joined=turn, turn=entries[-1].turn)) for turn in joined)
        if count:
            _rows(connection, sql.COUNT_DOWN, sid=lease.sid, by=count)
        return replace(state, pending=state.pending - count)

    @writes
    def finish(
        self,
        connection: Connection,
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
        """The turn's last rows, its reply and the end of its message, all or nothing."""
        turn, status = entries[-1].turn, InboxStatus.DEAD if dead else InboxStatus.DONE
        closed = _rows(connection, sql.CLOSE_MESSAGE, turn=turn, status=status)
        state = _append(connection, lease, entries if closed else [], revision if closed else None)
        if closed and revision is not None and state.stopped > turn:
            raise Revised
        if not closed:
            return []
        _rows(connection, sql.COUNT_FINISHED, sid=lease.sid)
        if layers:
            _rows(connection, shared.KEEP_LAYERS, turn=turn, sid=lease.sid, **asdict(layers))
        if task is not None:
            end_task(connection, task)
        if beside:
            _rows(connection, sql.OPEN_BESIDE, sid=beside)
        queued = []
        for number, part in enumerate(parts):
            row: Any = {"turn": turn, "part": number, "key": part.key, "payload": part.payload, "created": at}
            queued.append(OutboxPart(id=_value(connection, sql.INSERT_PART, sid=beside or lease.sid, **row), **row))
        return queued

    @writes
    def _close(self, connection: Connection, lease: Lease, part: OutboxPart, /, **outcome: Any) -> bool:
        _rows(connection, sql.MARK, part=part.id, **outcome)
        return bool(_rows(connection, shared.RELEASE, **lease.row, part=0))

    @writes
    def stop(self, connection: Connection, sid: str, before: int) -> int:
        _rows(connection, sql.STOP, sid=sid, before=before)
        concerned: int = _value(connection, sql.STOPPED, sid=sid, before=before)
        return concerned

    async def notify(self, sid: str | None) -> None:
        """No-op: single process."""

    @writes
    def prune(self, connection: Connection, before: float) -> int:
        for statement in sql.PRUNE:
            _rows(connection, statement, before=before)
        pruned: int = _value(connection, "SELECT changes()")
        return pruned

    @writes
    def probe(self, connection: Connection) -> None:
        _rows(connection, sql.PROBE)

    async def _rows(self, statement: str, names: Mapping[str, Any]) -> Sequence[Any]:
        run = self.read if statement.lstrip().startswith(("SELECT", "WITH")) else self.write
        return await run(lambda connection: _rows(connection, statement, **names))

    async def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._let_go()

    def _let_go(self) -> None:
        self._engine.dispose()
        self._lock.close()


def _rows(connection: Connection, statement: str, **names: object) -> list[sqlite3.Row]:
    """The statement's rows, to the end. On the driver itself: SQLAlchemy's way to it costs more than the statement."""
    cursor: Any = connection.connection.cursor()
    cursor.row_factory = sqlite3.Row
    return list(cursor.execute(statement, names))


def _value(connection: Connection, statement: str, **names: object) -> Any:
    """The first value of the first row; None if there is no row."""
    rows = _rows(connection, statement, **names)
    return rows[0][0] if rows else None


def _count(connection: Connection, sid: str, owner: str | None, stopped: int, begun: int) -> tuple[Lease | None, int]:
    names = {"sid": sid, "owner": owner, "stopped": stopped, "begun": begun}
    holder, epoch, pending = _rows(connection, sql.COUNT_MESSAGE, **names)[0]
    return (Lease(sid=sid, epoch=epoch) if owner is not None and holder == owner else None), pending


def _refuse(
    connection: Connection, delivery: Delivery, turn: int, owner: str | None, *, noted: bool, rate: Rated | None
) -> Acceptance:
    """The message is beyond a limit: it is answered with a note, unless its burst has had one."""
    if delivery.repeatable:
        _rows(connection, sql.FREE_KEY, turn=turn)
    if noted:
        _rows(connection, sql.REFUSE_MESSAGE, turn=turn)
        return Acceptance(turn=turn, overflow=True, rate_limited_by=rate)
    _rows(connection, sql.MOVE_MESSAGE, turn=turn, sid=delivery.control, rate=rate)
    lease, _ = _count(connection, delivery.control, owner, 0, 0)
    return Acceptance(turn=turn, lease=lease, overflow=True, rate_limited_by=rate)


def _append(connection: Connection, lease: Lease, entries: Sequence[Entry], revision: int | None) -> SessionState:
    if not (rows := _rows(connection, shared.STATE, **lease.row)):
        raise Fenced
    state = SessionState(**rows[0])
    if revision not in (None, state.revision):
        raise Revised
    for entry in entries:
        row: Any = {"sid": lease.sid, "turn": entry.turn}
        row["seq"] = _value(connection, sql.APPEND, **row, kind=entry.kind, content=entry.content)
        for place, spoken in enumerate(entry.spoken):
            _rows(connection, sql.SPEAK, **row, place=place, **asdict(spoken))
        for row in entry.spent.rows if entry.spent else ():
            _rows(connection, sql.SPEND, **row)
    return state


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()

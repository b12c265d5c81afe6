"""The table of due rows: each starts a turn at its time, exactly once.

A row is claimed by its due time: one transaction moves it to the next time and puts its message into the inbox. Of two
replicas, or two rounds, only one finds the time it has read. The transaction also checks what is still waiting: a row
whose last run has not ended, or whose conversation is full, starts nothing.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import orjson
from sqlalchemy import Connection

from gateway.store.errors import NOTIFY_CHANNEL
from gateway.store.operations import Database, Lock, is_shared, lock, reads, records, run, writes
from gateway.store.records import Delivery, Lease
from gateway.store.sends import put
from gateway.store.sessions import saying_session
from gateway.store.statements import NEVER

LaterState: TypeAlias = Literal["active", "paused", "done", "cancelled"]
Why: TypeAlias = Literal["hand", "config", "gone", "unreadable"]
DUE = "SELECT * FROM later WHERE due <= :now ORDER BY due LIMIT :most"
NEXT_DUE = "SELECT due FROM later WHERE due IS NOT NULL ORDER BY due LIMIT 1"
OF_OWNER = """
SELECT * FROM later
WHERE owner = :owner AND kind = 'schedule' AND (state IN ('active', 'paused') OR id = :also) ORDER BY due, since
"""
_ALL = "SELECT * FROM later ORDER BY state, due, since"
_SCHEDULES = "SELECT * FROM later WHERE kind = 'schedule' ORDER BY state, due, since LIMIT :most OFFSET :first"
_ONE = "SELECT * FROM later WHERE id = :id"
_INSERT = """
INSERT INTO later (id, kind, due, owner, place, state, key, body, since, why)
VALUES (:id, :kind, :due, :owner, :place, :state, :key, :body, :since, :why) ON CONFLICT DO NOTHING RETURNING id
"""
OF_PLACE = """
SELECT * FROM later
WHERE place = :place AND kind = 'schedule' AND (state IN ('active', 'paused') OR id = :also) ORDER BY due, since
"""
_OF_EACH = """
SELECT * FROM later WHERE id IN (
    SELECT min(id) FROM later WHERE owner IS NOT NULL AND kind = 'schedule' AND state IN ('active', 'paused')
    GROUP BY owner, place
)
"""
MOVE = """
UPDATE later SET due = :next, resumes = NULL, by_hand = 0, state = :state,
    skipped = CASE WHEN :skip = 1 THEN due ELSE skipped END, skips = skips + :skip
WHERE id = :id AND due = :due RETURNING id
"""
_RAN = "UPDATE later SET ran = :at, runs = runs + 1, turn = :turn WHERE id = :id"
_STILL_WAITS = "SELECT 1 FROM inbox WHERE id = :turn AND status = 0"
_OWN_WAITING = "SELECT count(*) FROM inbox WHERE sid = :sid AND status = 0 AND again IS NOT NULL"
_END = "UPDATE later SET due = NULL, resumes = NULL, by_hand = 0, state = :state, why = :why WHERE id = :id"
_AHEAD = """
SELECT * FROM later
WHERE due > :now AND (since > :now OR ran > :now OR skipped IS NOT NULL OR kind <> 'schedule')
"""
_RECALL = "UPDATE later SET due = :due, resumes = :resumes, since = :since WHERE id = :id AND due = :read"
_CONFIGURED = "SELECT * FROM later WHERE owner IS NULL AND kind = 'schedule'"
_CONFIGURED_LOCKED = "SELECT * FROM later WHERE owner IS NULL AND kind = 'schedule' FOR UPDATE"
"""A run or a pause meanwhile would be undone."""
_CONFIGURE = """
UPDATE later SET body = :body, place = :place, due = :due, resumes = :resumes, by_hand = :by_hand, state = :state,
    since = :since, why = :why
WHERE id = :id
"""
_ASKED = """
UPDATE later SET asked = (SELECT turn FROM transcript WHERE sid = :sid ORDER BY seq DESC LIMIT 1) WHERE id = :id
"""
"""The call is the newest row of its conversation, because it is journaled before it runs."""
FORGET, RETENTION, HANDOVER, WATCH, RATINGS = "forget", "retention", "handover", "watch", "ratings"
"""The kinds of rows that begin no turn: a person whose data is erased, the nightly erasure of what is too old, a chat
that a colleague answers, the self-watch, whose row holds what it has seen, and the notice to owners a week after a
rating."""
LATER_NOTICE = "later"
"""The notice by which another process makes the watches of a shared database poll immediately."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Later:
    """A row of the table. `owner` is the user who created it, in the database's form; None for the operator.
    `resumes` is its regular time while it is due by hand."""

    id: str
    kind: str
    due: float | None
    owner: str | None
    place: str
    state: LaterState
    body: str
    since: float
    resumes: float | None = None
    by_hand: int = 0
    ran: float | None = None
    runs: int = 0
    skipped: float | None = None
    skips: int = 0
    turn: int | None = None
    """The message of its last run."""
    why: Why | None = None
    """The reason that it is paused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The next state of a due row: its message, if it runs, and its next time. `waits`: the message queues with the
    conversation's messages; otherwise it is sent next to a running turn. `again`: when to retry if too much is
    waiting there; without it that time is skipped."""

    later: Later
    next: float | None
    state: LaterState
    delivery: Delivery | None = None
    waits: bool = True
    skips: bool = False
    again: float | None = None
    unreadable: bool = False
    is_busy: bool = False
    """It was due, but its last run or too many other messages are still waiting."""

    @property
    def put_off(self) -> "Step":
        """The step to take instead if it may not run now."""
        if self.again is not None:
            return replace(self, next=self.again, state="active", delivery=None, is_busy=True)
        return replace(self, delivery=None, skips=True, is_busy=True)

    @property
    def only_looks(self) -> bool:
        """True if the row is only polled again."""
        return self.state == "active" and self.delivery is None and not self.skips


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The next state of a row, with the messages that its commit brings along."""

    row: Later
    deliveries: Sequence[Delivery] = ()


ChangeT = TypeVar("ChangeT", bound=Change)


def change(connection: Connection, id_: str, make: Callable[[Later | None], ChangeT | None]) -> ChangeT | None:
    """Change a row as `make` says, together with its messages; None changes nothing."""
    lock(connection, Lock.LOGIN, id_)
    if is_shared(connection):  # the watch moves the row without the lock
        run(connection, "SELECT id FROM later WHERE id = :id FOR UPDATE", id=id_)
    if (changed := make(one(connection, id_))) is None:
        return None
    run(connection, "DELETE FROM later WHERE id = :id", id=id_)
    insert(connection, changed.row, None)
    for delivery in changed.deliveries:
        put(connection, delivery)
    return changed


class DatabaseLater(Database):
    @reads
    def due(self, connection: Connection, now: float, most: int) -> Sequence[Later]:
        return _rows(connection, DUE, now=now, most=most)

    @reads
    def next_due(self, connection: Connection) -> float | None:
        found: float | None = run(connection, NEXT_DUE).scalar()
        return found

    @writes
    def advance(
        self, connection: Connection, steps: Sequence[Step], *, at: float, worker: str | None, waiting_max: int = NEVER
    ) -> Sequence[tuple[Step, Lease | None]]:
        """Move each row that is still due at the time that was read. Return the steps taken, with the lease of an
        idle session that `worker` now owns. At most `waiting_max` of the gateway's own messages wait in a
        conversation."""
        found = []
        for step in steps:
            if step.delivery is not None:
                delivery = _in_its_lane(connection, step.delivery, waits=step.waits)
                full = _own_waiting(connection, delivery.sid) >= waiting_max
                runs = not full and not still_waits(connection, step.later)
                step = replace(step, delivery=delivery) if runs else step.put_off
            names = {"id": step.later.id, "due": step.later.due, "next": step.next, "state": step.state}
            if run(connection, MOVE, **names, skip=int(step.skips)).first() is None:
                continue
            if step.unreadable:
                run(connection, "UPDATE later SET why = 'unreadable' WHERE id = :id", id=step.later.id)
            lease = None
            if step.delivery is not None:
                turn, lease = put(connection, step.delivery, worker)
                if turn is None:  # it ran at that time before the clock was set back
                    step = replace(step, delivery=None)
                else:
                    run(connection, _RAN, id=step.later.id, at=at, turn=turn)
            found.append((step, lease))
        return found

    @reads
    def own_waiting(self, connection: Connection, sid: str) -> int:
        """Count the gateway's own waiting messages in a session: of schedules, hooks, tasks and background commands."""
        return _own_waiting(connection, sid)

    @reads
    def direct(self, connection: Connection, sid: str) -> bool:
        """Return whether the newest text in a conversation is from a direct chat."""
        newest = "SELECT direct FROM spoken WHERE sid = :sid AND how = 'said' ORDER BY seq DESC LIMIT 1"
        return bool(run(connection, newest, sid=sid).scalar())

    @reads
    def reader(self, connection: Connection, sids: Sequence[str]) -> str:
        """Return the id of the user in whose direct chat these conversations are, by the newest text; empty if
        nobody has written yet."""
        newest = """
        SELECT person FROM spoken WHERE sid = :sid AND how = 'said' AND direct = 1 AND person <> ''
        ORDER BY seq DESC LIMIT 1
        """
        people = (run(connection, newest, sid=it).scalar() for it in sids)
        return str(next(filter(None, people), "")).partition(":")[2]

    @reads
    def of_owner(self, connection: Connection, owner: str, *, also: str = "") -> Sequence[Later]:
        """Return a user's pending schedules, and the row `also` if it is theirs, even if it has ended."""
        return _rows(connection, OF_OWNER, owner=owner, also=also)

    @reads
    def of_place(self, connection: Connection, place: str, *, also: str = "") -> Sequence[Later]:
        """Return all users' pending schedules for a chat, and the row `also` if it belongs to that chat."""
        return _rows(connection, OF_PLACE, place=place, also=also)

    @reads
    def of_id(self, connection: Connection, id_: str) -> Sequence[Later]:
        """Return the row with that id, or none."""
        return _rows(connection, _ONE, id=id_)

    @reads
    def of_each(self, connection: Connection) -> Sequence[Later]:
        """Return one pending schedule per user and chat."""
        return _rows(connection, _OF_EACH)

    @reads
    def active(self, connection: Connection, kind: str) -> Sequence[Later]:
        return active(connection, kind)

    @writes
    def change(self, connection: Connection, id_: str, make: Callable[[Later | None], Change | None]) -> Change | None:
        """Change a row as `make` says, together with its messages; None changes nothing."""
        return change(connection, id_, make)

    @reads
    def every(self, connection: Connection) -> Sequence[Later]:
        return _rows(connection, _ALL)

    @writes
    def create(self, connection: Connection, later: Later, *, key: str, most: int, session: str = "") -> Later | None:
        """Store a user's new schedule, idempotent by `key`; None if they have `most`. It belongs to the running turn
        of `session`: recalling or erasing that turn deletes it."""
        lock(connection, Lock.SCHEDULES, later.owner)  # two at once could exceed the limit
        made = "SELECT * FROM later WHERE key = :key"
        if found := _rows(connection, made, key=key):
            return found[0]
        if len(_rows(connection, OF_OWNER, owner=later.owner, also="")) >= most:
            return None
        if not insert(connection, later, key):
            return None
        run(connection, _ASKED, id=later.id, sid=session)
        return later

    @writes
    def expect(self, connection: Connection, later: Later) -> None:
        """Store a row that the gateway itself created."""
        insert(connection, later, None)

    @writes
    def hasten(self, connection: Connection, id_: str, now: float) -> None:
        """Make a waiting row due now."""
        run(connection, "UPDATE later SET due = :now WHERE id = :id AND due > :now", id=id_, now=now)

    @reads
    def those(self, connection: Connection, ids: Sequence[str]) -> Sequence[Later]:
        return _rows(connection, "SELECT * FROM later WHERE id IN :ids", ids=list(ids)) if ids else ()

    @writes
    def rewrite(self, connection: Connection, id_: str, body: str) -> None:
        """Keep another body with a row."""
        run(connection, "UPDATE later SET body = :body WHERE id = :id", id=id_, body=body)

    @writes
    def drop(self, connection: Connection, id_: str) -> None:
        """Delete a row. Idempotent."""
        run(connection, "DELETE FROM later WHERE id = :id", id=id_)

    @writes
    def halt(self, connection: Connection, id_: str, body: str) -> bool:
        """End an active row and store `body` with it. Return False if it has ended."""
        halt = "UPDATE later SET due = NULL, state = 'cancelled', body = :body WHERE id = :id AND state = 'active'"
        return run(connection, halt, id=id_, body=body).rowcount == 1

    @writes
    def end(self, connection: Connection, id_: str, state: LaterState, *, owner: str | None = None) -> Later | None:
        """End or pause a row, of `owner` if given; None if there is none. Idempotent."""
        return end(connection, id_, state, owner=owner)

    @writes
    def rest(self, connection: Connection, ids: Sequence[str]) -> None:
        """Pause the active rows among these, because their chat is unreachable. Idempotent."""
        for id_ in ids:
            if (row := one(connection, id_)) is not None and row.state == "active":
                end(connection, id_, "paused", why="gone")

    @reads
    def ahead(self, connection: Connection, now: float) -> Sequence[Later]:
        """Return rows that may wait too long because the clock was ahead when they were last moved or created."""
        return _rows(connection, _AHEAD, now=now)

    @writes
    def recall(self, connection: Connection, steps: Sequence[tuple[Later, Later]]) -> int:
        """Replace the times of the first rows by those of the second, unless they changed meanwhile. Return the
        count."""
        return sum(run(connection, _RECALL, **asdict(after), read=before.due).rowcount for before, after in steps)

    @writes
    def move(self, connection: Connection, account: str, before: str, after: str) -> int:
        """Move the rows of a migrated group, at the account `channel:name:`, to its new id. Return the count. Config
        rows stay as configured. Idempotent."""
        moved = "SELECT id, body FROM later WHERE place = :place AND (owner IS NOT NULL OR kind <> 'schedule')"
        found = run(connection, moved, place=account + before).mappings().all()
        for row in found:
            names = {"id": row["id"], "place": account + after, "body": _moved(row["body"], before, after)}
            run(connection, "UPDATE later SET place = :place, body = :body WHERE id = :id", **names)
        return len(found)

    @reads
    def configured(self, connection: Connection) -> Sequence[Later]:
        """Return the rows of the config's schedules."""
        return _rows(connection, _CONFIGURED)

    @writes
    def configure(self, connection: Connection, rows: Sequence[Later], adopt: Callable[[Later, Later], Later]) -> None:
        """Update the operator's rows to match the config. `adopt` returns the row to keep for a stored and a new
        one."""
        lock(connection, Lock.SCHEDULES, "config")
        locked = _CONFIGURED_LOCKED if is_shared(connection) else _CONFIGURED
        stored = {it.id: it for it in _rows(connection, locked)}
        for id_ in stored.keys() - {it.id for it in rows}:
            run(connection, "DELETE FROM later WHERE id = :id", id=id_)
        for row in rows:
            before = stored.get(row.id)
            if before is None:
                insert(connection, row, None)
            elif (kept := adopt(before, row)) != before:
                run(connection, _CONFIGURE, **asdict(kept))

    @writes
    def prune(self, connection: Connection, before: float) -> int:
        """Delete rows that have ended; the config's schedules stay."""
        ended = """
        DELETE FROM later WHERE (owner IS NOT NULL OR kind <> 'schedule')
        AND due IS NULL AND state <> 'paused' AND COALESCE(ran, since) < :before
        """
        return run(connection, ended, before=before).rowcount


def one(connection: Connection, id_: str) -> Later | None:
    return next(iter(_rows(connection, _ONE, id=id_)), None)


def active(connection: Connection, kind: str) -> Sequence[Later]:
    """Return the active rows of a kind, oldest first."""
    return _rows(connection, "SELECT * FROM later WHERE kind = :what AND state = 'active' ORDER BY since", what=kind)


def schedules(connection: Connection, *, first: int = 0, most: int = NEVER) -> Sequence[Later]:
    return _rows(connection, _SCHEDULES, first=first, most=most)


def schedules_count(connection: Connection) -> int:
    return int(run(connection, "SELECT count(*) FROM later WHERE kind = 'schedule'").scalar_one())


def still_waits(connection: Connection, later: Later) -> bool:
    """Return whether the message of the last run is still waiting for its turn or for the turn's end."""
    return run(connection, _STILL_WAITS, turn=later.turn).first() is not None


def end(
    connection: Connection, id_: str, state: LaterState, *, owner: str | None = None, why: Why | None = None
) -> Later | None:
    found = _rows(connection, _ONE, id=id_)
    if not found or (owner is not None and found[0].owner != owner):
        return None
    if found[0].state != state:
        run(connection, _END, id=id_, state=state, why=why)
    return found[0]


def end_direct(connection: Connection, owner: str) -> int:
    """Cancel the schedules that a user created in direct chats and return the count."""
    found = _rows(connection, OF_OWNER, owner=owner, also="")
    direct = [it for it in found if (json.loads(it.body).get("context") or {}).get("chat", {}).get("kind") == "direct"]
    for row in direct:
        end(connection, row.id, "cancelled")
    return len(direct)


def resume(connection: Connection, id_: str, due: float | None) -> None:
    """Resume a paused row at its next time; without one it is over."""
    state: LaterState = "done" if due is None else "active"
    resumed = "UPDATE later SET due = :due, state = :state, why = NULL WHERE id = :id"
    run(connection, resumed, id=id_, due=due, state=state)
    _announce(connection)


def run_now(connection: Connection, id_: str, now: float) -> Later | None:
    """Make a row due immediately; its regular time stays. None if there is no such row."""
    if not (found := _rows(connection, _ONE, id=id_)):
        return None
    hasten = """
    UPDATE later SET resumes = CASE WHEN by_hand = 1 THEN resumes ELSE due END, by_hand = 1, due = :now WHERE id = :id
    """
    run(connection, hasten, id=id_, now=now)
    _announce(connection)
    return found[0]


def _announce(connection: Connection) -> None:
    """Wake every watch with the commit. On SQLite the command line calls the gateway directly
    (`gateway.http.reach`)."""
    if is_shared(connection):
        run(connection, "SELECT pg_notify(:channel, :what)", channel=NOTIFY_CHANNEL, what=LATER_NOTICE)


def forget(connection: Connection, owners: Sequence[str]) -> int:
    """Delete every row of these users, in the database's form, and return the count."""
    return run(connection, "DELETE FROM later WHERE owner IN :owners", owners=list(owners)).rowcount


def forget_asked(connection: Connection, turns: Sequence[int], *, only_ended: bool = False) -> Sequence[str]:
    """Delete the reminders that were created in these turns and return their ids."""
    states = ["done", "cancelled"] if only_ended else ["active", "paused", "done", "cancelled"]
    gone = "DELETE FROM later WHERE asked IN :turns AND state IN :states RETURNING id"
    return list(run(connection, gone, turns=list(turns), states=states).scalars())


def run_keys(id_: str) -> tuple[str, str]:
    """Return bounds of the dedupe keys of a row's runs, `later:ID:` and a time. Digits come before letters in every
    collation that a database may have; the order of punctuation differs. So other keys may be in between."""
    first = f"later:{id_}:"
    return first, f"{first}a"


def forget_place(connection: Connection, place: str) -> int:
    """Delete a chat's reminders without a known turn: an older version recorded none."""
    gone = "DELETE FROM later WHERE place = :place AND owner IS NOT NULL AND asked IS NULL"
    return run(connection, gone, place=place).rowcount


def owners(connection: Connection) -> Sequence[str]:
    return list(run(connection, "SELECT DISTINCT owner FROM later WHERE owner IS NOT NULL").scalars())


def _rows(connection: Connection, statement: str, **names: object) -> list[Later]:
    return records(connection, Later, statement, **names)


def insert(connection: Connection, later: Later, key: str | None) -> bool:
    return run(connection, _INSERT, **asdict(later), key=key).first() is not None


def _moved(body: str, before: str, after: str) -> str:
    """Return the body with the chat's new id and no message to reply to, because message ids differ there."""
    with suppress(ValueError, TypeError, KeyError):
        content = orjson.loads(body)
        if content["context"]["chat"]["id"] == before:
            content["context"]["chat"]["id"] = after
            content["context"]["message_id"] = ""
            return orjson.dumps(content).decode()
    return body


def _in_its_lane(connection: Connection, delivery: Delivery, *, waits: bool) -> Delivery:
    """Return the delivery in the conversation's queue, or next to a running turn."""
    if waits or not run(connection, "SELECT pending FROM session WHERE id = :sid", sid=delivery.sid).scalar():
        return delivery
    return replace(delivery, sid=saying_session(delivery.sid))


def _own_waiting(connection: Connection, sid: str) -> int:
    return int(run(connection, _OWN_WAITING, sid=sid).scalar() or 0)

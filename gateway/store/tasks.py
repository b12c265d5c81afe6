"""Tasks: agent runs that a conversation has started, and how each of them ended.

A row is ended once, by the first of these: its own last step, a stop, or the next process after a crash. The message
that reports the end goes into the inbox of the conversation that asked, in the same commit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from gateway.store.operations import Database, reads, records, rows, run, writes
from gateway.store.records import Delivery
from gateway.store.sends import put
from gateway.store.statements import NEVER

TaskState: TypeAlias = Literal["running", "ended", "failed", "stopped", "recalled"]
ORPHAN_SECONDS = 60.0
"""Seconds after which a task without its message is orphaned: its process died between the two writes."""
BEGUN = "gateway:task:"
"""The prefix of the dedupe key of a task's own message; the id follows."""

_ORPHANS = """
DELETE FROM task WHERE chat = :chat AND ended IS NULL AND started < :before
AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.dedupe = 'gateway:task:' || task.id)
"""
_OF_KEY = "SELECT * FROM task WHERE key = :key"
_INSERT = """
INSERT INTO task (id, parent, sid, chat, person, agent, title, origin, key, turn, external, started, state)
SELECT CAST(:id AS TEXT), CAST(:parent AS TEXT), CAST(:sid AS TEXT), CAST(:chat AS TEXT), CAST(:person AS TEXT),
    CAST(:agent AS TEXT), CAST(:title AS TEXT), CAST(:origin AS TEXT), CAST(:key AS TEXT), CAST(:turn AS BIGINT),
    CAST(:external AS INTEGER), CAST(:started AS DOUBLE PRECISION), 'running'
WHERE (SELECT count(*) FROM task WHERE chat = :chat AND ended IS NULL) < :most
ON CONFLICT DO NOTHING
"""
_END = """
UPDATE task SET state = :state, ended = :at, ended_by = :by, result = :result, external = :external
WHERE id = :id AND ended IS NULL RETURNING id
"""
_KNOWN = """
SELECT content FROM transcript WHERE sid = :sid AND turn >= :turn AND kind = 'toolResult' AND content LIKE :named
"""
_GOES_ON = """
SELECT EXISTS (SELECT 1 FROM inbox WHERE sid = :sid AND status = 0 AND id <> :turn) OR EXISTS (
    SELECT 1 FROM approval a WHERE a.sid = :sid AND (a.state = 'pending' OR (
        a.announced = 0 AND NOT (a.state = 'cancelled' AND COALESCE(a.decision, '') LIKE 'message %')
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.dedupe = 'gateway:approval:' || a.id || :decided)
    ))
)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task. `parent` is the conversation that asked, in its turn `turn`; `sid` is the task's own; `chat` counts
    towards the limit. `person` is `channel:id`; `origin` is the message to reply to. `result` is JSON. `external`:
    its title or result may hold external content. `ended_by`: the number of the command that stopped it."""

    id: str
    parent: str
    sid: str
    chat: str
    person: str
    agent: str
    title: str
    turn: int
    origin: str
    started: float
    state: TaskState = "running"
    ended: float | None = None
    ended_by: int | None = None
    result: str = ""
    external: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskEnd:
    """The end of a task. `report` is the message to the conversation that asked; None if no report is sent."""

    id: str
    state: TaskState
    at: float
    result: str = ""
    external: bool = False
    report: Delivery | None = None


class DatabaseTasks(Database):
    @writes
    def begin(self, connection: Connection, key: str, tries: Sequence[Task], most: int) -> Task | None:
        """Store a task under the first free id in `tries`, idempotent by `key`; None if `most` run in that chat. A
        task whose process died before its message was stored does not count."""
        new = tries[0]
        run(connection, _ORPHANS, chat=new.chat, before=new.started - ORPHAN_SECONDS)
        for named in tries:
            if found := records(connection, Task, _OF_KEY, key=key):
                return found[0]
            run(connection, _INSERT, **asdict(named), key=key, most=most)
        return next(iter(records(connection, Task, _OF_KEY, key=key)), None)

    @writes
    def end(self, connection: Connection, end: TaskEnd, by: int | None = None) -> bool:
        """End a task and report it. Return False if it had ended before."""
        return end_task(connection, end, by)

    @writes
    def stop(self, connection: Connection, ids: Sequence[str], by: int, at: float) -> Sequence[Task]:
        """Stop these tasks on behalf of command `by`. Return those that it stopped, the same when repeated."""
        stop = "UPDATE task SET state = 'stopped', ended = :at, ended_by = :by WHERE id IN :ids AND ended IS NULL"
        run(connection, stop, ids=ids, by=by, at=at)
        stopped = "SELECT * FROM task WHERE id IN :ids AND ended_by = :by ORDER BY started, id"
        return records(connection, Task, stopped, ids=ids, by=by)

    @reads
    def of(self, connection: Connection, parent: str) -> Sequence[Task]:
        """Return the tasks that a conversation started, oldest first."""
        asked = "SELECT * FROM task WHERE parent = :parent ORDER BY started, id"
        return records(connection, Task, asked, parent=parent)

    @reads
    def newest(self, connection: Connection, most: int) -> Sequence[Task]:
        """Return the tasks of all conversations: running ones, then the newest of the others."""
        newest = "SELECT * FROM task ORDER BY (ended IS NULL) DESC, started DESC, id LIMIT :most"
        return records(connection, Task, newest, most=most)

    @reads
    def get(self, connection: Connection, id_: str) -> Task | None:
        return next(iter(records(connection, Task, "SELECT * FROM task WHERE id = :id", id=id_)), None)

    @reads
    def goes_on(self, connection: Connection, sid: str, turn: int) -> bool:
        """Return whether more follows in a task's conversation after `turn`: a pending decision, or a waiting
        message."""
        return bool(run(connection, _GOES_ON, sid=sid, turn=turn, decided=":decided").scalar())

    @reads
    def results(self, connection: Connection, parent: str, turn: int, id_: str) -> Sequence[str]:
        """Return the tool result rows of a conversation, from that turn on, that name a task or a background
        command."""
        names = {"sid": parent, "turn": turn, "named": f'%"{id_}"%'}
        return list(run(connection, _KNOWN, **names).scalars())

    @writes
    def prune(self, connection: Connection, before: float) -> None:
        run(connection, "DELETE FROM task WHERE ended < :before", before=before)


def end_task(connection: Connection, end: TaskEnd, by: int | None = None) -> bool:
    """End a task in the caller's transaction and report it. Return False if it had ended before. No worker claims
    the conversation that gets the report: its lane or the next sweep finds it."""
    names: dict[str, Any] = {"id": end.id, "state": end.state, "at": end.at, "by": by}
    names |= {"result": end.result, "external": int(end.external)}
    if not rows(connection, _END, **names):
        return False
    if end.report:
        put(connection, end.report)
    return True


def forget_tasks(
    connection: Connection, sids: Sequence[str], person: str = "", *, after: int = -1, until: int = NEVER
) -> int:
    """Delete the tasks of these conversations, both theirs and those they started between two turns, or the tasks of
    a user (`channel:id`)."""
    gone = """
    DELETE FROM task WHERE sid IN :sids OR (parent IN :sids AND turn > :after AND turn <= :until)
    OR (person = :person AND person <> '')
    """
    return run(connection, gone, sids=list(sids), person=person, after=after, until=until).rowcount


def children_of(connection: Connection, sid: str, after: int, until: int) -> Sequence[str]:
    """Return the conversations of the tasks that a conversation started between two turns."""
    asked = "SELECT sid FROM task WHERE parent = :sid AND turn > :after AND turn <= :until"
    return list(run(connection, asked, sid=sid, after=after, until=until).scalars())

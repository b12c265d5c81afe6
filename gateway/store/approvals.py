"""Approvals, grants and their audit: the records, and their rows on SQLite and PostgreSQL.

A state change is one compare-and-set with its audit row in the same transaction: of two concurrent changes only the
first applies. These transactions are serialised, so the audit has no gap and no limit is exceeded.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import orjson
from sqlalchemy import Connection

from gateway.store.operations import Database, Lock, lock, reads, records, run, writes

State: TypeAlias = Literal[
    "pending", "approved", "spawned", "finished", "interrupted", "denied", "expired", "cancelled", "undeliverable"
]
Admitted: TypeAlias = Literal["pending", "denied", "granted", "backlog", "unreachable"]
"""Outcomes of a request: pending, now or since an earlier call; denied in this turn; covered by a grant; too many
pending requests; no approver reachable."""
ARROWS: Mapping[State, Collection[State]] = {
    "pending": ("approved", "denied", "expired", "cancelled", "undeliverable"),
    "approved": ("spawned", "cancelled"),
    "spawned": ("finished", "interrupted"),
}
"""The states that each state can become; the others are final."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """One row of the table; `migrations/versions/0015_schema.py` documents its columns."""

    id: str
    tool: str
    agent: str
    sid: str
    turn: int
    requester: str
    origin: str
    request: str
    digest: str
    always: int
    tainted: int
    surfaces: str
    state: State = "pending"
    version: int = 0
    created: float
    expires: float
    boot: str
    deadline: float
    decision: str | None = None
    decided_by: str | None = None
    decided_in: str | None = None
    decided_turn: int | None = None
    decided_at: float | None = None
    spawned_at: float | None = None
    exit_code: int | None = None
    announced: int = 0

    @property
    def decider(self) -> str:
        """The only person who may decide, as `channel:id`; empty for the approvers of the config."""
        return str(json.loads(self.request).get("decider", ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A request that is always allowed. `uses` counts the runs that it allowed."""

    id: str
    agent: str
    digest: str
    request: str
    granted_by: str
    granted_at: float
    expires: float | None
    revoked_at: float | None = None
    uses: int = 0
    last_used_at: float | None = None
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decider:
    """The user who decides, with the chat and the message of the decision."""

    person: str
    surface: str = ""
    turn: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """The approval and the decision of a button, by the hash of the button's token."""

    hash: str
    approval: str
    decision: str
    approver: str
    surface: int


ASKED_PER_MINUTE = 3
"""Requests per minute to one approver, or to one chat that the config lists, in addition to those that were allowed."""
WRONG_IDS_MAX = 10
WRONG_IDS_SECONDS = 3600.0
LOST_SECONDS = 3600.0
"""No call lasts this long: a call that was spawned earlier is closed as interrupted."""

_PENDING = """
SELECT * FROM approval WHERE sid = :sid AND digest = :digest AND state = 'pending' AND requester = :requester LIMIT 1
"""
_DENIED = "SELECT * FROM approval WHERE sid = :sid AND digest = :digest AND state = 'denied' AND turn = :turn LIMIT 1"
_GRANTED = """
UPDATE approval_grant SET uses = uses + 1, last_used_at = :at WHERE id = (
    SELECT id FROM approval_grant WHERE agent = :agent AND digest = :digest AND revoked_at IS NULL
    AND (expires IS NULL OR expires > :at) AND granted_by IN :approvers ORDER BY granted_at LIMIT 1
) RETURNING id, granted_by
"""
_OPEN_QUESTION = "SELECT * FROM approval WHERE sid = :sid AND tool = 'ask' AND state = 'pending'"
TICKS_MAX = 200
"""Presses that a question with several answers takes."""
_GRANTS = """
SELECT * FROM approval_grant WHERE revoked_at IS NULL AND (expires IS NULL OR expires > :at) ORDER BY granted_at
"""
_WAITING = """
SELECT count(*) AS of_agent, count(CASE WHEN sid = :sid THEN 1 END) AS of_session
FROM approval WHERE state = 'pending' AND agent = :agent AND tool <> 'ask'
"""
_LATELY = """
SELECT surfaces FROM approval WHERE created > :since AND created <= :at AND tool <> 'ask'
AND state NOT IN ('approved', 'spawned', 'finished', 'interrupted')
"""
_SENT = """
SELECT o.ext_id FROM outbox o JOIN inbox i ON i.id = o.turn
WHERE i.dedupe = :dedupe AND o.status = 2 ORDER BY o.part
"""
_GIVEN_UP = """
SELECT count(*) FROM inbox i WHERE i.dedupe IN :dedupes
AND EXISTS (SELECT 1 FROM outbox o WHERE o.turn = i.id AND o.status = 3)
"""
_INSERT = """
INSERT INTO approval (id, tool, agent, sid, turn, requester, origin, request, digest, always, tainted, surfaces, state,
    version, created, expires, boot, deadline, decision, decided_by, decided_in, decided_turn, decided_at, spawned_at,
    exit_code, announced)
VALUES (:id, :tool, :agent, :sid, :turn, :requester, :origin, :request, :digest, :always, :tainted, :surfaces, :state,
    :version, :created, :expires, :boot, :deadline, :decision, :decided_by, :decided_in, :decided_turn, :decided_at,
    :spawned_at, :exit_code, :announced)
"""
_INSERT_GRANT = """
INSERT INTO approval_grant (id, agent, digest, request, granted_by, granted_at, expires, revoked_at, uses, last_used_at,
    source)
VALUES (:id, :agent, :digest, :request, :granted_by, :granted_at, :expires, :revoked_at, :uses, :last_used_at, :source)
"""
_INSERT_TOKEN = """
INSERT INTO approval_token (hash, approval, decision, approver, surface)
VALUES (:hash, :approval, :decision, :approver, :surface)
"""
_FACTS = ("decision", "decided_by", "decided_in", "decided_turn", "decided_at", "spawned_at", "exit_code")
_MOVE = """
UPDATE approval SET state = :after, version = version + 1, decision = COALESCE(:decision, decision),
    decided_by = COALESCE(:decided_by, decided_by), decided_in = COALESCE(:decided_in, decided_in),
    decided_turn = COALESCE(:decided_turn, decided_turn), decided_at = COALESCE(:decided_at, decided_at),
    spawned_at = COALESCE(:spawned_at, spawned_at), exit_code = COALESCE(:exit_code, exit_code)
WHERE id = :id AND state = :before
"""
_AUDIT = """
INSERT INTO approval_audit (seq, at, actor, action, object, before, after, surface)
VALUES ((SELECT COALESCE(max(seq), 0) + 1 FROM approval_audit), :at, :actor, :action, :object, :before, :after, :surface)
"""


class DatabaseApprovals(Database):
    """Approvals in the database. `at` is the wall clock's time."""

    @writes
    def request(
        self, connection: Connection, new: Approval, *, approvers: Collection[str], session_max: int, agent_max: int
    ) -> tuple[Admitted, Approval | None]:
        """Create a request unless the same users have one pending, it was denied in this turn, or a grant covers it,
        which spawns it immediately."""
        at = new.created
        lock(connection, Lock.APPROVALS)
        same = {"sid": new.sid, "digest": new.digest}
        if found := _one(connection, _PENDING, **same, requester=new.requester):
            return "pending", found
        if found := _one(connection, _DENIED, **same, turn=new.turn):
            return "denied", found
        names = {"agent": new.agent, "digest": new.digest, "at": at, "approvers": list(approvers)}
        # An older version granted more for good than is offered now: those are asked for again.
        if new.always and (grant := run(connection, _GRANTED, **names).first()) is not None:
            times = {"decision": "grant", "decided_by": grant.granted_by, "decided_at": at, "spawned_at": at}
            spawned = replace(new, state="spawned", announced=1, **times)
            run(connection, _INSERT, **asdict(spawned))
            _audit(connection, at, grant.granted_by, "grant-used", grant.id, "", new.id)
            _audit(connection, at, "gateway", "spawned", new.id, "", "spawned")
            return "granted", spawned
        if not _asked(new.surfaces):
            return "unreachable", None
        waiting = run(connection, _WAITING, sid=new.sid, agent=new.agent).one()
        if waiting.of_session >= session_max or waiting.of_agent >= agent_max:
            return "backlog", None
        lately = Counter(it for row in run(connection, _LATELY, at=at, since=at - 60).scalars() for it in _asked(row))
        if any(lately[it] >= ASKED_PER_MINUTE for it in _asked(new.surfaces)):
            return "backlog", None
        run(connection, _INSERT, **asdict(new))
        _audit(connection, at, new.requester, "requested", new.id, "", "pending")
        return "pending", new

    @writes
    def question(self, connection: Connection, new: Approval) -> Approval | None:
        """Ask a question, once; None if the conversation has another open one."""
        lock(connection, Lock.APPROVALS)
        if (found := _one(connection, _OPEN_QUESTION, sid=new.sid)) is not None:
            return found if (found.turn, found.digest) == (new.turn, new.digest) else None
        run(connection, _INSERT, **asdict(new))
        _audit(connection, new.created, new.requester, "requested", new.id, "", "pending")
        return new

    @reads
    def question_in(self, connection: Connection, sid: str, turn: int) -> Approval | None:
        """The question that is open in a conversation, or that message `turn` has answered there."""
        answered = "SELECT * FROM approval WHERE sid = :sid AND tool = 'ask' AND decided_turn = :turn"
        return _one(connection, answered, sid=sid, turn=turn) or _one(connection, _OPEN_QUESTION, sid=sid)

    @writes
    def tick(self, connection: Connection, id_: str, turn: int, number: int) -> Approval | None:
        """Note that press `turn` ticks an option of an open question; the question afterwards."""
        lock(connection, Lock.APPROVALS)
        found = _one(connection, "SELECT * FROM approval WHERE id = :id", id=id_)
        if found is None or found.state != "pending":
            return found
        presses = json.loads(found.decision or "{}")
        if len(presses) < TICKS_MAX:
            presses.setdefault(str(turn), number)
        decision = json.dumps(presses)
        run(connection, "UPDATE approval SET decision = :decision WHERE id = :id", decision=decision, id=id_)
        return replace(found, decision=decision)

    @reads
    def get(self, connection: Connection, id_: str) -> Approval | None:
        return _one(connection, "SELECT * FROM approval WHERE id = :id", id=id_)

    @writes
    def decide(
        self, connection: Connection, id_: str, decision: str, by: Decider, *, at: float, grant: Grant | None
    ) -> tuple[bool, Approval | None]:
        """Apply a decision. Return whether it counts, also when repeated, and the updated approval."""
        lock(connection, Lock.APPROVALS)
        to: State = "denied" if decision == "deny" else "approved"
        facts = {"decision": decision, "decided_by": by.person, "decided_in": by.surface, "decided_turn": by.turn}
        won = _move(connection, id_, "pending", to, by.person, at, facts | {"decided_at": at}, by.surface)
        if won and grant is not None:
            run(connection, _INSERT_GRANT, **asdict(grant))
            _audit(connection, at, by.person, "granted", grant.id, "", id_, by.surface)
        found = _one(connection, "SELECT * FROM approval WHERE id = :id", id=id_)
        repeated = found is not None and by.turn is not None and found.decided_turn == by.turn
        return won or repeated, found

    @writes
    def move(
        self,
        connection: Connection,
        id_: str,
        before: State,
        after: State,
        *,
        at: float,
        facts: Mapping[str, object] = MappingProxyType({}),
    ) -> bool:
        """Change the state without a decider. Return False if the state is no longer `before`."""
        lock(connection, Lock.APPROVALS)
        spawned = {"spawned_at": at} if after == "spawned" else {}
        return _move(connection, id_, before, after, "gateway", at, {**facts, **spawned})

    @reads
    def open_in(self, connection: Connection, sids: Sequence[str]) -> Sequence[Approval]:
        """Return the requests of these conversations that have not run, oldest first."""
        found = "SELECT * FROM approval WHERE sid IN :sids AND state IN ('pending', 'approved') ORDER BY created"
        return records(connection, Approval, found, sids=list(sids)) if sids else []

    @writes
    def cancel(
        self, connection: Connection, sid: str, requests: Sequence[Approval], *, by: str, at: float
    ) -> Sequence[Approval]:
        """Cancel those of these requests whose state is unchanged. Return everything that `by` has cancelled in the
        conversation, the same when repeated."""
        lock(connection, Lock.APPROVALS)
        for it in requests:
            _move(connection, it.id, it.state, "cancelled", by, at, {"decision": by})
        cancelled = (
            "SELECT * FROM approval WHERE sid = :sid AND state = 'cancelled' AND decision = :by ORDER BY created"
        )
        return records(connection, Approval, cancelled, sid=sid, by=by)

    @reads
    def open_requests(self, connection: Connection) -> Sequence[Approval]:
        """Return approvals that are pending or whose outcome has not been announced."""
        return records(connection, Approval, "SELECT * FROM approval WHERE announced = 0 ORDER BY created")

    @writes
    def announced(self, connection: Connection, id_: str) -> None:
        run(connection, "UPDATE approval SET announced = 1 WHERE id = :id AND state <> 'pending'", id=id_)

    @writes
    def close_lost(self, connection: Connection, *, at: float) -> None:
        """Close calls that were spawned and never ended."""
        lock(connection, Lock.APPROVALS)
        lost = "SELECT id FROM approval WHERE state = 'spawned' AND spawned_at < :before"
        for id_ in run(connection, lost, before=at - LOST_SECONDS).scalars().all():
            _move(connection, id_, "spawned", "interrupted", "gateway", at)

    @writes
    def set_tokens(self, connection: Connection, tokens: Sequence[Token]) -> None:
        """Store the tokens of one message in place of its earlier ones."""
        first = tokens[0]
        former = "DELETE FROM approval_token WHERE approval = :approval AND surface = :surface"
        run(connection, former, approval=first.approval, surface=first.surface)
        for token in tokens:
            run(connection, _INSERT_TOKEN, **asdict(token))

    @reads
    def token(self, connection: Connection, hash_: str) -> Token | None:
        known = "SELECT * FROM approval_token WHERE hash = :hash"
        return next(iter(records(connection, Token, known, hash=hash_)), None)

    @writes
    def count_wrong(self, connection: Connection, by: Decider, *, at: float) -> bool:
        """Count an id that the sender may not decide, once per message. Return True if there were too many in an
        hour."""
        lock(connection, Lock.APPROVALS)
        wrong, mine = _wrong(connection, by.person, at), f"message {by.turn}"
        if mine not in wrong and len(wrong) < WRONG_IDS_MAX:
            muted = "muted" if len(wrong) + 1 == WRONG_IDS_MAX else ""
            _audit(connection, at, by.person, "wrong-id", mine, "", muted, by.surface)
            return False
        return mine not in wrong

    @reads
    def is_muted(self, connection: Connection, by: Decider, *, at: float) -> bool:
        """Return whether the sender has sent too many wrong ids in an hour, not counting the one in this message."""
        wrong = _wrong(connection, by.person, at)
        return len(wrong) >= WRONG_IDS_MAX and f"message {by.turn}" not in wrong

    @reads
    def sent(self, connection: Connection, dedupe: str) -> Sequence[str]:
        """Return the platform's ids of the parts that answered an internal message."""
        return list(run(connection, _SENT, dedupe=dedupe).scalars())

    @reads
    def given_up(self, connection: Connection, dedupes: Sequence[str]) -> int:
        """Count the internal messages whose answer could not be sent completely."""
        return int(run(connection, _GIVEN_UP, dedupes=list(dedupes)).scalar() or 0)

    @reads
    def newest_from(self, connection: Connection, sender: str, limit: int) -> Sequence[str]:
        """Return the newest messages of `channel:account:id`."""
        bodies = "SELECT body FROM inbox WHERE sender = :sender AND body <> '' ORDER BY id DESC LIMIT :limit"
        return list(run(connection, bodies, sender=sender, limit=limit).scalars())

    @reads
    def listed(self, connection: Connection, at: float) -> tuple[Sequence[Approval], Sequence[Grant]]:
        """Return pending requests and grants, oldest first."""
        waiting = "SELECT * FROM approval WHERE state = 'pending' AND tool <> 'ask' ORDER BY created"
        return records(connection, Approval, waiting), records(connection, Grant, _GRANTS, at=at)

    @writes
    def revoke(
        self, connection: Connection, id_: str | None, *, by: str, at: float, turn: int | None = None
    ) -> Sequence[str]:
        """Revoke a grant or cancel a pending request; with None all grants. Return the ids that ended. `turn` is the
        message that asks for it."""
        lock(connection, Lock.APPROVALS)
        ended = """
        UPDATE approval_grant SET revoked_at = :at
        WHERE revoked_at IS NULL AND (CAST(:id AS TEXT) IS NULL OR id = :id) RETURNING id
        """
        revoked = list(run(connection, ended, at=at, id=id_).scalars())
        for it in revoked:
            _audit(connection, at, by, "revoked", it, "", "" if turn is None else f"message {turn}")
        if id_ is not None and _move(connection, id_, "pending", "cancelled", by, at, {"decision": "revoked"}):
            revoked.append(id_)
        return revoked

    @reads
    def revoked_by(self, connection: Connection, by: Decider) -> Sequence[str]:
        """Return the grants that the sender's message revoked."""
        revoked = """
        SELECT object FROM approval_audit WHERE actor = :actor AND action = 'revoked' AND after = :message ORDER BY seq
        """
        return list(run(connection, revoked, actor=by.person, message=f"message {by.turn}").scalars())


def _wrong(connection: Connection, person: str, at: float) -> Sequence[str]:
    """Return the messages of the last hour with an id that their sender may not decide."""
    wrong = "SELECT object FROM approval_audit WHERE actor = :actor AND action = 'wrong-id' AND at > :since"
    return run(connection, wrong, actor=person, since=at - WRONG_IDS_SECONDS).scalars().all()


def _asked(surfaces: str) -> set[str]:
    return {it["approver"] or it["context"]["chat"]["id"] for it in json.loads(surfaces)}


def _move(
    connection: Connection,
    id_: str,
    before: State,
    after: State,
    actor: str,
    at: float,
    facts: Mapping[str, object] = MappingProxyType({}),
    surface: str = "",
) -> bool:
    if after not in ARROWS[before]:
        raise ValueError(f"an approval never goes from {before} to {after}")
    names = dict.fromkeys(_FACTS) | dict(facts)
    moved = run(connection, _MOVE, id=id_, before=before, after=after, **names).rowcount == 1
    if moved:
        _audit(connection, at, actor, after, id_, before, after, surface)
    return moved


def _one(connection: Connection, statement: str, **names: object) -> Approval | None:
    return next(iter(records(connection, Approval, statement, **names)), None)


def _audit(
    connection: Connection, at: float, actor: str, action: str, object_: str, before: str, after: str, surface: str = ""
) -> None:
    row = {"at": at, "actor": actor, "action": action, "object": object_, "before": before, "after": after}
    run(connection, _AUDIT, surface=surface, **row)


_WORDLESS: Mapping[str, Any] = {"text": "", "attachments": [], "reply_to": None}


def forget_approvals(connection: Connection, turns: Sequence[int]) -> Mapping[str, int]:
    """Delete the approvals of these turns, and what was sent to the approvers; only the audit remains, which holds
    no text. Return rows by table."""
    _forget_answers(connection, turns)
    found = run(connection, "SELECT id, surfaces FROM approval WHERE turn IN :turns", turns=list(turns)).all()
    for row in found:
        _forget_notices(connection, row)
        run(connection, "DELETE FROM approval_token WHERE approval = :id", id=row.id)
        run(connection, "DELETE FROM approval WHERE id = :id", id=row.id)
    return {"approval": len(found)} if found else {}


def _forget_answers(connection: Connection, turns: Sequence[int]) -> None:
    """Remove the answers that these messages gave to questions, also where they are shown."""
    answered = "SELECT id, surfaces FROM approval WHERE tool = 'ask' AND decided_turn IN :turns"
    for row in run(connection, answered, turns=list(turns)).all():
        _forget_notices(connection, row)
        run(connection, "UPDATE approval SET decision = NULL WHERE id = :id", id=row.id)


def _forget_notices(connection: Connection, row: Any) -> None:
    names = {"notices": _notices(row)}
    run(connection, "DELETE FROM outbox WHERE turn IN (SELECT id FROM inbox WHERE dedupe IN :notices)", **names)
    run(connection, "UPDATE inbox SET body = '' WHERE dedupe IN :notices AND status <> 0", **names)


def forget_words(connection: Connection, turn: int) -> None:
    """Keep what was requested in a turn, without the text of the message that the turn answered."""
    _forget_answers(connection, [turn])
    for row in run(connection, "SELECT id, origin, surfaces FROM approval WHERE turn = :turn", turn=turn).all():
        surfaces = _json([it | {"context": it["context"] | _WORDLESS} for it in orjson.loads(row.surfaces)])
        names = {"origin": _json(orjson.loads(row.origin) | _WORDLESS), "surfaces": surfaces, "id": row.id}
        run(connection, "UPDATE approval SET origin = :origin, surfaces = :surfaces WHERE id = :id", **names)
        notices = "SELECT id, body FROM inbox WHERE dedupe IN :notices AND body <> ''"
        for notice in run(connection, notices, notices=_notices(row)).all():
            inbound = orjson.loads(notice.body)
            body = _json(inbound | {"context": inbound["context"] | _WORDLESS})
            run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=notice.id)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _notices(row: Any) -> list[str]:
    """Return the dedupe keys of the messages that an approval sends."""
    purposes = [f"{it}:{number}" for number in range(len(orjson.loads(row.surfaces))) for it in ("ask", "settled")]
    return [f"gateway:approval:{row.id}:{it}" for it in ("decided", *purposes)]

"""The contacts of pairing: users who wait with a code, approved users, and wrong codes.

A row is one user at one channel account. It has a code's hash while the user waits, and the approver once they may
write. A row with neither (a revocation) blocks a new code until the time of the first has passed. `Store.contact_state`
looks a user up with one indexed read; everything here is rare. A code is `XXXX-XXXX`, which users copy by hand; only
its hash is stored.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from gateway.store.inbound import inbound_json
from gateway.store.operations import Database, Lock, lock, reads, records, run, writes
from gateway.store.records import Delivery
from gateway.store.sends import put
from gateway.store.statements import PAIRING_PENDING_MAX, PAIRING_SECONDS

TRIES_MAX = 10
TRIES_SECONDS = 3600.0
COMMAND_LINE = "command line"
APPROVED = "paired"
"""The command of the message that notifies an approved user."""

_FORGET_OLD = """
DELETE FROM contact WHERE channel = :channel AND account = :account AND approved_by IS NULL
AND (asked IS NULL OR asked <= :since)
"""
_ASK = """
INSERT INTO contact (channel, account, person, turn, code, asked, name)
SELECT :channel, :account, :person, :turn, :code, :at, CAST(:name AS TEXT) WHERE (
    SELECT count(*) FROM contact WHERE channel = :channel AND account = :account AND approved_by IS NULL
    AND code IS NOT NULL AND person <> :person
) < :pending_max
ON CONFLICT (channel, account, person) DO UPDATE SET code = excluded.code, name = COALESCE(excluded.name, contact.name)
WHERE contact.turn = excluded.turn AND contact.code IS NOT NULL RETURNING turn
"""
"""Count once per request; repeating the same request is allowed."""
_REMIND = """
UPDATE contact SET reminded = :turn WHERE channel = :channel AND account = :account AND person = :person
AND approved_by IS NULL AND code IS NOT NULL AND COALESCE(reminded, :turn) = :turn RETURNING COALESCE(told, 0) AS told
"""
_APPROVE_CODE = """
UPDATE contact SET code = NULL, approved_by = :by, approved_at = :at, decided = :turn
WHERE approved_by IS NULL AND code = :code AND asked > :since AND channel || ':' || person <> :by
RETURNING *, name AS called
"""
_APPROVE_WAITING = """
UPDATE contact SET code = NULL, approved_by = :by, approved_at = :at, decided = :turn
WHERE approved_by IS NULL AND code IS NOT NULL AND channel = :channel AND person = :person AND account IN :accounts
RETURNING *, name AS called
"""
_APPROVE_ASKED = """
UPDATE contact SET code = NULL, approved_by = :by, approved_at = :at, decided = :turn
WHERE approved_by IS NULL AND code IS NOT NULL AND turn = :asked RETURNING *, name AS called
"""
_REFUSE = """
UPDATE contact SET code = NULL, decided = :turn WHERE approved_by IS NULL AND code IS NOT NULL AND turn = :asked
RETURNING *, name AS called
"""
_DECIDED_BY = "SELECT *, name AS called FROM contact WHERE decided = :turn AND approved_by = :by"
_DECIDED_ON = "SELECT *, name AS called FROM contact WHERE decided = :turn AND turn = :asked"
_APPROVE_PERSON = """
INSERT INTO contact (channel, account, person, approved_by, approved_at)
VALUES (:channel, :account, :person, :by, :at)
ON CONFLICT (channel, account, person) DO UPDATE SET approved_by = excluded.approved_by, approved_at = excluded.approved_at
WHERE contact.approved_by IS NULL RETURNING *, name AS called
"""
_CALLED = """
SELECT person, name FROM (
    SELECT channel || ':' || person AS person, name, 0 AS turn FROM contact WHERE name <> ''
    UNION ALL SELECT person, name, turn FROM spoken WHERE how = 'said' AND name <> ''
) AS known WHERE person IN :people ORDER BY turn
"""
_REVOKE = """
UPDATE contact SET code = NULL, approved_by = NULL, approved_at = NULL, owner = 0
WHERE channel = :channel AND person = :person AND :account IN ('', account) AND (approved_by IS NOT NULL OR code IS NOT NULL)
RETURNING *, name AS called
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contact:
    """A contact. `turn` is the message that got them a code and `asked` its time; both are None if they were
    approved without one."""

    channel: str
    account: str
    person: str
    turn: int | None
    asked: float | None
    approved_by: str | None
    approved_at: float | None
    called: str | None
    """The user's display name when they asked: shown, never compared."""
    owner: int
    """1 for a user whom a claim code made an owner."""

    @property
    def name(self) -> str:
        """The form that the command line accepts."""
        return contact_name(self.channel, self.account, self.person)


Decision: TypeAlias = Literal["let in", "refuse"]
Redeemed: TypeAlias = tuple[Contact, Delivery | None] | Literal["wrong", "muted"]


def contact_name(channel: str, account: str, person: str) -> str:
    return f"{channel}:{person}" if account == "default" else f"{channel}:{account}:{person}"


class DatabaseContacts(Database):
    @writes
    def ask(
        self,
        connection: Connection,
        channel: str,
        account: str,
        person: str,
        *,
        turn: int,
        code: str,
        at: float,
        name: str | None = None,
    ) -> bool:
        """Create a pending pairing request with a code's hash, unless one exists or too many are pending.
        Idempotent: True again for the same undecided `turn`."""
        names = {"channel": channel, "account": account, "since": at - PAIRING_SECONDS}
        lock(connection, Lock.STRANGERS, f"{channel}:{account}")  # or two could both be the third
        run(connection, _FORGET_OLD, **names)
        row = {"person": person, "turn": turn, "code": code, "at": at, "pending_max": PAIRING_PENDING_MAX, "name": name}
        return run(connection, _ASK, **names, **row).first() is not None

    @writes
    def redeem(self, connection: Connection, code: str, *, by: str, turn: int, at: float) -> Redeemed:
        """Redeem the code that `by` sent in message `turn`. Idempotent per message. After too many wrong codes, no
        code of this user is checked for a while."""
        lock(connection, Lock.CODES, by)
        names = {"by": by, "turn": turn}
        found = records(connection, Contact, _DECIDED_BY, **names)
        if not found:
            if is_muted(connection, by, turn=turn, at=at):
                return "muted"
            names |= {"code": code, "at": at, "since": at - PAIRING_SECONDS}
            found = records(connection, Contact, _APPROVE_CODE, **names)
        if not found:
            count_wrong(connection, by, turn=turn, at=at)
            return "wrong"
        return found[0], _notice(connection, found[0], at)

    @writes
    def decide(
        self, connection: Connection, asked: int, decision: Decision, *, by: str, turn: int | None, at: float
    ) -> tuple[Contact, Delivery | None] | None:
        """Approve or deny the pairing request of message `asked`; None if they are no longer waiting. Idempotent per
        `turn`, which the page does not have."""
        names = {"by": by, "turn": turn, "at": at, "asked": asked}
        statement = _APPROVE_ASKED if decision == "let in" else _REFUSE
        again = records(connection, Contact, _DECIDED_ON, **names)
        if not (found := again or records(connection, Contact, statement, **names)):
            return None
        contact = found[0]
        return contact, _notice(connection, contact, at) if contact.approved_by else None

    @writes
    def told(self, connection: Connection, turn: int, at: float) -> None:
        """Record that the owners were notified of the request in message `turn`."""
        run(connection, "UPDATE contact SET told = :at WHERE turn = :turn AND told IS NULL", turn=turn, at=at)

    @writes
    def remind(self, connection: Connection, channel: str, account: str, person: str, *, turn: int) -> float | None:
        """Return when the owners were notified of a waiting user, 0 if they were not; None if message `turn` gets no
        reminder."""
        names = {"channel": channel, "account": account, "person": person, "turn": turn}
        found: float | None = run(connection, _REMIND, **names).scalar()
        return found

    @reads
    def waiting(self, connection: Connection, since: float) -> Sequence[Contact]:
        return [it for it in contacts(connection, since) if it.approved_by is None]

    @reads
    def called(self, connection: Connection, people: Sequence[str]) -> Mapping[str, str]:
        """Map users (`channel:id`) to the last known names that their platforms reported."""
        return called(connection, people)

    @reads
    def listed(self, connection: Connection, since: float) -> Sequence[Contact]:
        """List waiting and approved users, oldest first."""
        return contacts(connection, since)


def is_muted(connection: Connection, by: str, *, turn: int, at: float) -> bool:
    """Return whether a user has sent too many wrong codes recently, not counting the one in message `turn`."""
    run(connection, "DELETE FROM wrong_code WHERE at <= :since", since=at - TRIES_SECONDS)
    tried = "SELECT count(*) FROM wrong_code WHERE sender = :by AND turn <> :turn"
    return (run(connection, tried, by=by, turn=turn).scalar() or 0) >= TRIES_MAX


def count_wrong(connection: Connection, by: str, *, turn: int, at: float) -> None:
    wrong = "INSERT INTO wrong_code (turn, sender, at) VALUES (:turn, :by, :at) ON CONFLICT DO NOTHING"
    run(connection, wrong, by=by, turn=turn, at=at)


def contacts(connection: Connection, since: float) -> list[Contact]:
    """Return the users who may write, or who wait with a code issued after `since`; oldest first."""
    shown = """
    SELECT *, name AS called FROM contact WHERE approved_by IS NOT NULL OR (code IS NOT NULL AND asked > :since)
    ORDER BY COALESCE(approved_at, asked), person
    """
    return records(connection, Contact, shown, since=since)


def called(connection: Connection, people: Sequence[str]) -> Mapping[str, str]:
    return {it.person: it.name for it in run(connection, _CALLED, people=list(people))} if people else {}


def approve_code(connection: Connection, code: str, *, at: float) -> list[Contact]:
    """Approve the user with this code's hash, on the command line; empty if the code is wrong or expired."""
    names = {"code": code, "by": COMMAND_LINE, "turn": None, "at": at, "since": at - PAIRING_SECONDS}
    return _approved(connection, records(connection, Contact, _APPROVE_CODE, **names), at)


def approve_person(
    connection: Connection, channel: str, person: str, accounts: Sequence[str], *, at: float
) -> list[Contact]:
    """Approve a user at the accounts where they wait, or at the first one; empty if they may write there already."""
    names = {"channel": channel, "person": person, "by": COMMAND_LINE, "at": at}
    found = records(connection, Contact, _APPROVE_WAITING, **names, turn=None, accounts=list(accounts))
    found = found or records(connection, Contact, _APPROVE_PERSON, **names, account=accounts[0])
    return _approved(connection, found, at)


def _approved(connection: Connection, found: list[Contact], at: float) -> list[Contact]:
    """Return the approved users, each with a notice in the inbox, which the next sweep finds."""
    for contact in found:
        if notice := _notice(connection, contact, at):
            put(connection, notice)
    return found


def _notice(connection: Connection, contact: Contact, at: float) -> Delivery | None:
    """Build the internal message that notifies an approved user, deterministic per request. None if their request is
    erased, because their chat is then unknown."""
    request = run(connection, "SELECT sid, body FROM inbox WHERE id = :turn AND body <> ''", turn=contact.turn).first()
    if request is None:
        return None
    inbound = inbound_json.validate_json(request.body)
    inbound = replace(inbound, command=APPROVED, replays=inbound.replays + 1)
    body = inbound_json.dump_json(inbound).decode()
    return Delivery(sid=request.sid, body=body, dedupe=(f"{APPROVED}:{contact.turn}",), at=at)


def revoke(connection: Connection, channel: str, person: str, account: str) -> list[Contact]:
    """Revoke approvals and codes of a user, at every account if `account` is empty. Return the contacts."""
    names = {"channel": channel, "person": person, "account": account}
    return records(connection, Contact, _REVOKE, **names)


def forget(connection: Connection, channel: str, person: str) -> int:
    """Delete every row of a user and return the count."""
    names = {"channel": channel, "person": person, "of": f"{channel}:{person}"}
    run(connection, "UPDATE contact SET approved_by = 'erased' WHERE approved_by = :of", **names)
    run(connection, "DELETE FROM claim WHERE owner = :of", **names)
    forgotten = run(connection, "DELETE FROM contact WHERE channel = :channel AND person = :person", **names).rowcount
    return forgotten + run(connection, "DELETE FROM wrong_code WHERE sender = :of", **names).rowcount


ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ234567"
"""Base32 without I, L, O and U."""
HALF_CHARS = 4


def new_code() -> str:
    """Return a new code of 38 random bits."""
    return written([secrets.choice(ALPHABET) for _ in range(2 * HALF_CHARS)])


def written(letters: list[str]) -> str:
    return f"{''.join(letters[:HALF_CHARS])}-{''.join(letters[HALF_CHARS:])}"


def hashed(code: str) -> str | None:
    """Return the stored hash of a code as typed; None if it cannot be a code."""
    plain = code.strip().upper().replace("-", "", 1)
    if len(plain) != 2 * HALF_CHARS or set(plain) - set(ALPHABET):
        return None
    return hashlib.sha256(f"clawgate pairing {plain}".encode()).hexdigest()

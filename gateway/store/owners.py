"""Claimed owners, unused codes, and when the owners were last notified of a cause.

A startup code makes the first owner. After that, an owner issues codes for their other accounts, and may keep this
machine's page as an owner too; the page alone never keeps the bot from being claimed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from gateway.store.contacts import count_wrong, is_muted, revoke
from gateway.store.later import end_direct
from gateway.store.operations import Database, Lock, lock, reads, run, writes
from gateway.store.sessions import LOCAL_CHANNEL, LOCAL_PERSON

NOTICE_SECONDS = 3600.0
"""Seconds in which the owners are notified of one cause only once."""
CLAIM_SECONDS = 86_400.0
"""Lifetime of a claim code in seconds."""
BY_CLAIM = "claim code"
"""The approver of a user whom a claim code made an owner."""
ADD_SECONDS = 600.0
"""Lifetime in seconds of an owner's code for another of their accounts."""
Claim: TypeAlias = Literal["claimed", "added", "known", "wrong", "muted"]
"""`added`: by an owner's code; `known`: the sender is already an owner, and the code stays valid."""
_PAGE = {"channel": LOCAL_CHANNEL, "account": "default", "person": LOCAL_PERSON.partition(":")[2]}
_OFFER = """
INSERT INTO claim (code, at) SELECT CAST(:code AS TEXT), CAST(:at AS DOUBLE PRECISION)
WHERE NOT EXISTS (SELECT 1 FROM contact WHERE owner = 1 AND channel || ':' || person <> 'web:local')
ON CONFLICT (code) DO NOTHING RETURNING code
"""
_SPEND = """
DELETE FROM claim WHERE code = :code AND at > :since AND owner IS NULL
AND NOT EXISTS (SELECT 1 FROM contact WHERE owner = 1 AND channel || ':' || person <> 'web:local') RETURNING code
"""
_OWN = """
INSERT INTO contact (channel, account, person, approved_by, approved_at, decided, name, owner)
VALUES (:channel, :account, :person, :by, :at, :turn, :name, 1)
ON CONFLICT (channel, account, person) DO UPDATE SET code = NULL, owner = 1, decided = excluded.decided,
    approved_by = excluded.approved_by, approved_at = excluded.approved_at, name = COALESCE(excluded.name, contact.name)
"""
_MINE = """
SELECT approved_by FROM contact WHERE owner = 1 AND decided = :turn AND channel = :channel AND person = :person
"""
_DISOWN = """
UPDATE contact SET code = NULL, owner = 0, approved_by = NULL, approved_at = NULL
WHERE channel = :channel AND person = :person AND owner = 1
"""
_CLAIMED = "SELECT DISTINCT channel || ':' || person FROM contact WHERE owner = 1"
_OCCASION = """
INSERT INTO notice (cause, at) VALUES (:cause, :at)
ON CONFLICT (cause) DO UPDATE SET at = excluded.at WHERE notice.at <= :since RETURNING at
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedOwner:
    """`person` is `channel:id`; `source` is `BY_CLAIM`, or the owner who added them at the time `at`."""

    person: str
    name: str | None
    source: str
    at: float


class DatabaseOwners(Database):
    @reads
    def claimed(self, connection: Connection) -> Sequence[str]:
        return claimed(connection)

    @writes
    def offer(self, connection: Connection, code: str, at: float) -> bool:
        """Store the hash of a new claim code. Return False if the bot is claimed."""
        run(connection, "DELETE FROM claim WHERE at <= :since", since=at - CLAIM_SECONDS)
        return run(connection, _OFFER, code=code, at=at).first() is not None

    @reads
    def is_offered(self, connection: Connection, code: str, at: float) -> bool:
        offered = "SELECT 1 FROM claim WHERE code = :code AND at > :since AND owner IS NULL"
        return run(connection, offered, code=code, since=at - CLAIM_SECONDS).first() is not None

    @writes
    def invite(self, connection: Connection, code: str, owner: str, at: float) -> None:
        """Store the hash of an owner's code for another of their accounts. It replaces their previous code."""
        run(connection, "DELETE FROM claim WHERE owner = :owner", owner=owner)
        run(
            connection, "INSERT INTO claim (code, at, owner) VALUES (:code, :at, :owner)", code=code, at=at, owner=owner
        )

    @reads
    def is_inviting(self, connection: Connection, at: float) -> bool:
        """Return whether any owner has an open code for another account."""
        invited = "SELECT 1 FROM claim WHERE owner IS NOT NULL AND at > :since"
        return run(connection, invited, since=at - ADD_SECONDS).first() is not None

    @writes
    def claim(
        self,
        connection: Connection,
        code: str,
        place: tuple[str, str, str],
        name: str | None,
        *,
        turn: int,
        at: float,
        named: Sequence[str] = (),
    ) -> Claim:
        """Make the user at `place` an owner by the hash of a code, which is then used up. The startup code is valid
        while there is no owner and `named`, the config's list, is empty. Idempotent per message `turn`; wrong codes
        count like those of pairing."""
        channel, account, person = place
        by = f"{channel}:{person}"
        lock(connection, Lock.CLAIM)  # or two codes could make two owners
        if (source := run(connection, _MINE, turn=turn, channel=channel, person=person).scalar()) is not None:
            return "claimed" if source == BY_CLAIM else "added"
        if is_muted(connection, by, turn=turn, at=at):
            return "muted"
        owners = {*named, *claimed(connection)}
        inviter = _inviter(connection, code, owners, at=at)
        if by in owners and inviter:
            return "known"
        is_first = (
            not named and by not in owners and run(connection, _SPEND, code=code, since=at - CLAIM_SECONDS).first()
        )
        if (source := BY_CLAIM if is_first else inviter) is None:
            count_wrong(connection, by, turn=turn, at=at)
            return "wrong"
        if is_first:
            run(connection, "DELETE FROM claim")
            run(connection, _DISOWN, **_PAGE)  # the owner before has kept it, and the new one is asked
        else:
            run(connection, "DELETE FROM claim WHERE code = :code", code=code)
        names = {"channel": channel, "account": account, "person": person, "by": source}
        run(connection, _OWN, **names, at=at, turn=turn, name=name)
        return "claimed" if source == BY_CLAIM else "added"

    @writes
    def adopt(self, connection: Connection, place: tuple[str, str, str], *, by: str, at: float) -> None:
        """Make the user at `place` an owner on behalf of the owner `by`. Idempotent."""
        channel, account, person = place
        lock(connection, Lock.CLAIM)
        if f"{channel}:{person}" in claimed(connection):
            return
        is_first = all(it == LOCAL_PERSON for it in claimed(connection))
        values = {"channel": channel, "account": account, "person": person, "by": BY_CLAIM if is_first else by}
        run(connection, "DELETE FROM claim WHERE owner IS NULL")
        run(connection, _OWN, **values, at=at, turn=None, name=None)

    @writes
    def keep_page(self, connection: Connection, kept: bool, *, by: str, at: float) -> None:
        """Make this machine's page an owner too, or end that. Idempotent."""
        lock(connection, Lock.CLAIM)
        if not kept:
            run(connection, _DISOWN, **_PAGE)
        elif LOCAL_PERSON not in claimed(connection):
            run(connection, _OWN, **_PAGE, by=by, at=at, turn=None, name=None)

    @writes
    def disown(self, connection: Connection, person: str) -> bool:
        """Remove an owner who was added by another owner's code. Return False if there is no such owner."""
        channel, _, id_ = person.partition(":")
        if all(it.person != person or it.source == BY_CLAIM for it in added_by(connection)):
            return False
        for contact in revoke(connection, channel, id_, ""):
            end_direct(connection, f"{contact.channel}:{contact.account}:{contact.person}")
        return True

    @reads
    def listed(self, connection: Connection) -> Sequence[ClaimedOwner]:
        """List the claimed owners, oldest first."""
        return added_by(connection)

    @reads
    def message(self, connection: Connection, turn: int) -> str | None:
        """Return the inbox body of the message that a notice is about, as long as it is stored."""
        body: str | None = run(connection, "SELECT body FROM inbox WHERE id = :turn", turn=turn).scalar()
        return body or None

    @writes
    def occasion(self, connection: Connection, cause: str, at: float) -> float:
        """Return the time of the notice about this cause: the same for every call within an hour."""
        since = at - NOTICE_SECONDS
        run(connection, "DELETE FROM notice WHERE at <= :since AND cause <> :cause", since=since, cause=cause)
        if (begun := run(connection, _OCCASION, cause=cause, at=at, since=since).scalar()) is None:
            begun = run(connection, "SELECT at FROM notice WHERE cause = :cause", cause=cause).scalar_one()
        return float(begun)


def claimed(connection: Connection) -> Sequence[str]:
    """Return the claimed owners in the form of `owners` in the config."""
    return list(run(connection, _CLAIMED).scalars())


def added_by(connection: Connection, owner: str | None = None) -> Sequence[ClaimedOwner]:
    """Return the claimed owners, oldest first; with `owner`, only those added by that one."""
    shown = """
    SELECT channel || ':' || person AS person, max(name) AS name, min(approved_by) AS source, min(approved_at) AS at
    FROM contact WHERE owner = 1 GROUP BY channel, person ORDER BY 4, 1
    """
    found = [ClaimedOwner(**row) for row in run(connection, shown).mappings()]
    return [it for it in found if owner in (None, it.source)]


def _inviter(connection: Connection, code: str, owners: Collection[str], *, at: float) -> str | None:
    """Return the owner who issued this unused code, if they are still an owner."""
    asked = "SELECT owner FROM claim WHERE code = :code AND at > :since AND owner IS NOT NULL"
    inviter: str | None = run(connection, asked, code=code, since=at - ADD_SECONDS).scalar()
    return inviter if inviter in owners else None

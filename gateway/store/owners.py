"""The owners that a claim code made, the unused codes, and when the owners last heard of something."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from gateway.store.contacts import count_wrong, is_muted
from gateway.store.locks import Lock, lock
from gateway.store.writer import Database, reads, run, writes

NOTICE_SECONDS = 3600.0
"""Seconds in which the owners hear of one cause once."""
CLAIM_SECONDS = 86_400.0
"""Seconds that a claim code is good for."""
BY_CLAIM = "claim code"
"""The approver of a person whom a claim code made an owner."""
Claim: TypeAlias = Literal["claimed", "wrong", "muted"]
_OFFER = """
INSERT INTO claim (code, at) SELECT CAST(:code AS TEXT), CAST(:at AS DOUBLE PRECISION)
WHERE NOT EXISTS (SELECT 1 FROM contact WHERE owner = 1) ON CONFLICT (code) DO NOTHING RETURNING code
"""
_SPEND = """
DELETE FROM claim WHERE code = :code AND at > :since AND NOT EXISTS (SELECT 1 FROM contact WHERE owner = 1) RETURNING code
"""
_OWN = """
INSERT INTO contact (channel, account, person, approved_by, approved_at, decided, name, owner)
VALUES (:channel, :account, :person, :claim, :at, :turn, :name, 1)
ON CONFLICT (channel, account, person) DO UPDATE SET code = NULL, owner = 1, decided = excluded.decided,
    approved_by = excluded.approved_by, approved_at = excluded.approved_at, name = COALESCE(excluded.name, contact.name)
"""
_CLAIMED = "SELECT DISTINCT channel || ':' || person FROM contact WHERE owner = 1"
_OCCASION = """
INSERT INTO notice (cause, at) VALUES (:cause, :at)
ON CONFLICT (cause) DO UPDATE SET at = excluded.at WHERE notice.at <= :since RETURNING at
"""


class DatabaseOwners(Database):
    @reads
    def claimed(self, connection: Connection) -> Sequence[str]:
        return claimed(connection)

    @writes
    def offer(self, connection: Connection, code: str, at: float) -> bool:
        """Keeps the hash of a new claim code; False if the bot is claimed."""
        run(connection, "DELETE FROM claim WHERE at <= :since", since=at - CLAIM_SECONDS)
        return run(connection, _OFFER, code=code, at=at).first() is not None

    @reads
    def is_offered(self, connection: Connection, code: str, at: float) -> bool:
        offered = "SELECT 1 FROM claim WHERE code = :code AND at > :since"
        return run(connection, offered, code=code, since=at - CLAIM_SECONDS).first() is not None

    @writes
    def claim(
        self, connection: Connection, code: str, place: tuple[str, str, str], name: str | None, *, turn: int, at: float
    ) -> Claim:
        """Makes the person at `place`, a channel's account, an owner by the hash of a code, which is spent with all others.
        The same message `turn` has the same result again; wrong codes count as those of pairing do."""
        channel, account, person = place
        by = f"{channel}:{person}"
        lock(connection, Lock.CLAIM)  # or two codes could make two owners
        mine = "SELECT 1 FROM contact WHERE owner = 1 AND decided = :turn AND channel = :channel AND person = :person"
        if run(connection, mine, turn=turn, channel=channel, person=person).first():
            return "claimed"
        if is_muted(connection, by, turn=turn, at=at):
            return "muted"
        if run(connection, _SPEND, code=code, since=at - CLAIM_SECONDS).first() is None:
            count_wrong(connection, by, turn=turn, at=at)
            return "wrong"
        run(connection, "DELETE FROM claim")
        names = {"channel": channel, "account": account, "person": person, "claim": BY_CLAIM}
        run(connection, _OWN, **names, at=at, turn=turn, name=name)
        return "claimed"

    @reads
    def message(self, connection: Connection, turn: int) -> str | None:
        """The inbox's body of the message that a notice is about, as long as it is kept."""
        body: str | None = run(connection, "SELECT body FROM inbox WHERE id = :turn", turn=turn).scalar()
        return body or None

    @writes
    def occasion(self, connection: Connection, cause: str, at: float) -> float:
        """The time at which the owners hear of the cause: the same for all who ask within the hour."""
        since = at - NOTICE_SECONDS
        run(connection, "DELETE FROM notice WHERE at <= :since AND cause <> :cause", since=since, cause=cause)
        if (begun := run(connection, _OCCASION, cause=cause, at=at, since=since).scalar()) is None:
            begun = run(connection, "SELECT at FROM notice WHERE cause = :cause", cause=cause).scalar_one()
        return float(begun)


def claimed(connection: Connection) -> Sequence[str]:
    """The people whom a claim code made owners, as `owners` in the config names people."""
    return list(run(connection, _CLAIMED).scalars())

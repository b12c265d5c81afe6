"""The owners that a claim code made, the codes that nobody has used yet, and when the owners last heard of something."""

from collections.abc import Sequence

from sqlalchemy import Connection

from gateway.store.writer import Database, reads, run, writes

NOTICE_SECONDS = 3600.0
"""Seconds in which the owners hear of one cause once."""
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
    def occasion(self, connection: Connection, cause: str, at: float) -> float:
        """The time at which the cause is one that the owners hear of: the same for all who ask within the hour."""
        since = at - NOTICE_SECONDS
        run(connection, "DELETE FROM notice WHERE at <= :since AND cause <> :cause", since=since, cause=cause)
        if (begun := run(connection, _OCCASION, cause=cause, at=at, since=since).scalar()) is None:
            begun = run(connection, "SELECT at FROM notice WHERE cause = :cause", cause=cause).scalar_one()
        return float(begun)


def claimed(connection: Connection) -> Sequence[str]:
    """The people whom a claim code made owners, as `owners` in the config names people."""
    return list(run(connection, _CLAIMED).scalars())

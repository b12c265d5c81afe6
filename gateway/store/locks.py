"""The locks that let one transaction in at a time, whichever replica has it. SQLite has one writer anyway.

A number never changes: during an update, replicas of two versions keep each other out by it. A worker's own lock has a
random number of 62 bits (`presence`).
"""

from enum import IntEnum, unique

from sqlalchemy import Connection

from gateway.store.writer import is_shared, run


@unique
class Lock(IntEnum):
    """The numbers below 100 are classes: a name in one keeps out that name alone."""

    SENDER_RATE = 1
    CHAT_RATE = 2
    STRANGERS = 3
    CODES = 4
    CLAIM = 5
    SCHEDULES = 6
    REVIEWS = 7
    MIGRATION = 7_305_843_001_216
    ARCHIVE = 7_305_843_001_217
    """Held while a conversation of the web chat is added to or erased."""
    UPLOADS = 7_305_843_001_218
    NOTES = 7_305_843_001_219
    APPROVALS = 7_305_843_001_231


def lock(connection: Connection, kind: Lock, name: str | None = None) -> None:
    """Waits for its turn, which lasts until the commit."""
    if is_shared(connection):
        key = ":kind, COALESCE(hashtext(CAST(:name AS TEXT)), 0)" if kind < 100 else ":kind"
        run(connection, f"SELECT pg_advisory_xact_lock({key})", kind=int(kind), name=name)

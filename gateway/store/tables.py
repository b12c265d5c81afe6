"""What the `status` columns of the queues hold.

The database is the queue, the journal and the store. `migrations/versions/` make its tables and say what a column is for.
A session row is the lease of one chat: one owner at a time, with an epoch that every write names. The transcript is the
write-ahead log of a turn. Times are seconds since the epoch.
"""

from enum import IntEnum


class InboxStatus(IntEnum):
    WAITING = 0
    """Accepted; its turn has not finished."""
    JOINED = 1
    """Answered together with the message `turn`."""
    DONE = 2
    """Its turn finished: replied, silent by choice, or failed with a note. The transcript's final row says which."""
    OVERFLOW = 3
    """Accepted beyond the limit of a chat or a sender, after the "too many" note of its burst: only its keys are kept."""
    DEAD = 4
    """Its turn brought the process down too often: closed with an apology, kept for the operator to replay."""


class OutboxStatus(IntEnum):
    QUEUED = 0
    """To be sent, now or at `next_at`."""
    SENT = 2
    """The platform took it; `ext_id` is its message id."""
    FAILED = 3
    """The platform will not take it, or did not for too long: a dead letter, kept for the operator to replay."""

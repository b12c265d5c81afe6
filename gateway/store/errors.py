"""A store's refusals, and the channel by which workers of a shared database wake each other."""

NOTIFY_CHANNEL = "clawgate"
"""The channel on which the workers of a shared database wake each other."""


class StoreUnavailable(Exception):
    """The database did not take the write: it is busy, full, read-only or gone. Nothing was stored."""


class Fenced(Exception):
    """This worker no longer owns the chat; its owner continues the work."""


class Revised(Fenced):
    """The conversation was changed since it was read, or the turn was stopped: it continues from the database."""

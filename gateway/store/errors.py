"""A store's refusals, and the channel by which workers of a shared database wake each other."""

NOTIFY_CHANNEL = "clawgate"
"""The channel on which the workers of a shared database wake each other."""


class StoreUnavailable(Exception):
    """The database did not take the write: it is busy, full, read-only or gone. Nothing was stored."""


class Fenced(Exception):
    """This worker no longer owns the chat; whoever does goes on with it."""


class Revised(Fenced):
    """Something was taken out of the conversation since it was read, or the turn was stopped: it goes on from what the
    database has."""

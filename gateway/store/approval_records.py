"""The records of approvals: the request and the states it goes through, the grant, the decider, the button's token.

The rows are written and read in `gateway.store.approvals`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal[
    "pending", "approved", "spawned", "finished", "interrupted", "denied", "expired", "cancelled", "undeliverable"
]
Admitted: TypeAlias = Literal["pending", "denied", "granted", "backlog", "unreachable"]
"""Outcomes of a request: it waits, now or from before; it was denied in this turn; a grant covers it; too many wait; no
approver can be reached."""
ARROWS: Mapping[State, Collection[State]] = {
    "pending": ("approved", "denied", "expired", "cancelled", "undeliverable"),
    "approved": ("spawned", "cancelled"),
    "spawned": ("finished", "interrupted"),
}
"""The states that each state can become; the others are final."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """One row; `migrations/versions/0015_schema.py` says what a column is for."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A request that was approved for good. `uses` counts the runs that it allowed."""

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
    """The person who decides, in which chat, with which message."""

    person: str
    surface: str = ""
    turn: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """The approval and the decision behind a button, by the hash of the button's token."""

    hash: str
    approval: str
    decision: str
    approver: str
    surface: int

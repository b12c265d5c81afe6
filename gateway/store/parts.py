"""Parts of replies, as the outbox has them: new, waiting or being sent, and sent; and what they answered."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPart:
    """A reply part to queue. `key` is its idempotency key, the same in every database."""

    key: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPart:
    """One row of the outbox. `ambiguous` counts the attempts that may have arrived. `attempt_started_at` is set from
    `begin` until the outcome is recorded. `begun`: this process recorded the start and has not sent yet."""

    id: int
    turn: int
    part: int
    key: str
    payload: str
    created: float
    attempts: int = 0
    ambiguous: int = 0
    next_at: float = 0.0
    attempt_started_at: float | None = None
    begun: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPart:
    """A part that was sent, its session, and the inbox body that it answers, empty if erased. `ext_id` is None while the
    `message` tool is sending it."""

    payload: str
    body: str
    sid: str
    ext_id: str | None
    turn: int
    part: int
    """Below zero for one of the `message` tool's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """The outcome of a message that is done with: the content of its `final` row, and the payloads of its reply."""

    final: str
    payloads: Sequence[str]

"""The port of the durable store: what the door, the lanes and the outbox ask of the database.

Every method is one round trip and one commit. A write under an old epoch raises `Fenced`: somebody else owns the chat
now. SQLite stands behind it today (`sqlite.py`); nothing above may know that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Kind: TypeAlias = Literal["user", "assistant", "toolResult", "drained", "final"]


class StoreUnavailable(Exception):
    """The database did not take the write: it is busy, full, read-only or gone. Nothing was stored."""


class Fenced(Exception):
    """This worker no longer owns the chat; whoever does goes on with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPart:
    """A reply part to queue. `key` is its idempotency key, the same whatever database it stands in."""

    key: str
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A message to accept. `dedupe` is one or two keys, scoped to channel and account."""

    sid: str
    dedupe: tuple[str, ...]
    body: str
    at: float
    overflow: NewPart
    """The note that answers a message beyond `pending_max`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """One chat, owned."""

    sid: str
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """`turn` is None for a redelivery. `lease` is the chat's where this worker owns it, now or since before: a lane is
    to be started for an epoch that has none yet."""

    turn: int | None
    lease: Lease | None = None
    overflow: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One row of a transcript."""

    turn: int
    kind: Kind
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The next message of a chat, with what is journaled of its turn so far and the finished turns before it."""

    turn: int
    body: str
    at: float
    attempts: int
    history: Sequence[Entry]
    so_far: Sequence[Entry]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One row of the outbox."""

    id: int
    turn: int
    part: int
    key: str
    payload: str
    attempts: int
    next_at: float
    created: float


class Store(Protocol):
    async def accept(self, delivery: Delivery, *, pending_max: int) -> Acceptance:
        """Write the message and its dedupe keys, and claim its chat where that is idle. Raises StoreUnavailable."""

    async def claim(self) -> Sequence[Lease]:
        """Take every chat that has work and no living owner, counting the turns that were cut off by a crash."""

    async def next(self, lease: Lease, *, history_turns: int) -> Work | None:
        """The oldest waiting message of the chat, with at most `history_turns` (at least 1) turns before it."""

    async def append(self, lease: Lease, entry: Entry) -> None:
        """Journal one step. Raises Fenced."""

    async def finish(self, lease: Lease, entries: Sequence[Entry], parts: Sequence[NewPart], *, at: float) -> None:
        """End the turn of `entries` (the last is its `final` row) and queue its reply, in one commit. Raises Fenced."""

    async def queued(self, lease: Lease) -> Sequence[Part]:
        """The parts still to be sent to the chat, in order."""

    async def sent(self, lease: Lease, part: Part, ext_id: str) -> bool:
        """Mark a part as sent; True where that was the last work of the chat and it has been released."""

    async def failed(self, lease: Lease, part: Part) -> bool:
        """Give a part up; True as for `sent`."""

    async def postpone(self, lease: Lease, part: Part, next_at: float) -> None:
        """Count an attempt and say when the next one is due."""

    async def release(self, lease: Lease) -> bool:
        """Give the chat back unless more work has come in; True where it is released."""

    async def prune(self, before: float) -> int:
        """Delete finished inbox and outbox rows older than `before` (the dedupe horizon)."""

    async def probe(self) -> None:
        """Prove that a write would be taken. Raises StoreUnavailable."""

    async def close(self) -> None: ...

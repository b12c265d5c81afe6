"""The catalogue of moments at which a process is killed, and how often each is sure to be reached in one batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests.chaos.ledger import Wish

How: TypeAlias = Literal["inside", "outside", "command", "stop", "start", "random", "freeze", "roll"]
"""Who kills, and when: `inside` is the victim itself, `outside` an emulator that sees a request, `command` the harness
while a command runs, `stop` during a graceful stop, `start` during a start. `random` is any moment under load,
`freeze` a SIGSTOP for a while, `roll` a SIGTERM under load."""

BATCH: tuple[Wish, ...] = ("plain", "exec", "write", "ls", "long", "exec", "write", "long", "plain")
"""What one batch asks for, in any order, over all chats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """`most` is how often the moment is sure to come in one batch: the kill comes at a random one of them."""

    name: str
    about: str
    how: How
    most: int = 1


POINTS: Sequence[Point] = (
    Point(name="K1", about="before the message is stored", how="inside", most=9),
    Point(name="K2", about="stored, nobody told yet", how="inside", most=9),
    Point(name="K3", about="the platform has its 200", how="inside", most=9),
    Point(name="K4", about="turn claimed, model not asked yet", how="inside", most=18),
    Point(name="K5", about="the model has the request", how="outside", most=14),
    Point(name="K6", about="in the middle of the model's stream", how="outside", most=30),
    Point(name="K7", about="answer complete, not journaled", how="inside", most=14),
    Point(name="K8", about="tool calls journaled, not begun", how="inside", most=5),
    Point(name="K9", about="a command is running", how="command"),
    Point(name="K9w", about="just before and just after a file is replaced", how="inside", most=4),
    Point(name="K10", about="tool done, its result not journaled", how="inside", most=5),
    Point(name="K11", about="tool result journaled", how="inside", most=5),
    Point(name="K12", about="reply in the outbox", how="inside", most=9),
    Point(name="K13", about="the platform has the send, not done yet", how="outside", most=13),
    Point(name="K14", about="the platform has shown it, not answered yet", how="outside", most=13),
    Point(name="K15", about="part 2 of 3 marked as sent", how="inside", most=2),
    Point(name="K16", about="the last part marked as sent", how="inside", most=9),
    Point(name="SQL", about="before any statement that the store sends", how="inside", most=90),
    Point(name="K21", about="while the tables are made", how="start", most=8),
    Point(name="K22", about="SIGTERM, and SIGKILL before it is done", how="stop"),
    Point(name="RANDOM", about="any moment, under load", how="random"),
    Point(name="FREEZE", about="stopped for a while, then let go, under load", how="freeze"),
    Point(name="ROLL", about="stopped gracefully and started again, under load", how="roll"),
)

POLLED = {"K3": Point(name="K3", about="a poll has confirmed it", how="outside", most=9)}
"""Points that are reached in another way where the gateway fetches its messages."""

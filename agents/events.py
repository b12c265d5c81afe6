"""What happens in a turn, as facts: the loop emits them for whoever watches (the demo, a console, a preview).

An event is never needed for the turn to go on; what must survive a crash goes through the journal instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from agents.messages import AssistantMessage, ModelError, ToolCall, ToolResultMessage
from agents.providers.provider import ModelEvent, ModelRequest, System
from agents.turn import Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStarted:
    """The prompt and the user's message are ready; no model has been called yet."""

    agent: str
    turn: Turn
    system: System


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCalled:
    round: int
    provider: str
    request: ModelRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelStreamed:
    """A piece of the answer, as it comes. After a failed attempt the next `attempt` starts from nothing."""

    round: int
    event: ModelEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRetried:
    """The attempt failed with `error`; another one follows after a pause."""

    round: int
    error: ModelError


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAnswered:
    round: int
    message: AssistantMessage


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    result: ToolResultMessage


TurnEvent: TypeAlias = (
    TurnStarted | ModelCalled | ModelStreamed | ModelRetried | ModelAnswered | ToolStarted | ToolFinished
)
Emit: TypeAlias = Callable[[TurnEvent], None]


def silent(event: TurnEvent) -> None:
    """Nobody is watching."""

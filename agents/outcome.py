"""How a turn ends: replied, silent by choice, refused by the model, or failed with a sentence. Never with nothing."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from agents.messages import AssistantMessage, ModelError

Limit: TypeAlias = Literal["rounds", "turn-time", "repeating", "pauses", "empty", "cut"]
"""Which limit of ours ended the turn. `empty`: the model had nothing to say, twice. `cut`: its output limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The model's last message, still to be journaled. `cut` where it ran into its output limit."""

    message: AssistantMessage
    cut: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Declined:
    """The model's safety system refused. The turn stays out of later requests, or they would be refused too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFailed:
    error: ModelError


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitReached:
    limit: Limit


Outcome: TypeAlias = Answered | Declined | ModelFailed | LimitReached

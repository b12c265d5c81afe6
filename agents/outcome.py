"""How a turn ends: replied, silent by choice, refused by the model, or failed with a sentence. Never with nothing."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from agents.messages import AssistantMessage, ModelError

Limit: TypeAlias = Literal["rounds", "turn-time", "repeating", "pauses", "empty", "cut"]
"""Which limit of ours ended the turn. `empty`: the model had nothing to say, twice. `cut`: its output limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The model's last message, still to be journaled; None where what it said before is all there is. `before` is what
    it had said when its output limit cut it and it was asked to go on; `cut`: and even so it is not all."""

    message: AssistantMessage | None
    before: str = ""
    cut: bool = False

    @property
    def text(self) -> str:
        return self.before + (self.message.text if self.message else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declined:
    """The model's safety system refused. The turn stays out of later requests, or they would be refused too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFailed:
    """`model` is `provider/model`, where one was asked."""

    error: ModelError
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitReached:
    limit: Limit


Outcome: TypeAlias = Answered | Declined | ModelFailed | LimitReached

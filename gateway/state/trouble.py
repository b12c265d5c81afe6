"""Models that refuse: since when, and in which words. Owners hear of one that has been refusing for a minute."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agents.messages import ErrorKind
from agents.turn import ModelFailed, Outcome

LASTING_SECONDS = 60.0
REFUSALS: frozenset[ErrorKind] = frozenset(("auth", "billing", "not_found", "unconfigured"))
"""The failures that only a person can end."""


@dataclass(eq=False, slots=True)
class ModelTrouble:
    """Refusals of models, in memory only: a new process learns of one by the next turn that it ends."""

    _since: dict[str, tuple[float, str]] = field(default_factory=dict)

    def failed(self, outcome: Outcome, fault: str, at: float) -> None:
        """A turn has ended, with `fault` in the vendor's words; its person is no owner, who would have read them."""
        if isinstance(outcome, ModelFailed) and outcome.error.kind in REFUSALS:
            self._since.setdefault(outcome.model, (at, fault))

    def answered(self, model: str) -> None:
        self._since.pop(model, None)

    def lasting(self, at: float) -> Iterator[tuple[str, str]]:
        """Each model that has refused for a minute, with its words, once until it is refused again."""
        for model, (since, fault) in [*self._since.items()]:
            if at - since >= LASTING_SECONDS:
                del self._since[model]
                yield model, fault

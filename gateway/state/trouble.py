"""Models that refuse, for the owners to hear of: with the reason and the next step in both languages."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from agents.messages import ErrorKind
from channels.bilingual import Finding

REFUSALS: frozenset[ErrorKind] = frozenset(("auth", "billing", "not_found", "unconfigured"))
"""The failures that only a person can end."""


@dataclass(eq=False, slots=True)
class ModelTrouble:
    """Refusals of models, in memory only: a new process learns of one by the next turn that it ends."""

    _untold: dict[str, Finding] = field(default_factory=dict)
    _readers: dict[str, set[str]] = field(default_factory=dict)
    """The owners who have read a model's refusal in an answer of their own."""

    def failed(self, model: str, fault: Finding) -> None:
        """Note the refusal that a turn has ended with whose person is no owner, and did not read it."""
        self._untold.setdefault(model, fault)

    def read(self, model: str, owner: str) -> None:
        self._readers.setdefault(model, set()).add(owner)

    def answered(self, model: str) -> None:
        self._untold.pop(model, None)
        self._readers.pop(model, None)

    def untold(self) -> Iterator[tuple[str, Finding, Collection[str]]]:
        """Yield each model with its refusal and the owners who know of it, once until it refuses again."""
        while self._untold:
            model, fault = self._untold.popitem()
            yield model, fault, self._readers.get(model, ())

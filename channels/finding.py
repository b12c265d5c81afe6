"""One fact, warning or error about a config or what it depends on: `check`, `doctor` and start-up print nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is the next step, empty if there is none to take. No text holds a secret."""

    check: str
    status: Status
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.message} — {self.fix}" if self.fix else self.message

    def cleaned(self, clean: Callable[[str], str]) -> "Finding":
        """The same with each of its texts passed through `clean`."""
        return Finding(clean(self.check), self.status, clean(self.message), clean(self.fix))

"""The result that `doctor` finds for one thing that the gateway stands on; each probe lives beside what it probes."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is the next step, empty where there is none to take. Neither text holds a secret."""

    check: str
    status: Status
    message: str
    fix: str = ""

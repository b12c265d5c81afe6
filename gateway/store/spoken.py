"""The speakers in a row of a transcript: a fact beside it, by which a recall and an erasure find their words."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoken:
    """A message whose words stand in a row of a transcript: in so many `parts` of its content or, if quoted or heard,
    in its metadata. `person` is `channel:id`, empty if nobody is named; `direct`: nobody else reads that chat."""

    message: str
    person: str
    name: str = ""
    direct: bool = False
    how: Literal["said", "quoted", "heard"] = "said"
    parts: int = 0

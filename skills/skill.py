"""What a skill is to the layers above: a name, a description, and where to read the rest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Source: TypeAlias = Literal["shared", "workspace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirements:
    """What a skill needs to work: programs on the PATH, names in the environment, one of these systems."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    os: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One skill. `location` is what the prompt prints and `read` accepts; `directory` is where it really lies."""

    name: str
    description: str
    directory: Path
    version: str
    """12 hex digits of the document's hash."""
    source: Source
    """`workspace`: it lies at its location already. `shared`: it has to be mounted there."""
    requires: Requirements = Requirements()
    missing: tuple[str, ...] = ()
    """Which requirements are not met, in words: "the program git". Empty for a skill that can be used."""

    @property
    def location(self) -> str:
        return f"./skills/{self.name}/SKILL.md"

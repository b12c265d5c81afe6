"""The base of every config section and block: strict, frozen, without unknown keys, in camelCase."""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel
from pydantic.alias_generators import to_camel


class Section(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Its fields are the keys of the file, each with its docstring."""

    def but(self, **values: Any) -> Self:
        """A copy with other values, which are not checked."""
        return self.model_copy(update=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPath:
    """Mark a field that names files or folders of this machine: relative ones count from the config file's folder, and
    `clawgate backup` includes them, and the files called `beside` next to them. `left_out` is the reason why it does not."""

    beside: tuple[str, ...] = ()
    left_out: str = ""

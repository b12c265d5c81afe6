"""The base of every config section and block: strict, frozen, without unknown keys, in camelCase."""

from typing import Any, Self

from pydantic import BaseModel
from pydantic.alias_generators import to_camel


class Section(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Its fields are the keys of the file, each with its docstring."""

    def but(self, **values: Any) -> Self:
        """A copy with other values, which are not checked."""
        return self.model_copy(update=values)

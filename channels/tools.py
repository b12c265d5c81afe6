"""The settings that say which tools there are: the same lists in five places, each of which only takes away.

The meaning of a name, a group or a profile is in `tools/policy.py`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator
from pydantic_core import PydanticKnownError

from channels.section import Section

Profile: TypeAlias = Literal["minimal", "messaging", "coding", "full"]
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
ToolNames = Annotated[tuple[str, ...], Listed]


def _given(value: object) -> object:
    """A list that is begun and left empty is a slip, and not everything."""
    if value is None:
        raise PydanticKnownError("tuple_type")
    return value


class ToolLists(Section):
    """The tools, of those that are there otherwise, that are left here (docs/tool-policy.md). Nothing here adds one."""

    profile: Profile | None = None
    """`minimal`, `messaging`, `coding` or `full`: a ready-made list, beside which `allow` and `deny` take away more."""
    allow: Annotated[ToolNames | None, BeforeValidator(_given)] = None
    """Names of tools or groups, such as `group:web`; `*` means every one there is. If unset, nothing is taken away."""
    deny: ToolNames = ()
    """Names of tools or groups to leave out; wins over `allow` and `profile`."""

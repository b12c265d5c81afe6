"""What a person writes about skills: where they come from, and which an agent sees."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator
from pydantic.alias_generators import to_camel

Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class SkillsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The top-level `skills:` section."""

    directories: Names = ()
    """Folders with more skills, one folder each, for every agent; a later one wins over an earlier and over what ships."""


class AgentSkillsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Inside an agent: which skills it sees."""

    allow: Names = ("*",)
    """Names of skills; `*` means every one there is."""
    deny: Names = ()
    """Names to leave out; wins over `allow`."""

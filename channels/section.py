"""Base class of the config sections, and the shared sections: `queue` and the tool lists."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError


class Section(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Fields are the keys of the file, each with its docstring."""

    def but(self, **values: Any) -> Self:
        """Return a copy with other values, without validation."""
        return self.model_copy(update=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPath:
    """Mark a field as a path on this machine.

    Relative paths are resolved against the config file's folder. `clawgate backup` includes the path and its siblings named
    `beside`; `left_out` says why it does not."""

    beside: tuple[str, ...] = ()
    left_out: str = ""


QueueMode: TypeAlias = Literal["collect", "followup", "steer", "interrupt"]
StalePolicy: TypeAlias = Literal["answer", "label", "drop"]


class QueueConfig(Section):
    """The fate of messages that arrive while an earlier one is being answered, and of late ones."""

    mode: QueueMode | None = None
    """`collect` (the default): those of one person become one next turn. `followup`: one turn each. `steer`: the
    running turn gets them after its tool results. `interrupt`: the running turn is stopped, the newest message starts
    again. In a group, `steer` and `interrupt` change only an answer to the same person; other people's messages get
    separate turns, in order."""
    debounce_seconds: Annotated[float, Field(ge=0, le=60)] | None = None
    """`collect`: how long the chat must be quiet before what came during a turn is answered; 0.5 if nothing is said.
    The first message of an idle chat is never held back."""
    stale_after_seconds: Annotated[float, Field(gt=0)] | None = None
    """A message older than this when its turn starts, after an outage, is late; 900 by default."""
    stale: StalePolicy | None = None
    """Late messages: `answer` as usual, `label` the answer with their age (if nothing is said), or `drop` them with a
    record in the log."""


Profile: TypeAlias = Literal["minimal", "messaging", "coding", "full"]
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
ToolNames = Annotated[tuple[str, ...], Listed]


def _given(value: object) -> object:
    if value is None:
        raise PydanticKnownError("tuple_type")
    return value


class ToolLists(Section):
    """The tools, of those that are there otherwise, that are left here (docs/tool-policy.md). Nothing here adds one."""

    profile: Profile | None = None
    """`minimal`, `messaging`, `coding` or `full`: a predefined list, which `allow` and `deny` restrict further."""
    allow: Annotated[ToolNames | None, BeforeValidator(_given)] = None
    """Names of tools or groups, such as `group:web`; `*` means every one there is. If unset, nothing is taken away."""
    deny: ToolNames = ()
    """Names of tools or groups to leave out; wins over `allow` and `profile`."""

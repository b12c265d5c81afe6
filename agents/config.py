"""What a person writes to make an agent: one block under `agents.list`, over `agents.defaults`."""

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, field_validator
from pydantic.alias_generators import to_camel

from agents.compaction import CompactionConfig
from agents.providers.models import Level
from channels.queue import QueueConfig
from skills.catalog import AgentSkillsConfig
from tools.config import AgentToolsConfig

AgentId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^(?:auto|[^/\s]+/\S+)$")]
AUTO = "auto"
"""In the file only: a config that is loaded has the model that was chosen."""


class AgentDefaults(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """What every agent starts from; `agents.list` entries override it key by key."""

    model: Annotated[tuple[ModelName, ...], Field(min_length=1)] = (AUTO,)
    """`provider/model`, or a list of them: the first is used, the others are fallbacks in order. Or `auto`: the default
    model of the first provider that has a key, else `demo/guide` (docs/providers.md)."""
    system_prompt: str = ""
    """Your own instructions, word for word, in the section "Agent Instructions"."""
    workspace_dir: str = "./data/workspaces/{agent}"
    """The folder the file tools work in; `{agent}` is the agent's id. A folder `{chat}` or `{sender}` in the path gives each
    chat or each person a workspace of its own, made at its first message. Relative to the config file's folder."""
    thinking: Level | None = None
    """How hard the model thinks: `off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; what a model does not take
    becomes the nearest that it does. Where unset, the model's own way."""
    max_tokens: Annotated[int, Field(ge=16)] | None = None
    """The longest single answer of the model, in tokens; the model's own limit, at most 16,384, where unset."""
    context_window: Annotated[int, Field(ge=1024)] | None = None
    """The model's window in tokens, where Clawgate's own table does not know it or is wrong."""
    greeting: str = ""
    """What a person who writes `/start` reads; the gateway's own sentence where it is empty."""
    history_turns: Annotated[int, Field(ge=0)] | None = None
    """How many earlier turns of a chat the model is shown, at most; as many as fit where unset."""
    compaction: CompactionConfig = CompactionConfig()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool that must be called first."""
    queue: QueueConfig = QueueConfig()
    tools: AgentToolsConfig = AgentToolsConfig()
    skills: AgentSkillsConfig = AgentSkillsConfig()

    @property
    def named_models(self) -> dict[tuple[str | int, ...], str]:
        """Every `provider/model`, by the key that names it."""
        named: dict[tuple[str | int, ...], str] = {("model", index): name for index, name in enumerate(self.model)}
        return named | ({("compaction", "model"): self.compaction.model} if self.compaction.model else {})

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        return tuple(value) if isinstance(value, list) else value


class AgentConfig(AgentDefaults):
    """One agent."""

    id: AgentId
    """Lower case; part of every session's key, so renaming an agent starts its chats anew."""
    name: str = ""
    """What the assistant calls itself; the id where it is empty."""

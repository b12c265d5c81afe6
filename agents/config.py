"""The config of an agent, as a person writes it: one block under `agents.list`, over `agents.defaults`."""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, field_validator

from agents.compaction import CompactionConfig
from agents.providers.models import Level
from channels.section import LocalPath, QueueConfig, Section
from skills.catalog import AgentSkillsConfig
from tools.config import AgentToolsConfig, PersonId

AgentId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^(?:auto|[^/\s]+/\S+)$")]
AUTO = "auto"
"""A value of the file only: a config that is loaded has the model that was chosen."""
SessionScope: TypeAlias = Literal["chat", "sender"]


class AgentApprovalsConfig(Section):
    """The people who approve what this agent wants to do."""

    approvers: tuple[PersonId, ...] | None = None
    """Instead of `approvals.approvers`."""


class SessionConfig(Section):
    """Decides which messages belong to one session, and when a new one begins by itself. A topic of a group is always
    its own session."""

    scope: SessionScope = "chat"
    """`chat`: the people of a group share a session. `sender`: each person in a group has a separate one, in its
    topics, too. Nothing of it is shown to the others' turns."""
    reset_daily: str | None = None
    """A time of day by `server.timezone`, such as `"04:00"`: the first message after it begins a new session. If unset,
    none does."""
    reset_idle_minutes: Annotated[int, Field(ge=0)] = 0
    """A message after this number of minutes of silence begins a new session; 0: none does."""

    @field_validator("reset_daily")
    @classmethod
    def _time_of_day(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch("(?:[01][0-9]|2[0-3]):[0-5][0-9]", value):
            raise ValueError('expected a time of day from 00:00 to 23:59, such as "04:00"')
        return value

    def is_over(self, last: float, at: float, zone: tzinfo) -> bool:
        """True if a session that was last active at `last` has ended before a message of `at`."""
        if self.reset_idle_minutes and at - last >= 60 * self.reset_idle_minutes:
            return True
        return self.reset_daily is not None and last < _latest(time.fromisoformat(self.reset_daily), at, zone)


def _latest(hour: time, at: float, zone: tzinfo) -> float:
    """The moment when clocks last showed this time of day. If they skip it, that is as long after midnight as on any
    other day; if they show it twice, the first time."""
    today = datetime.fromtimestamp(at, tz=zone).date()
    moments = (datetime.combine(today - timedelta(days=ago), hour, tzinfo=zone).timestamp() for ago in range(3))
    return next(it for it in moments if it <= at)


class AgentDefaults(Section):
    """The settings that every agent starts from; `agents.list` entries override them key by key."""

    model: Annotated[tuple[ModelName, ...], Field(min_length=1)] = (AUTO,)
    """`provider/model`, or a list of them: the first is used, the others are fallbacks in order. Or `auto`: the default
    model of the first provider that has a key, else `demo/guide` (docs/providers.md)."""
    system_prompt: str = ""
    """Your own instructions, word for word, in the section "Agent Instructions"."""
    workspace_dir: Annotated[str, LocalPath()] = "./data/workspaces/{agent}"
    """The folder the file tools work in; `{agent}` is the agent's id. A folder `{chat}` or `{sender}` in the path gives
    each chat or each person its own workspace, made at its first message. Relative to the config file's folder."""
    thinking: Level | None = None
    """The model's effort in thinking: `off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; a level that a model
    does not take becomes the nearest that it does. If unset, the model's own way."""
    max_tokens: Annotated[int, Field(ge=16)] | None = None
    """The longest single answer of the model, in tokens; the model's own limit, at most 16,384, if unset. Never more
    than a quarter of its window."""
    context_window: Annotated[int, Field(ge=1024)] | None = None
    """The model's window in tokens, if Clawgate's own table does not know it or is wrong."""
    greeting: str = ""
    """The answer to a person who writes `/start`; the gateway's own sentence if it is empty."""
    history_turns: Annotated[int, Field(ge=0)] | None = None
    """The number of earlier turns of a chat that the model is shown, at most; as many as fit if unset, up to 500."""
    compaction: CompactionConfig = CompactionConfig()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool that must be called first."""
    session: SessionConfig = SessionConfig()
    queue: QueueConfig = QueueConfig()
    tools: AgentToolsConfig = AgentToolsConfig()
    approvals: AgentApprovalsConfig = AgentApprovalsConfig()
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
    """Lower case; part of every session's key, so renaming an agent starts its chats afresh."""
    name: str = ""
    """The name that the assistant calls itself; the id if it is empty."""
    description: str = ""
    """One line on what it is good at, shown beside its name when people choose an agent."""
    examples: Annotated[tuple[str, ...], Field(max_length=6)] = ()
    """Messages that one may write to it first; a new conversation in the web chat offers them."""

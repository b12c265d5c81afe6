"""An agent's config: one block under `agents.list`, over `agents.defaults`."""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr, StringConstraints, field_validator

from agents.compaction import CompactionConfig
from agents.providers.models import Level
from agents.speech import SpeechConfig
from channels.section import Listed, LocalPath, QueueConfig, Section
from skills.catalog import AgentSkillsConfig
from tools.config import AgentToolsConfig, PersonId, PrivatePlaces
from tools.mcp.config import EnvironmentName

AgentId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^(?:auto|[^/\s]+/\S+)$")]
AUTO = "auto"
"""Only in the file: a loaded config has the model that was chosen."""
SessionScope: TypeAlias = Literal["chat", "sender"]


class AgentApprovalsConfig(Section):
    """The users who approve this agent's actions."""

    approvers: tuple[PersonId, ...] | None = None
    """Replaces `approvals.approvers` for this agent."""


class SessionConfig(Section):
    """Selects which messages belong to one session, and when a new one begins automatically. A topic of a group always
    has a separate session."""

    scope: SessionScope = "chat"
    """`chat`: the members of a group share a session. `sender`: each member has a separate one, in topics too, and its
    content is not shown to the others' turns."""
    reset_daily: str | None = None
    """A time of day in `server.timezone`, such as `"04:00"`: the first message after it begins a new session. If
    unset, there is no daily reset."""
    reset_idle_minutes: Annotated[int, Field(ge=0)] = 0
    """A message after this many idle minutes begins a new session; 0 disables this."""

    @field_validator("reset_daily")
    @classmethod
    def _time_of_day(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch("(?:[01][0-9]|2[0-3]):[0-5][0-9]", value):
            raise ValueError('expected a time of day from 00:00 to 23:59, such as "04:00"')
        return value

    def is_over(self, last: float, at: float, zone: tzinfo) -> bool:
        """Return whether a session last active at `last` has ended before a message at `at`."""
        if self.reset_idle_minutes and at - last >= 60 * self.reset_idle_minutes:
            return True
        return self.reset_daily is not None and last < _latest(time.fromisoformat(self.reset_daily), at, zone)


def _latest(hour: time, at: float, zone: tzinfo) -> float:
    """Return when clocks last showed this time of day. A skipped time counts as if clocks had not changed that day; a
    repeated one counts the first time."""
    today = datetime.fromtimestamp(at, tz=zone).date()
    moments = (datetime.combine(today - timedelta(days=ago), hour, tzinfo=zone).timestamp() for ago in range(3))
    return next(it for it in moments if it <= at)


RetentionDays = Annotated[float, Field(ge=1, le=36_500)]


class RetentionConfig(Section):
    """Erases turns that are older, every night, with all that hangs on them (docs/privacy.md)."""

    days: RetentionDays | None = None
    """The days for which a turn is kept. If unset, until it is erased by hand."""
    chats: dict[str, RetentionDays] = {}
    """Days for single chats, as `channel:chat` or `channel:account:chat`, such as `feishu:oc_0123456789abcdef: 30`. They
    outweigh `days`, here and above."""

    def __hash__(self) -> int:
        return hash((self.days, tuple(self.chats.items())))


class RunnerConfig(Section):
    """A program that runs the agent, instead of a model of `providers` (docs/other-agents.md)."""

    acp: Annotated[tuple[str, ...], Listed] = ()
    """The command of a program that speaks the Agent Client Protocol, such as `[claude-agent-acp]`. It runs in the sandbox
    of commands, one process for each session. Empty: the gateway runs the agent itself."""
    cwd: Annotated[str, LocalPath()] = ""
    """The program's working folder, such as a repository; the session's workspace if empty. Relative to the config file's
    folder."""
    env: dict[EnvironmentName, SecretStr] = {}
    """Environment variables of the program, such as its API key, besides `PATH`, `HOME` and a few more; none of the
    gateway's own."""
    mode: str = ""
    """The program's id for the session mode to begin in, such as `plan`; the program's default if empty."""
    readable: Annotated[tuple[str, ...], Listed, LocalPath(left_out="it belongs to other programs")] = ()
    """Folders that the program may read in the sandbox, besides the system's, its own and its working folder."""
    network: bool = True
    """True lets the program reach public addresses: its model is there."""
    allow_private: PrivatePlaces = ()
    """Non-public addresses that the program may reach, as in `tools.web.fetch.allowPrivate`."""
    sandbox: Literal["auto", "off"] = "auto"
    """`off` runs the program without a sandbox, as the gateway's user, or, if that is root, as the folder's owner."""

    def __hash__(self) -> int:
        return hash((self.acp, self.cwd, self.mode))


class AgentDefaults(Section):
    """Defaults for every agent; `agents.list` entries override them key by key."""

    model: Annotated[tuple[ModelName, ...], Field(min_length=1)] = (AUTO,)
    """`provider/model`, or a list of them: the first is used and the others are fallbacks, in order. `auto` is the
    default model of the first provider that has a key, else `demo/guide` (docs/providers.md)."""
    system_prompt: str = ""
    """Your instructions, included verbatim in the section "Agent Instructions"."""
    workspace_dir: Annotated[str, LocalPath()] = "./data/workspaces/{agent}"
    """The folder of the file tools; `{agent}` is the agent's id. `{chat}` or `{sender}` in the path gives each chat or
    each user a separate workspace, created at the first message. Relative to the config file's folder."""
    thinking: Level | None = None
    """The model's reasoning effort: `off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`. A level that the
    model does not support becomes the nearest one that it does. If unset, the model's default."""
    max_tokens: Annotated[int, Field(ge=16)] | None = None
    """The maximum length of one answer in tokens. If unset, the model's limit, at most 16,384. Never more than a
    quarter of its window."""
    context_window: Annotated[int, Field(ge=1024)] | None = None
    """The model's window in tokens, if Clawgate's table lacks it or is wrong."""
    greeting: str = ""
    """The answer to `/start`; the gateway's default sentence if empty."""
    history_turns: Annotated[int, Field(ge=0)] | None = None
    """The maximum number of earlier turns that the model is shown. If unset, as many as fit, up to 500."""
    compaction: CompactionConfig = CompactionConfig()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called first."""
    session: SessionConfig = SessionConfig()
    speech: SpeechConfig = SpeechConfig()
    """Spoken answers of this agent; the keys that are set override those of the top level's `speech`."""
    queue: QueueConfig = QueueConfig()
    tools: AgentToolsConfig = AgentToolsConfig()
    approvals: AgentApprovalsConfig = AgentApprovalsConfig()
    skills: AgentSkillsConfig = AgentSkillsConfig()

    @property
    def named_models(self) -> dict[tuple[str | int, ...], str]:
        """Return every `provider/model` by its config key."""
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
    """Lower case. It is part of every session key, so renaming an agent starts its chats over."""
    name: str = ""
    """The assistant's name; the id if empty."""
    description: str = ""
    """One line on what it is good at, shown next to its name when users choose an agent."""
    retention: RetentionConfig = RetentionConfig()
    """The age at which turns of this agent are erased; what is set overrides the top level's `retention`."""
    runner: RunnerConfig = RunnerConfig()
    """Another program that runs this agent."""
    examples: Annotated[tuple[str, ...], Field(max_length=6)] = ()
    """Example messages; a new conversation in the web chat offers them."""

    @property
    def is_demo(self) -> bool:
        """Return whether the demo's script answers as this agent, instead of a model or a program."""
        return not self.runner.acp and self.model[0].partition("/")[0] == "demo"

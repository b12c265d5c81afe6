"""What a person writes about tools: which an agent has, and how far `exec` and `message` may go."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field
from pydantic.alias_generators import to_camel

ExecMode: TypeAlias = Literal["deny", "ask", "allow"]
_Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Names = Annotated[tuple[str, ...], _Listed]
InstructionFile: TypeAlias = Literal["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md"]
EXEC_SECONDS_MAX = 600


class ExecConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """How `exec` runs commands, for every agent that does not say otherwise."""

    mode: ExecMode = "ask"
    """`deny` runs nothing; `ask` waits for an approval, and refuses while there is nobody to approve; `allow` runs."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] = 60
    """How long one command may run; the model can ask for less, and for more up to 600."""
    output_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """How much of a command's output is kept to be shown, its beginning and its end; a command whose output is longer
    than 16 MiB is stopped."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """What one command may add to the workspace and its temporary folder before it is stopped; a file, even an empty one,
    counts 4 KiB more than its content."""
    free_bytes: Annotated[int, Field(ge=0)] = 536_870_912
    """What a command must leave free on the workspace's disk, so that the database can still grow. One that goes below is
    stopped, and one that begins below can delete files and write none."""
    parallel: Annotated[int, Field(ge=1)] = 4
    """Commands of one agent that run at the same time; one more is told to wait."""


class AgentExecConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The same inside an agent: what is set here wins."""

    mode: ExecMode | None = None
    """As `tools.exec.mode`, for this agent."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] | None = None
    """As `tools.exec.timeoutSeconds`, for this agent."""
    output_bytes: Annotated[int, Field(ge=1024)] | None = None
    """As `tools.exec.outputBytes`, for this agent."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """As `tools.exec.writtenBytes`, for this agent."""
    free_bytes: Annotated[int, Field(ge=0)] | None = None
    """As `tools.exec.freeBytes`, for this agent."""
    parallel: Annotated[int, Field(ge=1)] | None = None
    """As `tools.exec.parallel`, for this agent."""


class ProcessConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Background commands of the `process` tool; what `tools.exec` says of commands holds for them, too."""

    parallel: Annotated[int, Field(ge=1)] = 4
    """Background commands of one session that run at the same time."""
    parallel_total: Annotated[int, Field(ge=1)] = 16
    """The same of all sessions that one gateway process works for."""
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86_400)] = 3_600
    """How long a background command may run; the model can ask for less."""
    idle_seconds: Annotated[float, Field(gt=0)] = 1_800
    """A background command that writes nothing and that the agent does not ask for, for so long, is stopped."""
    terminal_rows: Annotated[int, Field(ge=1, le=1_000)] = 24
    """The height of the terminal of a command that has one (`pty`)."""
    terminal_columns: Annotated[int, Field(ge=1, le=1_000)] = 80
    """Its width."""


class MessageConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Where the `message` tool may send, besides the chat it was asked in."""

    targets: Names = ()
    """Other chats, as `channel:chat` or `channel:account:chat`, for example `feishu:oc_0123456789abcdef`."""


class FilesConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """What the file tools may do, for every agent that does not say otherwise."""

    writable: Annotated[tuple[InstructionFile, ...], _Listed] = ()
    """Instruction files that `write` and `edit` may change, such as `AGENTS.md`: whoever may talk to the agent can then
    change what everybody's system prompt says. `MEMORY.md` and `memory/*.md` are written in direct chats with an owner
    (`owners`), and by anybody where the workspace is that chat's or person's own."""
    uploads_dir: str = "./data/uploads"
    """Where the files that people send are kept, a folder for each session, outside of every workspace; agents see their
    session's as `./uploads`. Relative to the config file's folder."""

    quota_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """How much a workspace may hold before `write` and `edit` refuse; a file or folder, even an empty one, counts 4 KiB more
    than its content, so that their number has an end, too. Files that people send count apart: so much for each session."""


class AgentFilesConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The same inside an agent: what is set here wins."""

    writable: Annotated[tuple[InstructionFile, ...], _Listed] | None = None
    """As `tools.files.writable`, for this agent."""
    quota_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """As `tools.files.quotaBytes`, for this agent."""


class ToolsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The top-level `tools:` section."""

    exec: ExecConfig = ExecConfig()
    process: ProcessConfig = ProcessConfig()
    files: FilesConfig = FilesConfig()


class AgentToolsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """Inside an agent: which tools it has."""

    allow: Names = ("read", "ls", "message")
    """Names of tools; `*` means every one there is."""
    deny: Names = ()
    """Names to leave out; wins over `allow`. Without `exec` there is no `process` either: both run commands."""
    exec: AgentExecConfig = AgentExecConfig()
    files: AgentFilesConfig = AgentFilesConfig()
    message: MessageConfig = MessageConfig()


def effective_exec(everybody: ExecConfig, agent: AgentToolsConfig) -> ExecConfig:
    """The agent's own settings over those for everybody."""
    return everybody.model_copy(update=agent.exec.model_dump(exclude_none=True))


def effective_files(everybody: FilesConfig, agent: AgentToolsConfig) -> FilesConfig:
    return everybody.model_copy(update=agent.files.model_dump(exclude_none=True))


def allowed(config: AgentToolsConfig, names: Sequence[str]) -> tuple[str, ...]:
    """The names among `names` that the agent may use, in their order. `deny` wins over `allow`; no list, no tool."""
    allow, deny = set(config.allow), set(config.deny)
    if "exec" in deny:
        deny.add("process")
    return tuple(name for name in names if {"*", name} & allow and not {"*", name} & deny)

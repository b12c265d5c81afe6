"""Config of the tools: which tools exist, and the limits of `exec`, `message` and the web tools."""

import ipaddress
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from channels.section import Listed, LocalPath, Section, ToolLists, ToolNames
from tools.feishu.config import FeishuToolConfig

SearchProvider: TypeAlias = Literal["brave", "tavily", "searxng"]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Private: TypeAlias = tuple[str, int | None] | Network
"""A host with an optional port, or a network."""


def _sound(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        private(entry)
    return entries


PrivatePlaces = Annotated[tuple[str, ...], Listed, AfterValidator(_sound)]


class FetchConfig(Section):
    """Limits of `web_fetch`. Non-public addresses are refused, however they are written or reached."""

    allow_private: PrivatePlaces = ()
    """Non-public addresses that may be fetched: hosts (`wiki.internal`), hosts with a port (`wiki.internal:8080`) and
    networks (`10.1.0.0/16`). Everyone who writes to the agent can have it read what is there."""
    ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], Listed] = (80, 443)
    """The ports that may be used."""
    max_bytes: Annotated[int, Field(ge=1024, le=67_108_864)] = 2_097_152
    """Maximum size of a page, before and after decompression."""
    total_seconds: Annotated[float, Field(gt=0, le=120)] = 20
    """Timeout of one fetch in seconds, redirects included."""
    redirects: Annotated[int, Field(ge=0, le=10)] = 3
    """Maximum number of redirects; each target is checked like the first address."""


def private(entry: str) -> Private:
    """Parse an entry of `allowPrivate`. Raises ValueError."""
    text = entry.strip().lower()
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        host, colon, port = text.rpartition(":")
    if "/" in text or not (host if colon else text) or (colon and not port.isdecimal()):
        raise ValueError("expected a host, host:port, or a network such as 10.1.0.0/16")
    return ((host if colon else text).strip("[]").rstrip("."), int(port) if colon else None)


class SearchConfig(Section):
    """The search service of `web_search`. Without a provider there is no such tool."""

    provider: SearchProvider | None = None
    """`brave` or `tavily` (both need an `apiKey`), or `searxng` (your own instance at `baseUrl`)."""
    api_key: SecretStr = SecretStr("")
    """API key of Brave or Tavily."""
    base_url: str = ""
    """Server URL without a path; empty for the provider's own. SearXNG needs `json` among its `search.formats`."""


class WebToolsConfig(Section):
    """The tools that read the web."""

    search: SearchConfig = SearchConfig()
    fetch: FetchConfig = FetchConfig()


ExecMode: TypeAlias = Literal["deny", "ask", "allow"]
PersonId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+:\S+$")]
InstructionFile: TypeAlias = Literal["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md"]
EXEC_SECONDS_MAX = 600
EXTERNAL_TOOLS = frozenset({"web_fetch", "web_search", "feishu", "group_history"})
"""Tools with untrusted results."""


class ExecConfig(Section):
    """Settings of `exec`, unless an agent overrides them."""

    mode: ExecMode = "ask"
    """`deny` runs nothing; `ask` runs what a person approves (docs/approvals.md); `allow` runs everything."""
    sandbox: Literal["auto", "off"] = "auto"
    """`auto` confines every command to its workspace, and refuses commands if this machine cannot do that. `off` runs
    commands without a sandbox, as the gateway's user, or as the workspace's owner if the gateway runs as root."""
    network: bool = False
    """True lets sandboxed commands reach what `web_fetch` may (`tools.web.fetch`: public addresses, its ports), through
    an HTTP proxy; never services of this machine. Needs bubblewrap: with Landlock alone such a command is refused."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] = 60
    """Timeout of one command in seconds; the model can ask for less, or for more, up to 600."""
    output_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """Bytes of output to keep, from the beginning and the end. A command with more than 16 MiB of output is stopped."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """Bytes that one command may add to the workspace and its temporary folder before it is stopped. Each file counts 4
    KiB on top of its content."""
    free_bytes: Annotated[int, Field(ge=0)] = 536_870_912
    """Bytes that a command must leave free on the workspace's disk, so that the database can grow. A command that goes
    below is stopped; one that starts below can delete files but not write any."""
    parallel: Annotated[int, Field(ge=1)] = 4
    """Commands of one agent that may run at the same time; one more is refused as busy."""


class AgentExecConfig(Section):
    """Overrides for one agent."""

    mode: ExecMode | None = None
    """Overrides `tools.exec.mode` for this agent."""
    sandbox: Literal["auto", "off"] | None = None
    """Overrides `tools.exec.sandbox` for this agent."""
    network: bool | None = None
    """Overrides `tools.exec.network` for this agent."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] | None = None
    """Overrides `tools.exec.timeoutSeconds` for this agent."""
    output_bytes: Annotated[int, Field(ge=1024)] | None = None
    """Overrides `tools.exec.outputBytes` for this agent."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """Overrides `tools.exec.writtenBytes` for this agent."""
    free_bytes: Annotated[int, Field(ge=0)] | None = None
    """Overrides `tools.exec.freeBytes` for this agent."""
    parallel: Annotated[int, Field(ge=1)] | None = None
    """Overrides `tools.exec.parallel` for this agent."""


class ProcessConfig(Section):
    """Background commands of the `process` tool; the settings of `tools.exec` apply to them, too."""

    parallel: Annotated[int, Field(ge=1)] = 4
    """Background commands of one session that may run at the same time."""
    parallel_total: Annotated[int, Field(ge=1)] = 16
    """Background commands of all sessions in one gateway process."""
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86_400)] = 3_600
    """Timeout of a background command in seconds; the model can ask for less."""
    idle_seconds: Annotated[float, Field(gt=0)] = 1_800
    """Seconds after which a background command is stopped if it writes nothing, the agent does not use it, and nobody
    waits for its end."""
    terminal_rows: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Height of the terminal of a command with `pty`."""
    terminal_columns: Annotated[int, Field(ge=1, le=1_000)] = 80
    """Width of that terminal."""


class MessageConfig(Section):
    """Chats to which the `message` tool may send, besides the current one."""

    targets: ToolNames = ()
    """Other chats, as `channel:chat` or `channel:account:chat`, for example `feishu:oc_0123456789abcdef`."""


class FilesConfig(Section):
    """Settings of the file tools, unless an agent overrides them."""

    writable: Annotated[tuple[InstructionFile, ...], Listed] = ()
    """Instruction files that `write` and `edit` may change, such as `AGENTS.md`. Everyone who may talk to the agent can
    then change the system prompt for all. `MEMORY.md` and `memory/*.md` are writable in direct chats with an owner
    (`owners`), and in any direct chat if the workspace is that chat's or person's own."""
    uploads_dir: Annotated[str, LocalPath()] = "./data/uploads"
    """Folder for the files that users send, with a folder per session, outside every workspace. Agents see their
    session's as `./uploads`. Relative to the config file's folder."""

    quota_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """Bytes that a workspace may hold before `write` and `edit` refuse. Each file or folder counts 4 KiB on top of its
    content, which also limits their number. Uploads have a separate quota of this size per session."""


class AgentFilesConfig(Section):
    """Overrides for one agent."""

    writable: Annotated[tuple[InstructionFile, ...], Listed] | None = None
    """Overrides `tools.files.writable` for this agent."""
    quota_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """Overrides `tools.files.quotaBytes` for this agent."""


class ToolsConfig(ToolLists):
    """The top-level `tools:` section, for the tools of every agent."""

    directories: Annotated[ToolNames, LocalPath()] = ()
    """Folders of Python files with your own tools (docs/add-a-tool.md): code that runs inside the gateway, with its
    rights. Relative to the config file's folder. An agent has those that its lists allow."""
    owner_only: ToolNames | None = None
    """Tools or groups for `owners` alone. If unset: `exec` and `process`, once `owners` names a person, and always for
    users admitted by pairing. Other users have them as their agent does."""
    senders: dict[PersonId, ToolLists] = Field(default={})
    """Limits on the tools of one person, by `channel:id` as in `owners`, in every chat."""
    exec: ExecConfig = ExecConfig()
    process: ProcessConfig = ProcessConfig()
    files: FilesConfig = FilesConfig()
    web: WebToolsConfig = WebToolsConfig()
    feishu: FeishuToolConfig = FeishuToolConfig()
    approval: ToolNames = ()
    """Tools that need an approval for every call."""
    taint: ToolNames = ("exec", "process", "message")
    """Tools that need an approval while the conversation holds external content, such as a web page, or a summary of
    it, which may steer later calls (docs/tool-policy.md). Changes to `MEMORY.md` then need one, too. `[]` for none."""


class AgentToolsConfig(ToolLists):
    """The tools of an agent. Without `profile` and `allow` it has `profile: minimal`, which is `read`, `ls`,
    `message`, `ask` and, where they are configured, `handover` and `group_history`."""

    exec: AgentExecConfig = AgentExecConfig()
    files: AgentFilesConfig = AgentFilesConfig()
    message: MessageConfig = MessageConfig()
    approval: ToolNames = ()
    """Tools in addition to those in `tools.approval`."""
    taint: ToolNames | None = None
    """Overrides `tools.taint` for this agent."""


def effective_exec(everybody: ExecConfig, agent: AgentToolsConfig) -> ExecConfig:
    return everybody.but(**agent.exec.model_dump(exclude_none=True))


def effective_files(everybody: FilesConfig, agent: AgentToolsConfig) -> FilesConfig:
    return everybody.but(**agent.files.model_dump(exclude_none=True))


def effective_approval(everybody: ToolsConfig, agent: AgentToolsConfig) -> tuple[ToolNames, ToolNames]:
    """Return the tools that always need an approval, and those that need one after untrusted text. An agent can only
    add to the former."""
    taint = everybody.taint if agent.taint is None else agent.taint
    return tuple(dict.fromkeys((*everybody.approval, *agent.approval))), taint

"""The config of tools: which there are, and how far `exec`, `message` and the web tools may go."""

import ipaddress
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from channels.section import Listed, LocalPath, Section, ToolLists, ToolNames

SearchProvider: TypeAlias = Literal["brave", "tavily", "searxng"]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Private: TypeAlias = tuple[str, int | None] | Network
"""A host, with its own port if one is named, or a network."""


def _sound(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        private(entry)
    return entries


PrivatePlaces = Annotated[tuple[str, ...], Listed, AfterValidator(_sound)]


class FetchConfig(Section):
    """Limits of `web_fetch`. Addresses that are not public are refused, however they are written or reached."""

    allow_private: PrivatePlaces = ()
    """Addresses that may be fetched although they are not public: hosts (`wiki.internal`), hosts with their own port
    (`wiki.internal:8080`) and networks (`10.1.0.0/16`). Everybody who writes to the agent can have it read what is
    there."""
    ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], Listed] = (80, 443)
    """The ports that may be asked."""
    max_bytes: Annotated[int, Field(ge=1024, le=67_108_864)] = 2_097_152
    """The longest page, also once it is unpacked."""
    total_seconds: Annotated[float, Field(gt=0, le=120)] = 20
    """Seconds that one fetch may take, redirects included."""
    redirects: Annotated[int, Field(ge=0, le=10)] = 3
    """The number of redirects that are followed; each is judged like the first address."""


def private(entry: str) -> Private:
    """The host or network that an entry of `allowPrivate` names. Raises ValueError."""
    text = entry.strip().lower()
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        host, colon, port = text.rpartition(":")
    if "/" in text or not (host if colon else text) or (colon and not port.isdecimal()):
        raise ValueError("expected a host, host:port, or a network such as 10.1.0.0/16")
    return ((host if colon else text).strip("[]").rstrip("."), int(port) if colon else None)


class SearchConfig(Section):
    """The service that answers `web_search`. Without a provider there is no such tool."""

    provider: SearchProvider | None = None
    """`brave`, `tavily` (both want an `apiKey`), or `searxng` (an instance of your own at `baseUrl`)."""
    api_key: SecretStr = SecretStr("")
    """The key of Brave or Tavily."""
    base_url: str = ""
    """The server, without a path; the provider's own if empty. A SearXNG must have `json` among its `search.formats`."""


class WebToolsConfig(Section):
    """The tools that read the web."""

    search: SearchConfig = SearchConfig()
    fetch: FetchConfig = FetchConfig()


ExecMode: TypeAlias = Literal["deny", "ask", "allow"]
PersonId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+:\S+$")]
InstructionFile: TypeAlias = Literal["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md"]
EXEC_SECONDS_MAX = 600
EXTERNAL_TOOLS = frozenset({"web_fetch", "web_search"})
"""The tools whose results hold text of strangers."""


class ExecConfig(Section):
    """Settings of `exec`, for every agent that does not say otherwise."""

    mode: ExecMode = "ask"
    """`deny` runs nothing; `ask` runs what a person has approved (docs/approvals.md); `allow` runs."""
    sandbox: Literal["auto", "off"] = "auto"
    """`auto` confines every command to its workspace, and runs none if this machine offers no way to do so. `off` runs
    commands without a wall, as the gateway's user, or as the workspace's owner if that is root."""
    network: bool = False
    """True if commands in a sandbox reach what `web_fetch` may (`tools.web.fetch`: public addresses, its ports), through an
    HTTP proxy; never this machine's own services. It needs bubblewrap: with Landlock alone such a command is refused."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] = 60
    """Seconds that one command may run; the model can ask for less, and for more up to 600."""
    output_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """Bytes of a command's output that are kept to be shown, its beginning and its end. A command whose output is longer
    than 16 MiB is stopped."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """Bytes that one command may add to the workspace and its temporary folder before it is stopped. A file, even an empty
    one, counts 4 KiB more than its content."""
    free_bytes: Annotated[int, Field(ge=0)] = 536_870_912
    """Bytes that a command must leave free on the workspace's disk, so that the database can still grow. A command that goes
    below is stopped. A command that begins below can delete files and write none."""
    parallel: Annotated[int, Field(ge=1)] = 4
    """Commands of one agent that run at the same time; one more must wait."""


class AgentExecConfig(Section):
    """Settings of one agent; what is set here wins."""

    mode: ExecMode | None = None
    """Wins over `tools.exec.mode` for this agent."""
    sandbox: Literal["auto", "off"] | None = None
    """Wins over `tools.exec.sandbox` for this agent."""
    network: bool | None = None
    """Wins over `tools.exec.network` for this agent."""
    timeout_seconds: Annotated[float, Field(gt=0, le=EXEC_SECONDS_MAX)] | None = None
    """Wins over `tools.exec.timeoutSeconds` for this agent."""
    output_bytes: Annotated[int, Field(ge=1024)] | None = None
    """Wins over `tools.exec.outputBytes` for this agent."""
    written_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """Wins over `tools.exec.writtenBytes` for this agent."""
    free_bytes: Annotated[int, Field(ge=0)] | None = None
    """Wins over `tools.exec.freeBytes` for this agent."""
    parallel: Annotated[int, Field(ge=1)] | None = None
    """Wins over `tools.exec.parallel` for this agent."""


class ProcessConfig(Section):
    """Background commands of the `process` tool; what `tools.exec` says of commands holds for them, too."""

    parallel: Annotated[int, Field(ge=1)] = 4
    """Background commands of one session that run at the same time."""
    parallel_total: Annotated[int, Field(ge=1)] = 16
    """Background commands of all sessions that one gateway process works for."""
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86_400)] = 3_600
    """Seconds that a background command may run; the model can ask for less."""
    idle_seconds: Annotated[float, Field(gt=0)] = 1_800
    """Seconds after which a background command is stopped if it writes nothing, the agent does not ask for it, and
    nobody waits for its end."""
    terminal_rows: Annotated[int, Field(ge=1, le=1_000)] = 24
    """The height of the terminal of a command that has one (`pty`)."""
    terminal_columns: Annotated[int, Field(ge=1, le=1_000)] = 80
    """Its width."""


class MessageConfig(Section):
    """The chats to which the `message` tool may send, besides the one it was asked in."""

    targets: ToolNames = ()
    """Other chats, as `channel:chat` or `channel:account:chat`, for example `feishu:oc_0123456789abcdef`."""


class FilesConfig(Section):
    """Settings of the file tools, for every agent that does not say otherwise."""

    writable: Annotated[tuple[InstructionFile, ...], Listed] = ()
    """Instruction files that `write` and `edit` may change, such as `AGENTS.md`. Then everybody who may talk to the
    agent can change the system prompt of all. `MEMORY.md` and `memory/*.md` are written in direct chats with an owner
    (`owners`), and in any direct chat if the workspace is that chat's or person's own."""
    uploads_dir: Annotated[str, LocalPath()] = "./data/uploads"
    """The place of the files that people send: a folder for each session, outside of every workspace. Agents see their
    session's as `./uploads`. Relative to the config file's folder."""

    quota_bytes: Annotated[int, Field(ge=1_048_576)] = 1_073_741_824
    """Bytes that a workspace may hold before `write` and `edit` refuse. A file or folder, even an empty one, counts 4 KiB
    more than its content, which also limits their number. Files that people send count apart: so much per session."""


class AgentFilesConfig(Section):
    """Settings of one agent; what is set here wins."""

    writable: Annotated[tuple[InstructionFile, ...], Listed] | None = None
    """Wins over `tools.files.writable` for this agent."""
    quota_bytes: Annotated[int, Field(ge=1_048_576)] | None = None
    """Wins over `tools.files.quotaBytes` for this agent."""


class ToolsConfig(ToolLists):
    """The top-level `tools:` section: what holds for the tools of every agent."""

    directories: Annotated[ToolNames, LocalPath()] = ()
    """Folders of Python files with tools of your own (docs/add-a-tool.md): code that runs inside the gateway, with its
    rights. Relative to the config file's folder. An agent has those that its lists allow."""
    owner_only: ToolNames | None = None
    """Tools or groups that are there for `owners` alone. If unset: `exec` and `process`, once `owners` names a
    person, and always for people who were let in by pairing. Other people have them as their agent does."""
    senders: dict[PersonId, ToolLists] = Field(default={})
    """The tools that are left for one person, by `channel:id` as in `owners`, in every chat."""
    exec: ExecConfig = ExecConfig()
    process: ProcessConfig = ProcessConfig()
    files: FilesConfig = FilesConfig()
    web: WebToolsConfig = WebToolsConfig()
    approval: ToolNames = ()
    """Tools of which every call needs an approval, in any case."""
    taint: ToolNames = ("exec", "process", "message")
    """Tools whose calls need one as well, as long as the conversation holds external content, such as a web page, or a
    summary of it: later calls may be its doing (docs/tool-policy.md). Changes of `MEMORY.md` then need one, too. `[]` for
    none."""


class AgentToolsConfig(ToolLists):
    """Inside an agent: which tools it has. If it has neither `profile` nor `allow`: `profile: minimal`, which is
    `read`, `ls` and `message`."""

    exec: AgentExecConfig = AgentExecConfig()
    files: AgentFilesConfig = AgentFilesConfig()
    message: MessageConfig = MessageConfig()
    approval: ToolNames = ()
    """Tools besides those in `tools.approval`."""
    taint: ToolNames | None = None
    """Wins over `tools.taint` for this agent."""


def effective_exec(everybody: ExecConfig, agent: AgentToolsConfig) -> ExecConfig:
    """The agent's own settings over those for everybody."""
    return everybody.but(**agent.exec.model_dump(exclude_none=True))


def effective_files(everybody: FilesConfig, agent: AgentToolsConfig) -> FilesConfig:
    return everybody.but(**agent.files.model_dump(exclude_none=True))


def effective_approval(everybody: ToolsConfig, agent: AgentToolsConfig) -> tuple[ToolNames, ToolNames]:
    """The tools that always need an approval, and those that do after text of strangers: an agent can add to the former."""
    taint = everybody.taint if agent.taint is None else agent.taint
    return tuple(dict.fromkeys((*everybody.approval, *agent.approval))), taint

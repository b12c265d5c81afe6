"""Config of tools that other programs offer by the Model Context Protocol (docs/mcp.md)."""

import re
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator

from channels.section import Listed, LocalPath, Section, ToolNames
from tools.config import PrivatePlaces
from tools.tool import Effect

ServerName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[-_][a-z0-9]+)*$", max_length=24)]
"""Names have no double underscore, so that `NAME__tool` is unambiguous."""
EnvironmentName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")]
DocumentTool: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PERSON = re.compile("\0person:([^\0]*)\0")
"""Stands in a value for `${person:feishu:ACCOUNT}`, the token of the person whom a turn serves. No text has a zero byte."""
UNKNOWN = "unknown"
"""Fills in an environment variable while the tools are listed: many programs do not start without one."""
_COMMENTS = ("docs:document.comment:read", "contact:contact.base:readonly")
_EDITING = (
    *(
        "docx:document:create",
        "docx:document:write_only",
        "docx:document:readonly",
        "wiki:node:read",
        "wiki:node:create",
    ),
    *("docs:document.media:upload", "board:whiteboard:node:create"),
)
READS: dict[str, tuple[str, ...]] = {
    "search-user": ("contact:user:search",),
    "get-user": ("contact:contact.base:readonly", "contact:user.base:readonly"),
    "fetch-file": ("docs:document.media:download", "board:whiteboard:node:read"),
    "search-doc": ("search:docs:read", "wiki:wiki:readonly"),
    "fetch-doc": ("docx:document:readonly", "task:task:read", "im:chat:read"),
    "list-docs": ("wiki:wiki:readonly",),
    "get-comments": _COMMENTS,
}
"""Tools of Feishu's documents server that only read, and the scopes that each needs. Any other one asks before it runs."""
SCOPES = READS | {
    "create-doc": _EDITING,
    "update-doc": _EDITING,
    "add-comments": (*_COMMENTS, "docs:document.comment:create"),
}


class McpServerConfig(Section):
    """One server: a program to start (`command`), an address (`url`), or Feishu's own documents server (`feishu`)."""

    command: Annotated[tuple[str, ...], Listed] = ()
    """The program and its arguments. It runs in the sandbox of commands and speaks over stdin and stdout."""
    env: dict[EnvironmentName, SecretStr] = {}
    """Environment variables of the program, besides `PATH`, `HOME` and a few more; none of the gateway's own. With
    `${person:feishu}`, the token of the person who asks, there is a process for each person."""
    cwd: Annotated[str, LocalPath()] = ""
    """Working folder of the program, which it may write; `./data/mcp/NAME` if empty. Relative to the config file's
    folder."""
    readable: Annotated[tuple[str, ...], Listed, LocalPath(left_out="it belongs to other programs")] = ()
    """Folders that the program may read in the sandbox, besides the system's, its own and its Python environment."""
    network: bool = False
    """True lets the program reach public addresses, as with `tools.exec.network`."""
    sandbox: Literal["auto", "off"] = "auto"
    """`off` runs the program without a sandbox, as the gateway's user, or, if that is root, as the folder's owner."""
    url: str = ""
    """URL of a server that speaks streamable HTTP, such as https://mcp.example.com/mcp."""
    headers: dict[HeaderName, SecretStr] = {}
    """Headers of every request to `url`, such as `Authorization: Bearer ${TOKEN}`. `${person:feishu}` is the token of the
    person who asks, for each call (docs/feishu-as-the-person.md)."""
    feishu: str = ""
    """Name of a Feishu account, such as `default`: the server is Feishu's own for documents, at the address of the
    account's brand unless `url` names another (docs/feishu-as-the-person.md)."""
    acts_as: Annotated[Literal["person", "app"], Field(alias="as")] = "person"
    """The identity with `feishu`: `person` has the rights of the person who asks, after their login; `app` has those of the
    bot's app."""
    tools: Annotated[tuple[DocumentTool, ...], Listed] = ()
    """Tools that the server may offer with `feishu`, such as `fetch-doc`, `search-doc` or `create-doc`."""
    allow_private: PrivatePlaces = ()
    """Non-public addresses that `url` may lead to, as in `tools.web.fetch.allowPrivate`."""
    allow: ToolNames | None = None
    """Tools to take from the server, by its own names; a trailing `*` matches anything. All if unset."""
    effect: Effect = "once"
    """The effect of a second run, for all tools of the server: `safe` only reads, `keyed` repeats harmlessly, `once` is
    never run again after a crash. A call with `${person:feishu}` that is not `safe` asks that person first."""
    start_seconds: Annotated[float, Field(gt=0, le=600)] = 30
    """Timeout in seconds until the server has listed its tools."""
    call_seconds: Annotated[float, Field(gt=0, le=600)] = 60
    """Timeout of one call in seconds."""

    def takes(self, tool: str) -> bool:
        """Return whether `allow` names the tool, by the server's own name for it."""
        return self.allow is None or any(fnmatchcase(tool, it) for it in self.allow)

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must be an http or https URL")
        return value

    @property
    def account(self) -> str:
        """The Feishu account as whose people, or app, the server is called; empty for a server that knows nobody."""
        return self.feishu or next(iter(self._persons), "")

    @property
    def _persons(self) -> set[str]:
        values = (*self.env.values(), *self.headers.values())
        return {name for it in values for name in PERSON.findall(it.get_secret_value())}

    def effect_of(self, tool: str) -> Effect:
        """Return the effect of a second run of a tool, by the server's own name for it."""
        return ("safe" if tool in READS else "once") if self.feishu else self.effect

    def asks(self, tool: str) -> bool:
        """Return whether a call in a person's name needs an approval: of each tool that is not known to only read."""
        return bool(self.account) and self.effect_of(tool) != "safe"

    def headers_with(self, token: str, *, app: bool = False) -> dict[str, str]:
        """Return the headers with the token of a person, or of the app. Without one, the headers that need it are left
        out."""
        if self.feishu:
            name = "X-Lark-MCP-TAT" if app else "X-Lark-MCP-UAT"
            return {name: token, "X-Lark-MCP-Allowed-Tools": ",".join(self.tools)}
        values = {name: it.get_secret_value() for name, it in self.headers.items()}
        return {name: _filled(it, token) for name, it in values.items() if token or not PERSON.search(it)}

    def env_with(self, token: str) -> dict[str, str]:
        return {name: _filled(it.get_secret_value(), token or UNKNOWN) for name, it in self.env.items()}

    @model_validator(mode="after")
    def _one_kind(self) -> "McpServerConfig":
        if bool(self.command) == bool(self.url or self.feishu):
            raise ValueError("expected one of command, a program to start, url, an address, and feishu, an account")
        if self.feishu and not self.tools:
            raise ValueError("tools: missing, such as [fetch-doc]: without it Feishu offers nothing")
        if len(self._persons) > 1:
            raise ValueError("${person:…} may name one account only")
        of_program, acting = {"env", "cwd", "readable", "network", "sandbox"}, {"feishu", "acts_as", "tools"}
        kind, others = "command", {"headers", "allow_private", *acting}
        if self.feishu:
            kind, others = "feishu", {*of_program, "headers", "allow", "effect"}
        elif self.url:
            kind, others = "url", of_program | acting
        if wrong := sorted(self.model_fields_set & others):
            names = ", ".join(type(self).model_fields[it].alias or it for it in wrong)
            raise ValueError(f"{names}: not for a server with {kind}")
        return self


def _filled(value: str, token: str) -> str:
    return PERSON.sub(lambda _: token, value)


_NETWORK = re.compile(
    "EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED|getaddrinfo|name resolution|resolve host|Network is unreachable", re.I
)
_WRITING = re.compile("EROFS|EACCES|EPERM|Read-only file system|Permission denied|Operation not permitted", re.I)
_READING = re.compile("ENOENT|No such file|not exist", re.I)
_DOWNLOADERS = {
    "npx": "",
    "uvx": "",
    "bunx": "",
    "pnpm": "dlx",
    "yarn": "dlx",
    "npm": "exec",
    "pipx": "run",
    "uv": "run",
}
"""Commands that download the server before they run it, with the subcommand that does so."""


def downloader(config: McpServerConfig) -> str:
    """Return the command that needs the network to start the server, such as `npx`; empty if it has one, or needs
    none."""
    if not config.command or config.network or config.sandbox == "off":
        return ""
    name = PurePath(config.command[0]).name
    word = _DOWNLOADERS.get(name)
    return f"{name} {word}".strip() if word is not None and (not word or word in config.command[1:3]) else ""


def sandbox_hint(config: McpServerConfig, name: str, words: str) -> str:
    """Name the setting that caused a failure if its `words` look like a program blocked by its sandbox; empty if not.
    Begins with a blank."""
    if not config.command or config.sandbox == "off":
        return ""
    key = f"mcp.servers.{name}"
    if command := downloader(config):
        return (
            f" {command} downloads the server, and its sandbox has no network: set {key}.network: true, or install it"
        )
    if _NETWORK.search(words) and not config.network:
        return f" the sandbox of this server has no network: set {key}.network: true"
    if _WRITING.search(words):
        return (
            f" the sandbox of this server lets it write in its own folder only ({key}.cwd): "
            f"name a path there in {key}.env or in its arguments"
        )
    if _READING.search(words):
        return f" the sandbox of this server hides other folders: name those that it needs in {key}.readable"
    return ""


class McpConfig(Section):
    """Tools that other programs offer by the Model Context Protocol (docs/mcp.md)."""

    servers: dict[ServerName, McpServerConfig] = {}
    """Servers by name: a tool of the server NAME is called `NAME__tool`. An agent has it only if its own `tools.allow`
    names it, all of the server's by `mcp:NAME`, or all there are by `mcp:*`."""

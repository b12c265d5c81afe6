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


class McpServerConfig(Section):
    """One server: a program to start (`command`), or an address (`url`)."""

    command: Annotated[tuple[str, ...], Listed] = ()
    """The program and its arguments. It runs in the sandbox of commands and speaks over stdin and stdout."""
    env: dict[EnvironmentName, SecretStr] = {}
    """Environment variables of the program, besides `PATH`, `HOME` and a few more; none of the gateway's own."""
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
    """Headers of every request to `url`, such as `Authorization: Bearer ${TOKEN}`."""
    allow_private: PrivatePlaces = ()
    """Non-public addresses that `url` may lead to, as in `tools.web.fetch.allowPrivate`."""
    allow: ToolNames | None = None
    """Tools to take from the server, by its own names; a trailing `*` matches anything. All if unset."""
    effect: Effect = "once"
    """The effect of a second run, for all tools of the server: `safe` only reads, `keyed` repeats harmlessly, `once` is
    never run again after a crash."""
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

    @model_validator(mode="after")
    def _one_of_both(self) -> "McpServerConfig":
        if bool(self.command) == bool(self.url):
            raise ValueError("expected either command, a program to start, or url, an address")
        own = {"env", "cwd", "readable", "network", "sandbox"} if self.url else {"headers", "allow_private"}
        if wrong := sorted(self.model_fields_set & own):
            names = ", ".join(type(self).model_fields[it].alias or it for it in wrong)
            raise ValueError(f"{names}: only for a server with {'command' if self.url else 'url'}")
        return self


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

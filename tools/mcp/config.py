"""The config of tools that other programs offer by the Model Context Protocol (docs/mcp.md)."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator

from channels.section import Section
from channels.tools import Listed, ToolNames
from tools.tool import Effect
from tools.web.config import PrivatePlaces

ServerName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[-_][a-z0-9]+)*$", max_length=24)]
"""Names without two underscores in a row: `NAME__tool` has one meaning."""
EnvironmentName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")]


class McpServerConfig(Section):
    """One server: a program that is started (`command`), or an address (`url`)."""

    command: Annotated[tuple[str, ...], Listed] = ()
    """The program and its arguments. It runs in the sandbox of commands and speaks over its input and output."""
    env: dict[EnvironmentName, SecretStr] = {}
    """The variables that the program gets, besides `PATH`, `HOME` and a few more; none of the gateway's own."""
    cwd: str = ""
    """The folder that the program runs in and may write; `./data/mcp/NAME` if empty. Relative to the config file's
    folder."""
    readable: Annotated[tuple[str, ...], Listed] = ()
    """Folders that the program may read in the sandbox, besides the system's, its own and its Python environment."""
    network: bool = False
    """True if the program reaches public addresses, as `tools.exec.network` says."""
    sandbox: Literal["auto", "off"] = "auto"
    """`off` runs the program without a wall, as the gateway's user, or, if that is root, as the folder's owner."""
    url: str = ""
    """The address of a server that speaks streamable HTTP, such as https://mcp.example.com/mcp."""
    headers: dict[HeaderName, SecretStr] = {}
    """Headers of every request to `url`, such as `Authorization: Bearer ${TOKEN}`."""
    allow_private: PrivatePlaces = ()
    """Addresses behind `url` that may be asked although they are not public, as in `tools.web.fetch.allowPrivate`."""
    allow: ToolNames | None = None
    """The tools that are taken from the server, by its own names; `*` at an end means anything. All if unset."""
    effect: Effect = "once"
    """The effect of a second run, for all tools of the server: `safe` only reads, `keyed` repeats harmlessly, `once` is
    never run again after a crash."""
    start_seconds: Annotated[float, Field(gt=0, le=600)] = 30
    """Seconds until the server must have named its tools."""
    call_seconds: Annotated[float, Field(gt=0, le=600)] = 60
    """Seconds that one call may take."""

    def takes(self, tool: str) -> bool:
        """True if `allow` names the tool, by the server's own name for it."""
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


class McpConfig(Section):
    """Tools that other programs offer by the Model Context Protocol (docs/mcp.md)."""

    servers: dict[ServerName, McpServerConfig] = {}
    """The servers, by name: a tool of the server NAME is called `NAME__tool`. An agent has it only if its own `tools.allow`
    names it so, or all of the server's by `mcp:NAME`, or all there are by `mcp:*`."""

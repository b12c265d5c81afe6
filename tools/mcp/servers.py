"""The tools of all MCP servers, for the agents whose `tools.allow` names them.

The SDK is imported by the first server that is started; without one nothing of it is.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from channels.section import ToolLists
from tools.mcp.config import McpConfig
from tools.mcp.definition import Definition
from tools.mcp.server import Environment, McpServer
from tools.policy import foreign
from tools.tool import Call, Tool, ToolResult, ToolSpec
from tools.workspace import Workspace


@dataclass(frozen=True)
class McpTool:
    """One tool of a server."""

    server: McpServer
    definition: Definition
    spec: ToolSpec

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.definition.parse(raw)

    async def run(self, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return await self.server.call(self.definition, arguments, call)


class McpServers:
    """A `ToolSource`. Of the one `before` it takes the servers whose config is as it was. `harmless` makes a stranger's
    text safe for a prompt."""

    def __init__(
        self,
        config: McpConfig,
        environment: Environment,
        harmless: Callable[[str], str],
        before: "McpServers | None" = None,
    ) -> None:
        servers = before.servers if before else {}
        self.servers: dict[str, McpServer] = {
            name: servers[name]
            if name in servers and (servers[name].config, servers[name].environment.web) == (it, environment.web)
            else McpServer(name, it, environment)
            for name, it in config.servers.items()
        }
        self._harmless = harmless
        self._specs: dict[tuple[str, str], ToolSpec] = {}

    def start(self) -> None:
        for server in self.servers.values():
            server.start()

    def tools(self, lists: ToolLists, workspace: Workspace) -> Sequence[Tool]:
        there = {it.name: (server, it) for server in self.servers.values() for it in server.offered}
        return [McpTool(*there[name], self._spec(*there[name])) for name in foreign(lists, tuple(there))]

    @property
    def names(self) -> dict[str, list[str]]:
        """The tools of each server that are offered, if there are any."""
        return {name: [it.name for it in server.offered] for name, server in self.servers.items() if server.offered}

    def _spec(self, server: McpServer, tool: Definition) -> ToolSpec:
        key = tool.name, tool.digest
        if key not in self._specs:
            self._specs[key] = tool.spec(server.config.effect, self._harmless)
        return self._specs[key]

    async def close(self) -> None:
        await asyncio.gather(*(it.close() for it in self.servers.values()))

    async def close_all_but(self, others: "McpServers") -> None:
        """Ends the servers that the newer ones did not take."""
        gone = [it for it in self.servers.values() if it not in others.servers.values()]
        await asyncio.gather(*(it.close() for it in gone))

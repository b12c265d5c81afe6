"""Which tools there are, in the order in which models and people see them, and an agent's tools of one turn.

A new one is a file and a line here. Every path that yields a tool to a model passes through `Toolbox`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from tools.background import Process
from tools.config import AgentToolsConfig, ExecConfig, allowed
from tools.edit import Edit
from tools.exec import Exec
from tools.find import Find
from tools.grep import Grep
from tools.ls import Ls
from tools.memory import Memory, MemoryGet, MemorySearch
from tools.message import Message
from tools.processes import Processes
from tools.read import Read
from tools.tool import Call, Effect, Messenger, Tool, ToolError, ToolResult, failed
from tools.workspace import Workspace
from tools.write import Write

log = structlog.get_logger()


@dataclass
class Catalog:
    """The built-in tools that an agent's policy allows, in catalogue order.

    `exec_config` is the effective one; `result_chars` is how much of one result the agent's models are shown.
    """

    config: AgentToolsConfig
    exec_config: ExecConfig
    messenger: Messenger
    memory: Memory
    processes: Processes
    result_chars: int

    def __post_init__(self) -> None:
        self.names = allowed(self.config, NAMES)
        self.exec_slots = asyncio.Semaphore(self.exec_config.parallel)
        """Shared by all turns of the agent."""

    def tools(self, workspace: Workspace) -> list[Tool]:
        return [_BUILDERS[name](self, workspace) for name in self.names]

    def shell(self, workspace: Workspace) -> Exec:
        return Exec(workspace, self.exec_config, self.exec_slots, self.result_chars)


_BUILDERS: dict[str, Callable[[Catalog, Workspace], Tool]] = {
    "read": lambda catalog, workspace: Read(workspace, catalog.result_chars),
    "write": lambda _, workspace: Write(workspace),
    "edit": lambda _, workspace: Edit(workspace),
    "ls": lambda _, workspace: Ls(workspace),
    "exec": lambda catalog, workspace: catalog.shell(workspace),
    "message": lambda catalog, _: Message(catalog.messenger, catalog.config.message),
    "memory_search": lambda catalog, workspace: MemorySearch(workspace, catalog.memory),
    "memory_get": lambda catalog, workspace: MemoryGet(workspace, catalog.memory, catalog.result_chars),
    "grep": lambda catalog, workspace: Grep(workspace, catalog.result_chars),
    "find": lambda catalog, workspace: Find(workspace, catalog.result_chars),
    "process": lambda catalog, workspace: Process(catalog.shell(workspace), catalog.processes),
}
NAMES: tuple[str, ...] = tuple(_BUILDERS)


class ToolSource(Protocol):
    """Where tools come from: the catalogue, or a server that brings schemas of its own."""

    def tools(self, workspace: Workspace) -> Sequence[Tool]: ...


class Toolbox:
    """Tools by name, in the order given, and the one way to call them: what a model or a tool did wrong is answered with
    a structured error that the model can act on. Of two tools with one name the earlier wins."""

    def __init__(self, tools: Iterable[Tool], *, argument_bytes_max: int) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools.setdefault(tool.spec.name, tool)
        self._argument_bytes_max = argument_bytes_max
        self.specs = tuple(tool.spec for tool in self._tools.values())

    def effect(self, name: str) -> Effect:
        """What a second run would do; the worst is assumed of a tool that is not there."""
        tool = self._tools.get(name)
        return tool.spec.effect if tool else "once"

    async def call(self, name: str, arguments: Mapping[str, Any] | None, raw: str, call: Call) -> ToolResult:
        """Run one call. `arguments` is None where `raw`, the model's text, is no JSON object. Raises only
        CancelledError."""
        try:
            tool = self._tools.get(name) or self._tools.get(name.strip())
            if tool is None:
                there = ", ".join(self._tools) or "none"
                raise ToolError("TOOL_NOT_ALLOWED", f"there is no tool {name[:64]!r} here; there is: {there}")
            if len(raw.encode(errors="replace")) > self._argument_bytes_max:
                too_large = f"the arguments exceed {self._argument_bytes_max} bytes; split the work"
                raise ToolError("INVALID_ARGUMENT", too_large)
            if arguments is None:
                raise ToolError("INVALID_ARGUMENT", "the arguments must be one JSON object")
            return await tool.run(tool.parse(arguments), call)
        except ToolError as error:
            return failed(error)
        except Exception as error:  # a tool's bug is a result too: the turn goes on, the log has the place
            log.error("tool_failed", tool=name[:64], exc_info=error)
            return failed(
                ToolError("TOOL_FAILED", "the tool broke down, perhaps in mid-work; check, and try another way")
            )

"""An agent's tools of one turn: what it is offered, and the one way to call it.

Every path that yields a tool to a model passes through here. A call never raises for what a model or a tool did wrong:
it is answered with a structured error the model can act on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from tools.tool import Call, Effect, Tool, ToolError, ToolResult, failed
from tools.workspace import Workspace

log = structlog.get_logger()


class ToolSource(Protocol):
    """Where tools come from: the built-in catalogue, or servers and plugins that bring schemas of their own."""

    def tools(self, workspace: Workspace) -> Sequence[Tool]:
        """The tools of a turn that works in `workspace`, after policy, in the order of the request. Blocking."""


class Toolbox:
    """Tools by name, in their sources' order; of two with one name the earlier wins."""

    def __init__(self, sources: Iterable[ToolSource], workspace: Workspace, *, argument_bytes_max: int) -> None:
        self._tools: dict[str, Tool] = {}
        for source in sources:
            for tool in source.tools(workspace):
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

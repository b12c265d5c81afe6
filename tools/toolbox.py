"""An agent's tools after policy: what it is offered, and the one way to call it.

Every path that yields a tool to a model passes through here. A call never raises for what a model or a tool did wrong:
it is answered with a structured error the model can act on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from tools.catalog import build_tools
from tools.config import AgentToolsConfig, ExecConfig
from tools.schema import input_schema, without_nulls
from tools.tool import Call, Effect, Messenger, Text, Tool, ToolError, ToolResult, ToolSpec, error_body
from tools.workspace import Workspace

MISTAKES_MAX = 20
NAME_CHARS_MAX = 64

log = structlog.get_logger()


class Toolbox:
    """Tools by name, in catalogue order."""

    def __init__(self, tools: Sequence[Tool], *, argument_bytes_max: int) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._argument_bytes_max = argument_bytes_max
        self.specs = tuple(spec(tool) for tool in tools)

    def effect(self, name: str) -> Effect:
        """What a second run would do; the worst is assumed of a tool that is not there."""
        tool = self._tools.get(name)
        return tool.effect if tool else "once"

    async def call(self, name: str, arguments: Mapping[str, Any] | None, raw: str, call: Call) -> ToolResult:
        """Run one call. `arguments` is None where `raw`, the model's text, is no JSON object. Raises only
        CancelledError."""
        try:
            tool = self._tools.get(name) or self._tools.get(name.strip())
            if tool is None:
                there = ", ".join(self._tools) or "none"
                raise ToolError("TOOL_NOT_ALLOWED", f"there is no tool {name[:64]!r} here; there is: {there}")
            return await tool.run(self._checked(tool, arguments, raw), call)
        except ToolError as error:
            return failed(error)
        except Exception as error:  # a tool's bug is a result too: the turn goes on, the log has the place
            log.error("tool_failed", tool=name[:64], exc_info=error)
            return failed(
                ToolError("TOOL_FAILED", "the tool broke down, perhaps in mid-work; check, and try another way")
            )

    def _checked(self, tool: Tool, arguments: Mapping[str, Any] | None, raw: str) -> Any:
        if len(raw.encode(errors="replace")) > self._argument_bytes_max:
            raise ToolError(
                "INVALID_ARGUMENT", f"the arguments exceed {self._argument_bytes_max} bytes; split the work"
            )
        if arguments is None:
            raise ToolError("INVALID_ARGUMENT", "the arguments must be one JSON object")
        try:
            return tool.arguments.model_validate(without_nulls(arguments, tool.arguments))
        except ValidationError as error:
            mistakes = [_sentence(mistake) for mistake in error.errors()]
            if len(mistakes) > MISTAKES_MAX:
                mistakes[MISTAKES_MAX:] = [f"and {len(mistakes) - MISTAKES_MAX} more mistakes"]
            raise ToolError("INVALID_ARGUMENT", "; ".join(mistakes)) from None


def build_toolbox(
    *,
    config: AgentToolsConfig,
    exec_config: ExecConfig,
    exec_slots: asyncio.Semaphore,
    workspace: Workspace,
    messenger: Messenger,
    argument_bytes_max: int,
    result_chars: int,
) -> Toolbox:
    """The agent's toolbox. `exec_config` is the effective one, `exec_slots` are shared by all turns of the agent,
    `result_chars` is how much of one result the agent's models are shown."""
    tools = build_tools(
        config=config,
        exec_config=exec_config,
        exec_slots=exec_slots,
        workspace=workspace,
        messenger=messenger,
        result_chars=result_chars,
    )
    return Toolbox(tools, argument_bytes_max=argument_bytes_max)


def spec(tool: Tool) -> ToolSpec:
    """What a provider is told of it."""
    schema = _schemas.get(tool.arguments)
    if schema is None:
        schema = _schemas[tool.arguments] = input_schema(tool.arguments)
    return ToolSpec(name=tool.name, summary=tool.summary, description=tool.description, input_schema=schema)


_schemas: dict[type, Mapping[str, Any]] = {}


def failed(error: ToolError) -> ToolResult:
    """The error as the model reads it."""
    body = error_body(error.code, error.message, retryable=error.retryable)
    return ToolResult(content=(Text(text=body),), details=error.details, is_error=True)


def _sentence(error: Any) -> str:
    """One mistake in the arguments, said in few words and without the value."""
    name = ".".join(map(str, error["loc"]))[:NAME_CHARS_MAX] or "arguments"
    match error["type"]:
        case "missing":
            return f"'{name}' is required"
        case "extra_forbidden":
            return f"'{name}' is not an argument of this tool"
        case "literal_error":
            return f"'{name}' must be {error['ctx']['expected']}"
        case _:
            return f"'{name}': {error['msg'][0].lower()}{error['msg'][1:]}"

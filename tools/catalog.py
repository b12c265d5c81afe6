"""The built-in tools, in the order in which models and users see them, and an agent's tools for one turn.

A new tool is a file and a line here. Every path that gives a tool to a model passes through `Toolbox`.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from channels.section import ToolLists
from tools.ask import Answers, AskTool
from tools.config import AgentToolsConfig, ExecConfig, ToolsConfig, WebToolsConfig
from tools.documents.document import Documents
from tools.edit import Edit, Write
from tools.exec import Exec
from tools.feishu.config import FeishuToolConfig
from tools.feishu.links import FeishuLinks
from tools.feishu.tool import FeishuTool
from tools.folder import FolderTools, folder_tools
from tools.groups import GroupHistory, Groups
from tools.handover import HandoverTool, HandsOver
from tools.identity import Identities
from tools.memory import Memory, MemoryGet, MemorySearch
from tools.message import MessageTool, Messenger
from tools.policy import layers_of, permitted
from tools.process import Process, Processes
from tools.read import Read
from tools.sandbox.sandbox import Sandbox
from tools.schedule import Schedules, ScheduleTool
from tools.search import Find, Grep, Ls
from tools.task import Delegate, TaskTool
from tools.tool import (
    SOURCES,
    Call,
    Effect,
    Gate,
    Held,
    NeedsApproval,
    Permit,
    Prepares,
    Request,
    Subject,
    Tool,
    ToolError,
    ToolResult,
    UsesRights,
    VariesEffect,
    failed,
    sources,
)
from tools.web.client import WebClient
from tools.web.fetch import Fetcher, WebFetch
from tools.web.search import WebSearch
from tools.workspace import Workspace

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPorts:
    """The gateway's services for the built-in tools of all agents."""

    messenger: Messenger
    memory: Memory
    processes: Processes
    delegate: Delegate
    schedules: Schedules
    identities: Identities
    answers: Answers
    sandbox: Sandbox
    handovers: HandsOver | None = None
    """None if the config names no on-call chat."""
    groups: Groups | None = None
    """None if no group is remembered."""


@dataclass
class Catalog:
    """The built-in tools in `names`, in catalogue order. `exec_config` is the effective one; `result_chars` is how much
    of a result the agent's models see."""

    names: Sequence[str]
    config: AgentToolsConfig
    exec_config: ExecConfig
    web: WebToolsConfig
    feishu: FeishuToolConfig
    ports: ToolPorts
    result_chars: int
    documents: Documents

    def __post_init__(self) -> None:
        self.exec_slots = asyncio.Semaphore(self.exec_config.parallel)
        """Shared by all turns of the agent, as is the fetcher."""
        self.fetcher = Fetcher(self.web.fetch)
        # Separate, so that slow name servers of a command do not delay `web_fetch`.
        self.network = WebClient(self.web.fetch) if self.exec_config.network else None
        self.feishu_tool = FeishuTool(self.feishu, self.ports.identities)

    def tools(
        self,
        workspace: Workspace,
        abilities: Collection[str] = ("send",),
        permitted_names: Collection[str] = (),
        groups: tuple[str, ...] = (),
    ) -> list[Tool]:
        """Build the tools. `abilities` is what the `message` tool can do in the turn's chat; `permitted_names` are those
        of the turn: a link to a document is opened with the rights of the platform's tool. `groups` are those whose messages
        the turn may read."""
        links = FeishuLinks(tool=self.feishu_tool, permitted="feishu" in permitted_names)

        def of_turn(tool: Tool) -> Tool:
            match tool:
                case MessageTool():
                    return replace(tool, abilities=frozenset(abilities))
                case Read():
                    return replace(tool, links=links)
                case GroupHistory():
                    return replace(tool, groups=groups)
                case _:
                    return tool

        names = [it for it in _BUILDERS if it in self.names and (groups or it != GroupHistory.spec.name)]
        return [of_turn(_BUILDERS[name](self, workspace)) for name in names]

    def shell(self, workspace: Workspace) -> Exec:
        return Exec(workspace, self.exec_config, self.exec_slots, self.ports.sandbox, self.result_chars, self.network)


_BUILDERS: dict[str, Callable[[Catalog, Workspace], Tool]] = {
    "read": lambda catalog, workspace: Read(workspace, catalog.result_chars, catalog.documents),
    "write": lambda _, workspace: Write(workspace),
    "edit": lambda _, workspace: Edit(workspace),
    "ls": lambda _, workspace: Ls(workspace),
    "exec": lambda catalog, workspace: catalog.shell(workspace),
    "message": lambda catalog, workspace: MessageTool(catalog.ports.messenger, catalog.config.message, workspace),
    "memory_search": lambda catalog, workspace: MemorySearch(workspace, catalog.ports.memory),
    "memory_get": lambda catalog, workspace: MemoryGet(workspace, catalog.ports.memory, catalog.result_chars),
    "grep": lambda catalog, workspace: Grep(workspace, catalog.result_chars),
    "find": lambda catalog, workspace: Find(workspace, catalog.result_chars),
    "process": lambda catalog, workspace: Process(catalog.shell(workspace), catalog.ports.processes),
    "web_fetch": lambda catalog, _: WebFetch(catalog.fetcher, catalog.result_chars),
    "web_search": lambda catalog, _: WebSearch(catalog.web.search),
    "feishu": lambda catalog, _: catalog.feishu_tool,
    "task": lambda catalog, _: TaskTool(catalog.ports.delegate),
    "schedule": lambda catalog, _: ScheduleTool(catalog.ports.schedules),
    "ask": lambda catalog, _: AskTool(catalog.ports.answers),
    "handover": lambda catalog, _: HandoverTool(catalog.ports.handovers),
    "group_history": lambda catalog, _: GroupHistory(catalog.ports.groups, catalog.result_chars),
}
NAMES: tuple[str, ...] = tuple(_BUILDERS)


def offered(everybody: ToolsConfig, agent: AgentToolsConfig, *, off: Collection[str]) -> tuple[str, ...]:
    """Return an agent's tools before chats and senders restrict them: the built-in ones, then those of folders. `off` are
    those whose setting outside `tools` is not made."""
    is_off = {"web_search": not everybody.web.search.provider, "feishu": not everybody.feishu.areas}
    there = tuple(it for it in NAMES if it not in off and not is_off.get(it))
    return permitted(layers_of(everybody, agent), there + own_tools(everybody).names)


def own_tools(everybody: ToolsConfig) -> FolderTools:
    """Load the tools of the operator's folders. Blocking."""
    return folder_tools(everybody.directories, NAMES)


class Toolbox:
    """Tools by name, in the given order, and the only way to call them: mistakes of a model or a tool become structured
    errors that the model can act on. It holds only what every policy layer permits. The earlier of two tools with one
    name wins. Without a `gate`, nothing that needs an approval runs."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        layers: tuple[ToolLists, ...],
        argument_bytes_max: int,
        scrub: Callable[[str], str] = str,
        gate: Gate | None = None,
    ) -> None:
        there: dict[str, Tool] = {}
        for tool in tools:
            there.setdefault(tool.spec.name, tool)
        self._tools = {name: there[name] for name in permitted(layers, tuple(there))}
        self._argument_bytes_max = argument_bytes_max
        self._scrub = scrub
        self._gate = gate
        self.specs = tuple(tool.spec for tool in self._tools.values())

    def effect(self, name: str, arguments: Mapping[str, Any] | None = None) -> Effect:
        """Return the effect of a second run of a call; the worst if there is no such tool."""
        tool = self._tools.get(name)
        if arguments is not None and isinstance(tool, VariesEffect):
            return tool.effect_of(arguments)
        return tool.spec.effect if tool else "once"

    async def call(self, name: str, arguments: Mapping[str, Any] | None, raw: str, call: Call) -> ToolResult:
        """Run one call. `arguments` is None if `raw`, the model's text, is no JSON object. Raises only CancelledError."""
        with sources() as found:
            result = await self._call(name, arguments, raw, call)
        content = tuple(self._scrub(it) if isinstance(it, str) else it for it in result.content)
        details = {**result.details, SOURCES: sorted(found)} if found else result.details
        return replace(result, content=content, details=details)

    async def _call(self, name: str, arguments: Mapping[str, Any] | None, raw: str, call: Call) -> ToolResult:
        try:
            tool = self._tools.get(name) or self._tools.get(name.strip())
            if tool is None:
                there = ", ".join(self._tools) or "none"
                raise ToolError("TOOL_NOT_ALLOWED", f"there is no tool {name[:64]!r} here; there is: {there}")
            if len(raw.encode(errors="replace")) > self._argument_bytes_max:
                too_large = f"the arguments exceed {self._argument_bytes_max} bytes; split the work"
                raise ToolError("INVALID_ARGUMENT", too_large)
            if arguments is None:
                raise ToolError("INVALID_ARGUMENT", f"the arguments must be one JSON object: {_fault(raw)}")
            parsed = tool.parse(arguments)
            if isinstance(tool, Prepares):
                await tool.prepare(parsed, call)
            permit, held = await self._permit(tool, arguments, parsed, call)
            try:
                result = await tool.run(parsed, replace(call, held=held))
            except ToolError as error:
                result = failed(error)
            if permit is not None:
                await permit.finished(result)
            return result
        except ToolError as error:
            return failed(error)
        except Exception as error:  # a tool's bug is a result, too: the turn continues, the log has the traceback
            log.error("tool_failed", tool=name[:64], exc_info=error)
            return failed(
                ToolError("TOOL_FAILED", "the tool broke down, perhaps in mid-work; check, and try another way")
            )

    async def _permit(
        self, tool: Tool, arguments: Mapping[str, Any], parsed: Any, call: Call
    ) -> tuple[Permit | None, Held | None]:
        name, gate = tool.spec.name, self._gate
        uses = (name, *tool.uses(parsed)) if isinstance(tool, UsesRights) else (name,)
        gated = gate is not None and any(gate.demands(it, call) for it in uses)
        subject = None
        if hasattr(tool, "subject") and isinstance(tool, NeedsApproval):
            subject = await asyncio.to_thread(tool.subject, parsed, replace(call, gated=gated))
        if subject is None and gated:
            text = json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True, indent=1)
            subject = Subject(text=text, facts={}, always=True)  # the tool describes none
        if subject is None:
            return None, None
        if gate is None:
            raise ToolError("NO_APPROVER", "this call needs an approval, and nobody can be asked for one here")
        return await gate.admit(Request(tool=name, arguments=arguments, subject=subject), call), subject.held


def _fault(raw: str) -> str:
    if not raw.strip():
        return "they were cut off before they began; make the call again"
    try:
        value = json.loads(raw, strict=False, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"at character {error.pos + 1} (line {error.lineno}, column {error.colno})"
        if error.msg.startswith("Unterminated string") or error.pos >= len(raw.rstrip()):
            start = f"; the string that begins {place} has no end" if error.pos < len(raw.rstrip()) else ""
            end = f"they end at character {len(raw.rstrip())}, before they are whole{start}"
            return f"{end}; make the call again, in smaller steps"
        fix = "; write a backslash as \\\\" if "escape" in error.msg else ""
        near = raw[max(0, error.pos - 15) : error.pos + 15]
        return f"{error.msg[:1].lower()}{error.msg[1:]} {place}, near {near!r}{fix}"
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "they are nested too deeply"
    kinds = {
        list: "a list",
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return f"they are {kinds.get(type(value), 'nested too deeply, or hold half a character or a number too large')}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON; write null or a number")

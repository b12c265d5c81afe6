"""Stand-ins for the tools of a turn: they give the results that the journal has, and nothing runs.

A call gets the result of the same call; else that of the tool's next call in order; else a result that says that there is
none, and the turn is marked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from agents.messages import EXTERNAL, AssistantMessage, Message, Text, ToolCall, ToolResultMessage
from channels.tools import ToolLists
from gateway.rehearse.kept import arguments_of
from tools.approval import canonical
from tools.mcp.config import McpConfig
from tools.policy import foreign, server_of
from tools.tool import Call, Image, Tool, ToolError, ToolResult, ToolSpec

NO_TOOL_ANSWERED = frozenset({"TOOL_NOT_ALLOWED", "TOOL_CALLS_EXHAUSTED", "CUT_OFF"})
"""Codes of results that were made without the tool: another config may let it answer."""


@dataclass(slots=True)
class KeptResult:
    tool: str
    arguments: str
    result: ToolResultMessage
    used: bool = False


@dataclass(kw_only=True)
class KeptAnswers:
    """`unknown` names the tools of calls without an answer."""

    kept: Sequence[KeptResult]
    unknown: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "KeptAnswers":
        open_: dict[str, ToolCall] = {}
        kept: list[KeptResult] = []
        for message in messages:
            if isinstance(message, AssistantMessage):
                open_ |= {call.id: call for call in message.calls}
            elif isinstance(message, ToolResultMessage):
                call = open_.pop(message.call_id, None)
                if call is not None and _code_of(message) not in NO_TOOL_ANSWERED:
                    kept.append(KeptResult(call.name, arguments_of(call), message))
        return cls(kept=kept)

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Raises ToolError without any."""
        key = canonical(dict(arguments))
        own = [it for it in self.kept if it.tool == tool]
        exact, unused = [it for it in own if it.arguments == key], [it for it in own if not it.used]
        found = next((it for it in (*(it for it in exact if not it.used), *exact, *unused)), None)
        if found is None:
            self.unknown.append(tool)
            message = "this is a rehearsal, and no answer of this tool was kept; go on without it"
            raise ToolError("NO_KEPT_ANSWER", message)
        found.used = True
        return _result_of(found.result)


def _code_of(result: ToolResultMessage) -> str:
    text = next((it.text for it in result.content if isinstance(it, Text)), "")
    if not result.is_error or not text.startswith("{"):
        return ""
    try:
        return str(orjson.loads(text).get("error_code", ""))
    except orjson.JSONDecodeError:
        return ""


def _result_of(message: ToolResultMessage) -> ToolResult:
    """The result as the model read it, with its fences: they are not put around it again."""
    content = tuple(it if isinstance(it, Image) else it.text for it in message.content)
    details = {name: value for name, value in (message.details or {}).items() if name != EXTERNAL}
    return ToolResult(content=content, details=details, is_error=message.is_error)


@dataclass(frozen=True, kw_only=True, slots=True)
class StandInTool:
    """The `Tool` that a rehearsal has in place of another. `checks` checks the arguments, as the tool itself would."""

    spec: ToolSpec
    answers: KeptAnswers
    checks: Tool | None = None

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.checks is not None:
            self.checks.parse(raw)
        return raw

    async def run(self, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return self.answers.answer(self.spec.name, arguments)


def stand_ins(
    tools: Sequence[Tool], answers: KeptAnswers, listed: Sequence[Mapping[str, Any]], lists: ToolLists, mcp: McpConfig
) -> list[Tool]:
    """The stand-ins of a turn's tools, and of those of MCP servers that `listed` in the turn, as far as the agent's
    `lists` name them now: no server is started to ask."""
    made: list[Tool] = [StandInTool(spec=it.spec, answers=answers, checks=it) for it in tools]
    there = {it["name"]: it for it in listed if server_of(it["name"]) in mcp.servers}
    for name in foreign(lists, tuple(there)):
        it, effect = there[name], mcp.servers[server_of(name)].effect
        spec = ToolSpec(
            name=name,
            summary=it["summary"],
            description=it["description"],
            input_schema=it["parameters"],
            effect=effect,
        )
        made.append(StandInTool(spec=spec, answers=answers))
    return made

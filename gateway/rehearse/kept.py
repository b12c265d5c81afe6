"""Stored turns for rehearsal: the message, the conversation at the time, the agent's steps, and tools that replay results.

A call gets the recorded result of the same call, else that of the tool's next unused call, else an error, and the turn is
marked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, Literal, TypeAlias

import orjson

from agents.messages import (
    EXTERNAL,
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    message_json,
)
from agents.prompt.reply import visible
from channels.section import ToolLists
from gateway.program import OperatorError
from gateway.store.inbound import Inbound, LoadedBody
from gateway.store.layers import DatabaseLayers
from gateway.store.records import WaitingMessage, Work
from gateway.turns.history import TURNS_MAX, numbered_turns
from gateway.turns.record import TurnRecord, heading_of, read_inbound, turn_record
from tools.mcp.config import McpConfig
from tools.policy import SEPARATOR, foreign, server_of
from tools.tool import Call, Image, Tool, ToolError, ToolResult, ToolSpec, canonical

BY_THE_MODEL = ("replied", "silent", "declined", "failed")
"""The outcomes of turns that the model ended."""
Skip: TypeAlias = Literal["not-kept", "pruned", "recalled", "no-model", "interrupted"]
"""The reason why a turn cannot be rehearsed. `interrupted`: it was stopped, stale, or over a budget."""


class NotRehearsed(OperatorError):
    """Nothing was rehearsed."""

    code = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The comparable attributes of an original or rehearsed turn. `calls` are tools with their arguments, `sections` the
    scrubbed prompt sections by heading; other texts are scrubbed when they are shown."""

    agent: str
    model: str = ""
    outcome: str
    reply: str = ""
    calls: Sequence[tuple[str, str]] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    tools: Sequence[str] = ()
    requests: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    fault: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptTurn:
    """`begun` are the first messages: the user's, and the approved call that a turn continues with. `steps` are the messages
    after them, `tools` those that were offered to the model."""

    id: int
    sid: str
    inbound: Inbound
    messages: Sequence[WaitingMessage]
    begun: Sequence[Message]
    steps: Sequence[Message]
    work: Work
    tools: Sequence[Mapping[str, Any]]
    before: RunFacts

    @property
    def began(self) -> float:
        return self.begun[0].timestamp


@dataclass(frozen=True, kw_only=True, slots=True)
class Picked:
    """The turns to rehearse, oldest first; the skipped ones; and the number of finished turns without layers."""

    turns: Sequence[KeptTurn]
    skipped: Sequence[tuple[int, Skip]]
    unkept: int


async def picked(
    layers: DatabaseLayers, *, last: int, agent: str = "", feedback: str = "", numbers: Sequence[int] = ()
) -> Picked:
    """Pick the turns with these numbers, or the newest `last` turns with layers, optionally of one agent or rated so. Raise
    NotRehearsed for an unknown number."""
    only = {"agent": agent, "feedback": feedback}
    listed = await layers.listed(before=None, only=only, limit=last) if not numbers else []
    numbers_read = sorted({*numbers} or {it.turn for it in listed})
    turns: list[KeptTurn] = []
    skipped: list[tuple[int, Skip]] = []
    for number in numbers_read:
        match await kept_turn(layers, number):
            case None:
                raise NotRehearsed(f"no turn: {number} — `turns list` shows them")
            case KeptTurn() as found:
                turns.append(found)
            case reason:
                skipped.append((number, reason))
    newest = numbers_read[0] if len(numbers_read) == last else 0
    unkept = 0 if numbers or agent or feedback else await layers.unkept(newest)
    return Picked(turns=turns, skipped=skipped, unkept=unkept)


async def kept_turn(layers: DatabaseLayers, number: int) -> KeptTurn | Skip | None:
    """Return the turn, or why it is skipped; None if the number is unknown."""
    stored = await layers.get(number)
    if stored is None:
        return None
    record = turn_record(stored, UTC, "")
    messages = [_waiting(it) for it in stored.messages if it["id"] <= number]
    inbound = read_inbound(messages[-1].body) if messages and messages[-1].turn == number else None
    if (reason := _skip(record, stored.outcome, inbound)) or inbound is None:
        return reason or "pruned"
    rows = [message_json.validate_json(it["content"]) for it in stored.rows if it["kind"] not in ("drained", "final")]
    if not rows or not isinstance(rows[0], UserMessage):
        return "not-kept"
    steps = next((at for at, it in enumerate(rows) if at and _is_of_model(it)), len(rows))
    steps = next((at for at, it in enumerate(rows[:steps]) if at and isinstance(it, UserMessage)), steps)
    work = await layers.stood(stored.sid, number, until=rows[0].timestamp, history_turns=TURNS_MAX)
    past = numbered_turns(work.history)
    work = replace(work, numbers=[it for it, _ in past], turns=[turn for _, turn in past])
    turn = record.turn
    before = RunFacts(
        agent=turn.agent,
        model=turn.model,
        outcome=turn.outcome,
        reply=reply_in(rows) if turn.outcome == "replied" else "",
        calls=calls_in(rows),
        sections=sections_of(it.text or "" for it in record.prompt),
        tools=[it["name"] for it in record.tools],
        requests=turn.requests,
        tokens=turn.tokens.model_dump(),
        cost=turn.cost,
    )
    return KeptTurn(
        id=number,
        sid=stored.sid,
        inbound=inbound,
        messages=messages,
        begun=rows[:steps],
        steps=rows[steps:],
        work=work,
        tools=record.tools,
        before=before,
    )


def _waiting(row: Mapping[str, Any]) -> WaitingMessage:
    return WaitingMessage(turn=row["id"], body=LoadedBody(row["body"]), at=row["at"], attempts=0)


def _skip(record: TurnRecord, outcome: str, inbound: Inbound | None) -> Skip | None:
    if "recalled" in record.missing or (inbound and inbound.recalled):
        return "recalled"
    if inbound is None:
        return "pruned"
    if inbound.command:
        return "no-model"
    if outcome and outcome not in BY_THE_MODEL:
        return "interrupted"
    return None if record.prompt else "not-kept"


def _is_of_model(message: Message) -> bool:
    # The gateway itself adds approved calls, without a provider.
    return isinstance(message, AssistantMessage) and bool(message.provider)


def sections_of(texts: Iterable[str]) -> dict[str, str]:
    return {heading_of(it) or "(identity)": it for it in texts}


def calls_in(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Return the model's calls in order."""
    answers = (it for it in messages if isinstance(it, AssistantMessage) and it.provider)
    return [(call.name, arguments_of(call)) for answer in answers for call in answer.calls]


def arguments_of(call: ToolCall) -> str:
    """Return the arguments as canonical JSON, or the raw text if they are not a JSON object."""
    return call.arguments_raw if call.arguments is None else canonical(call.arguments)


def reply_in(messages: Sequence[Message]) -> str:
    """Return the visible text of the answers after the last tool result or user message."""
    texts: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage | ToolResultMessage):
            texts.clear()
        else:
            texts.append(message.text)
    return (visible("".join(texts)) or "").strip()


NO_TOOL_ANSWERED = frozenset({"TOOL_NOT_ALLOWED", "TOOL_CALLS_EXHAUSTED", "CUT_OFF"})
"""Error codes of calls that did not run the tool; another config may allow it."""


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
        """Return the recorded result for a call. Raise ToolError if there is none."""
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
    # The text has its fences already: without EXTERNAL it is not fenced again.
    content = tuple(it if isinstance(it, Image) else it.text for it in message.content)
    details = {name: value for name, value in (message.details or {}).items() if name != EXTERNAL}
    return ToolResult(content=content, details=details, is_error=message.is_error)


@dataclass(frozen=True, kw_only=True, slots=True)
class StandInTool:
    """A `Tool` that replays recorded results. `checks` is the real tool, which validates the arguments."""

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
    """Return stand-ins for a turn's tools, and for the MCP tools that were `listed` in the turn and that the agent's `lists`
    allow now. No server is started."""
    made: list[Tool] = [StandInTool(spec=it.spec, answers=answers, checks=it) for it in tools]
    there = {it["name"]: it for it in listed if server_of(it["name"]) in mcp.servers}
    for name in foreign(lists, tuple(there)):
        it, server = there[name], server_of(name)
        effect = mcp.servers[server].effect_of(name.removeprefix(f"{server}{SEPARATOR}"))
        spec = ToolSpec(
            name=name,
            summary=it["summary"],
            description=it["description"],
            input_schema=it["parameters"],
            effect=effect,
        )
        made.append(StandInTool(spec=spec, answers=answers))
    return made

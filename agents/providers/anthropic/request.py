"""Our request as Anthropic's Messages body. Pure: nothing is sent here, and the history is taken as repaired.

Cache marks, four at most: the stable half of the system prompt, the last tool, the end of finished history, and the
last block, which moves along within a tool loop. If the last turn was so long that the server would not find the mark
before it again, that place is marked in place of the tools, which the system prompt's mark covers. Blocks are built
from our own model, never from the SDK's, because the server refuses members it does not know.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.models import Level
from agents.providers.provider import ModelRequest, OneTool, System
from tools.tool import Image, NativeDocument

API = "anthropic-messages"
MARK = {"type": "ephemeral"}
LOOK_BACK_BLOCKS = 18
"""The blocks before a mark in which the server surely looks for what it has cached; it says about 20."""
_MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})

ClaudeBlock: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST /v1/messages`, without `stream`."""
    request = shared.with_lost_tools(request)
    messages, marks = _messages(request)
    body: dict[str, Any] = {"model": request.model, "max_tokens": shared.output_tokens(request), "messages": messages}
    if system := _system(request.system):
        body["system"] = system
    if request.tools:
        body["tools"] = [
            {"name": it.name, "description": shared.description_of(it), "input_schema": dict(it.input_schema)}
            for it in request.tools
        ]
        if marks <= 2:  # with the system prompt's and this one, four
            body["tools"][-1]["cache_control"] = MARK
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    return body | thinking_members(request, forced=forced)


def _system(system: System) -> list[ClaudeBlock]:
    """The stable half ends at a cache mark."""
    blocks: list[ClaudeBlock] = [{"type": "text", "text": text} for text in shared.system_texts(system)]
    if system.stable.strip():
        blocks[0]["cache_control"] = MARK
    return blocks


def _tool_choice(request: ModelRequest) -> ClaudeBlock | None:
    """The choice for the body; None for `auto`, the server's default."""
    choice = shared.sent_choice(request)
    if isinstance(choice, OneTool):
        return {"type": "tool", "name": choice.name}
    return {"none": {"type": "none"}, "required": {"type": "any"}}.get(choice)


def _messages(request: ModelRequest) -> tuple[list[Any], int]:
    """The messages, and the number of cache marks in them. The last two turns can carry one, so they are written again."""
    settled = request.settled[:-2]
    request = replace(request, settled=settled)
    messages = request.unsettled
    *_, last, running = 0, 0, *(n for n, message in enumerate(messages) if isinstance(message, UserMessage))
    long = sum(len(message.content) for message in messages[last:running]) > LOOK_BACK_BLOCKS
    wire: list[ClaudeBlock] = []
    marks = 0
    for number, message in enumerate(messages):
        if number == running or (number == last and long):
            marks += _mark_last(wire)
        _append(wire, message)
    return [*shared.written(request.settled, _unmarked, API), *wire], marks + _mark_last(wire)


def _unmarked(messages: Sequence[Message]) -> list[ClaudeBlock]:
    wire: list[ClaudeBlock] = []
    for message in messages:
        _append(wire, message)
    return wire


def _append(wire: list[ClaudeBlock], message: Message) -> None:
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    shared.append(wire, role, "content", _blocks(message))


def _mark_last(wire: list[ClaudeBlock]) -> int:
    """Let the cache reach to the last block of the last message that may carry a mark; how many marks that adds."""
    block = next((it for it in reversed(wire[-1]["content"] if wire else ()) if it["type"] in _MARKABLE), None)
    if block is None or "cache_control" in block:
        return 0
    block["cache_control"] = MARK
    return 1


def _blocks(message: Message) -> list[ClaudeBlock]:
    if isinstance(message, ToolResultMessage):
        return [_result_block(message)]
    if isinstance(message, UserMessage):
        return [_part(part) for part in message.sent_parts]
    return _assistant_blocks(message)


def _part(part: UserPart) -> ClaudeBlock:
    if isinstance(part, NativeDocument):
        source = {"type": "base64", "media_type": "application/pdf", "data": part.data}
        return {"type": "document", "source": source, "title": part.name}
    if isinstance(part, Image):
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
    return {"type": "text", "text": part.text}


def _assistant_blocks(message: AssistantMessage) -> list[ClaudeBlock]:
    blocks: list[ClaudeBlock] = []
    for part in message.content:
        match part:
            case Text():
                blocks.append(_part(part))
            case ToolCall():
                blocks.append(_call_block(part))
            case Thinking(wire=wire) | Opaque(wire=wire) if wire is not None and wire.api == API:
                blocks.append(dict(wire.data))
    return blocks


def _call_block(call: ToolCall) -> ClaudeBlock:
    block: ClaudeBlock = {
        "type": "tool_use",
        "id": shared.wire_id(call.id),
        "name": shared.wire_name(call.name),
        "input": call.arguments or {},
    }
    if call.wire is not None and call.wire.api == API:
        block |= call.wire.data
    return block


def _result_block(message: ToolResultMessage) -> ClaudeBlock:
    """An error may hold text only, and must hold some; a success without content leaves the member out."""
    parts = [part for part in message.content if isinstance(part, Text) or not message.is_error]
    blocks = [_part(part) for part in parts]
    result: ClaudeBlock = {"type": "tool_result", "tool_use_id": shared.wire_id(message.call_id)}
    if message.is_error:
        result["is_error"] = True
        blocks = blocks or [{"type": "text", "text": "The tool failed and gave no reason."}]
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        result["content"] = blocks[0]["text"]
    elif blocks:
        result["content"] = blocks
    return result


BUDGET_MIN = 1024
"""Anthropic's own minimum, in tokens."""


def thinking_members(request: ModelRequest, *, forced: bool) -> dict[str, Any]:
    """The members of the body that say how to think; none leaves it to the model."""
    level = request.thinking
    if level is None:
        return {}
    match request.facts.thinking_style:
        case "budget":
            return _budget(request, level, forced=forced)
        case "between_tools" if level == "off":
            return {"thinking": {"type": "between_tools"}}
        case "always":
            return {"output_config": {"effort": level}}
        case _:
            if level == "off":
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}


def _budget(request: ModelRequest, level: Level, *, forced: bool) -> dict[str, Any]:
    if level == "off":
        return {}  # left out is off
    budget = max(BUDGET_MIN, int(request.max_tokens * shared.THINKING_SHARES[level]))
    if forced:
        return shared.without_thinking(request, "a tool is forced")
    if budget >= request.max_tokens:
        return shared.without_thinking(request, "maxTokens leaves no room for it")
    if _unthinking(request):
        return shared.without_thinking(request, "the running turn has calls that came without thinking")
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _unthinking(request: ModelRequest) -> bool:
    """A turn begun by another model, or without thinking: its calls may not be continued with thinking enabled. A question
    right behind results is sent in one message with them, so the turn before it counts as running."""
    question_follows = False
    for message in reversed(request.messages):
        if not isinstance(message, AssistantMessage):
            question_follows = isinstance(message, UserMessage)
        elif question_follows:
            return False
        elif not isinstance(message.content[0], Thinking):
            return True
    return False

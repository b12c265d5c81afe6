"""Anthropic's Messages API: build the request body, and assemble the stream into one assistant message. Pure.

Up to four cache marks: the stable half of the system prompt, the last tool, the end of finished history, and the last
block, which moves within a tool loop. After a turn so long that the server would not find the previous mark, that
place is marked instead of the tools, which the system prompt's mark covers. Blocks are built from our own model, since
the server refuses members it does not know.

Blocks stay in order, and thinking is kept as the server made it. Only `message_stop` proves an end. Unknown events,
deltas and blocks are ignored or kept opaque; malformed ones raise `BadStream`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.draft import Draft, Payload
from agents.providers.models import Level
from agents.providers.payload import (
    BadStream,
    count_of,
    object_of,
    objects_of,
    required_index,
    required_object,
    text_of,
)
from agents.providers.provider import ModelEvent, ModelRequest, OneTool, System
from agents.providers.refusals import failure_of
from tools.tool import Image, NativeDocument

API = "anthropic-messages"
MARK = {"type": "ephemeral"}
LOOK_BACK_BLOCKS = 18
"""The blocks before a mark that the server searches for a cached prefix; documented as about 20."""
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
    blocks: list[ClaudeBlock] = [{"type": "text", "text": text} for text in shared.system_texts(system)]
    if system.stable.strip():
        blocks[0]["cache_control"] = MARK
    return blocks


def _tool_choice(request: ModelRequest) -> ClaudeBlock | None:
    """Return the choice; None for `auto`, the server's default."""
    choice = shared.sent_choice(request)
    if isinstance(choice, OneTool):
        return {"type": "tool", "name": choice.name}
    return {"none": {"type": "none"}, "required": {"type": "any"}}.get(choice)


def _messages(request: ModelRequest) -> tuple[list[Any], int]:
    """Return the messages and their number of cache marks. The last two turns may have one, so they are rebuilt."""
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
    """Mark the last markable block of the last message; return how many marks that adds."""
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
    """Build a result. An error must have content, and only text; a success without content omits the member."""
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
"""Anthropic's minimum, in tokens."""


def thinking_members(request: ModelRequest, *, forced: bool) -> dict[str, Any]:
    """Return the body's thinking members; none for the model's default."""
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
    """Return whether the running turn has calls made without thinking, which cannot be continued with thinking
    enabled. A question directly after results is merged with them, so the turn before it counts as running."""
    question_follows = False
    for message in reversed(request.messages):
        if not isinstance(message, AssistantMessage):
            question_follows = isinstance(message, UserMessage)
        elif question_follows:
            return False
        elif not isinstance(message.content[0], Thinking):
            return True
    return False


_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}


class AnthropicAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._starts: dict[int, dict[str, Any]] = {}
        """The object that opened each block; a thinking block's accumulates its signature."""
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        match event.get("type"):
            case "message_start":
                message = required_object(event, "message")
                self.draft.response_id = text_of(message, "id") or None
                self._count(message.get("usage"))
            case "content_block_start":
                yield from self._open(required_index(event, "index"), required_object(event, "content_block"))
            case "content_block_delta":
                yield from self._extend(required_index(event, "index"), required_object(event, "delta"))
            case "content_block_stop":
                yield from self._close(required_index(event, "index"))
            case "message_delta":
                self._stop_reason = text_of(required_object(event, "delta"), "stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                for index in self._starts:
                    yield from self._close(index)
                self.draft.ended = True
            case "message" if isinstance(event.get("content"), list) and not self._starts:
                yield from self._take(event)
            case kind if kind == "error" or object_of(event, "error"):
                raise failure_of(event)

    def _take(self, message: dict[str, Any]) -> Iterator[ModelEvent]:
        """Process an answer that was not streamed."""
        self.draft.response_id = text_of(message, "id") or None
        self._count(message.get("usage"))
        for index, block in enumerate(objects_of(message, "content")):
            yield from self._open(index, block)
            yield from self._close(index)
        self._stop_reason = text_of(message, "stop_reason")
        self.draft.ended = True

    def _open(self, index: int, start: dict[str, Any]) -> Iterator[ModelEvent]:
        match kind := text_of(start, "type"):
            case "text":
                self.draft.open(index, "text", index=index)
                yield from self.draft.add(index, text_of(start, "text"))
            case "thinking":
                start = {**start, "signature": text_of(start, "signature")}
                self.draft.open(index, "thinking", lambda text: (kind, {**start, "thinking": text}), index=index)
                yield from self.draft.add(index, text_of(start, "thinking"))
            case "redacted_thinking":
                self.draft.open(index, "thinking", lambda _: (kind, start), index=index)
            case "tool_use":
                self.draft.open(index, "call", lambda _: _beyond(start), index=index)
                yield from self.draft.start(index, vendor_id=text_of(start, "id"), name=text_of(start, "name"))
            case _:
                self.draft.open(index, "opaque", lambda _: (kind, start), index=index)
        self._starts[index] = start

    def _extend(self, index: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        start = self._starts.get(index)
        if start is None:
            raise BadStream("a delta belongs to no block")
        match delta.get("type"), start.get("type"):
            case "text_delta", "text":
                yield from self.draft.add(index, text_of(delta, "text"))
            case "thinking_delta", "thinking":
                yield from self.draft.add(index, text_of(delta, "thinking"))
            case "input_json_delta", "tool_use":
                yield from self.draft.add(index, text_of(delta, "partial_json"))
            case "signature_delta", "thinking":
                start["signature"] += text_of(delta, "signature")
            case _:
                pass

    def _close(self, index: int) -> Iterator[ModelEvent]:
        block = self.draft.blocks.get(index)
        whole = self._starts.get(index, {}).get("input")
        if block is not None and not block.body.raw and isinstance(whole, dict | str) and whole:
            # Compatible servers may send the whole input at once.
            text = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)
            yield from self.draft.close(index, arguments=text)
        else:
            yield from self.draft.close(index)

    def _count(self, usage: object) -> None:
        """Merge usage: members of message_delta override those of message_start unless null."""
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}
            self.draft.usage = _usage(self._usage)

    def finish(self) -> AssistantMessage:
        if not self.draft.ended:
            raise BadStream("the stream ended without message_stop")
        return self.draft.finished(_STOP_REASONS.get(self._stop_reason))


def _beyond(start: dict[str, Any]) -> Payload:
    """Return the caller to send back with the call, if not the model itself."""
    caller = object_of(start, "caller")
    return ("tool_use", {"caller": caller}) if caller and caller.get("type") != "direct" else None


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=count_of(usage, "input_tokens"),
        cache_read=count_of(usage, "cache_read_input_tokens"),
        cache_write=count_of(usage, "cache_creation_input_tokens"),
        output=count_of(usage, "output_tokens"),
        reasoning=count_of(usage.get("output_tokens_details"), "thinking_tokens"),
    )

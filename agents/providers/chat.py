"""OpenAI's Chat Completions in each vendor's variant: build the request body, and assemble the chunks into one
message. Pure.

Vendor differences are in `vendors`. Text is sent as a string, never as a list with one part, which servers of
text-only models refuse. `request.thinking` is a level that the model supports, or None to send nothing.

A finish reason proves the end, or `[DONE]` for vendors that sometimes send none. Servers differ in every detail, so
missing and repeated members are tolerated; `Calls` separates calls.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any, Literal, TypeAlias, assert_never

import structlog

from agents.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    UserPart,
    Wire,
    texts,
)
from agents.providers import request as shared
from agents.providers.draft import Block, Draft, Payload
from agents.providers.http import END
from agents.providers.models import Level
from agents.providers.payload import (
    BadStream,
    arguments_of,
    count_of,
    index_of,
    json_object,
    object_of,
    objects_of,
    parse_arguments,
    text_of,
    well_formed,
)
from agents.providers.provider import ModelEvent, ModelRequest, OneTool
from agents.providers.refusals import broken_off, failure_of, word
from agents.providers.request import THINKING_SHARES
from agents.providers.vendors import Vendor, for_model
from tools.tool import Image, ToolSpec

log = structlog.get_logger()


Object: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest, vendor: Vendor) -> Object:
    """The body of `POST /chat/completions`."""
    vendor, request = for_model(vendor, request.model), shared.with_lost_tools(request)
    body: Object = {"model": request.model, "messages": conversation(request, vendor), "stream": True}
    if vendor.stream_options:
        body["stream_options"] = {"include_usage": True}
    body[vendor.limit_field] = shared.output_tokens(request)
    if vendor.prompt_cache_key and request.conversation:
        body["prompt_cache_key"] = shared.cache_key(request)
    body |= _tool_members(request, vendor)
    return body | thinking_members(request, vendor, armed="tools" in body)


def _tool_members(request: ModelRequest, vendor: Vendor) -> Object:
    """Return `tools` and `tool_choice`. `auto`, the default with tools, is sent only if the vendor wants it."""
    if not request.tools:
        return {}
    choice = _choice(request, vendor)
    if choice == "none" and "none" not in vendor.choices and not shared.called_names(request):
        log.info("tools_left_out", model=request.model, reason=f"{vendor.name} has no tool_choice none")
        return {}
    members: Object = {"tools": [_tool(tool, vendor) for tool in request.tools]}
    if isinstance(choice, OneTool):
        members["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif vendor.always_choice if choice == "auto" else choice in vendor.choices:
        members["tool_choice"] = vendor.required if choice == "required" else choice
    return members


def _choice(request: ModelRequest, vendor: Vendor) -> str | OneTool:
    refused, may_think = "", bool(request.facts.thinking) or not request.facts.known
    if not vendor.forced_while_thinking and may_think and request.thinking != "off":
        refused = f"{vendor.name} forces no tool while the model thinks"
    return shared.sent_choice(
        request,
        required=refused or ("" if "required" in vendor.choices else f"{vendor.name} has no tool_choice required"),
        named=refused or ("" if "named" in vendor.choices else f"{vendor.name} names no tool in tool_choice"),
    )


def _tool(tool: ToolSpec, vendor: Vendor) -> Object:
    """Return a tool. `properties` and `required` are always set: Clawdbot servers silently drop tools without them."""
    text, chars_max, schema = shared.description_of(tool), vendor.description_chars_max, tool.input_schema
    text = text if chars_max is None or len(text) <= chars_max else text[: chars_max - 1] + "…"
    parameters = {**schema, "type": "object", "properties": schema.get("properties") or {}}
    parameters["required"] = schema.get("required") or []
    return {"type": "function", "function": {"name": tool.name, "description": text, "parameters": parameters}}


def conversation(request: ModelRequest, vendor: Vendor) -> list[Any]:
    """Return `messages`, with the system prompt first."""
    halves = shared.system_texts(request.system)
    system = [{"role": "system", "content": "\n\n".join(halves)}] if halves else []
    convert = partial(_messages, vendor=vendor)
    written = shared.written(request.settled, convert, "chat", vendor.name)
    return [*system, *written, *convert(request.unsettled)]


def _messages(messages: Sequence[Message], vendor: Vendor) -> list[Object]:
    wire: list[Object] = []
    for message in shared.with_pictures_behind(messages):
        match message:
            case ToolResultMessage():
                content = _json_result(message) if vendor.json_results else shared.result_text(message)
                id_ = shared.wire_id(message.call_id, pattern=vendor.ids)
                wire.append({"role": "tool", "tool_call_id": id_, "content": content})
            case UserMessage():
                _append_user(wire, [_user_part(part) for part in message.sent_parts])
            case AssistantMessage():
                wire.extend(_assistant(message, vendor))
    return wire


def _user_part(part: UserPart) -> Object:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": shared.data_url(part)}}
    return {"type": "text", "text": part.text}


def _append_user(wire: list[Object], parts: Sequence[Object]) -> None:
    """Append the parts, merged into a preceding user message."""
    before = wire.pop()["content"] if wire and wire[-1]["role"] == "user" else []
    whole = [*([{"type": "text", "text": before}] if isinstance(before, str) else before), *parts]
    plain = all(part["type"] == "text" for part in whole)
    wire.append({"role": "user", "content": "\n\n".join(part["text"] for part in whole) if plain else whole})


def _assistant(message: AssistantMessage, vendor: Vendor) -> list[Object]:
    """Return one message, or none if nothing of it can be sent."""
    content, calls = _content(message, vendor), [_call(call, vendor) for call in message.calls]
    if not content and not calls:
        return []
    wire_message: Object = {"role": "assistant", "content": content or vendor.call_content}
    if calls:
        wire_message["tool_calls"] = calls
    return [wire_message | replayed(message, vendor)]


def _content(message: AssistantMessage, vendor: Vendor) -> str | list[Object]:
    """Return a string, which every model accepts; a list only if thinking goes back in place."""
    content: list[Object] = []
    for part in message.content if vendor.replay == "chunks" else ():
        match part:
            case Text():
                content.append(_user_part(part))
            case Thinking(wire=Wire(kind="thinking", data=chunk)):
                content.append(dict(chunk))
    return content if any(part["type"] == "thinking" for part in content) else "\n\n".join(texts(message))


def _call(call: ToolCall, vendor: Vendor) -> Object:
    function = {"name": shared.wire_name(call.name), "arguments": _arguments(call, vendor)}
    return {"id": shared.wire_id(call.id, pattern=vendor.ids), "type": "function", "function": function}


def _arguments(call: ToolCall, vendor: Vendor) -> str:
    """Return the model's string unchanged wherever it may be sent."""
    if call.arguments is None and vendor.json_arguments:
        return "{}"
    if call.arguments_raw.strip():
        return call.arguments_raw
    return json.dumps(call.arguments or {}, ensure_ascii=False)


def _json_result(message: ToolResultMessage) -> str:
    text, failed = "\n".join(texts(message)), message.is_error
    result = json_object(text)
    if result and (not failed or result.get("ok") is False or "error" in result):
        return text
    return json.dumps({"error": text or shared.SILENT_FAILURE} if failed else {"output": text}, ensure_ascii=False)


DETAILS = "reasoning_details"
BUDGET_MIN = 1024
_EFFORTS: dict[Level, str] = {"off": "none", "max": "xhigh"}
"""Levels with another name as an effort; this API refuses `max`."""


def thinking_members(request: ModelRequest, vendor: Vendor, *, armed: bool) -> dict[str, Any]:
    """Return the body's thinking members. `armed`: the request has tools."""
    level = request.thinking
    unarmed = any(fnmatchcase(request.model, pattern) for pattern in vendor.reasoning_unarmed)
    if armed and unarmed and level != "off" and "off" in request.facts.thinking:
        _tell_unarmed(request.model)
        level = "off"
    return {} if level is None else _requested(level, request, vendor)


def _requested(level: Level, request: ModelRequest, vendor: Vendor) -> dict[str, Any]:
    on = level != "off"
    switch = {"type": "enabled" if on else "disabled"}
    match vendor.thinking:
        case "none":
            return {}
        case "effort":
            return {"reasoning_effort": _EFFORTS.get(level, level)}
        case "deepseek":
            return {"thinking": switch, "reasoning_effort": level} if on else {"thinking": switch}
        case "switch":
            always = "off" not in request.facts.thinking and len(request.facts.thinking) > 1
            return {"reasoning_effort": level} if always else {"thinking": switch}
        case "kept":
            return {"thinking": switch | {"clear_thinking": False}} if on else {"thinking": switch}
        case "enable":
            if not on:
                return {"enable_thinking": False}
            budget = max(BUDGET_MIN, int(request.max_tokens * THINKING_SHARES[level]))
            return {"enable_thinking": True, "thinking_budget": budget}
        case "reasoning":
            return {"reasoning": {"effort": _EFFORTS.get(level, level)}}
        case "template":  # the name differs per template; unknown ones are ignored
            return {"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}
        case form:
            assert_never(form)


def replayed(message: AssistantMessage, vendor: Vendor) -> dict[str, Any]:
    """Return the members of an assistant message that resend its reasoning."""
    own = [part for part in message.content if isinstance(part, Thinking) and part.wire is not None]
    match vendor.replay:
        case "never" | "chunks":
            return {}
        case "calls" | "filled":
            text = _text(own)
            if not message.calls and not text:
                return {}
            return {vendor.reasoning_fields[0]: text if text.strip() or vendor.replay == "calls" else " "}
        case "own" | "details":
            kept = (part.wire.data for part in own if part.wire and part.wire.kind == DETAILS)
            if vendor.replay == "details" and (details := [item for data in kept for item in data]):
                return {DETAILS: details}
            # Use the field it came in if the vendor has it: older and newer servers name it differently.
            kinds = (part.wire.kind for part in own if part.wire and part.wire.kind in vendor.reasoning_fields)
            return {next(kinds, vendor.reasoning_fields[0]): _text(own)} if _text(own) else {}
        case rule:
            assert_never(rule)


def _text(own: Sequence[Thinking]) -> str:
    texts = (part.wire.data if part.wire and isinstance(part.wire.data, str) else part.text for part in own)
    return well_formed("".join(texts))


@cache  # log once per model
def _tell_unarmed(model: str) -> None:
    reason = "this wire refuses tools while the model reasons; the api openai-responses does not"
    log.warning("thinking_left_out", model=model, reason=reason)


_GROWING = ("text", "summary", "data")


def merge(entries: list[dict[str, Any]], pieces: Sequence[object]) -> str:
    """Merge the pieces of one delta; return their text, possibly empty. Entries without an index are complete."""
    text = ""
    for piece in pieces:
        if not isinstance(piece, dict):
            continue
        text += text_of(piece, "text") or text_of(piece, "summary")
        place = (piece.get("index"), piece.get("type"))
        same = (entry for entry in reversed(entries) if (entry.get("index"), entry.get("type")) == place)
        entry = next(same, None) if place[0] is not None else None
        if entry is None:
            entries.append(dict(piece))
            continue
        for key, value in piece.items():
            if key in _GROWING and isinstance(value, str) and isinstance(entry.get(key), str):
                entry[key] += value
            elif value is not None or key not in entry:
                entry[key] = value
    return text


_EMPTY: dict[str, Any] = {"type": "thinking", "thinking": []}


def grow(chunk: dict[str, Any], piece: Mapping[str, Any]) -> str:
    """Append a piece to a thinking chunk; return its text."""
    chunk |= {key: value for key, value in piece.items() if key not in ("type", "thinking") and value is not None}
    items, text = chunk["thinking"], ""
    whole = text_of(piece, "thinking")  # undocumented, but unambiguous
    for item in [{"type": "text", "text": whole}] if whole else objects_of(piece, "thinking"):
        said, last = text_of(item, "text"), items[-1] if items else {}
        if said and item.keys() == last.keys() == {"type", "text"} and isinstance(last["text"], str):
            last["text"] += said
        elif item.get("text") != "":
            items.append(dict(item))
        text += said
    return text


API = "openai-chat"

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "error": "error",
}


class ChatAssembly:
    """Assembles one answer. The API does not order parts: they keep the order in which they began."""

    def __init__(self, draft: Draft, vendor: Vendor) -> None:
        self.draft = draft
        self._calls = Calls(self.draft)
        self._vendor = for_model(vendor, draft.model)
        self._reasoning_field = ""
        self._details: list[dict[str, Any]] = []
        self._chunk: dict[str, Any] = {}
        """The open thinking chunk."""
        self._text: Hashable = "text"
        self._refused = False
        self._finish_reason = ""
        self._done = False

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") and not self._finish_reason:
            raise failure_of(event)
        if event.get("type") == END:
            self._done = True
            yield from self._calls.close()
            return
        self.draft.response_id = self.draft.response_id or text_of(event, "id") or None
        choice = first_choice(event)
        if usage := object_of(event, "usage") or object_of(choice, "usage"):
            self.draft.usage = usage_of(usage)
        whole, message = event.get("object") == "chat.completion", {}  # though a stream was asked for
        if not self.draft.blocks and (whole or "delta" not in choice):  # else a chunk repeats it beside its own delta
            message = object_of(choice, "message")
        yield from self._extend(message or object_of(choice, "delta"))
        reason = text_of(choice, "finish_reason") or ("stop" if message and whole else "")
        if reason and not self._finish_reason:
            self._finish_reason, self.draft.ended = reason, True
            if self._stop_reason == "error":
                raise broken_off(reason)
            yield from self._calls.close()

    def _extend(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        field_name = next((name for name in self._vendor.reasoning_fields if text_of(delta, name)), "")
        if field_name:
            self._reasoning_field = self._reasoning_field or field_name
            yield from self._think(text_of(delta, field_name))
        if isinstance(details := delta.get(DETAILS), list) and details:
            text = merge(self._details, details)
            yield from self._think("" if field_name else text)
        content = delta.get("content")
        for part in content if isinstance(content, list) else [content]:
            if self._vendor.replay == "chunks" and isinstance(part, dict) and part.get("type") == "thinking":
                yield from self._think_in_chunk(part)
            else:
                kind, text = part_of(part)
                yield from self._think(text) if kind == "thinking" else self._write(text)
        if refusal := text_of(delta, "refusal"):
            self._refused = True
            yield from self._write(refusal)
        if isinstance(pieces := delta.get("tool_calls"), list):
            yield from self._calls.add(pieces)

    def _think(self, text: str) -> Iterator[ModelEvent]:
        if "thinking" not in self.draft.blocks:
            self.draft.open("thinking", "thinking", self._reasoning_payload)
        yield from self.draft.add("thinking", text)

    def _think_in_chunk(self, piece: dict[str, Any]) -> Iterator[ModelEvent]:
        """Signed thinking is resent unchanged, so each chunk is a separate block. The last piece says `closed`."""
        self.draft.count(len(str(piece)))
        if not self._chunk or self._chunk.get("closed") is True:
            self._chunk = chunk = {"type": "thinking", "thinking": []}
            self._thought = len(self.draft.blocks)
            self.draft.open(self._thought, "thinking", lambda _: ("thinking", chunk) if chunk != _EMPTY else None)
        yield from self.draft.add(self._thought, grow(self._chunk, piece))

    def _reasoning_payload(self, text: str) -> Payload:
        return (DETAILS, self._details) if self._details else (self._reasoning_field, text) if text else None

    def _write(self, text: str) -> Iterator[ModelEvent]:
        if text and self._chunk:
            self._text, self._chunk = len(self.draft.blocks), {}
        if self._text not in self.draft.blocks:
            self.draft.count(len(text))
            if not (text := text.lstrip("\r\n")):  # left over by chat templates
                return
            self.draft.open(self._text, "text")
        yield from self.draft.add(self._text, text)

    def finish(self) -> AssistantMessage:
        if not self._finish_reason and not (self._done and self._vendor.finish_optional):
            raise BadStream("the stream ended without a finish reason")
        return self.draft.finished(self._reason())

    @property
    def _stop_reason(self) -> StopReason | None:
        """Map the finish reason; an unknown one is a normal end unless the vendor's list is complete."""
        unknown: StopReason | None = None if self._vendor.finish_known else "end_turn"
        return self._vendor.finish.get(self._finish_reason) or _STOP_REASONS.get(self._finish_reason) or unknown

    def _reason(self) -> StopReason | None:
        reason = self._stop_reason
        if self._refused and reason != "content_filter":
            return "refusal"
        if reason == "max_tokens" and not self.draft.blocks and self.draft.usage.output <= 1:
            return "context_window"  # cut off before the first word: the window is full
        return reason


def first_choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only choice; chunks with other content may have none."""
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """One delta's piece of a call; missing members are empty."""

    index: int | None
    id: str
    name: str
    arguments: str


@dataclass(kw_only=True, slots=True)
class _Call:
    """An open call; `key` is its block's in the draft, `vendor_id` and `index` are the server's."""

    key: str
    block: Block
    index: int | None
    vendor_id: str = ""
    name: str = ""

    @property
    def complete(self) -> bool:
        """Return whether its arguments are a complete object."""
        raw = self.block.body.raw
        return raw.rstrip().endswith("}") and parse_arguments(raw) is not None


@dataclass(slots=True)
class Calls:
    draft: Draft
    _calls: list[_Call] = field(default_factory=list)

    def add(self, pieces: Sequence[object]) -> Iterator[ModelEvent]:
        here: list[_Call] = []
        for value in pieces:
            piece = _read(value)
            if not (piece.id or piece.name or piece.arguments):
                continue
            call = self._known(piece, here)
            call = call or self._new(piece)
            here.append(call)
            if call.block.call is None:
                yield from self._extend(call, piece)

    def close(self) -> Iterator[ModelEvent]:
        """Close all calls at the end of the stream."""
        for call in self._calls:
            if call.block.call is None:
                yield from self.draft.start(call.key, vendor_id=call.vendor_id, name=call.name)
                yield from self.draft.close(call.key)

    def _known(self, piece: _Piece, here: Sequence[_Call]) -> _Call | None:
        if piece.index is not None:
            same = [call for call in self._calls if call.index == piece.index]
        else:
            same = [call for call in self._calls if piece.id and call.vendor_id == piece.id]
            same = same or ([] if piece.id and piece.name else self._calls[-1:])
        if not same or (piece.name and _another(same[-1], piece, here)):
            return None
        return same[-1]

    def _new(self, piece: _Piece) -> _Call:
        key = f"call {len(self._calls)}"
        call = _Call(key=key, block=self.draft.open(key, "call"), index=piece.index)
        self._calls.append(call)
        return call

    def _extend(self, call: _Call, piece: _Piece) -> Iterator[ModelEvent]:
        call.vendor_id = call.vendor_id or piece.id
        call.name = call.name or piece.name
        yield from self.draft.add(call.key, piece.arguments)
        if call.name:
            yield from self.draft.start(call.key, vendor_id=call.vendor_id, name=call.name)


def _another(call: _Call, piece: _Piece, here: Sequence[_Call]) -> bool:
    """Return whether a piece with a name opens a new call instead of continuing `call`."""
    return (
        any(call is other for other in here)
        or (bool(call.name) and piece.name != call.name)
        or (bool(piece.id and call.vendor_id) and piece.id != call.vendor_id)
        or (piece.arguments.lstrip().startswith("{") and call.complete and not _continues(call, piece))
    )


def _continues(call: _Call, piece: _Piece) -> bool:
    """Return whether the arguments began with an empty object, which some servers send first."""
    same = bool(piece.id) and piece.id == call.vendor_id and piece.index is not None
    return same and call.block.body.raw.strip() == "{}"


def _read(value: object) -> _Piece:
    piece: dict[str, Any] = value if isinstance(value, dict) else {}
    function = object_of(piece, "function")
    return _Piece(
        index=index_of(piece, "index"),
        id="" if piece.get("id") == "null" else text_of(piece, "id"),
        name=text_of(function, "name"),
        arguments=arguments_of(function),
    )


def part_of(part: object) -> tuple[Literal["text", "thinking"], str]:
    """Return kind and text of a content part, which may be a plain string; a placeholder if it has no text."""
    if not isinstance(part, dict):
        return "text", part if isinstance(part, str) else ""
    kind = text_of(part, "type")
    is_thought = kind in ("thinking", "reasoning", "reasoning_text")
    inner = next((part[it] for it in ("text", "thinking", "reasoning", "refusal", "content") if part.get(it)), "")
    texts = inner if isinstance(inner, list) else [inner]
    text = "".join(it if isinstance(it, str) else text_of(it, "text") for it in texts)
    if text or is_thought or kind in ("", "text", "output_text"):
        return "thinking" if is_thought else "text", text
    return "text", f"[unreadable part: {word(kind)}]"


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Convert usage. Their input, under either name, includes cache reads and writes; ours excludes them."""
    into = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    out = usage.get("completion_tokens_details", usage.get("output_tokens_details"))
    read = (
        count_of(into, "cached_tokens")
        or count_of(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or count_of(usage, "cached_tokens")  # Moonshot
    )
    write = count_of(into, "cache_write_tokens")
    input_tokens = count_of(usage, "prompt_tokens") or count_of(usage, "input_tokens")
    return Usage(
        input=max(0, input_tokens - read - write),
        cache_read=read,
        cache_write=write,
        output=count_of(usage, "completion_tokens") or count_of(usage, "output_tokens"),
        reasoning=count_of(out, "reasoning_tokens"),
    )

"""OpenAI's Responses API: build the request body, and assemble the stream into one assistant message. Pure.

Stateless: nothing is stored on the server, so every item is resent, with encrypted reasoning. A message becomes
several items in order; item ids, which only stored responses need, are not sent.

Items may interleave, so everything is keyed by the item's index. The final item overrides its deltas; without one, the
deltas count. Only `completed`, `incomplete` and `failed` prove an end. Unknown events, members and parts are ignored;
malformed ones raise `BadStream`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
    texts,
)
from agents.providers import request as shared
from agents.providers.chat import usage_of
from agents.providers.draft import Draft, Payload, TextBuffer
from agents.providers.payload import (
    BadStream,
    arguments_of,
    index_of,
    object_of,
    objects_of,
    required_index,
    required_object,
    text_of,
    well_formed_json,
)
from agents.providers.provider import ModelEvent, ModelRequest, OneTool
from agents.providers.refusals import failure_of
from tools.tool import Image, ToolSpec

API = "openai-responses"
OUTPUT_TOKENS_MIN = 16
"""OpenAI's minimum."""

Item: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST /v1/responses`, without `stream`."""
    request = shared.with_lost_tools(request)
    body: dict[str, Any] = {
        "model": request.model,
        "input": [*shared.written(request.settled, _input, API), *_input(request.unsettled)],
        "store": False,
        "max_output_tokens": max(OUTPUT_TOKENS_MIN, shared.output_tokens(request)),
    }
    if instructions := shared.system_texts(request.system):
        body["instructions"] = "\n\n".join(instructions)
    if request.conversation:
        body["prompt_cache_key"] = shared.cache_key(request)
    return body | _tool_members(request) | _reasoning_members(request)


def _reasoning_members(request: ModelRequest) -> dict[str, Any]:
    if not request.facts.thinking:  # such a model refuses both members
        return {}
    members: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
    if request.thinking is not None:
        effort = "none" if request.thinking == "off" else request.thinking
        members["reasoning"] = {"effort": effort, "summary": "auto"}
    return members


def _tool_members(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    members: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    match shared.sent_choice(request):
        case "auto":
            pass  # the server's default
        case OneTool(name=name):
            members["tool_choice"] = {"type": "function", "name": name}
        case choice:
            members["tool_choice"] = choice
    return members


def _tool(tool: ToolSpec) -> dict[str, Any]:
    strict = strict_schema(tool.input_schema)  # always explicit: by default the server rewrites the schema
    return {
        "type": "function",
        "name": tool.name,
        "description": shared.description_of(tool),
        "parameters": {"properties": {}, **tool.input_schema} if strict is None else strict,
        "strict": strict is not None,
    }


_SAYABLE = frozenset({"type", "description", "enum", "items", "minimum", "maximum"})


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a tool's schema for constrained decoding: every member is required, so optional ones become nullable, and
    the toolbox drops nulls. Return None for keywords that the decoder does not support, such as a length, or schemas
    that are not closed and flat: nothing is dropped to make one fit."""
    members: Mapping[str, Any] = schema.get("properties", {})
    is_flat = all(_is_flat(it) and ("items" not in it or _is_flat(it["items"])) for it in members.values())
    if not is_flat or schema.get("additionalProperties") is not False or "$defs" in schema:
        return None
    required = schema.get("required", ())
    derived = {name: member if name in required else _or_null(member) for name, member in members.items()}
    return {**schema, "properties": derived, "required": list(derived)}


def _is_flat(member: Mapping[str, Any]) -> bool:
    return member.keys() <= _SAYABLE and member.get("type") in ("string", "number", "integer", "boolean", "array")


def _or_null(member: Mapping[str, Any]) -> dict[str, Any]:
    enum = {"enum": [*member["enum"], None]} if "enum" in member else {}
    return {**member, "type": [member["type"], "null"], **enum}


def _input(messages: Sequence[Message]) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        match message:
            case UserMessage():
                items.append({"role": "user", "content": _input_parts(message.sent_parts)})
            case AssistantMessage():
                items.extend(_assistant_items(message))
            case ToolResultMessage():
                items.append(_result_item(message))
    return items


def _input_parts(parts: Sequence[UserPart]) -> list[Item]:
    return [
        {"type": "input_image", "detail": "auto", "image_url": shared.data_url(part)}
        if isinstance(part, Image)
        else {"type": "input_text", "text": part.text}
        for part in parts
    ]


def _assistant_items(message: AssistantMessage) -> Iterator[Item]:
    """Yield the items. Reasoning goes directly before the item it led to; reasoning without one would be refused and
    is left out."""
    reasoning: list[Item] = []
    for part in message.content:
        match part:
            case Thinking(wire=wire):
                if wire is not None and wire.api == API:
                    reasoning.append(dict(wire.data))
            case Opaque():
                reasoning.clear()
            case Text() if not part.text.strip():
                reasoning.clear()
            case Text() | ToolCall():
                yield from reasoning
                reasoning.clear()
                yield _text_item(part) if isinstance(part, Text) else _call_item(part, own=message.api == API)


def _text_item(part: Text) -> Item:
    content = [{"type": "output_text", "text": part.text}]
    item: Item = {"type": "message", "role": "assistant", "content": content}
    if part.wire is not None and part.wire.api == API:
        item |= part.wire.data
    return item


def _call_item(call: ToolCall, *, own: bool) -> Item:
    """Return the call with its arguments unchanged; empty ones of another API become `{}`."""
    return {
        "type": "function_call",
        "call_id": shared.wire_id(call.id),
        "name": shared.wire_name(call.name),
        "arguments": call.arguments_raw if own or call.arguments_raw.strip() else "{}",
    }


def _result_item(message: ToolResultMessage) -> Item:
    text = shared.result_text(message)
    images = [part for part in message.content if isinstance(part, Image)]
    spoken = [Text(text=text)] if message.is_error or texts(message) else []
    output: str | list[Item] = _input_parts([*spoken, *images]) if images else text
    return {"type": "function_call_output", "call_id": shared.wire_id(message.call_id), "output": output}


PartKind: TypeAlias = Literal["text", "refusal", "summary", "reasoning", "arguments"]

_DELTAS: dict[str, tuple[PartKind, str, str]] = {
    "response.output_text.delta": ("text", "content_index", "message"),
    "response.refusal.delta": ("refusal", "content_index", "message"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "reasoning"),
    "response.reasoning_text.delta": ("reasoning", "content_index", "reasoning"),
    "response.function_call_arguments.delta": ("arguments", "", "function_call"),
}
"""Each delta's kind of part, the member with the part's index, and the item type."""
_KINDS: dict[str, PartKind] = {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"}
_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "content_filter"}


@dataclass(slots=True)
class _Item:
    """`start`: the item as opened; `end`: as done; `sealed`: the final arguments; `parts`: the deltas by kind and index."""

    start: dict[str, Any]
    end: dict[str, Any] = field(default_factory=dict)
    sealed: str | None = None
    parts: dict[tuple[PartKind, int], str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return text_of(self.start, "type")

    def final(self, kind: PartKind) -> list[str]:
        return [text for part_kind, _, text in _final_parts(self.end) if part_kind == kind and text]

    def payload(self, _: str) -> Payload:
        """Return the data for history besides the text. Reasoning can be resent only if complete and with its
        encrypted content."""
        match self.type:
            case "message":
                phase = text_of(self.end, "phase") or text_of(self.start, "phase")
                return ("phase", {"phase": phase}) if phase else None
            case "reasoning":
                whole = text_of(self.end, "encrypted_content") and self.end.get("status") != "incomplete"
                return ("reasoning", self.end) if whole and well_formed_json(self.end) is self.end else None
            case "function_call":
                return None
            case kind:
                return (kind, well_formed_json(self.end)) if self.end else None


class ResponsesAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._items: dict[int, _Item] = {}
        self._places: dict[str, int] = {}
        self._incomplete: str | None = None

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        match event.get("type"):
            case "response.created":
                self._note(required_object(event, "response"))
            case "response.output_item.added":
                yield from self._open(required_index(event, "output_index"), required_object(event, "item"))
            case "response.output_item.done":
                yield from self._close(required_index(event, "output_index"), required_object(event, "item"))
            case "response.function_call_arguments.done":
                place = self._place(event)
                self._items[place].sealed = whole = arguments_of(event)
                yield from self._catch_up(place, "arguments", 0, whole)
            case "response.completed" | "response.incomplete" as type_:
                yield from self._end(required_object(event, "response"), completed=type_ == "response.completed")
            case "response.failed" | "error":
                response = object_of(event, "response")
                self._note(response)
                raise failure_of(response or event)
            case None if event.get("object") == "response" and event.get("status") in ("completed", "incomplete"):
                # an answer that was not streamed
                yield from self._end(event, completed=event["status"] == "completed")
            case None if isinstance(event.get("error"), dict):  # a proxy's, without any form
                raise failure_of(event)
            case str() as type_ if type_ in _DELTAS:
                kind, index, owner = _DELTAS[type_]
                place = self._place(event)
                if self._items[place].type == owner:
                    yield from self._extend(place, kind, index_of(event, index) or 0, text_of(event, "delta"))
            case _:
                pass

    def _note(self, response: dict[str, Any]) -> None:
        self.draft.response_id = text_of(response, "id") or self.draft.response_id
        if usage := object_of(response, "usage"):
            self.draft.usage = usage_of(usage)

    def _open(self, place: int, start: dict[str, Any]) -> Iterator[ModelEvent]:
        item = _Item(start)
        match item.type:
            case "message":
                self.draft.open(place, "text", item.payload, index=place)
            case "reasoning":
                self.draft.open(place, "thinking", item.payload, index=place)
            case "function_call":
                self.draft.open(place, "call", index=place)
                vendor_id, name = text_of(start, "call_id"), text_of(start, "name")
                yield from self.draft.start(place, vendor_id=vendor_id, name=name)
            case _:
                self.draft.open(place, "opaque", item.payload, index=place)
        self._items[place] = item
        self._places[text_of(start, "id")] = place

    def _extend(self, place: int, kind: PartKind, part: int, piece: str) -> Iterator[ModelEvent]:
        item = self._items[place]
        begins = bool(piece) and (kind, part) not in item.parts and any(item.parts.values())
        item.parts[kind, part] = item.parts.get((kind, part), "") + piece
        if kind == "refusal":
            self.draft.count(len(piece))  # what it says instead of an answer is not shown as one
        else:
            separated = begins and kind in ("summary", "reasoning")
            yield from self.draft.add(place, f"\n\n{piece}" if separated else piece)

    def _close(self, place: int, end: dict[str, Any]) -> Iterator[ModelEvent]:
        if place not in self._items:
            yield from self._open(place, end)
        item = self._items[place]
        if item.end == end and item.type == "function_call":  # said twice
            return
        if item.end:
            raise BadStream("an item was closed twice")
        item.end = end
        for kind, part, text in _final_parts(end):
            yield from self._catch_up(place, kind, part, text)
        block = self.draft.blocks[place]
        block.name = text_of(end, "name") or block.name
        if whole := "".join(item.final("text")) or "\n\n".join(item.final("summary") or item.final("reasoning")):
            block.body = TextBuffer(whole)
        yield from self._finish_call(place, cut=False)

    def _end(self, response: dict[str, Any], *, completed: bool) -> Iterator[ModelEvent]:
        self._note(response)
        if not self._items:
            for place, end in enumerate(objects_of(response, "output")):
                yield from self._close(place, end)
        for place, item in self._items.items():
            yield from self._finish_call(place, cut=not completed and item.sealed is None)
        if not completed:
            self._incomplete = text_of(response.get("incomplete_details"), "reason")
        self.draft.ended = True

    def _finish_call(self, place: int, *, cut: bool) -> Iterator[ModelEvent]:
        item = self._items[place]
        whole = arguments_of(item.end) if item.end.get("arguments") is not None else item.sealed
        cut = cut or item.end.get("status") == "incomplete"
        yield from self.draft.close(place, arguments=whole, cut=cut)

    def _catch_up(self, place: int, kind: PartKind, part: int, whole: str) -> Iterator[ModelEvent]:
        """Show what the deltas left out. If they contradict the whole, only the history gets it."""
        before = self._items[place].parts.get((kind, part), "")
        if len(whole) > len(before) and whole.startswith(before):
            yield from self._extend(place, kind, part, whole[len(before) :])

    def _place(self, event: dict[str, Any]) -> int:
        """Return the index of this event's item. Raises BadStream without one."""
        place = index_of(event, "output_index")
        place = self._places.get(text_of(event, "item_id")) if place is None else place
        if place not in self._items:
            raise BadStream("an event belongs to no item")
        return place

    def finish(self) -> AssistantMessage:
        if not self.draft.ended:
            raise BadStream("the stream ended without response.completed")
        return self.draft.finished(self._reason())

    def _reason(self) -> StopReason:
        if any(kind == "refusal" for item in self._items.values() for kind, _ in item.parts):
            return "refusal"
        if self._incomplete is not None:
            return _INCOMPLETE.get(self._incomplete, "max_tokens")  # cut, for a reason of the future
        return "end_turn"


def _final_parts(item: Mapping[str, Any]) -> Iterator[tuple[PartKind, int, str]]:
    for index, part in enumerate(objects_of(item, "summary")):
        yield "summary", index, text_of(part, "text")
    for index, part in enumerate(objects_of(item, "content")):
        if kind := _KINDS.get(text_of(part, "type")):
            yield kind, index, text_of(part, "refusal" if kind == "refusal" else "text")
    if item.get("arguments") is not None:
        yield "arguments", 0, arguments_of(item)

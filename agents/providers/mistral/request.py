"""Our request as the body of Mistral's chat completions. Pure: nothing is sent here, the history is taken as repaired.

Neighbours of one role become one message, whatever repair left apart, because models differ in what they take. A
user's message may stand directly behind results, where a turn was broken off or a tool returned a picture: today's
models accept it, and to put invented words of the assistant between them would teach the model a lie. No thinking
level is sent; which models think is their own affair.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any, TypeAlias

from agents.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolResultMessage, UserMessage, texts
from agents.providers import request as shared
from agents.providers.provider import ModelRequest, OneTool, grown
from tools.tool import Image, ToolSpec

API = "mistral"

Block: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST /v1/chat/completions`, without `stream`."""
    request = shared.with_lost_tools(request)
    halves = shared.system_texts(request.system)
    system = [{"role": "system", "content": "\n\n".join(halves)}] if halves else []
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*system, *_messages(request)],
        "max_tokens": shared.output_tokens(request),
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if (choice := _tool_choice(request)) is not None:
            body["tool_choice"] = choice
    return body


def _tool(tool: ToolSpec) -> Block:
    function = {
        "name": tool.name,
        "description": shared.description_of(tool),
        "parameters": dict(tool.input_schema),
    }
    return {"type": "function", "function": function}


def _tool_choice(request: ModelRequest) -> str | Block | None:
    """None is `auto`, the server's default."""
    choice = shared.settled(request)
    if isinstance(choice, OneTool):
        return {"type": "function", "function": {"name": choice.name}}
    return {"none": "none", "required": "any"}.get(choice)


def _messages(request: ModelRequest) -> list[Any]:
    """Each turn's ids are made by themselves; where two calls would share one, all are made together."""
    behind = fitting_ids(_ids(request.unsettled))
    ids = [*grown(request.settled, "ids", list[str](), _add_ids), *behind.values()]
    if len(ids) > len(set(ids)):
        return _converted(request.messages, fitting_ids(_ids(request.messages)))
    return [*shared.written(request.settled, _converted, API), *_converted(request.unsettled, behind)]


def _add_ids(before: list[str], turns: Sequence[Sequence[Message]]) -> list[str]:
    return [*before, *chain.from_iterable(fitting_ids(_ids(turn)).values() for turn in turns)]


def _ids(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield from (call.id for call in message.calls)
    yield from (message.call_id for message in messages if isinstance(message, ToolResultMessage))


def _converted(messages: Sequence[Message], ids: dict[str, str] | None = None) -> list[Block]:
    ids = fitting_ids(_ids(messages)) if ids is None else ids
    wire: list[Block] = []
    for message in shared.with_pictures_behind(messages):
        match message:
            case UserMessage():
                _append(wire, "user", [_part(part) for part in message.sent_parts])
            case AssistantMessage():
                _append(wire, "assistant", _assistant_chunks(message), [_call(call, ids) for call in message.calls])
            case ToolResultMessage():
                wire.append(_result(message, ids[message.call_id]))
    return [_with_plain_content(message) for message in wire]


def _append(wire: list[Block], role: str, chunks: list[Block], calls: Sequence[Block] = ()) -> None:
    """Add to the last message if it has this role, else begin one; calls end a message, for results follow them."""
    if not chunks and not calls:
        return
    if not wire or wire[-1]["role"] != role or "tool_calls" in wire[-1]:
        wire.append({"role": role, "content": []})
    wire[-1]["content"] += chunks
    if calls:
        wire[-1]["tool_calls"] = list(calls)


def _with_plain_content(message: Block) -> Block:
    """Content that is text alone is a string, which every model takes; none at all is left out."""
    content = message["content"]
    if isinstance(content, str):
        return message
    if not content:
        return {key: value for key, value in message.items() if key != "content"}
    if all(chunk["type"] == "text" for chunk in content):
        return message | {"content": "\n\n".join(chunk["text"] for chunk in content)}
    return message


def _part(part: Text | Image) -> Block:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": shared.data_url(part)}


def _assistant_chunks(message: AssistantMessage) -> list[Block]:
    chunks: list[Block] = []
    for part in message.content:
        match part:
            case Text():
                chunks.append(_part(part))
            case Thinking(wire=wire) if wire is not None and wire.api == API:
                chunks.append(dict(wire.data))
    return chunks


def _call(call: ToolCall, ids: dict[str, str]) -> Block:
    """The arguments go back as the string that came, broken ones too: the model sees what it did wrong."""
    function = {
        "name": shared.wire_name(call.name),
        "arguments": call.arguments_raw if call.arguments_raw.strip() else "{}",
    }
    return {"id": ids[call.id], "type": "function", "function": function}


def _result(message: ToolResultMessage, call_id: str) -> Block:
    """A result is text. There is no member for an error, so its text says that it is one."""
    text = "\n".join(texts(message)) or "(no output)"
    if message.is_error and not text.lstrip().startswith('{"ok": false'):
        text = f"The tool failed: {text}"
    return {"role": "tool", "tool_call_id": call_id, "name": shared.wire_name(message.tool), "content": text}


def fitting_ids(call_ids: Iterable[str]) -> dict[str, str]:
    """What each id is called on the wire."""
    given = dict.fromkeys(call_ids)
    fitting = {call_id: call_id for call_id in given if re.fullmatch(r"[a-zA-Z0-9]{9}", call_id)}
    taken = set(fitting)
    for call_id in given:
        if call_id not in fitting:
            derived = (_derived(call_id, attempt) for attempt in count())
            fitting[call_id] = next(it for it in derived if it not in taken)
            taken.add(fitting[call_id])
    return fitting


def _derived(call_id: str, attempt: int) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass") + b"\0" * attempt).hexdigest()[:9]

"""A neutral answer as one server of the Chat wire gives it: whole, or as the chunks of a stream.

Pure: how bytes travel, and how they fail to, is the emulator's part.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agents.messages import Usage
from tests.emulators.models.chat.habits import Habits
from tests.emulators.models.chat.shapes import signature_of
from tests.emulators.models.script import Call, Say, StreamFault, Think, Turn, neutral, pieces, raw_arguments

Object: TypeAlias = dict[str, Any]
Body: TypeAlias = Mapping[str, Any]

CREATED = 1_790_000_000
_PLAIN = "I can not look that up, but here is what I would do."


def heard(turn: StreamFault, body: Body, habits: Habits) -> Turn:
    """The answer that this server gives to this request. A mute one forgets its calls, and does not say why."""
    plain = neutral(turn)
    if not habits.mute or _heeds_tools(body) or not any(isinstance(part, Call) for part in plain.parts):
        return plain
    rest = tuple(part for part in plain.parts if not isinstance(part, Call))
    words = () if any(isinstance(part, Say) for part in rest) else (Say(text=_PLAIN),)
    return replace(plain, parts=(*rest, *words))


def _heeds_tools(body: Body) -> bool:
    """Of a mute server's tools those count that have `description`, `properties` and `required` written out."""
    names: set[str] = set()
    for tool in body.get("tools", ()):
        function, schema = tool["function"], tool["function"].get("parameters", {})
        if function.get("description") and "properties" in schema and "required" in schema:
            names.add(function["name"])
    choice = body.get("tool_choice")
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    return str(body["model"]).endswith("-tools") and bool(names) and (choice == "auto" or named in names)


def chunks_of(turn: Turn, number: int, body: Body, tokens: int, habits: Habits) -> Iterator[Object]:
    """The chunks of a stream, without what comes before and after them."""
    frame = _frame(number, body, "chat.completion.chunk")
    usage = _usage(turn, tokens, habits)
    wanted = bool((body.get("stream_options") or {}).get("include_usage"))
    beyond: Object = {"usage": usage} if habits.usage == "every" else {"usage": None} if wanted else {}
    if habits.prelude == "filters":
        yield frame | {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    deltas = [{"role": "assistant", "content": ""}, *_deltas(turn, number, body, habits)]
    for place, delta in enumerate(deltas):
        if turn.noise and place == 1:
            yield {"object": "weather.report", "sky": "clear"}
            delta = delta | {"scent": "pine"}
        yield frame | {"choices": [_choice(delta, None)]} | beyond
    reason = finish_of(turn, habits)
    if habits.finishes or turn.stop:
        last = _choice({}, reason) | ({"usage": usage} if habits.usage == "choice" else {})
        yield frame | {"choices": [last]} | ({"usage": usage} if habits.usage == "finish" else beyond)
    if wanted and habits.usage == "requested":
        yield frame | {"choices": [], "usage": usage}


def _choice(delta: Object, reason: str | None) -> Object:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _frame(number: int, body: Body, kind: str) -> Object:
    return {"id": f"chatcmpl-{number:04d}", "object": kind, "created": CREATED, "model": body["model"]}


def _deltas(turn: Turn, number: int, body: Body, habits: Habits) -> Iterator[Object]:
    ids = iter(_ids(turn, number, body, habits))
    made, thought = 0, 0
    for part in turn.parts:
        match part:
            case Say(text=text):
                member = "refusal" if turn.stop == "refusal" and habits.refusals else "content"
                yield from ({member: piece} for piece in pieces(text))
            case Think():
                yield from _thinking(part, thought, habits)
                thought += 1
            case Call():
                yield from ({"tool_calls": [delta]} for delta in _call(part, made, next(ids), habits))
                made += 1
    if turn.stop == "refusal" and habits.refusals and not any(isinstance(part, Say) for part in turn.parts):
        yield {"refusal": "I can not help with that."}


def _thinking(think: Think, place: int, habits: Habits) -> Iterator[Object]:
    if habits.reasoning_field == "details":
        whole = _details(think, place)
        opened = {key: whole[key] for key in ("type", "format", "index")}
        if not think.shown:
            yield {"reasoning_details": [whole]}
            return
        for piece in pieces(think.text):
            yield {"content": "", "reasoning": piece, "reasoning_details": [opened | {"text": piece}]}
        yield {"content": "", "reasoning_details": [opened | {"signature": whole["signature"]}]}
    elif habits.reasoning_field and think.shown:
        yield from ({"content": None, habits.reasoning_field: piece} for piece in pieces(think.text))


def _details(think: Think, place: int) -> Object:
    """One entry of OpenRouter's list, signed."""
    entry: Object = {"format": "anthropic-claude-v1", "index": place}
    if think.shown:
        entry |= {"type": "reasoning.text", "text": think.text}
    else:
        entry |= {"type": "reasoning.encrypted", "data": hashlib.sha256(think.text.encode()).hexdigest()}
    return entry | {"signature": signature_of(entry)}


def _call(call: Call, place: int, call_id: str, habits: Habits) -> Iterator[Object]:
    raw = raw_arguments(call)
    named: Object = ({"id": call_id} if call_id else {}) | {"type": "function"}
    if habits.calls == "unnumbered":
        for piece in pieces(raw) or [""]:
            yield named | {"function": {"name": call.name, "arguments": piece}}
    elif habits.calls == "whole":
        yield {"index": place} | named | {"function": {"name": call.name, "arguments": raw}}
    else:
        yield {"index": place} | named | {"function": {"name": call.name, "arguments": ""}}
        for piece in pieces(raw):
            yield {"index": place, "function": {"arguments": piece}}


def _ids(turn: Turn, number: int, body: Body, habits: Habits) -> list[str]:
    """Of the calls, in order; empty where the server gives none."""
    calls = [part for part in turn.parts if isinstance(part, Call)]
    earlier = sum(len(message.get("tool_calls") or ()) for message in body["messages"])
    return [call.id or _id(call, number, place, earlier, habits) for place, call in enumerate(calls)]


def _id(call: Call, number: int, place: int, earlier: int, habits: Habits) -> str:
    match habits.ids:
        case "none":
            return ""
        case "kimi":
            return f"functions.{call.name}:{earlier + place}"
        case "vllm":
            return f"chatcmpl-tool-{hashlib.sha256(f'{number}/{place}'.encode()).hexdigest()[:32]}"
        case "openai":
            return f"call_{number:04d}{place:02d}"


def finish_of(turn: Turn, habits: Habits) -> str:
    """OpenAI ends a refusal like any other answer: the text alone says that it is one."""
    if turn.stop is not None and not (turn.stop == "refusal" and habits.refusals):
        return habits.finish[turn.stop]
    return habits.calls_finish if any(isinstance(part, Call) for part in turn.parts) else "stop"


def message_of(turn: Turn, number: int, body: Body, tokens: int, habits: Habits) -> Object:
    """The answer as one object, as it is sent where no stream is asked for."""
    text = "".join(part.text for part in turn.parts if isinstance(part, Say))
    thoughts = [part for part in turn.parts if isinstance(part, Think)]
    refused = turn.stop == "refusal" and habits.refusals
    message: Object = {"role": "assistant", "content": None if refused else text or None}
    if habits.refusals:
        message["refusal"] = text if refused else None
    if called := _whole_calls(turn, number, body, habits):
        message["tool_calls"] = called
    elif not refused:
        message["content"] = text
    if thoughts and habits.reasoning_field == "details":
        message["reasoning_details"] = [_details(think, place) for place, think in enumerate(thoughts)]
    elif thoughts and habits.reasoning_field:
        message[habits.reasoning_field] = "".join(think.text for think in thoughts if think.shown)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(turn, habits)}
    return _frame(number, body, "chat.completion") | {"choices": [choice], "usage": _usage(turn, tokens, habits)}


def _whole_calls(turn: Turn, number: int, body: Body, habits: Habits) -> Sequence[Object]:
    calls = [part for part in turn.parts if isinstance(part, Call)]
    return [
        {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": raw_arguments(call)}}
        for call, call_id in zip(calls, _ids(turn, number, body, habits), strict=True)
    ]


def _usage(turn: Turn, tokens: int, habits: Habits) -> Object:
    """`tokens` is the size of the request, for answers whose script does not say what they cost."""
    used = turn.usage or Usage(input=tokens, output=max(1, _chars(turn) // 4), reasoning=_chars(turn, Think) // 4)
    prompt = used.input + used.cache_read + used.cache_write
    counts: Object = {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }
    match habits.cached:
        case "deepseek":
            misses = prompt - used.cache_read
            return counts | {"prompt_cache_hit_tokens": used.cache_read, "prompt_cache_miss_tokens": misses}
        case "kimi":
            return counts | {"cached_tokens": used.cache_read}
        case "details":
            cached = {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write}
            return counts | {"prompt_tokens_details": cached}


def _chars(turn: Turn, kind: type[Think] | None = None) -> int:
    parts = [part for part in turn.parts if kind is None or isinstance(part, kind)]
    return sum(len(json.dumps(dict(part.arguments))) if isinstance(part, Call) else len(part.text) for part in parts)

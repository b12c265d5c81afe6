"""What an emulated Mistral model says, in Mistral's own chunks: whole, and as a stream.

Scripts are the neutral ones of `tests.emulators.models.script`. Mistral knows no refusal; filters are those of the
clouds that host its models, and they say `content_filter`. Pure: how bytes travel is the emulator's part.
"""

import json
from typing import Any, TypeAlias

from agents.messages import Usage
from tests.emulators.models.mistral.rules import signature_of
from tests.emulators.models.script import Call, Say, Stop, Think, Turn, pieces, raw_arguments

Chunk: TypeAlias = dict[str, Any]

_STOPS: dict[Stop, str] = {
    "length": "length",
    "context": "model_length",
    "refusal": "content_filter",
    "filter": "content_filter",
}


def thinking_chunk(text: str, *, shown: bool = True) -> Chunk:
    """Signed; with `shown` false the text is left out."""
    thinking = [{"type": "text", "text": text}] if shown and text else []
    return {"type": "thinking", "thinking": thinking, "signature": signature_of(thinking), "closed": True}


def content_of(turn: Turn) -> str | list[Chunk]:
    """A string where there is text alone, as Mistral does."""
    chunks: list[Chunk] = []
    for part in turn.parts:
        match part:
            case Say(text=text):
                chunks.append({"type": "text", "text": text})
            case Think(text=text, shown=shown):
                chunks.append(thinking_chunk(text, shown=shown))
            case Call():
                pass
    if all(chunk["type"] == "text" for chunk in chunks):
        return "".join(chunk["text"] for chunk in chunks)
    return chunks


def calls_of(turn: Turn, number: int) -> list[Chunk]:
    """The calls; those without an id get one that no other answer has."""
    made = [part for part in turn.parts if isinstance(part, Call)]
    return [
        {
            "id": call.id if call.id is not None else f"{number:05d}{place:04d}",
            "type": "function",
            "function": {"name": call.name, "arguments": raw_arguments(call)},
            "index": place,
        }
        for place, call in enumerate(made)
    ]


def finish_of(turn: Turn) -> str:
    if turn.stop is not None:
        return _STOPS[turn.stop]
    return "tool_calls" if any(isinstance(part, Call) for part in turn.parts) else "stop"


def completion_of(turn: Turn, number: int, model: str, tokens: int) -> Chunk:
    """The whole answer as one object, as it is sent where no stream is asked for."""
    message: Chunk = {"role": "assistant", "content": content_of(turn), "prefix": False}
    message["tool_calls"] = calls_of(turn, number) or None
    choice = {"index": 0, "finish_reason": finish_of(turn), "message": message}
    return _head(number, model, "chat.completion") | {"choices": [choice], "usage": _usage(turn, tokens)}


def chunks_of(turn: Turn, number: int, model: str, tokens: int) -> list[Chunk]:
    """The same answer as a stream: the content in pieces, then all calls, the reason to stop and the cost in one."""
    deltas: list[Chunk] = [{"role": "assistant", "content": ""}]
    content = content_of(turn)
    if isinstance(content, str):
        deltas += [{"content": piece} for piece in pieces(content)]
    else:
        deltas += [{"content": [piece]} for chunk in content for piece in _streamed(chunk)]
    last: Chunk = {"content": ""}
    if made := calls_of(turn, number):
        last["tool_calls"] = made
    if turn.noise:
        deltas = [_noisy(delta) for delta in deltas]
    head = _head(number, model, "chat.completion.chunk") | ({"p": "abcdefgh"} if turn.noise else {})
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": last, "finish_reason": finish_of(turn)}
    return [*chunks, head | {"choices": [end], "usage": _usage(turn, tokens)}]


def _streamed(chunk: Chunk) -> list[Chunk]:
    """A thinking chunk's other members come with its last piece."""
    if chunk["type"] == "text":
        return [{"type": "text", "text": piece} for piece in pieces(chunk["text"])]
    text = "".join(item["text"] for item in chunk["thinking"])
    streamed = [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]} for piece in pieces(text)]
    return [*streamed, chunk | {"thinking": []}]


def _noisy(delta: Chunk) -> Chunk:
    """Members and kinds of content that do not exist yet."""
    content = delta["content"]
    if isinstance(content, list):
        content = [{"type": "scent", "scent": "pine"}, *content]
    return delta | {"content": content, "mood": "calm"}


def _head(number: int, model: str, kind: str) -> Chunk:
    return {"id": f"{number:032x}", "object": kind, "created": 1_790_000_000, "model": model}


def _usage(turn: Turn, tokens: int) -> Chunk:
    written = len(json.dumps(content_of(turn))) + len(json.dumps(calls_of(turn, 0)))
    usage = turn.usage or Usage(input=tokens, output=max(1, written // 4))
    prompt = usage.input + usage.cache_read + usage.cache_write
    counts: Chunk = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
    }
    if usage.cache_read:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cache_read}
    return counts

"""What only Claude says: answers in Anthropic's own blocks, and the events in which any answer is streamed.

Answers that any vendor could give are scripted in `tests.emulators.models.script`. Pure: how bytes travel, and how
they fail to, is the emulator's part.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agents.messages import Usage
from tests.emulators.models import script
from tests.emulators.models.anthropic.shapes import signature_of
from tests.emulators.models.script import StreamFault, pieces

Block: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn(StreamFault):
    """One answer. Without `stop_reason` it is `tool_use` where there is a call, else `end_turn`."""

    blocks: tuple[Block, ...]
    stop_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Members of `usage` to replace, such as `cache_read_input_tokens`."""


_STOPS: dict[script.Stop, str] = {
    "length": "max_tokens",
    "refusal": "refusal",
    "filter": "refusal",
    "context": "model_context_window_exceeded",
}


def rendered(turn: StreamFault) -> Turn:
    """A turn as anybody writes it, in Anthropic's blocks; one that is in them already as it is."""
    if isinstance(turn, Turn):
        return turn
    plain = script.neutral(turn)
    return Turn(
        blocks=tuple(_block(part) for part in plain.parts),
        stop_reason=_STOPS[plain.stop] if plain.stop else None,
        usage=_usage(plain.usage) if plain.usage else {},
        **script.faults_of(plain),
    )


def _block(part: script.Say | script.Think | script.Call) -> Block:
    match part:
        case script.Say(text=text):
            return text_block(text)
        case script.Think(text=text, shown=shown):
            return thinking_block(text, shown=shown)
        case script.Call():
            return call_block(part.name, dict(part.arguments), id=part.id, raw=part.raw)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def thinking_block(thinking: str, *, shown: bool = True) -> Block:
    """Signed; with `shown` false the text is left out, as the newest models do."""
    text = thinking if shown else ""
    return {"type": "thinking", "thinking": text, "signature": signature_of(text)}


def redacted_block(data: str) -> Block:
    return {"type": "redacted_thinking", "data": data}


def call_block(name: str, arguments: dict[str, Any], *, id: str | None = None, raw: str | None = None) -> Block:  # noqa: A002
    """A call. `raw` is streamed in place of the arguments, whatever it is; without `id` the emulator makes one."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments, "raw": raw}


def finished(turn: Turn, number: int) -> list[Block]:
    """The blocks as a request may hold them again; calls without an id get one that no other answer has."""
    blocks: list[Block] = []
    for place, block in enumerate(turn.blocks):
        if block["type"] == "tool_use":
            call_id = block["id"] or f"toolu_{number:04d}{place:02d}"
            block = {key: value for key, value in block.items() if key != "raw"} | {"id": call_id}
        blocks.append(block)
    return blocks


def message_of(turn: Turn, number: int, model: str, tokens: int) -> dict[str, Any]:
    """The whole answer as one object, as it is sent where no stream is asked for."""
    blocks = finished(turn, number)
    called = any(block["type"] == "tool_use" for block in blocks)
    usage: dict[str, Any] = {
        "input_tokens": tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": max(1, len(json.dumps(blocks)) // 4),
    }
    return {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": turn.stop_reason or ("tool_use" if called else "end_turn"),
        "stop_sequence": None,
        "stop_details": None,
        "usage": usage | dict(turn.usage),
    }


def events_of(turn: Turn, number: int, model: str, tokens: int) -> list[dict[str, Any]]:
    """The same answer as the events of a stream, `message_start` to `message_stop`."""
    whole = message_of(turn, number, model, tokens)
    started = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    ended: dict[str, Any] = {key: whole[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    for index, (block, scripted) in enumerate(zip(whole["content"], turn.blocks, strict=True)):
        events += _block_events(index, block, scripted.get("raw"), noise=turn.noise)
    if turn.noise:
        events.append({"type": "weather_report", "sky": "clear"})
    events.append({"type": "message_delta", "delta": ended, "usage": whole["usage"]})
    events.append({"type": "message_stop"})
    return events


def _block_events(index: int, block: Block, raw: str | None, *, noise: bool) -> Iterator[dict[str, Any]]:
    deltas: Sequence[Block] = []
    opened = block
    match block["type"]:
        case "text":
            opened = block | {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case "thinking":
            opened = block | {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas = [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            opened = block | {"input": {}, "caller": {"type": "direct"}}
            streamed = raw if raw is not None else json.dumps(block["input"], ensure_ascii=False)
            # The real server opens with an empty piece, and sends nothing more for a call without arguments.
            streamed_pieces = ["", *(pieces(streamed) if streamed != "{}" else [])]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in streamed_pieces]
    yield {"type": "content_block_start", "index": index, "content_block": opened}
    if noise:
        yield {"type": "content_block_delta", "index": index, "delta": {"type": "scent_delta", "scent": "pine"}}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}

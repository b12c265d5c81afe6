"""What only the Responses API says: answers in its own items, and the events in which any answer is streamed.

Answers that any vendor could give are scripted in `tests.emulators.models.script`. Pure: how bytes travel, and how
they fail to, is the emulator's part; how an answer is cut into events is `tests.emulators.models.responses.stream`'s.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agents.messages import Usage
from tests.emulators.models import script
from tests.emulators.models.responses.sealing import sealed
from tests.emulators.models.script import StreamFault

Item: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["completed", "incomplete", "failed"]

BEGAN = 1_790_000_000
"""When the emulated answers are made, so that equal answers are equal bytes."""
_REFUSES = "I'm sorry, but I cannot assist with that request."
_TOO_LONG = {
    "code": "context_length_exceeded",
    "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn(StreamFault):
    """One answer. With `interleaved` the items arrive side by side."""

    items: tuple[Item, ...]
    status: Status = "completed"
    reason: str | None = None
    """Why it is incomplete."""
    error: Mapping[str, Any] | None = None
    """Why it failed."""
    usage: Mapping[str, Any] | None = field(default_factory=dict)
    """Members of `usage` to replace; None for an answer that says nothing of it."""
    interleaved: bool = False


def rendered(turn: StreamFault) -> Turn:
    """A turn as anybody writes it, in items; one that is in them already as it is."""
    if isinstance(turn, Turn):
        return turn
    plain = script.neutral(turn)
    items = [_item(part) for part in plain.parts]
    ending: dict[str, Any] = {}
    match plain.stop:
        case "length" | "filter":
            reason = "max_output_tokens" if plain.stop == "length" else "content_filter"
            ending = {"status": "incomplete", "reason": reason}
            # What was being written when it was cut is not complete.
            items = [*items[:-1], *(item | {"status": "incomplete"} for item in items[-1:])]
        case "refusal":
            items = _refused(items)
        case "context":
            ending = {"status": "failed", "error": _TOO_LONG}
        case None:
            pass
    usage = _usage(plain.usage) if plain.usage else {}
    return Turn(items=tuple(items), usage=usage, **ending, **script.faults_of(plain))


def _refused(items: list[Item]) -> list[Item]:
    """The last thing said is the refusal."""
    for place in reversed(range(len(items))):
        if items[place]["type"] == "message":
            text = items[place]["content"][0]["text"]
            return [*items[:place], message_item(refusal=text), *items[place + 1 :]]
    return [*items, message_item(refusal=_REFUSES)]


def _item(part: script.Say | script.Think | script.Call) -> Item:
    match part:
        case script.Say(text=text):
            return message_item(text)
        case script.Think(text=text, shown=shown):
            return reasoning_item(text, shown=shown)
        case script.Call():
            return call_item(part.name, dict(part.arguments), call_id=part.id, raw=part.raw)


def _usage(usage: Usage) -> dict[str, Any]:
    total = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": total,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": total + usage.output,
    }


def message_item(*texts: str, refusal: str | None = None, phase: str | None = None) -> Item:
    """Words, or a refusal; more than one text are parts of one message."""
    content: list[Item] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    if refusal is not None:
        content.append({"type": "refusal", "refusal": refusal})
    item: Item = {"type": "message", "status": "completed", "role": "assistant", "content": content}
    return item | ({"phase": phase} if phase else {})


def reasoning_item(*summary: str, shown: bool = True) -> Item:
    """Encrypted when it is said; with `shown` false there is no summary."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in summary if shown]}


def call_item(
    name: str, arguments: dict[str, Any] | None = None, *, call_id: str | None = None, raw: str | None = None
) -> Item:
    """A call. `raw` is sent in place of the arguments, whatever it is; without `call_id` the emulator makes one."""
    text = json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":")) if raw is None else raw
    return {"type": "function_call", "status": "completed", "arguments": text, "call_id": call_id, "name": name}


def finished(turn: Turn, number: int, *, encrypted: bool) -> list[Item]:
    """The items as a request may hold them again, with ids that no other answer has. Without `encrypted`, reasoning
    comes without what it needs to be sent again."""
    items: list[Item] = []
    for place, item in enumerate(turn.items):
        name = f"{number:04d}{place:02d}"
        match item["type"]:
            case "reasoning":
                content = sealed(f"rs_{name}", item["summary"]) if encrypted else None
                items.append({"id": f"rs_{name}", **item, "encrypted_content": content})
            case "function_call":
                items.append({"id": f"fc_{name}", **item, "call_id": item["call_id"] or f"call_{name}"})
            case "message":
                items.append({"id": f"msg_{name}", **item})
            case kind:
                items.append({"id": f"{kind}_{name}", **item})
    return items


def response_of(turn: Turn, number: int, body: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """The whole answer as one object, as it is sent where no stream is asked for."""
    items = finished(turn, number, encrypted="reasoning.encrypted_content" in (body.get("include") or ()))
    written = max(1, len(json.dumps(items)) // 4)
    usage: dict[str, Any] = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens + written,
    }
    return {
        "id": f"resp_{number:04d}",
        "object": "response",
        "created_at": BEGAN + number,
        "status": turn.status,
        "background": False,
        "error": dict(turn.error) if turn.error else None,
        "incomplete_details": {"reason": turn.reason} if turn.reason else None,
        "output": items,
        "previous_response_id": None,
        **_echoed(body),
        "usage": None if turn.usage is None else usage | dict(turn.usage),
    }


def _echoed(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the answer repeats of the request, with the server's defaults."""
    defaults: dict[str, Any] = {
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
    given = {name: body[name] for name in defaults if body.get(name) is not None}
    return defaults | given | {"model": body["model"]}

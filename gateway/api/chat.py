"""`/v1/chat/completions`: an answer whole, or in chunks."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from gateway.api.answer import Answering
from gateway.api.call import ApiError

FIELD = "messages"
DONE = b"data: [DONE]\n\n"


def whole(answering: Answering) -> Mapping[str, Any]:
    message = {"role": "assistant", "content": answering.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answering.final)}
    return _about(answering, "chat.completion") | {"choices": [choice], "usage": _usage(answering)}


async def stream(answering: Answering, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    def chunk(delta: Mapping[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        about = _about(answering, "chat.completion.chunk")
        return b"data: " + orjson.dumps(about | {"choices": choices} | more) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for piece in pieces:
            yield chunk({"content": piece}) if piece else b": alive\n\n"
    except ApiError as error:
        yield b"data: " + orjson.dumps({"error": error.body}) + b"\n\n"
        return
    yield chunk({}, _reason(answering.final))
    if answering.call.with_usage:
        yield chunk(None, usage=_usage(answering))
    yield DONE


def _about(answering: Answering, kind: str) -> dict[str, Any]:
    model, created = answering.call.agent, answering.created
    return {"id": f"chatcmpl-{answering.id}", "object": kind, "created": created, "model": model}


def _reason(final: Mapping[str, Any]) -> str:
    if final["outcome"] == "declined":
        return "content_filter"
    return "length" if final.get("reason") == "cut" else "stop"


def _usage(answering: Answering) -> Mapping[str, Any]:
    prompt, output, cached, _, reasoning = answering.bill
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }

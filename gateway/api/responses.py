"""`/v1/responses`: an answer whole, or as events. Nothing is kept under a response's id: a session keeps a conversation."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from gateway.api.answer import Answering
from gateway.api.call import ApiError

FIELD = "input"


def whole(answering: Answering) -> Mapping[str, Any]:
    is_cut = answering.final.get("reason") == "cut"
    reason = "max_output_tokens" if is_cut else "content_filter" if answering.final["outcome"] == "declined" else None
    status = "incomplete" if reason else "completed"
    return _response(
        answering,
        status,
        output=[_item(answering, answering.text, status)],
        usage=_usage(answering),
        incomplete_details={"reason": reason} if reason else None,
    )


async def stream(answering: Answering, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    number = -1

    def event(name: str, **facts: Any) -> bytes:
        nonlocal number
        number += 1
        data = orjson.dumps({"type": name, "sequence_number": number} | facts)
        return f"event: {name}\ndata: ".encode() + data + b"\n\n"

    begun = _response(answering, "in_progress", output=[])
    place = {"item_id": f"msg_{answering.id}", "output_index": 0, "content_index": 0}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    yield event("response.output_item.added", output_index=0, item=_item(answering, None, "in_progress"))
    yield event("response.content_part.added", **place, part=_part(""))
    text = ""
    try:
        async for piece in pieces:
            text += piece
            alive = b": alive\n\n"
            yield event("response.output_text.delta", **place, delta=piece, logprobs=[]) if piece else alive
    except ApiError as error:
        failure = {"code": error.body["code"] or "server_error", "message": error.body["message"]}
        yield event("response.failed", response=_response(answering, "failed", output=[], error=failure))
        return
    answering.text = text
    response = whole(answering)
    yield event("response.output_text.done", **place, text=text, logprobs=[])
    yield event("response.content_part.done", **place, part=_part(text))
    yield event("response.output_item.done", output_index=0, item=response["output"][0])
    yield event(f"response.{response['status']}", response=response)


def _response(answering: Answering, status: str, **more: Any) -> Mapping[str, Any]:
    """The members that the official client counts on."""
    about = {"id": f"resp_{answering.id}", "object": "response", "created_at": answering.created, "status": status}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "store": False}
    absent = dict.fromkeys(("error", "incomplete_details", "instructions", "temperature", "top_p", "usage"))
    text = {"text": {"format": {"type": "text"}}, "previous_response_id": None}
    return {**about, "model": answering.call.agent, **settings, **absent, **text, **more}


def _item(answering: Answering, text: str | None, status: str) -> Mapping[str, Any]:
    content = [] if text is None else [_part(text)]
    about = {"id": f"msg_{answering.id}", "type": "message", "role": "assistant"}
    return about | {"status": status, "content": content}


def _part(text: str) -> Mapping[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answering: Answering) -> Mapping[str, Any]:
    prompt, output, cached, written, reasoning = answering.bill
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }

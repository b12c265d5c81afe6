"""The way each vendor of the Chat wire is asked to think, and the part of its reasoning that goes back to it.

`request.thinking` is a level that the model takes, or None to leave it to the model: then nothing is sent.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, assert_never

import structlog

from agents.messages import AssistantMessage, Thinking
from agents.providers.chat.vendors import Vendor
from agents.providers.models import Level
from agents.providers.payload import text_of, well_formed
from agents.providers.provider import ModelRequest
from agents.providers.request import THINKING_SHARES

DETAILS = "reasoning_details"
BUDGET_MIN = 1024
_EFFORTS: dict[Level, str] = {"off": "none", "max": "xhigh"}
"""Levels that have another name as an effort; `max` is refused on this wire."""

log = structlog.get_logger()


def thinking_members(request: ModelRequest, vendor: Vendor, *, armed: bool) -> dict[str, Any]:
    """The members of the body that say how to think. `armed`: the request has tools."""
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
        case "template":  # its name differs from template to template, and one that is unknown is ignored
            return {"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}
        case form:
            assert_never(form)


def may_think(request: ModelRequest) -> bool:
    """True if the model may think while it answers; an unknown one may."""
    return request.thinking != "off" and (bool(request.facts.thinking) or not request.facts.known)


def replayed(message: AssistantMessage, vendor: Vendor) -> dict[str, Any]:
    """The members of an assistant message that bring its reasoning back."""
    own = [part for part in message.content if isinstance(part, Thinking) and part.wire is not None]
    match vendor.replay:
        case "never":
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
            return {_field(own, vendor): _text(own)} if _text(own) else {}
        case rule:
            assert_never(rule)


def _text(own: Sequence[Thinking]) -> str:
    texts = (part.wire.data if part.wire and isinstance(part.wire.data, str) else part.text for part in own)
    return well_formed("".join(texts))


def _field(own: Sequence[Thinking], vendor: Vendor) -> str:
    """The field it came in, if this vendor knows that: older servers have another name for it than newer."""
    kinds = (part.wire.kind for part in own if part.wire is not None and part.wire.kind in vendor.reasoning_fields)
    return next(kinds, vendor.reasoning_fields[0])


@cache
def _tell_unarmed(model: str) -> None:
    """Logs once for each model, not with every request."""
    reason = "this wire refuses tools while the model reasons; the api openai-responses does not"
    log.warning("thinking_left_out", model=model, reason=reason)


_GROWING = ("text", "summary", "data")


def merge(entries: list[dict[str, Any]], pieces: Sequence[object]) -> str:
    """Adds the pieces of one delta. Returns its text for people, which may be empty. Entries without a number are whole."""
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

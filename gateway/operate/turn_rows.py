"""Rows of the journal and the outbox as layers of a turn: texts, responses, and the parts of the reply."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.operate.turn_layers import PartLayer, ResponseLayer, TurnTokens
from gateway.store.statements import OutboxStatus

_PART_STATES: Mapping[int, Any] = {
    OutboxStatus.QUEUED: "queued",
    OutboxStatus.SENT: "sent",
    OutboxStatus.FAILED: "failed",
}


def json_of(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def text_of(content: Mapping[str, Any]) -> str:
    return "\n".join(it.get("text", "") for it in content.get("content", ()) if it.get("type") == "text")


def images_of(content: Mapping[str, Any]) -> int:
    return sum(it.get("type") == "image" for it in content.get("content", ()))


def response_of(answer: Mapping[str, Any]) -> ResponseLayer:
    """The response that the journal has."""
    parts, usage, error = answer.get("content", ()), answer.get("usage") or {}, answer.get("error") or {}
    return ResponseLayer(
        text=text_of(answer),
        thinking="\n".join(it.get("text", "") for it in parts if it.get("type") == "thinking"),
        calls=tuple(it["id"] for it in parts if it.get("type") == "toolCall"),
        stop_reason=answer.get("stop_reason", ""),
        tokens=TurnTokens(**{name: usage.get(name, 0) for name in TurnTokens.model_fields}),
        estimated=bool(usage.get("estimated")),
        cost=answer.get("cost"),
        id=answer.get("response_id"),
        error=error.get("kind", ""),
    )


def response_noted(it: Mapping[str, Any]) -> ResponseLayer | None:
    """The response that only the turn's own row knows: it failed, or said nothing."""
    if "stop" not in it:
        return None
    tokens = dict(zip(TurnTokens.model_fields, it["usage"], strict=True))
    return ResponseLayer(
        stop_reason=it["stop"],
        tokens=TurnTokens(**tokens),
        estimated=it.get("estimated", False),
        cost=it.get("cost"),
        id=it.get("id"),
        error=it.get("error", ""),
        words=it.get("words", ""),
    )


def part_of(row: Mapping[str, Any]) -> PartLayer:
    part = json_of(row["payload"]).get("part", {})
    return PartLayer(
        number=row["part"],
        state=_PART_STATES.get(row["status"], "queued"),
        text=part.get("text", ""),
        files=tuple(it["name"] for it in part.get("files", ())),
        buttons=tuple(it["label"] for it in part.get("buttons", ())),
        key=row["key"],
        platform_id=row["ext_id"],
        attempts=row["attempts"],
        ambiguous=row["ambiguous"],
        reason=row["reason"] or "",
        tool=row["part"] < 0,
    )

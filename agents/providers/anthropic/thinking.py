"""How Claude is asked to think: a budget of tokens on the older models, an effort on the newer.

What a model refuses is not sent: `request.thinking` is a level it takes, and where the history or a forced tool rules
thinking out, the request goes without, with the reason in the log.
"""

from typing import Any

import structlog

from agents.messages import AssistantMessage, Thinking, UserMessage
from agents.providers.models import Level
from agents.providers.provider import ModelRequest

BUDGET_MIN = 1024
"""Anthropic's own minimum, in tokens."""
_SHARES: dict[Level, float] = {"minimal": 0.1, "low": 0.2, "medium": 0.4, "high": 0.6, "xhigh": 0.7, "max": 0.8}
"""Of `max_tokens`, which holds thinking and answer together."""

log = structlog.get_logger()


def thinking_members(request: ModelRequest, *, forced: bool) -> dict[str, Any]:
    """The members of the body that say how to think; none leaves it to the model."""
    level = request.thinking
    if level is None:
        return {}
    match request.facts.thinking_style:
        case "budget":
            return _budget(request, level, forced=forced)
        case "between_tools" if level == "off":
            return {"thinking": {"type": "between_tools"}}
        case "always":
            return {"output_config": {"effort": level}}
        case _:
            if level == "off":
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}


def _budget(request: ModelRequest, level: Level, *, forced: bool) -> dict[str, Any]:
    if level == "off":
        return {}  # left out is off
    budget = max(BUDGET_MIN, int(request.max_tokens * _SHARES[level]))
    if forced:
        return _without(request, "a tool is forced")
    if budget >= request.max_tokens:
        return _without(request, "maxTokens leaves no room for it")
    if _unthinking(request):
        return _without(request, "the running turn has calls that came without thinking")
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _unthinking(request: ModelRequest) -> bool:
    """A turn begun by another model, or without thinking: its calls may not be continued with thinking enabled."""
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            return False
        if isinstance(message, AssistantMessage) and not isinstance(message.content[0], Thinking):
            return True
    return False


def _without(request: ModelRequest, reason: str) -> dict[str, Any]:
    log.info("thinking_left_out", model=request.model, wanted=request.thinking, reason=reason)
    return {}

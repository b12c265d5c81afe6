"""How Gemini is asked to think: a budget of tokens on 2.5, a level on what came later.

Only a level that the model takes comes here (`request.thinking`); None leaves it to the model, and nothing is sent.
Thinking counts against `maxOutputTokens`, so a budget is a share of it.
"""

from typing import Any

import structlog

from agents.providers.gemini.models import always_thinks
from agents.providers.models import Level
from agents.providers.provider import ModelRequest

BUDGET_MIN = 512
"""In tokens: 2.5 Flash-Lite takes no less, the others do."""
BUDGET_MAX = 24_576
"""In tokens: 2.5 Flash takes no more, 2.5 Pro would."""
LEAST_OF_PRO = 128
"""2.5 Pro's own minimum; it refuses to think not at all."""

_SHARES: dict[Level, float] = {"minimal": 0.1, "low": 0.2, "medium": 0.4, "high": 0.6, "xhigh": 0.7, "max": 0.8}
_LEVELS: dict[Level, str] = {
    "off": "MINIMAL",  # the least there is: a level can not be none
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}

log = structlog.get_logger()


def thinking_config(request: ModelRequest, max_tokens: int) -> dict[str, Any]:
    """The member `thinkingConfig`; empty where the model decides."""
    level = request.thinking
    if level is None:
        return {}
    if request.facts.thinking_style != "budget":
        shown = {} if level == "off" else {"includeThoughts": True}
        return {"thinkingLevel": _LEVELS[level]} | shown
    if level == "off":
        return {"thinkingBudget": LEAST_OF_PRO if always_thinks(request.model) else 0}
    budget = min(BUDGET_MAX, max(BUDGET_MIN, int(max_tokens * _SHARES[level])))
    if budget >= max_tokens:
        log.info("thinking_left_out", model=request.model, wanted=level, reason="maxTokens leaves no room for it")
        return {}
    return {"thinkingBudget": budget, "includeThoughts": True}

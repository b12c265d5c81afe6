"""Mistral's token counts as ours: its prompt includes what came from the cache, ours does not."""

from typing import Any

from agents.messages import Usage
from agents.providers.usage import count


def usage_of(told: dict[str, Any] | None) -> Usage:
    """Nothing told, nothing known: then the counts are ours to estimate."""
    if told is None:
        return Usage(estimated=True)
    details = told.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return Usage(
        input=max(0, count(told.get("prompt_tokens")) - cached),
        cache_read=cached,
        output=count(told.get("completion_tokens")),
    )

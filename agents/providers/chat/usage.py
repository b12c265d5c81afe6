"""What an answer cost, in whichever of its dialects the server says it."""

from collections.abc import Mapping
from typing import Any

from agents.messages import Usage
from agents.providers.usage import count


def usage_of(told: Mapping[str, Any]) -> Usage:
    """`told` is the last `usage` that came: each one replaces those before it. Empty where none came."""
    if not told:
        return Usage(estimated=True)
    prompt, completion = _details(told, "prompt_tokens_details"), _details(told, "completion_tokens_details")
    read = (
        count(prompt.get("cached_tokens"))
        or count(told.get("prompt_cache_hit_tokens"))  # DeepSeek
        or count(told.get("cached_tokens"))  # Moonshot
    )
    write = count(prompt.get("cache_write_tokens"))
    return Usage(
        input=max(0, count(told.get("prompt_tokens")) - read - write),
        cache_read=read,
        cache_write=write,
        output=count(told.get("completion_tokens")),
        reasoning=count(completion.get("reasoning_tokens")),
    )


def _details(told: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    details = told.get(key)
    return details if isinstance(details, dict) else {}

"""What an answer cost, in whichever of its dialects the server says it."""

from collections.abc import Mapping
from typing import Any

from agents.messages import Usage
from agents.providers.usage import count


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """`usage` is the last `usage` that came: each one replaces those before it. Empty where none came."""
    if not usage:
        return Usage(estimated=True)
    prompt, completion = _details(usage, "prompt_tokens_details"), _details(usage, "completion_tokens_details")
    read = (
        count(prompt.get("cached_tokens"))
        or count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek
        or count(usage.get("cached_tokens"))  # Moonshot
    )
    write = count(prompt.get("cache_write_tokens"))
    return Usage(
        input=max(0, count(usage.get("prompt_tokens")) - read - write),
        cache_read=read,
        cache_write=write,
        output=count(usage.get("completion_tokens")),
        reasoning=count(completion.get("reasoning_tokens")),
    )


def _details(usage: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    details = usage.get(key)
    return details if isinstance(details, dict) else {}

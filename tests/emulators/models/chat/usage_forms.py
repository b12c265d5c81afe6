"""What an emulated answer says it cost, in the form of its server."""

import json
from typing import Any

from agents.messages import Usage
from tests.emulators.models.chat.habits import Habits
from tests.emulators.models.script import Call, Think, Turn


def usage_in(turn: Turn, tokens: int, habits: Habits) -> dict[str, Any]:
    """`tokens` is the size of the request, for answers whose script does not say what they cost."""
    used = turn.usage or Usage(input=tokens, output=max(1, _chars(turn) // 4), reasoning=_chars(turn, Think) // 4)
    prompt = used.input + used.cache_read + used.cache_write
    told: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": used.output,
        "total_tokens": prompt + used.output,
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }
    match habits.cached:
        case "deepseek":
            misses = prompt - used.cache_read
            return told | {"prompt_cache_hit_tokens": used.cache_read, "prompt_cache_miss_tokens": misses}
        case "kimi":
            return told | {"cached_tokens": used.cache_read}
        case "details":
            cached = {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write}
            return told | {"prompt_tokens_details": cached}


def _chars(turn: Turn, kind: type[Think] | None = None) -> int:
    parts = [part for part in turn.parts if kind is None or isinstance(part, kind)]
    return sum(len(json.dumps(dict(part.arguments))) if isinstance(part, Call) else len(part.text) for part in parts)

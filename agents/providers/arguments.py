"""A call's arguments, from the text that a model wrote to an object. Nothing is repaired by guessing."""

import json
import math
from typing import Any

DEPTH_MAX = 64


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """The arguments as an object; None where they are not one. Nothing is repaired by guessing.

    What strict JSON cannot carry back (NaN, infinities, lone surrogates, absurd depth) counts as broken.
    """
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _carriable(value, DEPTH_MAX) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _carriable(value: Any, depth: int) -> bool:
    match value:
        case dict():
            return depth > 0 and all(_carriable(key, depth) and _carriable(it, depth - 1) for key, it in value.items())
        case list():
            return depth > 0 and all(_carriable(item, depth - 1) for item in value)
        case float():
            return math.isfinite(value)
        case str():
            return not any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else True
        case _:
            return True

"""Defensive reading of a platform's JSON: ignore unknown keys, and check every type.

Platforms add fields and kinds with every release, so there are no models.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

import orjson

DEPTH_MAX, KEYS_MAX, TEXT_CHARS_MAX = 64, 10_000, 262_144
"""Limits of one delivery, far above what platforms send."""
BEYOND = f"larger than a delivery may be: {DEPTH_MAX} levels, {KEYS_MAX:,} keys, texts of {TEXT_CHARS_MAX:,} characters"
"""The reason for a delivery that `fits` refuses."""
ID_MAX = 2**52
"""Telegram's ids have up to 52 significant bits."""


def loads(raw: bytes | str) -> object:
    """Parse JSON; accept lone surrogates, which a person may type. Raises ValueError."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def fits(raw: bytes, data: Mapping[str, Any]) -> bool:
    """Return True if nesting, number of keys and length of texts are within the limits. `raw` is the source of `data`:
    counting its brackets usually suffices."""
    if len(raw) <= 4 * KEYS_MAX and raw.count(b"{") + raw.count(b"[") <= DEPTH_MAX:
        return True
    level: list[Any] = [data]
    keys = 0
    for _ in range(DEPTH_MAX):
        keys += sum(len(it) for it in level if isinstance(it, dict))
        inner = [one for it in level for one in (it.values() if isinstance(it, dict) else it)]
        if keys > KEYS_MAX or any(isinstance(it, str) and len(it) > TEXT_CHARS_MAX for it in inner):
            return False
        if not (level := [it for it in inner if isinstance(it, dict | list)]):
            return True
    return False


def is_deep(data: object) -> bool:
    """Return True if it is nested deeper than `DEPTH_MAX`."""
    level: list[Any] = [data] if isinstance(data, dict | list) else []
    for _ in range(DEPTH_MAX):
        inner = (one for it in level for one in (it.values() if isinstance(it, dict) else it))
        level = [it for it in inner if isinstance(it, dict | list)]
    return bool(level)


def clean(text: str) -> str:
    """Remove NUL and replace lone surrogates, which databases and models refuse."""
    odd = "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
    return text.replace("\0", "").encode("utf-8", errors="replace").decode() if odd else text


def mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def mappings(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = holder.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def scalar(holder: Mapping[str, Any], key: str) -> str:
    """Return a string, or a number as text, for display; "" for anything else."""
    value = holder.get(key)
    if isinstance(value, bool) or (isinstance(value, float) and not isfinite(value)):
        return ""
    return str(value) if isinstance(value, str | int | float) else ""


def number(holder: Mapping[str, Any], key: str) -> int | None:
    """A whole number that may be an id, a time or an offset."""
    value = holder.get(key)
    usable = isinstance(value, int) and not isinstance(value, bool) and -ID_MAX <= value <= ID_MAX
    return value if usable else None

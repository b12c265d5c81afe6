"""What Telegram's JSON holds, looked at with care: unknown keys are nobody's business, and no type is believed unseen.

Every release of the Bot API adds fields and kinds, so nothing here is a model of it.
"""

import json
from collections.abc import Mapping
from typing import Any

import orjson

ID_MAX = 2**52
"""Ids have up to 52 significant bits."""


def loads(raw: bytes) -> object:
    """Half a character inside is data that a person typed: the lenient parser keeps it. Raises ValueError."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def clean(text: str) -> str:
    """Without what no database and no model takes: half characters and NUL."""
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


def number(holder: Mapping[str, Any], key: str) -> int | None:
    """A whole number that may be an id, a time or an offset."""
    value = holder.get(key)
    usable = isinstance(value, int) and not isinstance(value, bool) and -ID_MAX <= value <= ID_MAX
    return value if usable else None


def name(party: Mapping[str, Any]) -> str | None:
    """How a person, a group or a channel is called."""
    full = " ".join(filter(None, (text(party, "first_name"), text(party, "last_name"))))
    return clean(full or text(party, "title") or text(party, "username")).strip() or None

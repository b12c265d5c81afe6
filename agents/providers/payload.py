"""JSON from models and servers, which is untrusted: values of unexpected types count as missing.

Text is normalised for every API: no lone surrogates and no NUL, which JSON parsers and databases refuse. Halves of an
emoji that arrive in two events are joined.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\ufffd"


class BadStream(Exception):
    """The answer is unreadable or truncated."""


def well_formed(text: str) -> str:
    """Return `text` with surrogate pairs joined, lone surrogates and NULs replaced; the same object if unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def well_formed_json(value: Any) -> Any:
    """Return a JSON value with every string well formed; the same object if unchanged."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            fixed = {well_formed(key): well_formed_json(member) for key, member in value.items()}
            same = all(new is old for new, old in zip(fixed.values(), value.values(), strict=False))
            return value if same and fixed.keys() == value.keys() else fixed
        case list():
            items = [well_formed_json(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case _:
            return value


DEPTH_MAX = 64


_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL | re.IGNORECASE)


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Parse arguments; None if they are no object. What strict JSON cannot represent (NaN, infinities, lone
    surrogates, excessive depth) is invalid. Nothing is guessed; only unambiguous mistakes are accepted: raw control
    characters in strings, an empty object before or after, the same object twice, double encoding, a code fence."""
    text = raw.strip().removeprefix("\ufeff")
    if not text:
        return {}
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    try:
        value = _only(_values(text))
        if isinstance(value, str):
            value = _only(_values(value))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _carriable(value, DEPTH_MAX) else None


def mended_arguments(raw: str) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments, and the text to keep and send back: the original, or JSON if a mistake was corrected."""
    arguments = parse_arguments(raw)
    if arguments is not None and raw.strip():
        try:
            json.loads(raw, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return arguments, json.dumps(arguments, ensure_ascii=False)
        if not raw.lstrip().startswith("{"):
            return arguments, json.dumps(arguments, ensure_ascii=False)
    return arguments, raw


def _values(text: str) -> list[Any]:
    """Return the concatenated JSON values in a text. Raises ValueError."""
    values, at = [], len(text) - len(text.lstrip())
    while at < len(text):
        value, at = _DECODER.raw_decode(text, at)
        values.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return values


def _only(values: list[Any]) -> Any:
    """Return the only distinct value, ignoring empty objects; None if there are several."""
    meant = [it for it in values if it != {}] or values[:1]
    return meant[0] if meant and all(it == meant[0] for it in meant) else None


def refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=refuse_constant)


def _carriable(value: Any, depth: int) -> bool:
    match value:
        case dict():
            return depth > 0 and all(_carriable(key, depth) and _carriable(it, depth - 1) for key, it in value.items())
        case list():
            return depth > 0 and all(_carriable(item, depth - 1) for item in value)
        case float():
            return math.isfinite(value)
        case str():
            return value.isascii() or not re.search("[\ud800-\udfff]", value)
        case _:
            return True


def json_object(text: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def text_of(value: object, key: str) -> str:
    text = value.get(key) if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else ""


def object_of(value: object, key: str) -> dict[str, Any]:
    member = value.get(key) if isinstance(value, Mapping) else None
    return member if isinstance(member, dict) else {}


def objects_of(value: object, key: str) -> list[dict[str, Any]]:
    """Return the objects in a list."""
    members = value.get(key) if isinstance(value, Mapping) else None
    return [member for member in members if isinstance(member, dict)] if isinstance(members, list) else []


def count_of(value: object, key: str) -> int:
    """Return a token count."""
    count = value.get(key) if isinstance(value, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def index_of(value: Mapping[str, Any], key: str) -> int | None:
    index = value.get(key)
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def required_object(event: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Raises BadStream."""
    if not isinstance(value := event.get(key), dict):
        raise BadStream(f"{key} is missing")
    return value


def required_index(event: Mapping[str, Any], key: str) -> int:
    """Raises BadStream."""
    if (index := index_of(event, key)) is None:
        raise BadStream(f"{key} is missing")
    return index


def arguments_of(value: Mapping[str, Any], key: str = "arguments") -> str:
    """Return the text of a call's arguments; some servers send the value itself."""
    arguments = value.get(key)
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)

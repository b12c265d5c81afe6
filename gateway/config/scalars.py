"""What a scalar of the config means: YAML 1.2, so that `no`, `012`, `1:30` and dates are text."""

import math
import re
from typing import Any, TypeAlias

DIGITS_MAX = 300

Scalar: TypeAlias = str | int | float | bool | None

CORE = "tag:yaml.org,2002:"
_NULL_TAG = f"{CORE}null"
_TAGS = {f"{CORE}{name}": kind for name, kind in {"str": str, "int": int, "float": float, "bool": bool}.items()}
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}


def resolve(text: str) -> Scalar:
    """What a plain scalar means. Raises ValueError where it is a number beyond measure."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > DIGITS_MAX:
            raise ValueError("a number with too many digits — put it in quotes if it is text")
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("a number out of range — put it in quotes if it is text")
        return number
    return text


def meaning(event: Any, text: str) -> Scalar:
    """What the parser's event means, quotes and tag considered. Raises ValueError where it means nothing."""
    if event.anchor is not None and event.style is None and not event.value:
        raise ValueError("an anchor (&…) without a value — put text that begins with & in quotes")
    if event.tag not in (None, "!", _NULL_TAG) and event.tag not in _TAGS:
        raise ValueError("tags (!…) are not allowed — put text that begins with ! in quotes")
    if UNPRINTABLE.search(event.value):
        raise ValueError("the text holds a control character or half a character")
    if event.tag in (None, "!"):
        return resolve(text) if event.tag is None and event.style is None else text
    wanted = type(None) if event.tag == _NULL_TAG else _TAGS[event.tag]
    value = text if wanted is str else resolve(text)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError("the value is not what its tag says — remove the tag")
    return value

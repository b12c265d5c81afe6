"""Redaction of lines that people read: words that look like a secret are struck out, whether we know it or not.

A known shape is certain and cheap, so the logs use the shapes alone. Whoever prints what a person typed into a file also
asks `redacted`, which sees random words of any vendor: a key pasted into the wrong place.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from pydantic import BaseModel, SecretStr

REDACTED = "***"
SHAPES = (
    r"(?:bot|\b)\d{6,}:[A-Za-z0-9_-]{20,}",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bt-[A-Za-z0-9_.-]{24,}",
    r"(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
)
UNBROKEN_CHARS_MIN = 20
"""Letters and digits in a row that may be a secret; one with dashes or slashes in it must be longer."""
BROKEN_CHARS_MIN = 32
CHANGES_MIN = 0.2
"""Random words have 0.4 to 0.5, names of models and keys less than this."""

_CHARS = "A-Za-z0-9+/_=.~-"
_KNOWN = re.compile(rf"(?:{'|'.join(SHAPES)})[{_CHARS}]*", re.S)
_WORD = re.compile(rf"[{_CHARS}]{{{UNBROKEN_CHARS_MIN},}}")
_UNBROKEN = re.compile(rf"[A-Za-z0-9]{{{UNBROKEN_CHARS_MIN},}}")
_BROKEN = re.compile(rf"[A-Za-z0-9+/_=-]{{{BROKEN_CHARS_MIN},}}")
_NO_SECRET = re.compile(r"(?:o[a-z]|omt|cli)_[0-9a-z]+|\.{0,2}/.*|~/.*")
"""Ids of Feishu, and paths."""


def redacted(text: str) -> str:
    """The text without the words of it that look like secrets."""
    known = _KNOWN.sub(REDACTED, text)
    return _WORD.sub(lambda word: REDACTED if looks_secret(word[0]) else word[0], known)


def looks_secret(word: str) -> bool:
    """True if a word has a known shape, or changes between capitals, small letters and digits as only random ones do."""
    if _KNOWN.search(word):
        return True
    if _NO_SECRET.fullmatch(word):
        return False
    return any(_changes(part) >= CHANGES_MIN for part in (*_UNBROKEN.findall(word), *_BROKEN.findall(word)))


def secrets_in(value: object, key: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every SecretStr in a tree of models, beneath its key as a config file has it."""
    if isinstance(value, SecretStr):
        yield key, value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from secrets_in(getattr(value, name), (*key, field.alias or name))
    elif isinstance(value, dict | list | tuple):
        for part, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from secrets_in(inner, (*key, part))


def _changes(word: str) -> float:
    """The share of places at which one kind of character follows another; 0 if there is no digit. A small letter after
    a capital is how words begin, and does not count."""
    pairs = [(left, right) for left, right in pairwise(word) if left.isalnum() and right.isalnum()]
    changes = sum(_kind(left) != _kind(right) and not (left.isupper() and right.islower()) for left, right in pairs)
    return changes / len(pairs) if pairs and any(map(str.isdigit, word)) else 0.0


def _kind(char: str) -> int:
    return 0 if char.isdigit() else 1 if char.isupper() else 2

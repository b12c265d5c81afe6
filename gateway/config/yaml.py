"""Strict YAML: bytes in, plain data and positions out, every fault of the file found in one pass.

Anchors, aliases and merge keys (<<) work. Refused are duplicate keys, keys that are not text, tags outside the core
set, a second document, and too much of anything. How the parser's events become data is in `builder`.

`${…}`, and `{agent}` in a path, count as one word of a plain scalar, also inside `{ }` and `[ ]`, where YAML itself
would stop at the brace: their braces are masked while the parser runs. What they mean is decided elsewhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gateway.config.builder import Builder
from gateway.config.faults import faults
from gateway.config.problems import Findings, Key, Mark, Position
from gateway.config.scalars import UNPRINTABLE

BYTES_MAX = 1_048_576

_BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$\{[^}\r\n\x85\u2028\u2029]*\}|(?<=[\w/.-])\{agent\}")
_MASK = {ord(char): 0x10FF00 + ord(char) for char in "{}[],: #?"}
_UNMASK = {stand_in: code for code, stand_in in _MASK.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a file says. `plain` names the texts written without quotes."""

    data: Any
    marks: Mapping[Key, Mark]
    plain: frozenset[Key]


def parse(content: bytes, findings: Findings) -> Document | None:
    """Read one file. Faults go to `findings`; None where it is not YAML at all and nothing more can be said."""
    text = _decode(content, findings)
    if text is None:
        return None
    text = _REFERENCE.sub(lambda found: found[0].translate(_MASK), text)
    builder = Builder(text, lambda scalar: scalar.translate(_UNMASK), findings)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if not builder.take(event):
                break
    except yaml.MarkedYAMLError as error:
        for place, message in faults(error, text):
            findings.at(place or builder.last, (), message.translate(_UNMASK))
        return None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        # such as an escape beyond Unicode, "\UFFFFFFFF": the parser itself gives no place, the last event is near it
        findings.at(builder.last, (), "this is not YAML that can be read, here or soon after")
        return None
    if builder.unfinished:
        return None
    return Document(data=builder.root, marks=builder.marks, plain=frozenset(builder.plain))


def _decode(content: bytes, findings: Findings) -> str | None:
    if len(content) > BYTES_MAX:
        findings.at(Position(1, 1), (), "the file is larger than 1 MiB")
        return None
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        findings.at(_place_in(content[: error.start].decode()), (), "not UTF-8 — save the file in the encoding UTF-8")
        return None
    if found := UNPRINTABLE.search(text) or re.search(r"[\U0010ff00-\U0010ffff]", text):
        message = f"the character U+{ord(found[0]):04X} is not allowed — remove it"
        findings.at(_place_in(text[: found.start()]), (), message)
        return None
    return text


def _place_in(before: str) -> Position:
    lines = _BREAKS.split(before)
    return Position(len(lines), len(lines[-1]) + 1)

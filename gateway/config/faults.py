"""What is wrong with a file that is no YAML: the parser's complaint, traced back to where the person went astray.

The parser stops where it can go on no longer, which is often a line or ten behind the slip. Here stand the usual slips,
each with its place and its fix; what is none of them is told in the parser's words, without what it quotes of the file.
"""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from gateway.config.problems import Position

_COLON = 'a colon is not expected here — check the indentation, and put text that holds ": " in quotes'
_NO_COLON = "a colon is missing behind the key — write key: value"
_FULL_WIDTH = "a full-width colon (：) — write a plain one and a space, key: value"
_OPEN_QUOTE = "a quotation mark opens here and never closes"
_INDENTATION = "this does not fit what stands above — give all keys of one block the same indentation"


def fault(error: yaml.MarkedYAMLError, text: str) -> tuple[Position | None, str]:
    """Where it is and what to do; no place where the parser knows none."""
    lines = text.splitlines()
    problem, context = error.problem or "cannot be read", error.context or ""
    mark = error.problem_mark or error.context_mark
    place = None if mark is None else _position(mark)
    if context == "while scanning a quoted scalar" and "end of stream" in problem:
        return _position(error.context_mark), _OPEN_QUOTE
    if "'\\t'" in problem:
        return place, "a tab cannot indent YAML — use spaces"
    if "tag handle" in problem:
        return place, "tags (!…) are not allowed — put text that begins with ! in quotes"
    if "cannot start any token" in problem:
        return place, f"{problem} — put the text in quotes"
    if place is None:
        return None, f"{context}: {problem}" if context else problem
    if problem.startswith("mapping values are not allowed"):
        return _colonless(lines, place.line) or (place, _COLON)
    if context in ("while parsing a flow mapping", "while parsing a flow sequence"):
        closing = "}" if "mapping" in context else "]"
        told = f"what opens here is not closed with {closing} before line {place.line}, or lacks a comma"
        return _position(error.context_mark), told
    if "expected <block end>" in problem:
        first = error.context_mark.line if error.context_mark is not None else 0
        return _odd_quote(lines, first, place.line) or _colonless(lines, place.line) or (place, _INDENTATION)
    return place, f"{context}: {problem}" if context else problem


def _colonless(lines: Sequence[str], before: int) -> tuple[Position, str] | None:
    """The line above, where it was meant as a key and a value: the parser took both lines for one text."""
    for number in range(before - 1, 0, -1):
        line = lines[number - 1]
        if (words := line.split("#")[0].strip()) and ":" not in words and not words.startswith("-"):
            place = Position(number, len(line) - len(line.lstrip()) + 1)
            return place, _FULL_WIDTH if "：" in words else _NO_COLON
        if words:
            return None
    return None


def _odd_quote(lines: Sequence[str], first: int, last: int) -> tuple[Position, str] | None:
    """A quotation mark that was forgotten, where a later one has closed it."""
    for number in range(first, min(last, len(lines))):
        for quote in ('"', "'"):
            if re.search(rf":\s+{quote}", lines[number]) and lines[number].count(quote) == 1:
                return Position(number + 1, lines[number].index(quote) + 1), _OPEN_QUOTE
    return None


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)

"""The mistake in a file that is no YAML: the parser's complaint, traced back to the slip that caused it.

The parser often stops a line or ten behind the slip. So the usual slips are looked for above that place, and the one is
blamed whose repair lets the parser continue. Any other fault is reported in the parser's words, without its quotes of the
file.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import yaml

from gateway.config.problems import Position

CANDIDATES_MAX = 12
"""Lines that are tried as the slip behind one complaint."""
SLIPS_MAX = 20
"""Slips that are looked for in one file."""
CHARS_MAX = 65_536
"""A longer file is not searched for slips: each trial reads it again."""

_COLON = 'a colon is not expected here — check the indentation, and put text that holds ": " in quotes'
_NO_COLON = "a colon is missing behind the key — write key: value"
_TIGHT = "a space is missing behind the colon — write key: value"
_FULL_WIDTH = "a full-width colon (：) — write a plain one and a space, key: value"
_OPEN_QUOTE = "a quotation mark opens here and never closes"
_INDENTATION = "this does not fit the lines above — give all keys of one block the same indentation"

_WIDE = "full-width punctuation — write {} as it is in English"
_DASH = "a space is missing behind the dash — write - and the entry"

_KEY_AND_VALUE = re.compile(r"(?P<key>[^\W\d][\w.-]*)\s*(?P<colon>：|:(?=[^\s/]))\s*(?P<value>.*)", re.S)
_REPAIRS = tuple(
    (re.compile(pattern), repair, message)
    for pattern, repair, message in (
        (r"(\s*(?:- +)*)(?P<at>[\w.-]+)\s*：\s*(.*)", r"\1\2: \3", _FULL_WIDTH),
        (r"(\s*(?:- +)*)(?P<at>[\w.-]+):(?=[^\s/])(.*)", r"\1\2: \3", _TIGHT),
        (r"(\s*(?:- +)*)(?P<at>[A-Za-z][\w-]*) +([^\s#:：][^:：#]*(?:\s#.*)?)", r"\1\2: \3", _NO_COLON),
        (r"(\s*)(?P<at>-)(?=[A-Za-z])(.*)", r"\1- \3", _DASH),
        (r"""([^#"]*:\s+)(?P<at>")([^"]*)""", r'\1\2\3"', _OPEN_QUOTE),
        (r"""([^#']*:\s+)(?P<at>')([^']*)""", r"\1\2\3'", _OPEN_QUOTE),
    )
)
"""The pattern of a line that has a slip, and its likely meaning. The slip is at `at`."""
_PLAIN = str.maketrans("，｛｝［］“”‘’", ",{}[]\"\"''")


class _Slip(NamedTuple):
    """A line that looks wrong, and how it was probably meant."""

    place: Position
    message: str
    line: str


class ColonSlip(NamedTuple):
    """A text that was meant as a key and its value, and what is wrong with it."""

    key: str
    value: str
    message: str


def colon_slip(text: str) -> ColonSlip | None:
    if found := _KEY_AND_VALUE.fullmatch(text):
        message = _FULL_WIDTH if found["colon"] == "：" else _TIGHT
        return ColonSlip(key=found["key"], value=found["value"], message=message)
    return None


def faults(error: yaml.MarkedYAMLError, text: str) -> Iterator[tuple[Position | None, str]]:
    """Yields each fault with its place, if the parser knows it, and what to do."""
    for _ in range(SLIPS_MAX):
        stop = error.problem_mark or error.context_mark
        repaired = _repaired(text, Position.of(stop)) if stop is not None and len(text) <= CHARS_MAX else None
        if repaired is None:
            yield _classified(error)
            return
        slips, text = repaired
        yield from ((slip.place, slip.message) for slip in slips)
        following = _error_of(text)
        if following is None:
            return
        error = following


def _repaired(text: str, stop: Position) -> tuple[Sequence[_Slip], str] | None:
    """The slips above the parser's stop whose repair lets it continue, and the text without them.
    One slip is more likely than several in a row."""
    lines = text.splitlines(keepends=True)
    before = ((number, lines[number - 1]) for number in range(min(stop.line, len(lines)), 0, -1))
    slips = list(islice((slip for number, line in before if (slip := _slip(line, number))), CANDIDATES_MAX))
    for chosen in [*([slip] for slip in slips), *(slips[:count] for count in range(2, len(slips) + 1))]:
        trial = list(lines)
        for slip in chosen:
            trial[slip.place.line - 1] = slip.line
        error = _error_of("".join(trial), until=stop.line)
        if error is None or ((mark := error.problem_mark) is not None and Position.of(mark) > stop):
            return chosen[::-1], "".join(trial)
    return None


def _slip(line: str, number: int) -> _Slip | None:
    body = line.rstrip()
    ending = line[len(body) :]
    for pattern, repair, message in _REPAIRS:
        if found := pattern.fullmatch(body):
            place = Position(number, found.start("at") + 1)
            return _Slip(place=place, message=message, line=found.expand(repair) + ending)
    if wide := [column for column, char in enumerate(body, start=1) if ord(char) in _PLAIN]:
        message = _WIDE.format(body[wide[0] - 1])
        return _Slip(place=Position(number, wide[0]), message=message, line=body.translate(_PLAIN) + ending)
    return None


def _error_of(text: str, until: int | None = None) -> yaml.MarkedYAMLError | None:
    """The parser's complaint about a text; None if it has none up to and including the line `until`."""
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if until is not None and event.start_mark.line >= until:
                return None
    except yaml.MarkedYAMLError as error:
        return error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return None
    return None


def _classified(error: yaml.MarkedYAMLError) -> tuple[Position | None, str]:
    """The place and the sentence that the parser's complaint alone gives."""
    problem, context = error.problem or "cannot be read", error.context or ""
    mark = error.problem_mark or error.context_mark
    place = None if mark is None else Position.of(mark)
    if context == "while scanning a quoted scalar" and "end of stream" in problem:
        return Position.of(error.context_mark), _OPEN_QUOTE
    if "'\\t'" in problem:
        return place, "a tab cannot indent YAML — use spaces"
    if "tag handle" in problem:
        return place, "tags (!…) are not allowed — put text that begins with ! in quotes"
    if "cannot start any token" in problem:
        return place, f"{problem} — put the text in quotes"
    if place is None:
        return None, f"{context}: {problem}" if context else problem
    if problem.startswith("mapping values are not allowed"):
        return place, _COLON
    if context in ("while parsing a flow mapping", "while parsing a flow sequence"):
        closing = "}" if "mapping" in context else "]"
        message = f"what opens here is not closed with {closing} before line {place.line}, or lacks a comma"
        return Position.of(error.context_mark), message
    if "could not find expected ':'" in problem:
        return Position.of(error.context_mark), _NO_COLON
    if "expected <block end>" in problem:
        return place, _INDENTATION
    return place, f"{context}: {problem}" if context else problem

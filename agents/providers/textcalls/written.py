"""The places of calls in the text of an answer. Pure, and on whole texts only.

An opening without the header of its form is a mention, and a call that is quoted as code is a quotation: both are
ordinary text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from agents.providers.textcalls.forms import ALONE, Form, Tools, WrittenCall

OPENINGS_MAX = 1_000
"""A model that has got stuck repeats itself: after this number of openings an answer is words."""
SPAN_CHARS_MAX = 1_000
"""A code span begins and ends so near to the call that it quotes, or its backtick is a lone one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Text that is no words, and the calls that it makes; none in what is only kept from people."""

    start: int
    end: int
    calls: Sequence[WrittenCall] = ()


def calls_among_words(text: str, forms: tuple[Form, ...], tools: Tools, *, in_spans: bool = False) -> Iterator[Stretch]:
    """The calls in `text`. With `in_spans` a code span that has its line to itself is a call and no quotation: models
    that write calls by prompt put them so."""
    openings = opening_of(forms)
    at, fence, line = 0, "", ""
    for _ in range(OPENINGS_MAX):
        opening = openings.search(text, at)
        if opening is None:
            return
        fence = _fence(text, at, opening.start(), fence)
        _, newline, tail = text[at : opening.start()].rpartition("\n")
        line = (tail if newline else line + tail)[-SPAN_CHARS_MAX:]
        found = None if fence else _call(text, opening.start(), forms, tools)
        if found is None:
            at, line = opening.end(), line + opening[0]
            continue
        quoting = _quoting_span(line, text[found.end : found.end + SPAN_CHARS_MAX].partition("\n")[0])
        if quoting is None or (in_spans and quoting):
            yield found
        at, line = found.end, "" if "\n" in text[found.start : found.end] else f"{line}…"


@cache
def opening_of(forms: tuple[Form, ...]) -> re.Pattern[str]:
    """A pattern of the places at which one of them may begin."""
    return re.compile("|".join(re.escape(form.opening) for form in forms) or r"\Z.")


def calls_alone(text: str, tools: Tools) -> list[Stretch]:
    """The calls of a text that is nothing else; empty if it is something else."""
    stretches: list[Stretch] = []
    at = 0
    while begin := re.compile(r"\S").search(text, at):
        call = _call(text, begin.start(), ALONE, tools)
        if call is None:
            return []
        stretches.append(call)
        at = call.end
    return stretches


def _call(text: str, at: int, forms: Sequence[Form], tools: Tools) -> Stretch | None:
    for form in forms:
        if (head := form.header.match(text, at)) and (found := form.read(text, head, tools)) is not None:
            return Stretch(start=at, end=found[0], calls=found[1])
    return None


_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}(?=[^`\n]*$)|~{3,})(.*)$", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def _fence(text: str, start: int, end: int, fence: str) -> str:
    """The Markdown fence that is open at `end`, from the one that was at `start`; empty without one."""
    line_end = text.find("\n", end, end + SPAN_CHARS_MAX)
    for line in _FENCE.finditer(text, start, line_end if line_end >= 0 else end + SPAN_CHARS_MAX):
        if not fence:
            fence = line[1]
        elif line[1].startswith(fence) and not line[2].strip():
            fence = ""
    return fence


def _quoting_span(before: str, after: str) -> bool | None:
    """True if the code span that holds a call has its line to itself; None if no span does. `before` and `after` are the
    rest of the call's line."""
    rest = _SPAN.sub("…", before)
    run = re.search("`+", rest)
    closing = re.search(rf"(?<!`){run[0]}(?!`)", after) if run else None
    if run is None or closing is None:
        return None
    around = (rest[: run.start()], rest[run.end() :], after[: closing.start()], after[closing.end() :])
    return len(run[0]) < 3 and not any(part.strip() for part in around)

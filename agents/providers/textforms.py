"""Parses the forms in which models write calls as text. Pure.

A call begins with its form's header: the opening and the start of what is called. Broken JSON is never guessed at: it
becomes a call without arguments, and its text is kept for the answer. Only unambiguous mistakes are accepted: a fence
around the JSON, raw line breaks in its strings, double encoding.

An opening without its header is a mention, and a call quoted as code is a quotation; both are ordinary text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from agents.providers.payload import parse_arguments, refuse_constant, well_formed
from tools.tool import ToolSpec

NAMELESS = "tool_call"
"""The name of a call with an unreadable name. No tool has it, so the model gets the list of names."""

DECODER = json.JSONDecoder(strict=False, parse_constant=refuse_constant)
"""Accepts raw line breaks in strings, which small models write and which are unambiguous."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenCall:
    """`arguments` is None if they are no object; `raw` is then everything that was written, with the name."""

    name: str
    arguments: dict[str, Any] | None
    raw: str


Tools: TypeAlias = Mapping[str, ToolSpec]
Found: TypeAlias = tuple[int, Sequence[WrittenCall]]
"""The end of a match, and its calls."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Form:
    """`read` gets the text, the header's match and the tools, whose schemas type tagged parameters. It returns None
    for what is no call."""

    opening: str
    header: re.Pattern[str]
    read: Callable[[str, re.Match[str], Tools], Found | None]


def _json(text: str, at: int) -> tuple[Any, int | None]:
    """Return the JSON value and its end; None for both if it is invalid."""
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, None


def _decoded(text: str, otherwise: object) -> object:
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError):
        return otherwise


_FUNCTION = re.compile(r"<function=(?P<name>[^>\s]{1,120})>\s{0,64}")
_FUNCTION_CLOSED = re.compile(r"</function>")
_PARAMETERS_CLOSED = re.compile(r"</parameter>\s*</function>")
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
_TAG_CLOSED = re.compile(r"\s*(?:```\s*)?(?:</tool_call>(?:\s*</tool_call>)*|(?=<tool_call>|<tool_response)|\Z)")
_NEXT_TAG = re.compile(r"<tool_call>|<tool_response")
_NAME = re.compile(r'"name"\s*:\s*"([^"\\\r\n]{1,120})"')
_JSON_MARKS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)


def _tagged(text: str, head: re.Match[str], tools: Tools) -> Found | None:
    """Read `<tool_call>`: an object, a list, or a function, as some coding models write. The closing tag may be
    missing before another tag and at the end. A payload that is no JSON, or has text after it, ends at the last
    closing tag before the next call, and must name a tool."""
    at = head.end()
    if function := _FUNCTION.match(text, at):
        end = _function_end(text, function.end())
        calls = [_function_call(text, function, end, tools)]
    else:
        value, end = _json(text, at)
        calls = _calls_of(value, text[at:end].strip())
    if end is not None and (closed := _TAG_CLOSED.match(text, end)):
        return closed.end(), calls
    following = _NEXT_TAG.search(text, at)
    stop = following.start() if following else len(text)
    closing = text.rfind("</tool_call>", at, stop)
    end = stop if closing < 0 else closing + len("</tool_call>")
    payload = text[at:end].rstrip()
    while payload.endswith(("</tool_call>", "```")):
        payload = payload.removesuffix("</tool_call>").removesuffix("```").rstrip()
    return (end, [_broken(payload)]) if _name_in(payload) else None


def _function(text: str, head: re.Match[str], tools: Tools) -> Found:
    end = _function_end(text, head.end())
    call = _function_call(text, head, end, tools)
    closed = re.compile(r"\s*</tool_call>").match(text, end) if end else None
    return closed.end() if closed else end or len(text), [call]


def _function_end(text: str, at: int) -> int | None:
    """Return the end of `</function>`; inside JSON and parameters the tag may be text."""
    if text.startswith("{", at):
        closed = _FUNCTION_CLOSED.search(text, _json(text, at)[1] or at)
    elif text.startswith("<parameter=", at):
        closed = _PARAMETERS_CLOSED.search(text, at)
    else:
        closed = _FUNCTION_CLOSED.match(text, at)
    return closed.end() if closed else None


def _function_call(text: str, head: re.Match[str], end: int | None, tools: Tools) -> WrittenCall:
    name, raw = head["name"], text[head.start() : end]
    body = text[head.end() : end].removesuffix("</function>").strip()
    if end is not None and body.startswith("{"):
        return _named(name, body, raw)
    if end is None or _PARAMETER.sub("", body).strip():
        return WrittenCall(name=name, arguments=None, raw=well_formed(raw.strip()))
    properties = tools[name].input_schema.get("properties", {}) if name in tools else {}
    return _named(name, {key: _typed(value, properties.get(key)) for key, value in _PARAMETER.findall(body)}, raw)


def _typed(value: str, schema: object) -> object:
    """Convert a parameter's text to its schema's type; if that fails, the tool reports it."""
    value = value.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
    if not isinstance(schema, Mapping) or schema.get("type") in (None, "string"):
        return value
    return _decoded(value.strip(), value)


def _with_header(opening: str, header: str, closer: str = "", *, must_close: bool = False) -> Form:
    """Build a form of JSON after a header. If the header names the tool, the JSON is its arguments. The closer, in which
    NAME is that name, may be missing unless `must_close`. Broken JSON ends with its brackets, or at the end of the text."""

    def read(text: str, head: re.Match[str], tools: Tools) -> Found | None:
        name = head.groupdict().get("name")
        value, end = _json(text, head.end())
        after = end or _brackets_end(text, head.end()) or len(text)
        pattern = closer.replace("NAME", re.escape(name or ""))
        closed = re.compile(rf"\s*{pattern}").match(text, after) if closer else None
        if must_close and (closed is None or end is None or name not in tools):
            return None
        stop = closed.end() if closed else after
        if name is None:
            return stop, _calls_of(value, text[head.end() : stop].strip())
        return stop, [_named(name.strip(), value if end else "{", text[head.start() : stop])]

    return Form(opening=opening, header=re.compile(header), read=read)


def _bare(text: str, head: re.Match[str], tools: Tools) -> Found | None:
    """Read bare JSON, which is a call only if it is exactly a name and arguments."""
    value, end = _json(text, head.start())
    members = value if isinstance(value, list) else [value]
    exact = ({"name", "arguments"}, {"name", "parameters"})
    if end is None or not all(isinstance(member, dict) and member.keys() in exact for member in members):
        return None
    return end, [_of(member, _written(member)) for member in members]


def _no_call(opening: str, header: str, closing: str = "") -> Form:
    """Build a form that ends with `closing`, or the text, and makes no call."""

    def read(text: str, head: re.Match[str], tools: Tools) -> Found:
        at = text.find(closing, head.end()) if closing else -1
        return len(text) if at < 0 else at + len(closing), ()

    return Form(opening=opening, header=re.compile(header), read=read)


def _brackets_end(text: str, at: int) -> int | None:
    depth, in_string = 0, False
    for mark in _JSON_MARKS.finditer(text, at):
        if mark[0] == '"':
            in_string = not in_string
        elif len(mark[0]) == 1 and not in_string:
            depth += 1 if mark[0] in "{[" else -1
            if depth <= 0:
                return mark.end()
    return None


def _calls_of(value: object, raw: str) -> list[WrittenCall]:
    if isinstance(value, list) and value:
        return [_of(member, _written(member)) for member in value]
    return [_of(value, raw)]


def _of(value: object, raw: str) -> WrittenCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return _broken(raw)
    return _named(name.strip(), value.get("arguments", value.get("parameters")), raw)


def _named(name: str, value: object, raw: str) -> WrittenCall:
    if isinstance(value, str):  # encoded twice by a small model: arguments are always objects
        value = _decoded(value, None) if value.strip() else {}
    elif value is None:
        value = {}
    written = _written(value)
    arguments = parse_arguments(written) if isinstance(value, dict) else None
    return WrittenCall(name=name, arguments=arguments, raw=well_formed(raw) if arguments is None else written)


def _broken(raw: str) -> WrittenCall:
    return WrittenCall(name=_name_in(raw) or NAMELESS, arguments=None, raw=well_formed(raw.strip()))


def _name_in(payload: str) -> str:
    """Return the name in an unreadable payload."""
    name = _NAME.search(payload) or _FUNCTION.match(payload)
    return name[1] if name else ""


def _written(value: object) -> str:
    return well_formed(json.dumps(value, ensure_ascii=False))


_TAG = Form(
    opening="<tool_call>",
    header=re.compile(r"<tool_call>\s{0,64}(?:```[\w-]{0,16}\s{0,16})?(?=[\[{]|<function=)"),
    read=_tagged,
)
PROMPTED = (_TAG, _no_call("<tool_response", r"<tool_response>\s{0,64}(?=\{)"))
"""The forms for prompted tools; a result that the model invents ends its answer."""
_MARKER_CLOSER = r"\[(?:/NAME|END_TOOL_REQUEST)\]"
TAGS = (
    _TAG,
    Form(
        opening="<function=", header=re.compile(_FUNCTION.pattern + r"(?=\{|<parameter=|</function>)"), read=_function
    ),
    _no_call("<function_calls>", r"<function_calls>\s{0,64}(?=<invoke )", "</function_calls>"),
    _no_call("<invoke ", r'<invoke name="[^"\n]{1,120}">\s{0,64}(?=<parameter|</invoke>)', "</invoke>"),
    _with_header(
        "<|channel|>commentary to=",
        r"<\|channel\|>commentary to=(?:functions\.)?(?P<name>[^\s<]{1,120})(?:(?!<\|(?:message|channel)\|>).){0,160}"
        r"<\|message\|>\s{0,32}(?=\{)",
        re.escape("<|call|>"),
    ),
    _with_header("[TOOL_CALLS]", r"\[TOOL_CALLS\]\s{0,64}(?=[\[{])"),
    _with_header("[tool:", r"\[tool:[ \t]{0,16}(?P<name>[^\]\r\n]{1,120})\]\s{0,64}(?=\{)", _MARKER_CLOSER),
)
"""Forms that appear if a server did not recognise a call; unmistakable, so never shown."""
_FIRST_KEY = r'\{\s*"(?:name|arguments|parameters)"\s*:'
BARE = (
    _with_header("[", r"\[(?P<name>[^\]\r\n]{1,120})\][ \t]{0,64}\r?\n\s{0,64}(?=\{)", _MARKER_CLOSER, must_close=True),
    Form(opening="{", header=re.compile(rf"(?:\[\s*)?{_FIRST_KEY}"), read=_bare),
)
ALONE = (*TAGS, *BARE)
"""All forms, including those that are calls only without other text."""


OPENINGS_MAX = 1_000
"""A stuck model repeats itself: after this many openings the rest is text."""
SPAN_CHARS_MAX = 1_000
"""The distance within which a code span around a call must open and close."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Text to cut out, and its calls; none if it is only hidden."""

    start: int
    end: int
    calls: Sequence[WrittenCall] = ()


def calls_among_words(text: str, forms: tuple[Form, ...], tools: Tools, *, in_spans: bool = False) -> Iterator[Stretch]:
    """Yield the calls in `text`. With `in_spans`, a code span alone on its line is a call, not a quotation, as models
    write prompted calls."""
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
    """Return a pattern of the forms' openings."""
    return re.compile("|".join(re.escape(form.opening) for form in forms) or r"\Z.")


def calls_alone(text: str, tools: Tools) -> list[Stretch]:
    """Return the calls of a text that has nothing else; empty otherwise."""
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
    """Return the Markdown fence open at `end`, given the one open at `start`; empty if none."""
    line_end = text.find("\n", end, end + SPAN_CHARS_MAX)
    for line in _FENCE.finditer(text, start, line_end if line_end >= 0 else end + SPAN_CHARS_MAX):
        if not fence:
            fence = line[1]
        elif line[1].startswith(fence) and not line[2].strip():
            fence = ""
    return fence


def _quoting_span(before: str, after: str) -> bool | None:
    """Return True if the code span around a call is alone on its line, None if there is no span. `before` and `after`
    are the rest of the call's line."""
    rest = _SPAN.sub("…", before)
    run = re.search("`+", rest)
    closing = re.search(rf"(?<!`){run[0]}(?!`)", after) if run else None
    if run is None or closing is None:
        return None
    around = (rest[: run.start()], rest[run.end() :], after[: closing.start()], after[closing.end() :])
    return len(run[0]) < 3 and not any(part.strip() for part in around)

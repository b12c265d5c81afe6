"""Where calls stand in the text of an answer, and where each of them ends. Pure, and on whole texts only.

A call begins with the header of its form: the opening together with the beginning of what is called. An opening without
that is a mention, and a call that is quoted as code is a quotation: both are ordinary text. What a call says is in
`grammar`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agents.providers.textcalls.code import Code
from agents.providers.textcalls.grammar import DECODER, FUNCTION, HARMONY, MARKER, TOOL_CALLS, FormKind, names_a_tool

HEADER_CHARS_MAX = 400
"""No header is longer: an opening with so many characters behind it and no header is a mention."""

OPENINGS_MAX = 1_000
"""A model that has got stuck repeats itself: behind so many openings an answer is words."""

_JSON_MARKS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_TAG_CLOSED = re.compile(r"\s*(?:```\s*)?(?:</tool_call>(?:\s*</tool_call>)*|(?=<tool_call>|<tool_response)|\Z)")
_NEXT_TAG = re.compile(r"<tool_call>|<tool_response")
_FUNCTION_CLOSED = re.compile(r"</function>(?:\s*</tool_call>)?")
_PARAMETERS_CLOSED = re.compile(r"</parameter>\s*</function>(?:\s*</tool_call>)?")
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """`end` gives the place behind the call, from the text and the header's match; None where it is none after all."""

    kind: FormKind
    opening: str
    header: re.Pattern[str]
    end: Callable[[str, re.Match[str]], int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Text of a call, whole or as whole as it is."""

    start: int
    end: int
    kind: FormKind
    text: str


class Forms:
    """Forms to look for together."""

    def __init__(self, forms: Iterable[Form]) -> None:
        self._forms = tuple(forms)
        self.openings = tuple(form.opening for form in self._forms)
        self.opening = re.compile("|".join(map(re.escape, self.openings)))
        self._tokens = re.compile(rf"\n|`+|~{{3,}}|{self.opening.pattern}")

    def header(self, text: str, at: int) -> bool:
        """Whether a call begins there, as far as its header tells."""
        return any(form.header.match(text, at) for form in self._forms)

    def among_words(self, text: str, *, in_spans: bool) -> Iterator[Stretch]:
        """The calls in `text`. With `in_spans` a code span that has its line to itself is a call and no quotation: models
        that write calls by prompt put them so."""
        if not self.opening.search(text):
            return
        code, at, left = Code(text), 0, OPENINGS_MAX
        while left and (token := self._tokens.search(text, at)):
            at = token.end()
            if token[0][0] in "\n`~":
                code.take(token)
                continue
            left -= 1
            if not code.in_fence and (found := self._call(text, token.start())):
                at = found.end
                if not code.quotes(found.end) or (in_spans and code.stands_alone(found.start, found.end)):
                    yield found
                code.skip(found.start, found.end)

    def alone(self, text: str) -> list[Stretch]:
        """The calls of a text that is nothing else; empty where it is something else."""
        found: list[Stretch] = []
        at = _end_of(_BLANK, text, 0)
        while at < len(text):
            call = self._call(text, at)
            if call is None:
                return []
            found.append(call)
            at = _end_of(_BLANK, text, call.end)
        return found

    def _call(self, text: str, at: int) -> Stretch | None:
        for form in self._forms:
            if (head := form.header.match(text, at)) and (end := form.end(text, head)) is not None:
                return Stretch(start=at, end=end, kind=form.kind, text=text[at:end])
        return None


def prompted_forms() -> Forms:
    """The forms that a model without tools is prompted to write; a result that it invents ends its answer."""
    invented = re.compile(r"<tool_response>\s{0,64}(?=\{)")
    return Forms(
        (
            _tool_call(),
            Form(kind="never", opening="<tool_response", header=invented, end=lambda text, head: len(text)),
        )
    )


def tag_forms() -> Forms:
    """What models write whose server did not recognise their call; unmistakable, so people never see it."""
    return Forms(_tags())


@lru_cache(maxsize=64)
def all_forms(names: tuple[str, ...]) -> Forms:
    """The same, and what may be a call of these tools where the answer is nothing else."""
    blocks = (_block(name) for name in names)
    first_key = r'\{\s*"(?:name|arguments|parameters)"\s*:'
    bare = (
        Form(
            kind="bare",
            opening=bracket,
            header=re.compile(header),
            end=lambda text, head: _json_end(text, head.start()),
        )
        for bracket, header in (("{", first_key), ("[", rf"\[\s*{first_key}"))
    )
    return Forms((*_tags(), *blocks, *bare))


def _tags() -> Iterable[Form]:
    calls = re.compile(r"<function_calls>\s{0,64}(?=<invoke )")
    invoke = re.compile(r'<invoke name="[^"\n]{1,120}">\s{0,64}(?=<parameter|</invoke>)')
    function = re.compile(FUNCTION.pattern + r"\s{0,64}(?=\{|<parameter=|</function>)")
    return (
        _tool_call(),
        Form(kind="function", opening="<function=", header=function, end=_function_end),
        Form(kind="never", opening="<function_calls>", header=calls, end=_until("</function_calls>")),
        Form(kind="never", opening="<invoke ", header=invoke, end=_until("</invoke>")),
        Form(
            kind="harmony", opening="<|channel|>commentary to=", header=HARMONY, end=_json_then(re.escape("<|call|>"))
        ),
        Form(kind="tool_calls", opening="[TOOL_CALLS]", header=TOOL_CALLS, end=_json_then("")),
        Form(kind="marker", opening="[tool:", header=MARKER, end=_json_then(r"\[(?:/{name}|END_TOOL_REQUEST)\]")),
    )


def _tool_call() -> Form:
    fence = r"(?:```[\w-]{0,16}\s{0,16})?"
    header = re.compile(rf"<tool_call>\s{{0,64}}{fence}(?=[\[{{]|<function=)")
    return Form(kind="tool_call", opening="<tool_call>", header=header, end=_tag_end)


def _tag_end(text: str, head: re.Match[str]) -> int | None:
    """Behind the closing tag, which may be missing before another tag and at the end of the text. A payload that is no
    JSON, or that other words follow, ends at the last closing tag before the next call; it has to name a tool."""
    at = head.end()
    function = FUNCTION.match(text, at)
    end = _function_closed(text, function) if function else _json_end(text, at)
    if end is not None and (closed := _TAG_CLOSED.match(text, end)):
        return closed.end()
    following = _NEXT_TAG.search(text, at)
    stop = following.start() if following else len(text)
    closing = text.rfind("</tool_call>", at, stop)
    end = stop if closing < 0 else closing + len("</tool_call>")
    return end if names_a_tool(text[at:end]) else None


def _function_end(text: str, head: re.Match[str]) -> int:
    return _function_closed(text, head) or len(text)


def _function_closed(text: str, head: re.Match[str]) -> int | None:
    """Behind `</function>`; in JSON and in a parameter the tag may stand as text."""
    at = _end_of(_BLANK, text, head.end())
    if text.startswith("{", at):
        closed = _FUNCTION_CLOSED.search(text, _json_end(text, at) or at)
    elif text.startswith("<parameter=", at):
        closed = _PARAMETERS_CLOSED.search(text, at)
    else:
        closed = _FUNCTION_CLOSED.match(text, at)
    return closed.end() if closed else None


def _until(closing: str) -> Callable[[str, re.Match[str]], int]:
    def end(text: str, head: re.Match[str]) -> int:
        at = text.find(closing, head.end())
        return len(text) if at < 0 else at + len(closing)

    return end


def _json_then(closer: str) -> Callable[[str, re.Match[str]], int]:
    """A JSON value and its closer, which may be missing. What is no JSON ends with its brackets, or never."""

    def end(text: str, head: re.Match[str]) -> int:
        after = _json_end(text, head.end()) or _brackets_end(text, head.end()) or len(text)
        name = re.escape(head.groupdict().get("name") or "")
        closed = re.compile(rf"\s*(?:{closer.replace('{name}', name)})").match(text, after) if closer else None
        return closed.end() if closed else after

    return end


def _block(name: str) -> Form:
    """`[NAME]`, a line break and JSON: a call only where it is closed."""
    header = re.compile(rf"\[{re.escape(name)}\][ \t]{{0,64}}\r?\n\s{{0,64}}(?=\{{)")
    closing = re.compile(rf"\s*\[(?:/{re.escape(name)}|END_TOOL_REQUEST)\]")

    def end(text: str, head: re.Match[str]) -> int | None:
        after = _json_end(text, head.end())
        closed = closing.match(text, after) if after is not None else None
        return closed.end() if closed else None

    return Form(kind="block", opening=f"[{name}]", header=header, end=end)


def _json_end(text: str, at: int) -> int | None:
    try:
        return DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


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


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at

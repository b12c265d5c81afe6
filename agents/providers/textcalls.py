"""Calls and thoughts that a model wrote into its text become parts of their own.

Words are shown as they arrive, up to the first opening of a call. What follows is held until the answer is over and read
as a whole, so what was shown and what is kept agree. Thoughts are `<think>…</think>` at the very beginning; blank space
around them belongs to neither side, and anywhere else the tag is ordinary text.

Calls have two forms: what Qwen, Hermes and their like write between `<tool_call>` and `</tool_call>`, which is JSON or a
`<function=…>`, and JSON alone. An opening without what belongs behind it is a mention, and a call that is quoted as code
is a quotation: both are ordinary text. Broken JSON is never mended by guessing: it stays a call without arguments, and
its text is kept for the answer. Only what has one reading is tolerated: a fence around the JSON, raw line breaks in its
strings, arguments encoded twice.
"""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, groupby
from typing import Any, Literal, TypeAlias

from agents.messages import AssistantMessage, AssistantPart, StopReason, Text, Thinking, ToolCall, texts
from agents.providers.payload import parse_arguments, refuse_constant, well_formed
from agents.providers.provider import (
    Done,
    ModelEvent,
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from tools.tool import ToolSpec

DONE_WELL: frozenset[StopReason] = frozenset({"end_turn", "stop_sequence", "tool_use"})
"""The reasons that mean tool use if there are calls. Any other reason says more, so it stays."""
PAYLOAD_BYTES_MAX = 256_000
"""A longer answer is no call."""
_BROKEN: frozenset[StopReason] = frozenset({"error", "aborted"})

_OPENING, _CLOSING = "<think>", "</think>"
_CUT_CLOSING = "|".join(_CLOSING[:chars] for chars in range(len(_CLOSING) - 1, 0, -1))
_THOUGHTS = re.compile(rf"\s*{_OPENING}\s*(.*?)(?:{_CLOSING}\s*|(?:{_CUT_CLOSING})?\Z)", re.DOTALL)
_MARKS = re.compile(r"[<\[{]")
"""One begins every call and every thought."""
_BARE_BEGUN = re.compile(r'(?:\[\s*)?(?:\{\s*(?:"[a-z]{0,10}(?:"\s*)?)?)?')

NAMELESS = "tool_call"
"""The name of a call with an unreadable name; no tool has it, so it is answered with the names there are."""

DECODER = json.JSONDecoder(strict=False, parse_constant=refuse_constant)
"""A lenient decoder: a raw line break in a string has one reading only, and small models write files that way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenCall:
    """`arguments` is None if they are no object; then `raw` is all that was written, name included."""

    name: str
    arguments: dict[str, Any] | None
    raw: str


Tools: TypeAlias = Mapping[str, ToolSpec]
Found: TypeAlias = tuple[int, Sequence[WrittenCall]]
"""The place behind a call, and what it says."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Form:
    """`read` takes the text, the header's match and the tools, whose schemas tell the types of tagged parameters; it
    returns None for what is no call after all."""

    opening: str
    header: re.Pattern[str]
    read: Callable[[str, re.Match[str], Tools], Found | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Text that is no words, and the calls that it makes; none in what is only kept from people."""

    start: int
    end: int
    calls: Sequence[WrittenCall] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """The rules for what is taken out of an answer's words. `forms` begin what is held back; with `bare`, so does JSON that
    begins the answer. `cuts` gets the words of one text, and whether they are all there is and may be calls."""

    forms: tuple[Form, ...]
    bare: bool
    cuts: Callable[[str, bool], Sequence[Stretch]]


class Rewriting:
    """A `Provider` around another, whose answers `stream` rewrites."""

    def __init__(self, inner: Provider) -> None:
        self.name = inner.name
        self.api = inner.api
        self._inner = inner

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class RepairedCalls(Rewriting):
    """Calls that a model with native tools wrote as text instead, because it or its server slipped.

    An answer that is nothing but calls of offered tools becomes those calls; nothing else does, for a model may also talk
    about calls. What is unmistakably call text but cannot be made a call is kept from people. The request is not touched.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return rewritten(self._inner.stream(request), request, _repaired(request))


def _repaired(request: ModelRequest) -> Style:
    """The style for native tools; without tools nothing is a call."""
    tools = {tool.name: tool for tool in request.tools}

    def cuts(words: str, may_call: bool) -> Sequence[Stretch]:
        short = len(words.encode(errors="replace")) <= PAYLOAD_BYTES_MAX
        alone = calls_alone(words, tools) if may_call and short and request.tool_choice != "none" else []
        calls = [call for found in alone for call in found.calls or (None,)]
        if calls and all(call and call.name in tools and call.arguments is not None for call in calls):
            return alone
        return [replace(found, calls=()) for found in calls_among_words(words, TAGS, tools)]

    return Style(forms=TAGS, bare=True, cuts=cuts) if tools else Style(forms=(), bare=False, cuts=lambda *_: ())


async def rewritten(
    events: AsyncIterator[ModelEvent], request: ModelRequest, style: Style
) -> AsyncGenerator[ModelEvent, None]:
    """`events`, with the calls and thoughts that were found in the text reported right before `Done`."""
    preview = _Preview(style)
    pieces: list[str] = []
    text_index, highest = 0, -1
    try:
        async for event in events:
            match event:
                case TextDelta():
                    text_index, highest = event.index, max(highest, event.index)
                    if words := preview.feed(event.text):
                        pieces.append(words)
                        yield event if words == event.text else replace(event, text=words)
                case Done(message=message):
                    answer = read(message, request, style)
                    so_far, text = "".join(pieces), answer.text
                    if text.startswith(so_far) and text != so_far:  # else a failed attempt's, which are void
                        yield TextDelta(index=text_index, text=text[len(so_far) :])
                    for piece in _added(message, answer, max(highest, text_index) + 1):
                        yield piece
                    yield event if answer is message else Done(message=answer)
                case _:
                    highest = max(highest, event.index)
                    yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _added(before: AssistantMessage, after: AssistantMessage, index: int) -> Iterator[ModelEvent]:
    for part in after.content:
        if isinstance(part, Text) or any(part is old for old in before.content):
            continue
        if isinstance(part, ToolCall):
            yield ToolCallStart(index=index, id=part.id, name=part.name)
            yield ToolCallDelta(index=index, text=part.arguments_raw)
            yield ToolCallEnd(index=index, call=part)
        elif isinstance(part, Thinking):
            yield ThinkingDelta(index=index, text=part.text)
        index += 1


class _Preview:
    """The part of the words that may be shown while they come."""

    def __init__(self, style: Style) -> None:
        self._forms = style.forms
        self._bare = style.bare
        self._held = ""
        self._state: Literal["beginning", "thinking", "after thoughts", "words", "call"] = "beginning"
        self._silent = True
        """True while only blank space has arrived: it goes with a call at the beginning."""

    def feed(self, piece: str) -> str:
        if self._state == "call":
            return ""
        if self._state == "words" and not self._held and "<" not in piece:
            return piece
        self._held += piece
        if self._state == "beginning":
            self._begin()
        if self._state == "thinking":
            _, closed, behind = self._held.partition(_CLOSING)
            self._held = behind if closed else self._held[-len(_CLOSING) :]
            self._state = "after thoughts" if closed else "thinking"
        if self._state == "after thoughts":
            self._held = self._held.lstrip()
            self._speak(self._held)
        return self._release() if self._state == "words" else ""

    def _begin(self) -> None:
        text = self._held.lstrip()
        if text.startswith(_OPENING):
            self._state, self._held = "thinking", text[len(_OPENING) :]
        elif not _OPENING.startswith(text):
            self._speak(text)

    def _speak(self, text: str) -> None:
        """Words, unless they may still become a call that begins the answer."""
        if self._bare and BARE.header.match(text):
            self._state = "call"
        elif text and not (self._bare and _BARE_BEGUN.fullmatch(text)):
            self._state = "words"

    def _release(self) -> str:
        if match := opening_of(self._forms).search(self._held):
            self._state, end = "call", match.start()
        else:
            at = self._held.rfind("<")
            begun = at >= 0 and any(form.opening.startswith(self._held[at:]) for form in self._forms)
            end = at if begun else len(self._held)
        if self._silent and not self._held[:end].strip():
            return ""
        self._silent = False
        released, self._held = self._held[:end], self._held[end:]
        return released


def read(message: AssistantMessage, request: ModelRequest, style: Style) -> AssistantMessage:
    """The finished answer: the very object if nothing is taken out of its text. Adjacent texts are one; a
    text that lost something loses its `wire`, too, for that belongs to the whole."""
    if not any(map(_MARKS.search, texts(message))):
        return message
    runs = [list(run) for _, run in groupby(message.content, lambda part: isinstance(part, Text))]
    text_runs = [run for run in runs if isinstance(run[0], Text)]
    may_call = len(text_runs) == 1 and not message.calls and message.stop_reason in DONE_WELL
    ids = new_ids(request, message)
    content: list[AssistantPart] = []
    changed = False
    for run in runs:
        text = "".join(part.text for part in run if isinstance(part, Text))
        thoughts = _THOUGHTS.match(text) if text_runs and run is text_runs[0] else None
        words = text[thoughts.end() :] if thoughts else text
        cuts = style.cuts(words, may_call)
        if thoughts or cuts:
            changed = True
            made = _parts(thoughts[1] if thoughts else "", words, cuts, ids)
            content += [part for part in made if isinstance(part, Text) or message.stop_reason not in _BROKEN]
        else:
            content += run
    if not changed:
        return message
    called = sum(isinstance(part, ToolCall) for part in content) > len(message.calls)
    reason = "tool_use" if called and message.stop_reason in DONE_WELL else message.stop_reason
    return replace(message, content=tuple(content), stop_reason=reason)


def new_ids(request: ModelRequest, answer: AssistantMessage) -> Iterator[str]:
    """Ids for calls without one, in order: the same for the same answer, and never one that the history has."""
    earlier = [call.id for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls]
    taken = {*earlier, *(call.id for call in answer.calls)}
    seed = f"{answer.response_id or answer.timestamp}:{len(earlier)}"
    for position in count():
        call_id = "call_" + hashlib.sha256(f"{seed}:{position}".encode()).hexdigest()[:8]
        if call_id not in taken:
            taken.add(call_id)
            yield call_id


def _parts(thoughts: str, words: str, cuts: Sequence[Stretch], ids: Iterator[str]) -> Iterator[AssistantPart]:
    """The parts around the cuts, without the blank space that a cut leaves."""
    if thoughts:
        yield Thinking(text=thoughts)
    kept, last = "", " "
    starts = [0, *(cut.end for cut in cuts)]
    ends = [*(cut.start for cut in cuts), len(words)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        text = words[start:end]
        if number and last.isspace():
            text = text.lstrip()
        if text.strip():
            kept, last = kept + text, text[-1]
        calls = cuts[number].calls if number < len(cuts) else ()
        if kept and (calls or number == len(cuts)):
            yield Text(text=kept)
            kept = ""
        for call in calls:
            yield ToolCall(id=next(ids), name=call.name, arguments=call.arguments, arguments_raw=call.raw)


OPENINGS_MAX = 1_000
"""A model that has got stuck repeats itself: after this number of openings an answer is words."""
SPAN_CHARS_MAX = 1_000
"""A code span begins and ends so near to the call that it quotes, or its backtick is a lone one."""


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
        call = _call(text, begin.start(), (*TAGS, BARE), tools)
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


def _json(text: str, at: int) -> tuple[Any, int | None]:
    """The value there and the place behind it; None for both without one."""
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


def _tagged(text: str, head: re.Match[str], tools: Tools) -> Found | None:
    """`<tool_call>`: one call as an object, several as a list, or a function, as some coders write it between these tags.
    The closing tag may be missing before another tag and at the end of the text. A payload that is no JSON, or that other
    words follow, ends at the last closing tag before the next call; it has to name a tool."""
    at = head.end()
    if function := _FUNCTION.match(text, at):
        end = _function_end(text, function.end())
        calls = [_function_call(text, function, end, tools)]
    else:
        value, end = _json(text, at)
        raw = text[at:end].strip()
        calls = [_of(it, _written(it)) for it in value] if isinstance(value, list) and value else [_of(value, raw)]
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
    """The place behind `</function>`; in JSON and in a parameter the tag may be text."""
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
    """A parameter's text as its schema wants it; if it is no such thing, the tool says what is wrong."""
    value = value.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
    if not isinstance(schema, Mapping) or schema.get("type") in (None, "string"):
        return value
    return _decoded(value.strip(), value)


def _bare(text: str, head: re.Match[str], tools: Tools) -> Found | None:
    """JSON that is alone is a call only if it is nothing else: exactly a name and arguments."""
    value, end = _json(text, head.start())
    members = value if isinstance(value, list) else [value]
    exact = ({"name", "arguments"}, {"name", "parameters"})
    if end is None or not all(isinstance(member, dict) and member.keys() in exact for member in members):
        return None
    return end, [_of(member, _written(member)) for member in members]


def _of(value: object, raw: str) -> WrittenCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return _broken(raw)
    return _named(name.strip(), value.get("arguments", value.get("parameters")), raw)


def _named(name: str, value: object, raw: str) -> WrittenCall:
    """Small models encode an object twice; everything a tool takes is an object, so a second look is no guess."""
    if isinstance(value, str):
        value = _decoded(value, None) if value.strip() else {}
    elif value is None:
        value = {}
    written = _written(value)
    arguments = parse_arguments(written) if isinstance(value, dict) else None
    return WrittenCall(name=name, arguments=arguments, raw=well_formed(raw) if arguments is None else written)


def _broken(raw: str) -> WrittenCall:
    return WrittenCall(name=_name_in(raw) or NAMELESS, arguments=None, raw=well_formed(raw.strip()))


def _name_in(payload: str) -> str:
    """The name in a payload that cannot be read as a whole."""
    name = _NAME.search(payload) or _FUNCTION.match(payload)
    return name[1] if name else ""


def _written(value: object) -> str:
    return well_formed(json.dumps(value, ensure_ascii=False))


_TAG = Form(
    opening="<tool_call>",
    header=re.compile(r"<tool_call>\s{0,64}(?:```[\w-]{0,16}\s{0,16})?(?=[\[{]|<function=)"),
    read=_tagged,
)
_RESPONSE = Form(
    opening="<tool_response",
    header=re.compile(r"<tool_response>\s{0,64}(?=\{)"),
    read=lambda text, head, tools: (len(text), ()),
)
PROMPTED = (_TAG, _RESPONSE)
"""The forms that a model without tools is prompted to write; a result that it invents ends its answer."""
TAGS = (
    _TAG,
    Form(
        opening="<function=", header=re.compile(_FUNCTION.pattern + r"(?=\{|<parameter=|</function>)"), read=_function
    ),
)
"""The forms that models write if their server did not recognise their call; unmistakable, so people never see them."""
BARE = Form(opening="{", header=re.compile(r'(?:\[\s*)?\{\s*"(?:name|arguments|parameters)"\s*:'), read=_bare)
"""JSON is a call only if the answer is nothing else."""

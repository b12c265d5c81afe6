"""Rewrites a provider's answer: thoughts and calls that the model wrote as text become separate parts.

Text is streamed up to the first opening of a call. The rest is held back and parsed as a whole at the end, so what was
shown and what is kept agree. Thoughts are `<think>…</think>` at the very beginning, with the blank space around them;
elsewhere the tag is ordinary text.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Literal

from agents.messages import AssistantMessage, AssistantPart, StopReason, Text, Thinking, ToolCall, texts
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
from agents.providers.textforms import BARE, TAGS, Form, Stretch, calls_alone, calls_among_words, opening_of

DONE_WELL: frozenset[StopReason] = frozenset({"end_turn", "stop_sequence", "tool_use"})
"""Stop reasons that mean tool use if there are calls; all others stay."""
PAYLOAD_BYTES_MAX = 256_000
"""A longer text is no call."""
_BROKEN: frozenset[StopReason] = frozenset({"error", "aborted"})

_OPENING, _CLOSING = "<think>", "</think>"
_CUT_CLOSING = "|".join(_CLOSING[:chars] for chars in range(len(_CLOSING) - 1, 0, -1))
_THOUGHTS = re.compile(rf"\s*{_OPENING}\s*(.*?)(?:{_CLOSING}\s*|(?:{_CUT_CLOSING})?\Z)", re.DOTALL)
_OPENS = re.compile(r"[<\[]")
_MARKS = re.compile(r"[<\[{]")
"""Every call and thought begins with one of these."""
_BARE_BEGUN = re.compile(r'(?:\[\s*)?(?:\{\s*(?:"[a-z]{0,10}(?:"\s*)?)?)?|\[[\w.-]{0,120}(?:\][ \t]*\r?(?:\n\s*)?)?')


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """The rules for what to extract from an answer's text. `forms` begin held-back text; with `bare`, so does JSON at
    the beginning. `cuts` gets one text and whether it may be calls."""

    forms: tuple[Form, ...]
    bare: bool
    cuts: Callable[[str, bool], Sequence[Stretch]]


class Rewriting:
    """A `Provider` that wraps another; `stream` rewrites its answers."""

    def __init__(self, inner: Provider) -> None:
        self.name = inner.name
        self.api = inner.api
        self._inner = inner

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class RepairedCalls(Rewriting):
    """Recovers calls that a model with native tools wrote as text.

    Only an answer that is nothing but calls of offered tools becomes calls, since a model may also talk about calls.
    Unmistakable call text that cannot become a call is hidden. Requests are not changed.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return rewritten(self._inner.stream(request), request, _repaired(request))


def _repaired(request: ModelRequest) -> Style:
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
    """Yield `events`; report the extracted calls and thoughts directly before `Done`."""
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
    """Decides which streamed text may be shown."""

    def __init__(self, style: Style) -> None:
        self._forms = style.forms
        self._bare = style.bare
        self._held = ""
        self._state: Literal["beginning", "thinking", "after thoughts", "words", "call"] = "beginning"
        self._silent = True
        """True while only blank space has arrived; it is dropped with a call at the beginning."""

    def feed(self, piece: str) -> str:
        if self._state == "call":
            return ""
        if self._state == "words" and not self._held and not _OPENS.search(piece):
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
        if self._bare and any(form.header.match(text) for form in BARE):
            self._state = "call"
        elif text and not (self._bare and _BARE_BEGUN.fullmatch(text)):
            self._state = "words"

    def _release(self) -> str:
        if match := opening_of(self._forms).search(self._held):
            self._state, end = "call", match.start()
        else:
            longest = max((len(form.opening) for form in self._forms), default=0)
            begun = _OPENS.finditer(self._held, max(0, len(self._held) - longest))
            ends = ((at, self._held[at:]) for at in map(re.Match[str].start, begun))
            starts = (at for at, end in ends if any(form.opening.startswith(end) for form in self._forms))
            end = next(starts, len(self._held))
        if self._silent and not self._held[:end].strip():
            return ""
        self._silent = False
        released, self._held = self._held[:end], self._held[end:]
        return released


def read(message: AssistantMessage, request: ModelRequest, style: Style) -> AssistantMessage:
    """Return the answer with calls and thoughts extracted; the same object if there are none. Adjacent texts are
    joined; a changed text loses its `wire`, which belongs to the whole."""
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
    """Yield ids for calls without one: deterministic per answer, and unused in the history."""
    earlier = [call.id for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls]
    taken = {*earlier, *(call.id for call in answer.calls)}
    seed = f"{answer.response_id or answer.timestamp}:{len(earlier)}"
    for position in count():
        call_id = "call_" + hashlib.sha256(f"{seed}:{position}".encode()).hexdigest()[:8]
        if call_id not in taken:
            taken.add(call_id)
            yield call_id


def _parts(thoughts: str, words: str, cuts: Sequence[Stretch], ids: Iterator[str]) -> Iterator[AssistantPart]:
    """Yield the parts around the cuts, without the blank space that a cut leaves."""
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

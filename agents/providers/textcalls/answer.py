"""A finished answer read as a whole: its thoughts, its words, and the calls that are made of its text. Pure.

Two kinds of wrapper differ in which stretches are taken out of the words and in which of those are calls: their `Style`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agents.messages import AssistantMessage, AssistantPart, StopReason, Text, Thinking, ToolCall
from agents.providers.provider import ModelRequest
from agents.providers.textcalls.grammar import WrittenCall
from agents.providers.textcalls.preview import Preview
from agents.providers.textcalls.thinking import Thoughts

DONE_WELL: frozenset[StopReason] = frozenset({"end_turn", "stop_sequence", "tool_use"})
"""With calls, these mean tool use. Any other reason to stop says more than that calls were made, so it stays."""
_BROKEN: frozenset[StopReason] = frozenset({"error", "aborted"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A stretch of the words that is not shown, and the calls that are made of it."""

    start: int
    end: int
    calls: Sequence[WrittenCall] = ()


class Style(Protocol):
    def preview(self) -> Preview | None:
        """None where every word may be shown as it comes."""

    def cuts(self, words: str, message: AssistantMessage) -> Sequence[Cut]:
        """In order. `words` is the text of `message` without its thoughts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """`message` is the very object that was read where nothing changed. `kept` are the places of its words in the text
    that was read, `thoughts` what stood before them."""

    message: AssistantMessage
    kept: Sequence[tuple[int, int]]
    thoughts: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Edit:
    start: int
    end: int
    parts: tuple[AssistantPart, ...] = ()


def read(message: AssistantMessage, request: ModelRequest, style: Style) -> Reading:
    thoughts = Thoughts()
    text = message.text
    words = thoughts.feed(text)[1] + thoughts.finish()[1]
    cuts = _with_blanks(words, style.cuts(words, message))
    edits = [_thought(thoughts, message)] if thoughts.end else []
    edits += _called(cuts, thoughts.end, message, new_ids(request, message))
    kept = _between(edits, len(text))
    if not edits:
        return Reading(message=message, kept=kept, thoughts="")
    made = any(isinstance(part, ToolCall) for edit in edits for part in edit.parts)
    reason = "tool_use" if made and message.stop_reason in DONE_WELL else message.stop_reason
    content = tuple(_assembled(message.content, edits))
    return Reading(message=replace(message, content=content, stop_reason=reason), kept=kept, thoughts=thoughts.text)


def new_ids(request: ModelRequest, answer: AssistantMessage) -> Iterator[str]:
    """Ids for calls without one, in order: the same for the same answer, and never one that the history has."""
    earlier = [call.id for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls]
    taken = {*earlier, *(call.id for call in answer.calls)}
    seed = f"{answer.response_id or answer.timestamp}:{len(earlier)}"
    position = 0
    while True:
        call_id = "call_" + hashlib.sha256(f"{seed}:{position}".encode()).hexdigest()[:8]
        position += 1
        if call_id not in taken:
            taken.add(call_id)
            yield call_id


def _thought(thoughts: Thoughts, message: AssistantMessage) -> _Edit:
    shown = bool(thoughts.text) and message.stop_reason not in _BROKEN
    return _Edit(start=0, end=thoughts.end, parts=(Thinking(text=thoughts.text),) if shown else ())


def _called(cuts: Sequence[Cut], offset: int, message: AssistantMessage, ids: Iterator[str]) -> Iterator[_Edit]:
    for cut in cuts:
        calls = () if message.stop_reason in _BROKEN else cut.calls
        parts = tuple(
            ToolCall(id=next(ids), name=call.name, arguments=call.arguments, arguments_raw=call.raw) for call in calls
        )
        yield _Edit(start=offset + cut.start, end=offset + cut.end, parts=parts)


def _with_blanks(words: str, cuts: Sequence[Cut]) -> list[Cut]:
    """With the blank space that would gape where they stood, and where there is no text before or behind them."""
    widened: list[Cut] = []
    at, last = 0, " "
    for number, cut in enumerate(cuts):
        before = words[at : cut.start]
        start = cut.start if before.strip() else at
        last = before[-1] if before.strip() else last
        rest = words[cut.end : cuts[number + 1].start if number + 1 < len(cuts) else len(words)]
        goes = last.isspace() or not rest.strip()
        at = cut.end + (len(rest) - len(rest.lstrip()) if goes else 0)
        widened.append(replace(cut, start=start, end=at))
    return widened


def _between(edits: Sequence[_Edit], end: int) -> list[tuple[int, int]]:
    starts = [0, *(edit.end for edit in edits)]
    ends = [*(edit.start for edit in edits), end]
    return [(a, b) for a, b in zip(starts, ends, strict=True) if a < b]


def _assembled(content: Sequence[AssistantPart], edits: Sequence[_Edit]) -> Iterator[AssistantPart]:
    """The message's parts after the edits, whose places count through all its texts. Untouched parts stay as they are;
    a text that lost something lost its `wire` too, for that belongs to the whole."""
    waiting = list(reversed(edits))
    start = 0
    for part in content:
        if not isinstance(part, Text):
            yield part
            continue
        end = start + len(part.text)
        if not waiting or waiting[-1].start >= end:
            yield part
        else:
            yield from _pieces(part, start, waiting)
        start = end


def _pieces(part: Text, start: int, waiting: list[_Edit]) -> Iterator[AssistantPart]:
    """One text cut up. What reaches into the next text stays waiting, with nothing left to put in its place."""
    end = start + len(part.text)
    kept: list[str] = []
    at = start
    while waiting and waiting[-1].start < end:
        edit = waiting.pop()
        kept.append(part.text[at - start : edit.start - start])
        if edit.parts and any(kept):
            yield replace(part, text="".join(kept), wire=None)
            kept = []
        yield from edit.parts
        at = edit.end
        if edit.end > end:
            waiting.append(_Edit(start=end, end=edit.end))
            at = end
    kept.append(part.text[at - start :])
    if any(kept):
        yield replace(part, text="".join(kept), wire=None)

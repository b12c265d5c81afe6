"""Fit a conversation into a request by truncating its past. Pure: the journal is never touched.

The past is a chat's finished turns in the form of later requests; each is built and measured once. First the oldest
large tool results are shortened, then the oldest turns are dropped. A step goes well below the limit, so that the next
requests keep the same prefix. Each answer carries its request's reach, so that the next turn, or a process that
resumes after a crash, builds the same bytes.

A shortened result keeps its head, and its tail too if the end matters (an error, an exit code, the close of a JSON
document, a summary), with a visible mark between them.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, takewhile
from operator import attrgetter
from typing import NamedTuple

from agents.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolResultMessage,
    UserMessage,
    holds_external,
    with_parts,
)
from agents.providers.models import ModelFacts
from agents.providers.provider import SentTurn, grown
from agents.tokens import texts_of, tokens
from channels import marks
from channels.marks import NOTE
from tools.tool import Image, NativeDocument

ANSWER_TOKENS_DEFAULT = 16_384
ANSWER_SHARE = 0.25
"""The maximum share of the window for the answer."""
INPUT_SHARE = 0.95
"""The share of the remaining window for the input: a margin for estimates."""
RESULTS_SHARE = 0.5
"""The share of the window for all tool results, but never less than `RESULTS_MIN` full ones."""
RESULTS_MIN = 4
SHORT_SHARE = 1 / 4
"""The share of its limit that a shortened result keeps. The second time it keeps `STUB_CHARS`."""
OLD_TEXT_CHARS = 1_000
"""The characters left of a shortened user message of an earlier turn."""
LOW_WATER, LOW_WATER_MIN = 0.7, 0.35
"""The maximum and minimum fullness of a request after a step: room for `ROUNDS_AHEAD` rounds like the latest."""
ROUNDS_AHEAD = 2
MESSAGE_BYTES = 800
"""A message's memory besides its text, as an object and as JSON; measured."""
IMAGE_TURNS = 3
"""A picture is shown in its turn and the next two."""
_UNITS, _REACHES = attrgetter("units"), attrgetter("reaches")
_TOKENS, _RESULT_CHARS = attrgetter("tokens"), attrgetter("result_chars")
LEFT_OUT = UserMessage(content=(Text(text=f"{marks.LEFT_OUT} here. What they did stands.]"),))


class PastTurn(SentTurn):
    """A finished turn without metadata and old pictures. `is_final_form`: it never changes in later requests."""

    is_final_form = False

    @cached_property
    def size(self) -> int:
        """Return the approximate bytes in memory, as messages and in a request."""
        chars = sum(len(text) for message in self for text in texts_of(message))
        return 2 * chars + MESSAGE_BYTES * len(self)

    @cached_property
    def sizes(self) -> list[int]:
        return [tokens(message) for message in self]

    @cached_property
    def tokens(self) -> int:
        return sum(self.sizes)

    @cached_property
    def result_chars(self) -> int:
        return chars_of_results(self)

    @cached_property
    def is_external(self) -> bool:
        return holds_external(self)

    @cached_property
    def units(self) -> int:
        """Return the number of its units (see `Truncation`)."""
        return 1 + sum(isinstance(message, AssistantMessage) for message in self)

    @cached_property
    def reaches(self) -> bool:
        """Return whether an answer carries its request's reach."""
        return any(isinstance(message, AssistantMessage) and message.reach is not None for message in self)


class WindowLimits(NamedTuple):
    """The tokens, by the provider's count, for a request's answer and input. `results`: characters."""

    answer: int
    input: int
    results: int


def window_limits(facts: ModelFacts, *, window: int, answer_tokens: int | None, result_chars: int) -> WindowLimits:
    """Split the window. `answer_tokens`: the configured answer limit; a small window reserves most for the input."""
    answer = max(1, min(answer_tokens or ANSWER_TOKENS_DEFAULT, facts.max_output, int(window * ANSWER_SHARE)))
    results = max(RESULTS_MIN * result_chars, int(window * RESULTS_SHARE * CHARS_PER_TOKEN))
    return WindowLimits(answer, int((window - answer) * INPUT_SHARE), results)


class Truncation(NamedTuple):
    """The reach of a truncation: results before the first unit are shortened; before the second, shortened again along
    with user messages of earlier turns; before the third, all is dropped. Each turn begins a unit, and so does each of
    its answers."""

    shortened_before: int = 0
    stubbed_before: int = 0
    dropped_before: int = 0


NOTHING_TAKEN = Truncation()


class _Limits(NamedTuple):
    """A request's limits or size: estimated tokens, and characters of results."""

    tokens: int
    chars: int

    def fit(self, limits: "_Limits") -> bool:
        return self.tokens <= limits.tokens and self.chars <= limits.chars

    def share(self, share: float) -> "_Limits":
        return _Limits(int(self.tokens * share), int(self.chars * share))

    def below(self, latest: "_Limits") -> "_Limits":
        """Return limits that leave room for some rounds like the latest, clamped."""
        low, least = self.share(LOW_WATER), self.share(LOW_WATER_MIN)
        tokens, chars = (limit - ROUNDS_AHEAD * it for limit, it in zip(self, latest, strict=True))
        return _Limits(max(least.tokens, min(low.tokens, tokens)), max(least.chars, min(low.chars, chars)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """A request's messages and their estimate. `turns`: the unmodified turns they begin with; `held` counts all
    earlier turns in it. `back`: the reach, for the answer to carry; None if nothing was truncated."""

    messages: list[Message]
    held: int = 0
    turns: Sequence[SentTurn] = ()
    back: tuple[int, int, int] | None
    tokens: int
    fits: bool = True


@dataclass(kw_only=True)
class ContextFitter:
    """Truncates the conversation before the running turn. `turns` are from `past`; `lead` precedes them and always
    stays. `result_chars`: the limit of one result."""

    turns: Sequence[PastTurn]
    result_chars: int
    lead: Sequence[Message] = ()
    _sizes: dict[int, tuple[Message, int]] = field(default_factory=dict)
    _excerpts: dict[tuple[int, int], tuple[Message, Message]] = field(default_factory=dict)
    _shown: tuple[Truncation, list[Message]] | None = None

    def __post_init__(self) -> None:
        self._reach = NOTHING_TAKEN
        self._ends = list(accumulate(map(_UNITS, self.turns), initial=0))
        if any(map(_REACHES, self.turns)):
            for turn, begin in zip(self.turns, self._ends, strict=False):
                _, self._reach = _truncated_by(turn, begin, self._reach)

    @cached_property
    def _whole(self) -> tuple[tuple[SentTurn, ...], "_Limits"]:
        """Return the leading turns in final form, and the untruncated size of all turns."""
        newest = 1 - IMAGE_TURNS
        turns: tuple[SentTurn, ...] = (
            *self.turns[:newest],
            *takewhile(attrgetter("is_final_form"), self.turns[newest:]),
        )
        if lead := tuple(self.lead):  # it belongs to the first turn
            none: tuple[SentTurn, ...] = ()
            turns = (*grown(turns[:1], lead, none, lambda _, first: (SentTurn((*lead, *first[0])),)), *turns[1:])
        taken = _Limits(sum(map(_TOKENS, self.turns)), sum(map(_RESULT_CHARS, self.turns)))
        return turns, _Limits(taken.tokens + self.size(self.lead), taken.chars)

    def size(self, messages: Sequence[Message]) -> int:
        """Estimate the tokens of these messages, each message once."""
        total = 0
        for message in messages:
            known = self._sizes.get(id(message))
            if known is None:
                known = self._sizes[id(message)] = message, tokens(message)
            total += known[1]
        return total

    def fit(self, running: Sequence[Message], *, tokens_max: int, chars_max: int, binds_thinking: bool = False) -> Fit:
        """Return as much of the past as fits with the running turn into `tokens_max` (estimated) and `chars_max` of results;
        the minimum if nothing fits. `binds_thinking`: the model refuses its earlier thinking after a changed past."""
        begin = self._ends[-1]
        units, reach = _truncated_by(running, begin, self._reach)
        full = _Limits(tokens_max, chars_max)
        if reach == NOTHING_TAKEN:
            turns, past = self._whole
            taken = _Limits(past.tokens + self.size(running), past.chars + chars_of_results(running))
            if taken.fit(full):
                whole, held = [*self._history(reach), *running], len(self.turns)
                return Fit(messages=whole, held=held, turns=turns, back=None, tokens=taken.tokens)
        for turn in self.turns:
            self._sizes.update((id(it), (it, size)) for it, size in zip(turn, turn.sizes, strict=True))

        def messages(reach: Truncation) -> list[Message]:
            now = self._turn(running, begin, reach, running=True, binds_thinking=binds_thinking)
            return [*self._history(reach), *now]

        def fits(reach: Truncation, limits: _Limits) -> bool:
            shown = messages(reach)
            return _Limits(self.size(shown), chars_of_results(shown)).fit(limits)

        def first(steps: Sequence[Truncation], limits: _Limits) -> Truncation | None:
            at = bisect_left(steps, True, key=lambda step: fits(step, limits))
            return steps[at] if at < len(steps) else None

        if not fits(reach, full):
            last = max((n for n, it in enumerate(running) if isinstance(it, AssistantMessage)), default=len(running))
            latest = _Limits(self.size(running[last:]), chars_of_results(running[last:]))
            short = _shortened(reach, units - 1)
            new = _shortened(short[-1], units)
            reach = (
                first(short, full.below(latest))
                or (
                    first(self._fewer(short[-1], units), full.share(LOW_WATER))
                    if latest.fit(full.share(LOW_WATER_MIN))
                    else None
                )
                or first(new, full)
                or first(fewer := self._fewer(new[-1], units), full)
                or fewer[-1]
            )
        shown = messages(reach)
        back = (
            None
            if reach == NOTHING_TAKEN
            else (units - reach.shortened_before, units - reach.stubbed_before, units - reach.dropped_before)
        )
        held = sum(end > reach.dropped_before for end in self._ends[1:])
        return Fit(messages=shown, held=held, back=back, tokens=self.size(shown), fits=fits(reach, full))

    def _history(self, reach: Truncation) -> list[Message]:
        if self._shown is None or self._shown[0] != reach:
            shown = [*self.lead]
            if reach == NOTHING_TAKEN:
                shown += chain.from_iterable(self.turns)
            else:
                for turn, begin, end in zip(self.turns, self._ends, self._ends[1:], strict=False):
                    if end > reach.dropped_before:
                        shown += turn if begin >= reach.shortened_before else self._turn(turn, begin, reach)
            self._shown = reach, shown
        return self._shown[1]

    def _turn(
        self,
        turn: Sequence[Message],
        unit: int,
        reach: Truncation,
        *,
        running: bool = False,
        binds_thinking: bool = False,
    ) -> Iterator[Message]:
        then, has_gap = self._reach, False
        for message in turn:
            if isinstance(message, AssistantMessage):
                unit += 1
                then = _at(message, unit, then)
            if isinstance(message, UserMessage):
                yield message if running or unit >= reach.stubbed_before else self._shortened(message, OLD_TEXT_CHARS)
            elif unit < reach.dropped_before:
                if not has_gap:
                    yield LEFT_OUT
                has_gap = True
            elif isinstance(message, ToolResultMessage):
                chars = (
                    STUB_CHARS if unit < reach.stubbed_before else max(STUB_CHARS, int(self.result_chars * SHORT_SHARE))
                )
                yield self._shortened(message, chars) if unit < reach.shortened_before else message
            elif binds_thinking and then != reach:
                yield with_parts(message, [part for part in message.content if not isinstance(part, Thinking)])
            else:
                yield message

    def _shortened(self, message: Message, chars: int) -> Message:
        known = self._excerpts.get((id(message), chars))
        if known is None:
            known = self._excerpts[id(message), chars] = message, excerpt(message, chars)
        return known[1]

    def _fewer(self, reach: Truncation, units: int) -> list[Truncation]:
        """Drop increasingly many past turns, then rounds of the running turn; its last round stays."""
        begin = self._ends[-1]
        gone = [*self._ends[1:], *range(begin + 2, units)]
        return [reach, *(reach._replace(dropped_before=unit) for unit in gone if unit > reach.dropped_before)]


def _shortened(reach: Truncation, until: int) -> list[Truncation]:
    """Return reaches that shorten increasingly many results, then all of them a second time."""
    short = [reach, *(reach._replace(shortened_before=unit) for unit in range(reach.shortened_before + 1, until + 1))]
    return [*short, *(short[-1]._replace(stubbed_before=unit) for unit in range(reach.stubbed_before + 1, until + 1))]


def _truncated_by(turn: Sequence[Message], unit: int, reach: Truncation) -> tuple[int, Truncation]:
    """Return the unit after this turn and its last request's reach."""
    for message in turn:
        if isinstance(message, AssistantMessage):
            unit += 1
            reach = _at(message, unit, reach)
    return unit + 1, reach


def _at(answer: AssistantMessage, unit: int, before: Truncation) -> Truncation:
    """Return the reach of this answer's request; never less than before."""
    if answer.reach is None:
        return before
    return Truncation(*(max(unit - back, was) for back, was in zip(answer.reach, before, strict=True)))


def past(turns: Sequence[Sequence[Message]]) -> list[PastTurn]:
    """Return finished turns as later requests hold them: without metadata and documents, and old ones without pictures."""
    if {PastTurn}.issuperset(map(type, turns)):  # fast path: usually a whole long chat
        return list(turns)  # type: ignore[arg-type]
    old = len(turns) + 1 - IMAGE_TURNS
    return [it if isinstance(it, PastTurn) else _past_turn(it, is_old=at < old) for at, it in enumerate(turns)]


def _past_turn(turn: Sequence[Message], *, is_old: bool) -> PastTurn:
    bare = (bared(it) if isinstance(it, UserMessage) and it.metadata else it for it in turn)
    shown = PastTurn(excerpt(message, None) if is_old else _without_documents(message) for message in bare)
    shown.is_final_form = is_old or not any(isinstance(part, Image) for message in shown for part in message.content)
    return shown


def bared(message: UserMessage) -> UserMessage:
    """Return the message without its metadata and the metadata's external mark."""
    return replace(message, metadata="", external="" if message.external == "metadata" else message.external)


def _without_documents(message: Message) -> Message:
    """Keep documents in their own turn only: a page costs one or two pages of conversation."""
    if not isinstance(message, UserMessage):
        return message
    parts = (Text(text=it.text) if isinstance(it, NativeDocument) else it for it in message.content)
    return with_parts(message, [*parts])


def excerpt(message: Message, chars: int | None) -> Message:
    """Return a user's message or a result without pictures and documents, each text cut to `chars`."""
    if isinstance(message, AssistantMessage):
        return message
    parts: list[Text | Image] = []
    for part in message.content:
        if isinstance(part, NativeDocument):
            part = Text(text=part.text)
        elif isinstance(part, Image):
            part = Text(text=f"[image: {part.name or 'not shown'}]")
        elif chars is not None and len(part.text) > chars:
            left = f"{NOTE} leaves out {len(part.text) - chars:,} more characters of this message here.)"
            is_result = isinstance(message, ToolResultMessage)
            part = Text(text=shortened(part.text, chars) if is_result else f"{part.text[:chars]}\n\n{left}")
        parts.append(part)
    return with_parts(message, parts)


def chars_of_results(messages: Sequence[Message]) -> int:
    results = (message for message in messages if isinstance(message, ToolResultMessage))
    return sum(len(part.text) for result in results for part in result.content if isinstance(part, Text))


TAIL_SHARE = 0.3
TAIL_CHARS_MAX = 4_000
END_CHARS = 2_000
WINDOW_SHARE = 0.3
CHARS_PER_TOKEN = 4
STUB_CHARS = 300
"""The characters left of a result that is shortened twice."""
OMISSION = "\n\n[… omitted …]\n\n"

_END_MATTERS = re.compile(
    r"error|exception|traceback|exit code|exit status|failed|fatal|panic|\b(?:total|summary|results?|done)\b", re.I
)

_OWN_NOTE = re.compile(r"\n+\[[^\n]*\bwere cut[^\n]*\]\s*\Z")


def result_limit_chars(window_tokens: int) -> int:
    """Return 16,000 characters for a window below 100k tokens, 32,000 from there, 64,000 from 200k; at most 30 % of
    the window at four characters a token."""
    tier = 64_000 if window_tokens >= 200_000 else 32_000 if window_tokens >= 100_000 else 16_000
    return max(1, min(tier, int(window_tokens * WINDOW_SHARE * CHARS_PER_TOKEN)))


def truncate_result(text: str, limit_chars: int) -> str:
    """Return `text`, cut so that it fits `limit_chars` including all marks."""
    if len(text) <= limit_chars:
        return text
    closing = _closing(len(text) - limit_chars, len(text))
    budget = limit_chars - len(closing)
    if budget <= len(OMISSION):
        return text[:limit_chars]
    end = text[-END_CHARS:]
    matters = bool(_END_MATTERS.search(end)) or end.rstrip().endswith(("}", "]"))
    tail = min(int(budget * TAIL_SHARE), TAIL_CHARS_MAX) if matters else 0
    end = OMISSION + text[-tail:] if tail else ""
    head = budget - len(end)
    return text[:head] + end + _closing(len(text) - head - tail, len(text))


def shortened(text: str, limit_chars: int) -> str:
    """Cut an earlier result in the same way. Its own truncation note stays at the end, and counts neither as its tail
    nor as an end that matters."""
    if len(text) <= limit_chars:
        return text
    match = _OWN_NOTE.search(text, max(0, len(text) - STUB_CHARS))
    if match is None or len(match[0]) >= limit_chars:
        return truncate_result(text, limit_chars)
    return truncate_result(text[: match.start()], limit_chars - len(match[0])) + match[0]


def _closing(cut: int, total: int) -> str:
    width = len(f"{total:,}")  # constant width: the budget is computed before `cut` is known
    return f"\n\n[{cut:>{width},} characters were cut; narrow the arguments to see them]"

"""The part of a conversation that a request holds if not all of it fits. Pure: what is journaled is never touched.

Tool results shrink, the oldest and only the large ones; then the oldest turns go. A step goes well below the limit, so
that the requests behind it begin with the same bytes, and what it took stays away: each answer carries the reach of its
request, so that the next turn and a process that resumes after a crash build the same bytes again.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, takewhile
from operator import attrgetter
from typing import NamedTuple

from agents.messages import AssistantMessage, Message, Text, Thinking, ToolResultMessage, UserMessage, with_parts
from agents.past import IMAGE_TURNS, PastTurn, chars_of_results, excerpt
from agents.providers.models import ModelFacts
from agents.providers.provider import SentTurn, grown
from agents.tokens import tokens
from agents.truncate import CHARS_PER_TOKEN, STUB_CHARS
from channels import marks

ANSWER_TOKENS_DEFAULT = 16_384
ANSWER_SHARE = 0.25
"""The share of the window, at most, that is kept for the answer."""
INPUT_SHARE = 0.95
"""The share of what the answer leaves that the input may take: estimates are estimates."""
RESULTS_SHARE = 0.5
"""The share of the window for all tool results together, but never less than `RESULTS_MIN` whole ones."""
RESULTS_MIN = 4
SHORT_SHARE = 1 / 4
"""The share of one result's room that a shortened result may take. The second time, `STUB_CHARS` are left."""
OLD_TEXT_CHARS = 1_000
"""The characters left of what a person wrote in an earlier turn, once it is shortened."""
LOW_WATER, LOW_WATER_MIN = 0.7, 0.35
"""The fullness of a request after a step, at most and at least: `ROUNDS_AHEAD` rounds like the latest fit behind it."""
ROUNDS_AHEAD = 2
_UNITS, _REACHES = attrgetter("units"), attrgetter("reaches")
_TOKENS, _RESULT_CHARS = attrgetter("tokens"), attrgetter("result_chars")
LEFT_OUT = UserMessage(content=(Text(text=f"{marks.LEFT_OUT} here. What they did stands.]"),))


class WindowLimits(NamedTuple):
    """The provider's tokens of a model's window that a request and its answer may take; `results`: characters."""

    answer: int
    input: int
    results: int


def window_limits(facts: ModelFacts, *, window: int, answer_tokens: int | None, result_chars: int) -> WindowLimits:
    """`answer_tokens` is the longest answer that the config wants; a small window leaves most of itself to the input."""
    answer = max(1, min(answer_tokens or ANSWER_TOKENS_DEFAULT, facts.max_output, int(window * ANSWER_SHARE)))
    results = max(RESULTS_MIN * result_chars, int(window * RESULTS_SHARE * CHARS_PER_TOKEN))
    return WindowLimits(answer, int((window - answer) * INPUT_SHARE), results)


class Truncation(NamedTuple):
    """The units before which a request is cut: results are shortened, then shortened once more with what people wrote in
    earlier turns, then all is left out. Each turn begins a unit, and so does each of its answers."""

    shortened_before: int = 0
    stubbed_before: int = 0
    dropped_before: int = 0


NOTHING_TAKEN = Truncation()


class _Limits(NamedTuple):
    """The limits of a request, or its size: estimated tokens, and characters of results."""

    tokens: int
    chars: int

    def fit(self, limits: "_Limits") -> bool:
        return self.tokens <= limits.tokens and self.chars <= limits.chars

    def share(self, share: float) -> "_Limits":
        return _Limits(int(self.tokens * share), int(self.chars * share))

    def below(self, latest: "_Limits") -> "_Limits":
        """The limits below which some rounds like the latest fit behind the request, within reason."""
        low, least = self.share(LOW_WATER), self.share(LOW_WATER_MIN)
        tokens, chars = (limit - ROUNDS_AHEAD * it for limit, it in zip(self, latest, strict=True))
        return _Limits(max(least.tokens, min(low.tokens, tokens)), max(least.chars, min(low.chars, chars)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The messages of a request, and what they take by estimate. They begin with `turns`, which are whole. `held` counts all
    earlier turns in it. `back` is their reach, for the answer to carry; None if all is whole."""

    messages: list[Message]
    held: int = 0
    turns: Sequence[SentTurn] = ()
    back: tuple[int, int, int] | None
    tokens: int
    fits: bool = True


@dataclass(kw_only=True)
class ContextFitter:
    """The conversation before the running turn: `turns` are those of `past`, `lead` comes before them and always stays.
    `result_chars` is what one result may take."""

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
        """The lasting turns at the beginning, and what all take if nothing is taken from them."""
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
        """The estimated tokens of these messages. Each message is estimated once."""
        total = 0
        for message in messages:
            known = self._sizes.get(id(message))
            if known is None:
                known = self._sizes[id(message)] = message, tokens(message)
            total += known[1]
        return total

    def fit(self, running: Sequence[Message], *, tokens_max: int, chars_max: int, binds_thinking: bool = False) -> Fit:
        """Returns as much of the past as fits beside the running turn: into `tokens_max` by estimate, with results of
        at most `chars_max`; the least of it if nothing fits. `binds_thinking`: the model refuses thinking of its own
        behind another past than it had."""
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
        """The messages that are shown of the past."""
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
        """The messages that are shown of one turn, which begins with this unit."""
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
        """Leaves out more and more turns of the past, then more and more rounds of the running turn; the last stays."""
        begin = self._ends[-1]
        gone = [*self._ends[1:], *range(begin + 2, units)]
        return [reach, *(reach._replace(dropped_before=unit) for unit in gone if unit > reach.dropped_before)]


def _shortened(reach: Truncation, until: int) -> list[Truncation]:
    """The reaches with more and more results shortened, and then all of them once more."""
    short = [reach, *(reach._replace(shortened_before=unit) for unit in range(reach.shortened_before + 1, until + 1))]
    return [*short, *(short[-1]._replace(stubbed_before=unit) for unit in range(reach.stubbed_before + 1, until + 1))]


def _truncated_by(turn: Sequence[Message], unit: int, reach: Truncation) -> tuple[int, Truncation]:
    """The unit behind this turn, and how far its last request reached."""
    for message in turn:
        if isinstance(message, AssistantMessage):
            unit += 1
            reach = _at(message, unit, reach)
    return unit + 1, reach


def _at(answer: AssistantMessage, unit: int, before: Truncation) -> Truncation:
    """The reach of this answer's request; further than all before it, or as far."""
    if answer.reach is None:
        return before
    return Truncation(*(max(unit - back, was) for back, was in zip(answer.reach, before, strict=True)))

"""The part of a conversation that a request holds if not all of it fits. Pure: what is journaled is never touched.

The past are a chat's finished turns as later requests hold them: each is made once, and what is reckoned of it is
reckoned once. Tool results shrink, the oldest and only the large ones; then the oldest turns go. A step goes well below
the limit, so that the requests behind it begin with the same bytes, and what it took stays away: each answer carries
the reach of its request, so that the next turn and a process that resumes after a crash build the same bytes again.

A result that shrinks keeps its head, and if the end matters (an error, an exit code, the close of a JSON document, a
summary) the tail as well, joined by a visible mark.
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
MESSAGE_BYTES = 800
"""The memory that a message takes besides its text, as an object and as JSON, measured."""
IMAGE_TURNS = 3
"""A picture is shown in its own turn and in the two behind it."""
_UNITS, _REACHES = attrgetter("units"), attrgetter("reaches")
_TOKENS, _RESULT_CHARS = attrgetter("tokens"), attrgetter("result_chars")
LEFT_OUT = UserMessage(content=(Text(text=f"{marks.LEFT_OUT} here. What they did stands.]"),))


class PastTurn(SentTurn):
    """A finished turn without metadata and old pictures. `is_final_form`: all later requests hold it so."""

    is_final_form = False

    @cached_property
    def size(self) -> int:
        """The bytes in memory, roughly: as messages and as a request has them."""
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
        """True if it holds external content."""
        return holds_external(self)

    @cached_property
    def units(self) -> int:
        """The number of its units, as a `Truncation` counts them."""
        return 1 + sum(isinstance(message, AssistantMessage) for message in self)

    @cached_property
    def reaches(self) -> bool:
        """True if an answer carries the reach of its request."""
        return any(isinstance(message, AssistantMessage) and message.reach is not None for message in self)


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


def past(turns: Sequence[Sequence[Message]]) -> list[PastTurn]:
    """Finished turns as later requests hold them: without metadata and documents, and after some turns without pictures."""
    if {PastTurn}.issuperset(map(type, turns)):  # at the speed of C: that is all of a long chat, as a rule
        return list(turns)  # type: ignore[arg-type]
    old = len(turns) + 1 - IMAGE_TURNS
    return [it if isinstance(it, PastTurn) else _past_turn(it, is_old=at < old) for at, it in enumerate(turns)]


def _past_turn(turn: Sequence[Message], *, is_old: bool) -> PastTurn:
    bare = (bared(it) if isinstance(it, UserMessage) and it.metadata else it for it in turn)
    shown = PastTurn(excerpt(message, None) if is_old else _without_documents(message) for message in bare)
    shown.is_final_form = is_old or not any(isinstance(part, Image) for message in shown for part in message.content)
    return shown


def bared(message: UserMessage) -> UserMessage:
    """The message without its metadata, and without the mark of external content that left with it."""
    return replace(message, metadata="", external="" if message.external == "metadata" else message.external)


def _without_documents(message: Message) -> Message:
    """A document is shown in its own turn alone: each page costs as much as a page of the conversation, or two."""
    if not isinstance(message, UserMessage):
        return message
    parts = (Text(text=it.text) if isinstance(it, NativeDocument) else it for it in message.content)
    return with_parts(message, [*parts])


def excerpt(message: Message, chars: int | None) -> Message:
    """A user's message or a result without its pictures and documents, and with no more of each text than `chars`."""
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
"""The characters left of a result that is shortened as far as it goes."""
OMISSION = "\n\n[… omitted …]\n\n"

_END_MATTERS = re.compile(
    r"error|exception|traceback|exit code|exit status|failed|fatal|panic|\b(?:total|summary|results?|done)\b", re.I
)

_OWN_NOTE = re.compile(r"\n+\[[^\n]*\bwere cut[^\n]*\]\s*\Z")


def result_limit_chars(window_tokens: int) -> int:
    """16,000 characters below a window of 100k tokens, 32,000 from there, 64,000 from 200k; at most 30 % of it,
    counted at four characters a token."""
    tier = 64_000 if window_tokens >= 200_000 else 32_000 if window_tokens >= 100_000 else 16_000
    return max(1, min(tier, int(window_tokens * WINDOW_SHARE * CHARS_PER_TOKEN)))


def truncate_result(text: str, limit_chars: int) -> str:
    """`text` whole, or cut so that with all marks it is no longer than `limit_chars`."""
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
    """An earlier result, cut in the same way. The note in which it says itself how much it lacks stays at its end, and
    counts neither as its tail nor as what matters."""
    if len(text) <= limit_chars:
        return text
    match = _OWN_NOTE.search(text, max(0, len(text) - STUB_CHARS))
    if match is None or len(match[0]) >= limit_chars:
        return truncate_result(text, limit_chars)
    return truncate_result(text[: match.start()], limit_chars - len(match[0])) + match[0]


def _closing(cut: int, total: int) -> str:
    """The closing note, as wide for every `cut` of one text, so that the budget can be reckoned before the cut is known."""
    width = len(f"{total:,}")
    return f"\n\n[{cut:>{width},} characters were cut; narrow the arguments to see them]"

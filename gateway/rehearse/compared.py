"""Two runs of one turn beside each other: what differs, layer by layer in the order of a turn, and whether that counts.

A model hardly ever repeats its words, and prompts are edited to be other ones. So a turn is the same if the same agent
called the same tools with the same arguments in the same order and then answered, or kept silent, as it did before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from typing import Literal, TypeAlias

from gateway.rehearse.kept import RunFacts

Layer: TypeAlias = Literal["access", "agent", "model", "prompt", "tools", "calls", "outcome", "reply"]
Verdict: TypeAlias = Literal["same", "different", "failed", "not-asked"]
"""`failed`: the model could not be asked, or broke off. `not-asked`: `--max-cost` was reached before its end."""
COUNTING: Sequence[Layer] = ("access", "agent", "calls", "outcome")
SIMILAR_CHARS = 5_000
"""The characters of a reply that are compared: the time grows with their square."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """`before` and `after` are what differs; of the prompt and the reply, lines say more."""

    layer: Layer
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return self.layer in COUNTING


def differences(before: RunFacts, after: RunFacts) -> Iterator[Difference]:
    yield from _named("agent", before.agent, after.agent)
    yield from _named("model", before.model, after.model)
    if lines := tuple(_sections(before.sections, after.sections)):
        sizes = (sum(map(len, it.sections.values())) for it in (before, after))
        old, new = (f"{it:,} characters" for it in sizes)
        yield Difference(layer="prompt", before=old, after=new, lines=lines)
    if set(before.tools) != set(after.tools):
        lost, gained = sorted({*before.tools} - {*after.tools}), sorted({*after.tools} - {*before.tools})
        lines = (*(f"- {it}" for it in lost), *(f"+ {it}" for it in gained))
        old, new = str(len(before.tools)), str(len(after.tools))
        yield Difference(layer="tools", before=old, after=new, lines=lines)
    if [*before.calls] != [*after.calls]:
        calls = ([f"{tool} {arguments}" for tool, arguments in it.calls] for it in (before, after))
        old_lines, new_lines = calls
        lines = tuple(_diff(old_lines, new_lines))
        yield Difference(layer="calls", before=str(len(old_lines)), after=str(len(new_lines)), lines=lines)
    yield from _named("outcome", before.outcome, after.outcome)
    if before.reply != after.reply:
        lines = tuple(_diff(before.reply.splitlines(), after.reply.splitlines()))
        old, new = (f"{len(it.reply):,} characters" for it in (before, after))
        yield Difference(layer="reply", before=old, after=new, lines=lines)


def similarity(before: RunFacts, after: RunFacts) -> int:
    """The likeness of the replies in percent; 100 only if they are equal."""
    if before.reply == after.reply:
        return 100
    pair = before.reply[:SIMILAR_CHARS], after.reply[:SIMILAR_CHARS]
    return min(99, round(100 * SequenceMatcher(None, *pair, autojunk=False).ratio()))


def _named(layer: Layer, before: str, after: str) -> Iterator[Difference]:
    if before != after:
        yield Difference(layer=layer, before=before, after=after)


def _sections(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for heading in dict.fromkeys((*before, *after)):
        old, new = before.get(heading), after.get(heading)
        if old is None or new is None:
            yield f"{'+' if old is None else '-'} {heading}: {len(new or old or ''):,}"
        elif old != new:
            yield f"{heading}: {len(old):,} → {len(new):,}"


def _diff(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """The lines that only one of them has, without headers and places."""
    for line in list(unified_diff(before, after, n=0, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"

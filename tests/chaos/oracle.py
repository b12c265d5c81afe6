"""Judges a run by its ledgers, knowing nothing of the product. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tests.chaos.ledger import Ledger, Message, Shown

T = TypeVar("T")

APOLOGY_KILLS = 3
"""A message may be closed with an apology only after its turn has brought down this many processes."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is wrong, by kind; each thing wrong in words."""

    lost: list[str] = field(default_factory=list)
    dup_turns: list[str] = field(default_factory=list)
    dup_replies: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    reruns: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    """Sends that may have arrived and were not treated as the config says, or of which the operator is not told."""

    @property
    def clean(self) -> bool:
        return not any(self.__dict__.values())

    def lines(self) -> Iterator[str]:
        for kind, found in self.__dict__.items():
            yield from (f"{kind}: {words}" for words in found)


def judge(ledger: Ledger) -> Verdict:
    """To be asked when everything has settled."""
    return Verdict(
        lost=lost(ledger),
        dup_turns=dup_turns(ledger),
        dup_replies=dup_replies(ledger),
        order=order(ledger),
        orphans=list(ledger.orphans),
        reruns=[f"{serial} ran {times} times" for serial, times in Counter(ledger.effects).items() if times > 1],
        refused=[*(asked.refused for asked in ledger.asked if asked.refused), *ledger.refused],
        litter=[*ledger.litter, *ledger.torn],
        hidden=hidden(ledger),
    )


def answered(message: Message, shown: list[Shown], kills: int | None = None) -> bool:
    """Every part of one answer stands in the message's own chat; or an apology does, where that is allowed."""
    mine = [reply for reply in shown if reply.chat == message.chat]
    if kills is None:
        apologies = [reply for reply in mine if reply.take == 0]
    else:
        apologies = [r for r in mine if r.take == 0 and r.kills - message.kills_before >= APOLOGY_KILLS]
    parts = {(reply.take, reply.part) for reply in mine if reply.take}
    totals = {(reply.take, reply.parts) for reply in mine if reply.take}
    whole = any(all((take, part) in parts for part in range(1, count + 1)) for take, count in totals)
    return whole or bool(apologies)


def excused(ledger: Ledger) -> list[Shown]:
    """The parts that were given up in doubt: nobody may have seen them, and the operator knows."""
    return [
        Shown(chat=d.chat, serial=d.serial, take=d.take, part=d.part, parts=d.parts, kills=ledger.kills)
        for d in ledger.doubts.values()
        if d.given_up and d.told
    ]


def lost(ledger: Ledger) -> list[str]:
    """Acknowledged, and no whole reply where it was asked; or never taken at all."""
    replies = _by_serial(ledger)
    for part in excused(ledger):
        replies[part.serial].append(part)
    refused = [f"{message.serial} was never taken" for message in ledger.messages.values() if message.acked is None]
    return refused + [
        f"{message.serial} ({message.wish}) in {message.chat}: {_seen(replies[message.serial])}"
        for message in ledger.messages.values()
        if message.acked is not None and not answered(message, replies[message.serial], ledger.kills)
    ]


def dup_turns(ledger: Ledger) -> list[str]:
    """A message that stands twice in one history, or that has two different final answers."""
    twice = {serial for asked in ledger.asked for serial, times in Counter(asked.serials).items() if times > 1}
    takes: defaultdict[str, set[int]] = defaultdict(set)
    for asked in ledger.asked:
        for serial, take in asked.takes:
            takes[serial].add(take)
    for reply in ledger.shown:
        takes[reply.serial].add(reply.take)
    found = [f"{serial} stands twice in one history" for serial in sorted(twice)]
    return found + [f"{serial} has the answers {sorted(many)}" for serial, many in takes.items() if len(many) > 1]


def dup_replies(ledger: Ledger) -> list[str]:
    """The same part of the reply to the same message, seen more often than it was sent in doubt."""
    seen = Counter((reply.serial, reply.take, reply.part) for reply in ledger.shown)
    return [
        f"{serial} part {part} is shown {times} times"
        for (serial, take, part), times in seen.items()
        if times > 1 + _repetitions(ledger, (serial, take, part))
    ]


def _repetitions(ledger: Ledger, part: tuple[str, int, int]) -> int:
    doubt = ledger.doubts.get(part)
    return doubt.times if doubt and ledger.repeats and not ledger.recognises else 0


def hidden(ledger: Ledger) -> list[str]:
    """The books of sends in doubt do not add up, or leave the operator in the dark."""
    found = [
        f"{doubt.serial} part {doubt.part} was given up, and no dead letter says that it may have arrived"
        for doubt in ledger.doubts.values()
        if doubt.given_up and not doubt.told
    ]
    found += [
        f"{doubt.serial} part {doubt.part} was {'given up' if doubt.given_up else 'repeated'}, against the config"
        for doubt in ledger.doubts.values()
        if doubt.given_up == ledger.repeats
    ]
    chats: Counter[str] = Counter()
    for doubt in ledger.doubts.values():
        chats[doubt.chat] += doubt.times
    deaths = ledger.kills + ledger.freezes
    found += [f"{chat}: {times} sends in doubt, {deaths} deaths" for chat, times in chats.items() if times > deaths]
    if ledger.repeats and ledger.counted is not None and ledger.counted < chats.total():
        found.append(f"{chats.total()} sends in doubt, and the metric has {ledger.counted}")
    return found


def order(ledger: Ledger) -> list[str]:
    """Replies of a chat follow its acknowledgements, parts their numbers, histories the acknowledgements too."""
    place = {message.serial: message.acked for message in ledger.messages.values() if message.acked is not None}
    chats: defaultdict[str, dict[tuple[str, int], None]] = defaultdict(dict)
    for reply in ledger.shown:
        if reply.serial in place:
            chats[reply.chat].setdefault((reply.serial, reply.part))
    found = [
        f"{chat}: {first} was shown before {second}"
        for chat, parts in chats.items()
        for first, second in _drops(list(parts), lambda part: (place[part[0]], part[1]))
    ]
    for asked in ledger.asked:
        known = [serial for serial in asked.serials if serial in place]
        found += [f"history: {first} stands before {second}" for first, second in _drops(known, lambda s: (place[s],))]
    return list(dict.fromkeys(found))


def _drops(sequence: list[T], key: Callable[[T], tuple[int, ...]]) -> list[tuple[T, T]]:
    return [(first, second) for first, second in pairwise(sequence) if key(first) > key(second)]


def _by_serial(ledger: Ledger) -> defaultdict[str, list[Shown]]:
    replies: defaultdict[str, list[Shown]] = defaultdict(list)
    for reply in ledger.shown:
        replies[reply.serial].append(reply)
    return replies


def _seen(replies: list[Shown]) -> str:
    if not replies:
        return "no reply"
    return "only " + ", ".join(
        f"part {reply.part}/{reply.parts} of answer {reply.take} in {reply.chat}" if reply.take else "a note of our own"
        for reply in replies
    )

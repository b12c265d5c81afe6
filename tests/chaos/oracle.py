"""Judges a run by its ledgers, knowing nothing of the product. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias, TypeVar

from tests.chaos.ledger import BESIDE, Key, Ledger, Message, Shown

T = TypeVar("T")
Verdict: TypeAlias = dict[str, list[str]]
"""What is wrong, by kind; each thing wrong in words."""

APOLOGY_KILLS = 3
"""A message may be closed with an apology only after its turn has brought down this many processes."""


def judge(ledger: Ledger) -> Verdict:
    """To be asked when everything has settled."""
    return {
        "lost": lost(ledger),
        "dup_turns": dup_turns(ledger),
        "dup_replies": dup_replies(ledger),
        "order": order(ledger),
        "early": early(ledger),
        "late": late(ledger),
        "orphans": ledger.orphans,
        "reruns": [f"{serial} ran {times} times" for serial, times in Counter(ledger.effects).items() if times > 1],
        "refused": [*(request.refused for request in ledger.requests if request.refused), *ledger.refused],
        "unfinished": ledger.unfinished,
        "litter": ledger.litter,
        "hidden": hidden(ledger),
        "miscounted": ledger.miscounted,
        "unapproved": unapproved(ledger),
        "unsettled": ledger.unsettled,
    }


def answered(message: Message, replies: list[Shown], *, apology_kills: int = 0) -> bool:
    """Every part of one answer stands in the message's own chat; or an apology does, after so many kills."""
    own = [reply for reply in replies if reply.chat == message.chat]
    parts = {(reply.take, reply.part) for reply in own if reply.take}
    totals = {(reply.take, reply.parts) for reply in own if reply.take}
    whole = any(all((take, part) in parts for part in range(1, count + 1)) for take, count in totals)
    least = 0 if message.is_command else apology_kills
    return whole or any(not reply.take and reply.kills - message.kills_before >= least for reply in own)


def excused(ledger: Ledger) -> list[Shown]:
    """The parts that were given up in doubt: nobody may have seen them, and the operator knows."""
    return [doubt.part for doubt in ledger.doubts.values() if doubt.given_up and doubt.reported]


def unasked(message: Message, given_up: Iterable[Shown]) -> bool:
    """Whether the question of which nobody knows whether it was seen was given up."""
    return message.wish == "decided" and any(part.serial == f"Q{message.serial[1:]}" for part in given_up)


def unapproved(ledger: Ledger) -> list[str]:
    """Commands that ran though nobody allowed it, and those of which the model has a result and nothing ran."""
    if ledger.decisions is None:
        return []
    allowed = {serial for serial, decision in ledger.decisions.items() if decision != "deny"}
    said = {serial for request in ledger.requests for serial in request.ran}
    return [
        *(f"{serial} ran, and nobody allowed it" for serial in sorted(set(ledger.effects) - allowed)),
        *(f"{serial} has a result, and did not run" for serial in sorted(said - set(ledger.effects))),
    ]


def lost(ledger: Ledger) -> list[str]:
    """Acknowledged, and no whole reply where it was asked; or never taken at all."""
    replies: defaultdict[str, list[Shown]] = defaultdict(list)
    for reply in [*ledger.shown, *excused(ledger)]:
        replies[reply.serial].append(reply)
    refused = [f"{message.serial} was never taken" for message in ledger.messages.values() if message.acked is None]
    return refused + [
        f"{message.serial} ({message.wish}) in {message.chat}: only {_seen(replies[message.serial]) or 'silence'}"
        for message in ledger.messages.values()
        if message.acked is not None
        and not answered(message, replies[message.serial], apology_kills=APOLOGY_KILLS)
        and not unasked(message, excused(ledger))
    ]


def dup_turns(ledger: Ledger) -> list[str]:
    """A message, or a task's result, that stands twice in one history; a message that has two different final answers, or
    that needs no tool and was brought to the model more often than deaths explain."""
    answers = {reply.key[:2] for reply in ledger.shown}.union(*(request.takes for request in ledger.requests))
    turns = Counter(serial for request in ledger.requests for serial in request.serials[-1:])
    deaths = ledger.kills + ledger.freezes + ledger.stops
    requests = ledger.requests
    twice = {serial for it in requests for serial, times in Counter(it.serials).items() if times > 1}
    results = {serial for it in requests for serial, times in Counter(it.results).items() if times > 1}
    return [
        *(f"{serial} stands twice in one history" for serial in sorted(twice)),
        *(f"the result of {serial} stands twice in one history" for serial in sorted(results)),
        *(f"{serial} has {n} answers" for serial, n in Counter(serial for serial, _ in answers).items() if n > 1),
        *(
            f"{message.serial} had {turns[message.serial]} turns, after {deaths} deaths"
            for message in ledger.messages.values()
            if message.wish in ("plain", "long") and turns[message.serial] > 1 + deaths
        ),
    ]


def early(ledger: Ledger) -> list[str]:
    """Seen before it was due."""
    return [f"{it} came {-seconds:.1f} s early" for it, seconds, _ in _lateness(ledger) if seconds < 0]


def late(ledger: Ledger) -> list[str]:
    """Seen later than the lease of whoever died over it, and the restarts meanwhile, explain."""
    return [f"{it} came {seconds:.1f} s late" for it, seconds, most in _lateness(ledger) if seconds > most]


def _lateness(ledger: Ledger) -> Iterator[tuple[str, float, float]]:
    """Of all that was due and seen: its serial, how late it was, and how late it might have been."""
    for serial, due in ledger.due.items():
        if serial in ledger.first_seen:
            yield serial, ledger.first_seen[serial] - due.at, due.late_seconds


def shown_keys(ledger: Ledger) -> Counter[Key]:
    """How often each part was shown."""
    return Counter(reply.key for reply in ledger.shown)


def dup_replies(ledger: Ledger) -> list[str]:
    """The same part of the reply to the same message, seen more often than it was sent in doubt."""
    may_repeat = ledger.repeats and not ledger.recognises
    repetitions = {key: doubt.times for key, doubt in ledger.doubts.items() if may_repeat}
    return [
        f"{key[0]} part {key[2]} is shown {times} times"
        for key, times in shown_keys(ledger).items()
        if times > 1 + repetitions.get(key, 0)
    ]


def hidden(ledger: Ledger) -> list[str]:
    """Sends in doubt that were not treated as the config says, or of which the operator does not know."""
    found: list[str] = []
    chats: Counter[str] = Counter()
    for (serial, _, part), doubt in ledger.doubts.items():
        chats[doubt.part.chat] += doubt.times
        if doubt.given_up and not doubt.reported:
            found.append(f"{serial} part {part} was given up, and no dead letter says that it may have arrived")
        if doubt.given_up == ledger.repeats:
            found.append(f"{serial} part {part} was {'given up' if doubt.given_up else 'repeated'}, against the config")
    deaths = ledger.kills + ledger.freezes
    found += [f"{chat}: {times} sends in doubt, {deaths} deaths" for chat, times in chats.items() if times > deaths]
    if ledger.repeats and ledger.counted is not None and ledger.counted < chats.total():
        found.append(f"{chats.total()} sends in doubt, and the metric has {ledger.counted}")
    return found


def order(ledger: Ledger) -> list[str]:
    """Replies of a chat follow its acknowledgements, parts their numbers, histories the acknowledgements too."""
    messages = [message for message in ledger.messages.values() if message.wish not in BESIDE]
    place = {message.serial: message.acked for message in messages if message.acked is not None}
    chats: defaultdict[str, dict[tuple[str, int], None]] = defaultdict(dict)
    for reply in ledger.shown:
        if reply.serial in place:
            chats[reply.chat].setdefault((reply.serial, reply.part))
    found = [
        f"{chat}: {first} was shown before {second}"
        for chat, parts in chats.items()
        for first, second in _drops(parts, lambda part: (place[part[0]], part[1]))
    ]
    for request in ledger.requests:
        known = [serial for serial in request.serials if serial in place]
        found += [f"history: {first} stands before {second}" for first, second in _drops(known, lambda s: (place[s],))]
    return list(dict.fromkeys(found))


def _drops(sequence: Iterable[T], key: Callable[[T], tuple[int, ...]]) -> list[tuple[T, T]]:
    return [(first, second) for first, second in pairwise(sequence) if key(first) > key(second)]


def _seen(replies: list[Shown]) -> str:
    return ", ".join(
        f"part {reply.part}/{reply.parts} of answer {reply.take} in {reply.chat}" if reply.take else "a note of our own"
        for reply in replies
    )

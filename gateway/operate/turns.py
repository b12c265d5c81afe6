"""Turns for the operator: the list, a single record, and its lines for a terminal."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from gateway.config.root import Config
from gateway.observe.secrets import REDACTED, Mask
from gateway.operate.sessions import short
from gateway.store.layers import FILTERS, TURNS_MAX, DatabaseLayers, ListedTurn
from gateway.turns.record import TurnList, TurnRecord, TurnSummary, read_inbound, summary, turn_record

OPEN = ("waiting", "running")
"""States of unfinished turns, in place of an outcome."""
AT_ONCE, SEARCHED_MAX = 500, 5_000
"""Turns that a search reads per batch, and in all for one page."""


async def turn_list(layers: DatabaseLayers, *, before: int | None, only: Mapping[str, str], config: Config) -> TurnList:
    """List the newest turns below `before` that match the filters `only`: agent, channel, person (id or name),
    outcome, and words of the message, a name or a title."""
    zone = config.server.zone
    exact, sought = {name: only[name] for name in FILTERS if only.get(name)}, _Sought.of(only)
    if sought.name:
        del exact["person"]
    rated = "feedback" in exact
    unfinished = await _unfinished(layers, exact, sought, zone) if before is None and not rated else []
    turns: list[TurnSummary] = []
    searched, more, limit = 0, exact.get("outcome") not in OPEN, AT_ONCE if sought else TURNS_MAX
    while more and len(turns) < TURNS_MAX and searched < SEARCHED_MAX:
        read = await layers.listed(before=before, only=exact, limit=limit)
        more = len(read) == limit
        for it in read:
            before, searched = it.turn, searched + 1
            if sought.is_in(it, shown := summary(it, zone)):
                turns.append(shown)
            if len(turns) == TURNS_MAX:
                more = more or it is not read[-1]
                break
    return TurnList(
        turns=[*unfinished, *turns],
        before=before if more else None,
        keep_days=config.console.keep_days,
        currency=config.currency,
        searched=searched if sought else 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sought:
    """A search without an index: text, and a user's name."""

    words: Sequence[str]
    name: str

    @classmethod
    def of(cls, only: Mapping[str, str]) -> "_Sought":
        person = only.get("person", "")
        return cls(words=only.get("words", "").casefold().split(), name="" if ":" in person else person.casefold())

    def __bool__(self) -> bool:
        return bool(self.words or self.name)

    def is_in(self, turn: ListedTurn, shown: TurnSummary) -> bool:
        if self.name not in shown.name.casefold():
            return False
        inbound = read_inbound(turn.body or "") if self.words else None
        texts = (shown.name, shown.person, shown.title, shown.chat, inbound.context.text if inbound else "")
        text = "\n".join(texts).casefold()
        return all(it in text for it in self.words)


async def _unfinished(
    layers: DatabaseLayers, exact: Mapping[str, str], sought: _Sought, zone: tzinfo
) -> Sequence[TurnSummary]:
    if exact.get("outcome", "running") not in OPEN:
        return []
    turns = [(it, summary(it, zone)) for it in await layers.unfinished()]
    meant = (it for it in turns if all(getattr(it[1], name) == wanted for name, wanted in exact.items()))
    return [shown for it, shown in meant if sought.is_in(it, shown)]


async def record_of(layers: DatabaseLayers, turn: int, config: Config) -> TurnRecord | None:
    """Return a turn's record; None if the number is unknown."""
    stored = await layers.get(turn)
    return turn_record(stored, config.server.zone, config.currency) if stored else None


def scrubbed(shown: TurnRecord | TurnList, scrub: Callable[[str], str]) -> dict[str, Any]:
    """Return the JSON without secrets; `masked` counts keys of a known shape. Takes milliseconds for a long turn."""
    mask = Mask(scrub)
    clean: dict[str, Any] = cleaned(shown.model_dump(by_alias=True), mask)
    return clean | {"masked": mask.count}


def cleaned(value: Any, scrub: Callable[[str], str]) -> Any:
    """Scrub every text in plain data."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: cleaned(it, scrub) for name, it in value.items()}
    return [cleaned(it, scrub) for it in value] if isinstance(value, list | tuple) else value


_MISSING = {
    "running": "it has not ended yet",
    "not-kept": "its layers were not stored; this is what the journal has",
    "resumed": "a process ended while it worked on the turn: times and options of its requests are gone",
    "recalled": "its message was recalled",
    "pruned": "the inbox has forgotten its message",
}


def lines(turn: Mapping[str, Any], money: Callable[[float], str]) -> Iterator[str]:
    """Yield the layers in the order in which the message passed them."""
    facts = turn["turn"]
    took = "" if facts["seconds"] is None else f" after {facts['seconds']:.2f} s"
    reason = f" ({facts['reason']})" if facts["reason"] else ""
    yield f"Turn {facts['id']}  {facts['at']}  {facts['session']}"
    yield f"{facts['outcome']}{reason}{took}"
    yield from (f"! {_MISSING[it]}" for it in turn["missing"])
    if count := turn["masked"]:
        yield f"! {count} {'key is' if count == 1 else 'keys are'} masked as {REDACTED}"
    yield from _layer(
        "event", [short(json.dumps(it["body"], ensure_ascii=False)) for it in turn["events"] if it["body"]]
    )
    yield from _layer(
        "context", [f"{it['sender']['name'] or it['sender']['id']}: {short(it['text'])}" for it in turn["contexts"]]
    )
    yield from _layer(
        "route", [f"{name}: {_value(it['value'])} — {it['reason']}" for name, it in turn["route"].items()]
    )
    sections = [f"{it['heading'] or '(identity)'}: {it['chars']:,} characters" for it in turn["prompt"]]
    yield from _layer("prompt", sections)
    yield from _layer("requests", [line for it in turn["requests"] for line in _request(it, money)])
    yield from _layer("tool calls", [line for it in turn["calls"] for line in _call(it)])
    yield from _layer("reply", [_part(it) for it in turn["reply"]])
    yield from _layer("timeline", [_stage(it) for it in turn["timeline"]])


def _layer(name: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield from ("", name)
        yield from (f"  {line}" for line in texts)


def _request(it: Mapping[str, Any], money: Callable[[float], str]) -> Iterator[str]:
    took = "" if it["seconds"] is None else f" in {it['seconds']:.2f} s"
    held = f"{it['history']['turns']} earlier turns, " if it["history"]["turns"] else ""
    yield f"{it['round']}. {it['provider']}/{it['model']}: {it['state']}{took}; {held}{len(it['rows'])} messages of its own"
    yield from (f"   attempt failed: {one['error']} {short(one['words'])}" for one in it["retries"])
    if answer := it["response"]:
        tokens = answer["tokens"]
        read = tokens["input"] + tokens["cacheRead"] + tokens["cacheWrite"]
        cost = "" if answer["cost"] is None else f", cost {money(answer['cost'])}"
        how = f"{answer['stopReason']} {answer['error']}".strip()
        yield f"   {how}; {read:,} tokens in, {tokens['output']:,} out{cost}"


def _call(it: Mapping[str, Any]) -> Iterator[str]:
    took = "" if it["seconds"] is None else f" in {it['seconds']:.2f} s"
    cut = f", cut from {it['chars']:,} characters" if it["cut"] else ""
    yield f"{it['tool']} {short(json.dumps(it['arguments'], ensure_ascii=False))}"
    yield f"   {it['state']}{took}{cut}: {short(it['result'])}"
    if it["approval"]:
        yield f"   approval {it['approval']['id']}: {it['approval']['state']} {it['approval']['by']}".rstrip()


def _part(it: Mapping[str, Any]) -> str:
    return f"{it['state']} {it['platformId'] or ''} ({it['attempts']} attempts failed): {short(it['text'])}"


def _stage(it: Mapping[str, Any]) -> str:
    return f"{it['begin']:8.3f} s  {it['seconds']:8.3f} s  {it['label']}{' ✗' if it['failed'] else ''}"


def _value(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value or "none")

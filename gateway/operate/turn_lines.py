"""One turn as lines for a terminal: each layer with its most important facts; the JSON has every text whole."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.observe.secrets import REDACTED
from gateway.operate.sessions import short

_MISSING = {
    "running": "it has not ended yet",
    "not-kept": "its layers were not kept; this is what the journal has",
    "resumed": "a process ended while it worked on the turn: times and options of its requests are gone",
    "recalled": "its message was taken back",
    "pruned": "the inbox has forgotten its message",
}


def lines(turn: Mapping[str, Any], money: Callable[[float], str]) -> Iterator[str]:
    """The layers in the order in which the message passed them."""
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

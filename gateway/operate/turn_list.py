"""The list of turns, for the operator: each as its row, the journal's last one and the inbox tell it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import orjson

from channels.moment import iso
from gateway.config.root import Config
from gateway.operate.turn_layers import TurnList, TurnSummary, TurnTokens
from gateway.records.inbound import Inbound, inbound_of, is_readable
from gateway.records.sessions import person_of, session_parts
from gateway.store.layers import FILTERS, TURNS_MAX, DatabaseLayers, ListedTurn

PREVIEW_CHARS = 200
OPEN = ("waiting", "running")
"""Outcomes of turns that have none yet."""
AT_ONCE, SEARCHED_MAX = 500, 5_000
"""Turns that a search reads at once, and in all for one page."""


async def turn_list(layers: DatabaseLayers, *, before: int | None, only: Mapping[str, str], config: Config) -> TurnList:
    """The newest turns below `before` that are as `only` says: agent, channel, person (an id or a name), outcome, and
    words of the message, or of a name or title."""
    zone = config.server.zone
    exact, sought = {name: only[name] for name in FILTERS if only.get(name)}, _Sought.of(only)
    if sought.name:
        del exact["person"]
    unfinished = await _unfinished(layers, exact, sought, zone) if before is None else []
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
        turns=(*unfinished, *turns),
        before=before if more else None,
        keep_days=config.console.keep_days,
        currency=config.currency,
        searched=searched if sought else 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sought:
    """A search that no index knows: words, and a person's name."""

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


def summary(turn: ListedTurn, zone: tzinfo) -> TurnSummary:
    place, final = session_parts(turn.sid), orjson.loads(turn.final) if turn.final else {}
    inbound = read_inbound(turn.body or "")
    ended = turn.at if turn.outcome else None
    accepted = turn.accepted or ended or 0.0
    tokens = final.get("tokens") or {}
    return TurnSummary(
        id=turn.turn,
        session=turn.sid,
        agent=place.agent,
        channel=place.channel,
        account=place.account,
        chat=place.chat,
        thread=place.thread,
        person=turn.person or (person_of(inbound.context) if inbound and inbound.context.sender.id else ""),
        name=turn.name or (inbound.context.sender.name or "" if inbound else ""),
        title=turn.title or (inbound.context.chat.title or "" if inbound else ""),
        text=inbound.context.text[:PREVIEW_CHARS] if inbound else "",
        outcome=turn.outcome or ("running" if turn.begun else "waiting"),
        reason=final.get("reason", ""),
        at=iso(accepted, zone),
        seconds=None if ended is None or turn.accepted is None else round(ended - turn.accepted, 3),
        model=next(reversed(final.get("models") or {"": None})),
        requests=final.get("requests", 0),
        calls=len(orjson.loads(turn.content).get("calls", ())),
        tokens=TurnTokens(**tokens),
        cost=final.get("cost"),
    )


def read_inbound(body: str) -> Inbound | None:
    return inbound_of(body) if body and is_readable(body) else None
